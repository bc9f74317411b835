package command

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"seckill/internal/workshop/check"
)

// The examples of the page are what the command says.
func TestCapacityPage(t *testing.T) {
	t.Parallel()
	page := string(check.Value(os.ReadFile("../../deployments/capacity.md"))(t))
	examples := regexp.MustCompile("(?s)```sh\nseckill (capacity .*?)\n```\n\n```text\n(.*?)```").FindAllStringSubmatch(page, -1)
	if len(examples) == 0 {
		t.Fatal("the page has no example")
	}
	for _, example := range examples {
		got := call(t, nil, "", strings.Fields(example[1])...)
		if got.code != exitOK || got.stdout != example[2] {
			t.Errorf("seckill %s says, with exit code %d:\n%s%s", example[1], got.code, got.stdout, got.stderr)
		}
	}
}

func TestCapacityIsMisused(t *testing.T) {
	t.Parallel()
	for _, args := range []string{"", "--buyers 0", "--buyers 5 --seconds 0", "--buyers 5 --seconds NaN", "--buyers 5 --vouchers 0", "--buyers 5 --units -1", "--buyers 5 --mode both", "--buyers 5 --load 2", "--buyers 5 more"} {
		got := call(t, nil, "", strings.Fields("capacity "+args)...)
		if got.code != exitUsage || got.stdout != "" || got.stderr == "" {
			t.Errorf("%q: exit %d, %q, %q", args, got.code, got.stdout, got.stderr)
		}
	}
}
