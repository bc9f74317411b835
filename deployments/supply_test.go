package deployments

import (
	"debug/buildinfo"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"seckill/internal/workshop/check"
	"seckill/internal/workshop/testserver"
)

// What the program is made of, modules of Go and packages of npm, is what NOTICE says, so that no licence goes unnamed.
// "make notice" writes it.
func TestNoticeNamesEveryModule(t *testing.T) {
	t.Parallel()
	built, err := buildinfo.ReadFile(testserver.Program(t))
	check.Must(t, err)
	want := []string{"std " + strings.TrimPrefix(built.GoVersion, "go")}
	for _, module := range built.Deps {
		want = append(want, module.Path+" "+module.Version)
	}
	var lock struct {
		Packages map[string]struct {
			Version      string
			Dependencies map[string]string
		}
	}
	check.Must(t, json.Unmarshal([]byte(read(t, "tools/assets/package-lock.json")), &lock))
	for name := range lock.Packages[""].Dependencies { // what pages are made with
		want = append(want, name+" "+lock.Packages["node_modules/"+name].Version)
	}
	check.That(t, len(want) > 20, "the program has %d modules", len(want))
	have := regexp.MustCompile(`(?m)^\n(\S+ v?[0-9]\S+)\n  [A-Z]`).FindAllStringSubmatch(read(t, "../NOTICE"), -1)
	// An entry is a module, or a part of one that has a licence of its own. Another patch of Go has the same licence.
	of := func(entry, module string) bool {
		name, version, _ := strings.Cut(entry, " ")
		path, known, _ := strings.Cut(module, " ")
		return strings.HasPrefix(name+"/", path+"/") && (version == known || path == "std")
	}
	for _, module := range want {
		named := slices.ContainsFunc(have, func(entry []string) bool { return of(entry[1], module) })
		check.That(t, named, "NOTICE lacks %s: run make notice", module)
	}
	for _, entry := range have {
		needed := slices.ContainsFunc(want, func(module string) bool { return of(entry[1], module) })
		check.That(t, needed, "NOTICE names %s, which is not in the program: run make notice", entry[1])
	}
	if !strings.Contains(read(t, "../LICENSE"), "The seckill authors") {
		t.Error("LICENSE names no holder")
	}
}

// script copies files into a directory of their own, with a program of that name that says what a test wants.
func script(t *testing.T, name, says string, files ...string) (dir string, environ []string) {
	t.Helper()
	dir = t.TempDir()
	for _, file := range files {
		check.Must(t, os.WriteFile(filepath.Join(dir, filepath.Base(file)), []byte(read(t, file)), 0o700))
	}
	programs := t.TempDir()
	check.Must(t, os.WriteFile(filepath.Join(programs, name), []byte("#!/bin/sh\n"+says+"\n"), 0o700))
	return dir, append(os.Environ(), "PATH="+programs+":"+os.Getenv("PATH"))
}

// Every image gets the digest that its registry has for it, twice the same; without one nothing changes.
func TestImagesArePinned(t *testing.T) {
	t.Parallel()
	const digest = `printf 'sha256:%s' "$(printf '%s' "$4" | sha256sum | cut -c1-64)"`
	dir, environ := script(t, "docker", digest, "pin", "Dockerfile", "docker-compose.yml")
	pinned := func() string {
		cmd := exec.CommandContext(t.Context(), "bash", filepath.Join(dir, "pin"))
		cmd.Env = environ
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("pin: %v\n%s", err, out)
		}
		return read(t, filepath.Join(dir, "Dockerfile")) + read(t, filepath.Join(dir, "docker-compose.yml"))
	}
	first := pinned()
	if again := pinned(); again != first {
		t.Errorf("a second time it changes what it had pinned:\n%s", again)
	}
	bases := regexp.MustCompile(`(?m)^\s*(?:FROM|image:) +(\S+)`).FindAllStringSubmatch(first, -1)
	for _, base := range bases {
		if image := base[1]; !strings.HasPrefix(image, "seckill") && !regexp.MustCompile(`^\S+:[^@\s]+@sha256:[0-9a-f]{64}$`).MatchString(image) {
			t.Errorf("%s is not pinned", image)
		}
	}
	if len(bases) < 8 || !strings.Contains(first, " AS build\n") {
		t.Errorf("%d images were found, or their names were lost:\n%s", len(bases), first)
	}

	dir, environ = script(t, "docker", "echo no such image", "pin", "Dockerfile", "docker-compose.yml")
	cmd := exec.CommandContext(t.Context(), "bash", filepath.Join(dir, "pin"))
	cmd.Env = environ
	if out, err := cmd.CombinedOutput(); err == nil || read(t, filepath.Join(dir, "Dockerfile")) != read(t, "Dockerfile") {
		t.Errorf("without a digest it went on: %v\n%s", err, out)
	}
}

