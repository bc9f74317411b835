package command

import (
	"cmp"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"seckill/internal/workshop/check"
)

// shownCommand is a call of the program in a page: at the beginning of a line or of a piece of code, in $(…), or behind
// what brings it into a container.
var shownCommand = regexp.MustCompile("(?m)(?:^|`|\\$\\(|-- |exec (?:-\\w+ )?[\\w-]+ )(?:[A-Z_]+=\\S+ )*(?:go run \\.|seckill)((?: +(?:\\[?-{0,2}[\\w-]+|SEQ)(?:(?:\\\\?\\||=)[\\w.:/-]+)*\\]*)+)")

// shownCommands are the calls in a page, each choice of alternatives by itself.
func shownCommands(page string) [][]string {
	var calls [][]string
	for _, match := range shownCommand.FindAllStringSubmatch(page, -1) {
		words := strings.Fields(strings.NewReplacer(`\|`, "|", "[", "", "]", "").Replace(match[1]))
		alternatives := [][]string{nil}
		for _, word := range words {
			var longer [][]string
			for choice := range strings.SplitSeq(word, "|") {
				for _, call := range alternatives {
					longer = append(longer, append(slices.Clone(call), choice))
				}
			}
			alternatives = longer
		}
		calls = append(calls, alternatives...)
	}
	return calls
}

// parses tells what is wrong with a call, without running it.
func parses(call []string) error {
	root := newRoot(Process{Stdin: strings.NewReader(""), Stdout: io.Discard, Stderr: io.Discard})
	cmd, rest, err := root.Find(call)
	if err != nil {
		return err
	}
	for i, word := range rest {
		if word == "SEQ" {
			rest[i] = "1"
		}
	}
	if err := cmd.ParseFlags(rest); err != nil {
		return err
	}
	if args := cmd.Flags().Args(); len(args) > 0 {
		return cmd.ValidateArgs(args)
	}
	return nil
}

// Every call of the program that a page shows is one that the program understands.
func TestPagesShowCommandsThatAreThere(t *testing.T) {
	t.Parallel()
	root := check.Value(filepath.Abs("../.."))(t)
	calls := map[string]int{}
	check.Must(t, filepath.WalkDir(root, func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() && (entry.Name() == ".git" || entry.Name() == "bin" || entry.Name() == "node_modules") {
			return cmp.Or(err, fs.SkipDir)
		}
		if filepath.Ext(name) != ".md" {
			return nil
		}
		for _, call := range shownCommands(string(check.Value(os.ReadFile(name))(t))) {
			calls[call[0]]++
			if err := parses(call); err != nil {
				t.Errorf("%s shows seckill %s: %v", strings.TrimPrefix(name, root), strings.Join(call, " "), err)
			}
		}
		return nil
	}))
	for _, command := range newRoot(Process{}).Commands() {
		if !command.Hidden && calls[command.Name()] == 0 && command.Name() != "help" {
			t.Errorf("no page shows seckill %s", command.Name())
		}
	}
}

// The negative control of the test above.
func TestWrongCommandsOfPagesAreFound(t *testing.T) {
	t.Parallel()
	for page, want := range map[string]int{
		"`seckill token --users 1`, `seckill mode [sync\\|async]`, `seckill deadletters show SEQ`": 0,
		"A seckill sells, and `seckill` serves":                                                    0,
		"X=$(go run . token --user 1)":                                                             1,
		"A=b go run . serv":                                                                        1,
		"`seckill admin create\\|remove`":                                                          1,
		"docker compose exec seckill-1 seckill mod":                                                1,
		"`seckill mode both`":                                                                      1,
	} {
		wrong := 0
		for _, call := range shownCommands(page) {
			if parses(call) != nil {
				wrong++
			}
		}
		check.Equal(t, "wrong calls in "+page, wrong, want)
	}
}
