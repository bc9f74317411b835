package servicetest

import (
	"testing"

	"seckill/model"
)

// WantCode checks that an error has a code.
func WantCode(t *testing.T, err error, want model.Code) {
	t.Helper()
	if err == nil || model.CodeOf(err) != want {
		t.Errorf("error %v, want %s", err, want)
	}
}
