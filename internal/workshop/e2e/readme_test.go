package e2e_test

import (
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"

	"seckill/internal/workshop/check"
	"seckill/internal/workshop/testserver"
)

// The sale with curl does what README.md says, line by line, in both languages, against an embedded server.
func TestTheSaleOfTheREADME(t *testing.T) {
	t.Parallel()
	for _, page := range []string{"README.md", "README.zh-CN.md"} {
		t.Run(page, func(t *testing.T) {
			t.Parallel()
			text := string(check.Value(os.ReadFile("../../../" + page))(t))
			commands := regexp.MustCompile("(?s)\n```sh\n(API=.*?)```").FindStringSubmatch(text)
			if commands == nil {
				t.Fatal("there is no sale")
			}
			server := launch(t, embeddedSettings(t))
			script := strings.NewReplacer("http://127.0.0.1:8080", server.URL, "go run .", testserver.Program(t), "curl -s", "curl -sS -w '\\n%{http_code}\\n'").
				Replace(commands[1])
			cmd := exec.CommandContext(t.Context(), "bash", "-euo", "pipefail", "-c", script)
			cmd.Env = append(os.Environ(), server.settings.environ()...)
			out, err := cmd.CombinedOutput()
			if err != nil {
				t.Fatalf("%v\n%s", err, out)
			}
			codes := regexp.MustCompile(`(?m)^\d{3}$`).FindAllString(string(out), -1)
			// Again, pay, the order, the audit, the stock, cancel.
			check.Equal(t, "the answers", strings.Join(codes, " "), "409 202 200 200 200 200")
			for _, want := range []string{"ALREADY_ORDERED", "payment_url", `"balanced":true`, `"stock":105`, `"status":"canceled"`} {
				if !strings.Contains(string(out), want) {
					t.Errorf("no answer has %s:\n%s", want, out)
				}
			}
		})
	}
}
