// Package version tells which build of the program runs.
package version

import (
	"cmp"
	"runtime/debug"
)

// Build is what the Go toolchain has written into the program.
type Build struct {
	Version string `json:"version" example:"v1.2.0" doc:"The tag, or a pseudo-version of the commit; +dirty when files were changed, (devel) when it was built outside a repository."`
	Commit  string `json:"commit" example:"35879b0c1f6e0d1b4b0f0a3a3c0a52b1c3d4e5f6" doc:"Of the source, or unknown."`
	Go      string `json:"go" example:"go1.26.8" doc:"Of the toolchain."`
}

// Read asks the program itself.
func Read() Build {
	build, ok := debug.ReadBuildInfo()
	if !ok {
		build = &debug.BuildInfo{}
	}
	return of(build)
}

func of(build *debug.BuildInfo) Build {
	info := Build{
		Version: cmp.Or(build.Main.Version, "(devel)"), Commit: "unknown",
		Go: cmp.Or(build.GoVersion, "unknown"),
	}
	for _, setting := range build.Settings {
		if setting.Key == "vcs.revision" {
			info.Commit = setting.Value
		}
	}
	return info
}

// String is all of it in one line.
func (i Build) String() string { return i.Version + " (commit " + i.Commit + ", " + i.Go + ")" }
