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

// Hears checks what somebody is answered: an error with a code, or none where the code is empty.
func Hears(t *testing.T, who string, err error, want model.Code) {
	t.Helper()
	if (err == nil) != (want == "") || err != nil && model.CodeOf(err) != want {
		t.Errorf("%s: error %v, want %q", who, err, want)
	}
}
