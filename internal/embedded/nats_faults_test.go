//go:build faults

//part:queue

package embedded_test

import (
	"context"
	"testing"

	"github.com/nats-io/nats.go/jetstream"

	"seckill/internal/embedded"
	"seckill/internal/workshop/check"
	"seckill/internal/workshop/testserver"
)

// The server itself writes nothing more after one write that failed.
func TestAFullDiskIsNotForEver(t *testing.T) {
	t.Parallel()
	disk := testserver.SmallDisk(t, "16m")
	log := &check.Log{}
	server := check.Value(embedded.StartNATS(disk.Dir(), log.Logger()))(t)
	t.Cleanup(server.Close)
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() { defer close(ended); server.KeepOpen(ctx) }()
	t.Cleanup(func() { stop(); <-ended })
	_, js := jetStream(t, server)
	check.Must(t, check.ErrorOf(js.CreateStream(t.Context(),
		jetstream.StreamConfig{Name: "S", Subjects: []string{"s"}})))
	stored := 0
	store := func() error {
		_, err := js.Publish(t.Context(), "s", make([]byte, 10_000))
		if err == nil {
			stored++
		}
		return err
	}
	for range 3 {
		check.Must(t, store())
		disk.Fill()
		check.Eventually(t, "the store refuses", func() bool { return store() != nil })
		check.Eventually(t, "the store says so", func() bool {
			return server.Check(t.Context()) != nil && log.Has("cannot be opened again yet", "no space left")
		})
		disk.Free()
		check.Eventually(t, "it stores again", func() bool { return store() == nil })
		check.Must(t, server.Check(t.Context()))
	}
	stream := check.Value(js.Stream(t.Context(), "S"))(t)
	check.That(t, int(stream.CachedInfo().State.Msgs) >= stored, "%d messages were acknowledged, there are %d", stored,
		stream.CachedInfo().State.Msgs)
}
