package lock_test

import (
	"os"
	"testing"

	"go.uber.org/goleak"

	"seckill/internal/testserver"
)

func TestMain(m *testing.M) {
	if os.Getenv(roleVariable) == "holder" {
		os.Exit(holder())
	}
	// Toxiproxy's own: a link that is taken down with data in it stays.
	testserver.Main(m,
		goleak.IgnoreAnyFunction("github.com/Shopify/toxiproxy/v2/toxics.(*ToxicStub).Run"),
		goleak.IgnoreAnyFunction("github.com/Shopify/toxiproxy/v2.(*ToxicLink).read"),
		goleak.IgnoreAnyFunction("github.com/Shopify/toxiproxy/v2.(*ToxicLink).write"),
	)
}
