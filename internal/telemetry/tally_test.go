package telemetry_test

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"seckill/internal/telemetry"
	"seckill/internal/workshop/check"
	"seckill/model"
)

// Vouchers in demand are counted and reported after a change. Those with invented ids are not, and all are bounded.
func TestTallies(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var tallies telemetry.Tallies
		tallies.Placed("v", "OK", 300*time.Microsecond)
		tallies.Placed("v", "OK", time.Minute)
		tallies.Placed("v", string(model.CodeSoldOut), time.Microsecond)
		tallies.Placed("made up", string(model.CodeNotFound), time.Microsecond)
		told := tallies.Changed()
		check.Equal(t, "vouchers", len(told), 1)
		check.Equal(t, "attempts", fmt.Sprint(told["v"].Placed), "map[OK:2 SOLD_OUT:1]")
		check.Equal(t, "how long they took", fmt.Sprint(told["v"].Took), "[1 0 1 0 0 0 0 0 0 0 0 0 0 0 0 1]")
		check.Equal(t, "what has changed since", len(tallies.Changed()), 0)
		for n := range 200 {
			time.Sleep(time.Millisecond) // of the bubble
			tallies.Placed(fmt.Sprint("v", n), "OK", time.Millisecond)
		}
		if told = tallies.Changed(); len(told) > 100 || told["v199"].Placed["OK"] != 1 {
			t.Errorf("%d vouchers are counted separately", len(told))
		}
		// What is to be stored is all that was ever counted, of those too that others have taken the place of.
		check.Equal(t, "vouchers to be stored", len(tallies.Unstored()), 201)
		check.Equal(t, "those that have grown since", len(tallies.Unstored()), 0)
		tallies.Placed("v", "OK", time.Millisecond)
		unstored := tallies.Unstored()
		check.Equal(t, "attempts ever", fmt.Sprint(len(unstored), *unstored["v"].ByCode["SOLD_OUT"]), "1 {2000-01-01 00:00:00 +0000 UTC [1 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0] [0 1]}")
		check.Equal(t, "the steps of the others", fmt.Sprint(unstored["v"].ByCode["OK"].Steps), fmt.Sprint([]uint32{1: 2, 21: 1}))
		check.Equal(t, "since the first", unstored["v"].Latest.Sub(unstored["v"].First), 200*time.Millisecond)
		var nobody *telemetry.Tallies
		nobody.Placed("v", "OK", time.Second)
	})
}
