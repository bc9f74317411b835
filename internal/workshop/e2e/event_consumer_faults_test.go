//go:build faults

//part:packaging

package e2e_test

import (
	"bytes"
	"net/http"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"seckill/internal/workshop/check"
	"seckill/internal/workshop/testserver"
)

// The example of a consumer hears of everything that happens to an order, in its order. One that was killed goes on where
// it was, and one that is sent an event twice works on it once.
func TestTheExampleConsumer(t *testing.T) {
	t.Parallel()
	program := filepath.Join(t.TempDir(), "consumer")
	if out, err := exec.CommandContext(t.Context(), "go", "build", "-o", program, "seckill/deployments/consumer").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	url, stream := testserver.SharedNATS(t), newStream()
	a := start(t, onServers(t).with(settings{"SECKILL_EVENTS": stream, "SECKILL_NATS_URL": url}))
	voucher := a.onSale(t, 1)
	run := func() (told func() []string, stop func(syscall.Signal)) {
		said := &check.Log{}
		cmd := exec.CommandContext(t.Context(), program, "-url", url, "-stream", stream, "-name", "mail", "-filter", "seckill.*.events.order.>")
		cmd.Stdout, cmd.Stderr = said, said
		check.Must(t, cmd.Start())
		return func() (lines []string) {
				for line := range strings.Lines(said.String()) {
					fields := strings.Fields(line)
					lines = append(lines, strings.Join(fields[:min(2, len(fields))], " "))
				}
				return lines
			}, func(signal syscall.Signal) {
				check.Must(t, cmd.Process.Signal(signal))
				if err := cmd.Wait(); (err == nil) != (signal == syscall.SIGTERM) {
					t.Errorf("it ended with %v after %v\n%s", err, signal, said)
				}
			}
	}

	told, stop := run()
	order := a.buys(t, voucher.ID, a.user(1))
	check.Patiently(t, "it has heard of the order", func() bool { return len(told()) > 0 })
	same(t, "it has heard", told(), []string{"order.unpaid " + order.ID})
	conn := check.Value(nats.Connect(url))(t)
	defer conn.Close()
	js := check.Value(jetstream.New(conn))(t)
	source := check.Value(js.Stream(t.Context(), stream))(t)
	acknowledged := func(count uint64) {
		t.Helper()
		check.Patiently(t, "the server knows", func() bool {
			consumer := check.Value(source.Consumer(t.Context(), "mail"))(t)
			return consumer.CachedInfo().AckFloor.Consumer >= count
		})
	}
	acknowledged(1)
	stop(syscall.SIGKILL)

	check.Equal(t, "cancel", a.asks(t, order, http.MethodPost, "/cancel").Status, http.StatusOK)
	again := a.buys(t, voucher.ID, a.user(1))
	told, stop = run()
	want := []string{"order.canceled " + order.ID, "order.unpaid " + again.ID}
	check.Patiently(t, "it has heard of the rest", func() bool { return len(told()) >= len(want) })
	same(t, "after its death it has heard", told(), want)

	// The same event in another message, as after the server's window of de-duplication.
	last := check.Value(source.GetLastMsgForSubject(t.Context(), "seckill.*.events.order.unpaid"))(t)
	repeated := &nats.Msg{Subject: last.Subject, Data: bytes.Clone(last.Data)}
	check.Value(js.PublishMsg(t.Context(), repeated))(t)
	acknowledged(4)
	same(t, "of a repeated event it has heard", told(), want)
	stop(syscall.SIGTERM)
}
