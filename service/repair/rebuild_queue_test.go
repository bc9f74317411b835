package repair

import (
	"errors"
	"testing"

	"seckill/internal/workshop/check"
	"seckill/model"
)

// A rebuild waits for the queue. Without one no sale is closed, because it could not be opened again.
func TestNothingIsClosedWithoutTheQueue(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	s.fail("queue.backlog", errors.New("no responders"))
	if err := s.Rebuilder.Do(t.Context(), "v1", model.AnyEpoch); err == nil {
		t.Error("it was rebuilt")
	}
	check.Equal(t, "the copy", s.hot().State(), model.CopyOpen)
	check.Equal(t, "its epoch", s.hot().Epoch(), 1)
	check.Equal(t, "the epoch of the database", s.record.Epoch, 1)
	check.Equal(t, "copies that were closed", s.count("hot.close"), 0)
}
