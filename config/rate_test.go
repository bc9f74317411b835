package config_test

import (
	"testing"

	"seckill/config"
	"seckill/model"
)

// TestRatesAreReadAlike: a rate that an administrator sends means what it means as a setting.
func TestRatesAreReadAlike(t *testing.T) {
	t.Parallel()
	for _, text := range []string{
		"0", "0/s", "1/s", "20/s", "100/m", "7/h", "1000000000/s", "1000000001/s", "20", "/s", "20/", "20/d", "-1/s", "+1/s", "1e3/s",
		"99999999999999999999/s", "off", " 1/s", "1 /s", "1/S", "1/s/s",
	} {
		settings, settingErr := config.Load([]string{"SECKILL_RATE_USER=" + text})
		rate, err := model.ParseRate(text)
		if (err == nil) != (settingErr == nil) || model.Rate(settings.RateUser) != rate {
			t.Errorf("%q is %v (%v) as a setting, and %v (%v)", text, settings.RateUser, settingErr, rate, err)
		}
		if again, err := model.ParseRate(rate.String()); err != nil || again != rate {
			t.Errorf("%q is written as %q", text, rate)
		}
	}
}
