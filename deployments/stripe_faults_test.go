//go:build faults

//part:packaging

package deployments

import (
	"os"
	"os/exec"
	"testing"
)

// The adapter is a module of its own, and its tests run here, against Stripe's own mock.
func TestTheAdapterForStripe(t *testing.T) {
	t.Parallel()
	cmd := exec.CommandContext(t.Context(), "go", "test", ".")
	cmd.Dir = "stripe"
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}