// What was not checked is not said to be free of faults.
func TestVulnerabilitiesAreNotOverlooked(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		govulncheck, offline string
		code                 int
		says                 string
	}{
		"none":                  {"echo No vulnerabilities found.", "", 0, "No vulnerabilities"},
		"some":                  {"echo Vulnerability; exit 3", "skip", 3, "Vulnerability"},
		"no database":           {"echo govulncheck: fetching vulnerabilities: 403 Forbidden >&2; exit 1", "", 2, "NOTHING WAS CHECKED"},
		"no database, accepted": {"echo govulncheck: fetching vulnerabilities: 403 Forbidden >&2; exit 1", "skip", 0, "NOTHING WAS CHECKED"},
		"it does not compile":   {"echo undefined: x >&2; exit 1", "skip", 1, "undefined"},
	} {
		dir, environ := script(t, "govulncheck", test.govulncheck, "tools/vuln")
		cmd := exec.CommandContext(t.Context(), "bash", filepath.Join(dir, "vuln"), "govulncheck", "./...")
		cmd.Env = append(environ, "VULN_OFFLINE="+test.offline)
		out, _ := cmd.CombinedOutput() // the exit code tells
		if got := cmd.ProcessState.ExitCode(); got != test.code || !strings.Contains(string(out), test.says) {
			t.Errorf("%s: exit %d, want %d: %s", name, got, test.code, out)
		}
	}
}

// The image's program knows its commit, and calls itself changed only when it is: what .dockerignore leaves out of the
// sources does not count.
func TestTheImageKnowsItsVersion(t *testing.T) {
	t.Parallel()
	if ignored := read(t, "../.dockerignore"); regexp.MustCompile(`(?m)^\.git$`).MatchString(ignored) {
		t.Error(".dockerignore leaves out the history: the program cannot know its commit")
	}
	hidden := regexp.MustCompile(`(?m)^RUN (if \[ -d \.git.*)$`).FindStringSubmatch(read(t, "Dockerfile"))
	if hidden == nil {
		t.Fatal("the Dockerfile does not hide what is left out")
	}
	dir := t.TempDir()
	run := func(script string) string {
		t.Helper()
		cmd := exec.CommandContext(t.Context(), "bash", "-euc", script)
		cmd.Dir = dir
		cmd.Env = append(os.Environ(), "GIT_CONFIG_GLOBAL=/dev/null")
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("%s: %v\n%s", script, err, out)
		}
		return string(out)
	}
	run(hidden[1]) // a directory without a history stays as it is
	run(`git init -q && printf 'module shop\n' >go.mod && printf 'package main\n\nfunc main() {}\n' >main.go && touch README.md
		git add . && git -c user.name=a -c user.email=a@b commit -qm begin && git tag v1.2.0 && rm README.md`)
	run(hidden[1])
	const built = `go build -trimpath -buildvcs=auto -o shop . && go version -m shop && rm shop`
	if out := run(built); !strings.Contains(out, "vcs.modified=false") || !strings.Contains(out, "\tv1.2.0\t") {
		t.Errorf("what is left out makes it a changed one: %s", out)
	}
	if out := run("echo '// changed' >>main.go && " + built); !strings.Contains(out, "vcs.modified=true") {
		t.Errorf("a change is not told: %s", out)
	}
}
