package model_test

import (
	"testing"

	"seckill/model"
)

// A rate is read as it is written. Settings and administrators' changes are read by the same function.
func TestRates(t *testing.T) {
	t.Parallel()
	for text, written := range map[string]string{
		"0": "0", "0/s": "0", "1/s": "1/s", "20/s": "20/s", "100/m": "100/m", "7/h": "7/h", "1000000000/s": "1000000000/s",
		"1000000001/s": "", "20": "", "/s": "", "20/": "", "20/d": "", "-1/s": "", "+1/s": "", "1e3/s": "",
		"99999999999999999999/s": "", "off": "", " 1/s": "", "1 /s": "", "1/S": "", "1/s/s": "",
	} {
		rate, err := model.ParseRate(text)
		if (err == nil) != (written != "") || err == nil && rate.String() != written {
			t.Errorf("%q is %v, %v; want %q", text, rate, err, written)
		}
	}
}
