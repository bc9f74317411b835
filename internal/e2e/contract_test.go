package e2e_test

import "testing"

// everywhere runs a test of the contract on the real servers and on the
// embedded ones: clients are promised the same by both.
func everywhere(t *testing.T, more settings, test func(t *testing.T, a *app)) {
	t.Helper()
	for name, deployment := range map[string]func(*testing.T) settings{"servers": onServers, "embedded": embeddedSettings} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, start(t, deployment(t).with(more)))
		})
	}
}
