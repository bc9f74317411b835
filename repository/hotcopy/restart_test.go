package hotcopy_test

import (
	"testing"

	"seckill/internal/workshop/check"
	"seckill/model"
)

// TestWhatWasLoadedBeforeARestartDoesNotOpen: the server that restarted has all that was loaded, and maybe not the latest
// of what it had said. Nobody sells from it.
func TestWhatWasLoadedBeforeARestartDoesNotOpen(t *testing.T) {
	t.Parallel()
	s, server := ownSale(t, "--appendfsync", "always")
	live := []model.Order{s.buy("bob").Order}
	check.Must(t, s.load(2, 1, live, nil))
	loaded := s.client.HLen(t.Context(), s.key("buyers")).Val()
	server.Kill()
	server.Start()
	check.Equal(t, "buyers that the append-only file has", s.client.HLen(t.Context(), s.key("buyers")).Val(), loaded)
	check.Is(t, "opened", s.copies.Open(t.Context(), s.record(2, 1), s.v, 0), model.ErrSuperseded)
	check.Is(t, "sold", s.admit(s.admission("eve")).Err, model.ErrCopyClosed)
	if state := s.client.HGet(t.Context(), s.head(), "state").Val(); state == string(model.CopyOpen) {
		t.Error("the head says open")
	}
}
