package version

import (
	"runtime"
	"runtime/debug"
	"testing"

	"seckill/internal/workshop/check"
)

func TestVersion(t *testing.T) {
	t.Parallel()
	tagged := &debug.BuildInfo{
		GoVersion: "go1.26.8", Main: debug.Module{Path: "seckill", Version: "v1.2.0+dirty"},
		Settings: []debug.BuildSetting{
			{Key: "vcs", Value: "git"},
			{Key: "vcs.revision", Value: "35879b0"},
			{Key: "vcs.modified", Value: "true"},
		},
	}
	check.Equal(t, "of a tag", of(tagged).String(), "v1.2.0+dirty (commit 35879b0, go1.26.8)")
	check.Equal(t, "of nothing", of(&debug.BuildInfo{}).String(), "(devel) (commit unknown, unknown)")
	check.Equal(t, "of this test", Read().Go, runtime.Version())
}
