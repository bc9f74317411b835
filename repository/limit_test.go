package repository_test

import (
	"testing"
	"time"

	"seckill/internal/workshop/check"
	"seckill/model"
	"seckill/repository"
)

// TestLimits: what was set stays, each by itself, and everything else is the settings'.
func TestLimits(t *testing.T) {
	t.Parallel()
	overDialects(t, func(t *testing.T, f *fixture) {
		limits := repository.NewLimits(f.db)
		settings := model.Limits{User: model.Rate{Events: 20, Per: time.Second}, Addr: model.Rate{Events: 1000, Per: time.Second}}
		holds := func(want model.Limits) {
			t.Helper()
			record := check.Value(limits.Read(t.Context()))(t)
			if got := record.Set.Of(settings); got != want || record.Deployment == "" {
				t.Errorf("%v of %q, want %v", got, record.Deployment, want)
			}
		}
		holds(settings)
		hourly, off := model.Rate{Events: 1_000_000_000, Per: time.Hour}, model.Rate{}
		for _, step := range []struct {
			patch model.LimitsPatch
			want  model.Limits
		}{
			{model.LimitsPatch{User: &hourly}, model.Limits{User: hourly, Addr: settings.Addr}},
			{model.LimitsPatch{Addr: &off}, model.Limits{User: hourly}},
			{model.LimitsPatch{}, model.Limits{User: hourly}},
			{model.LimitsPatch{User: &off, Addr: &hourly}, model.Limits{Addr: hourly}},
		} {
			record := check.Value(limits.Change(t.Context(), step.patch))(t)
			if got := record.Set.Of(settings); got != step.want {
				t.Errorf("changed to %v, want %v", got, step.want)
			}
			holds(step.want)
		}
	})
}
