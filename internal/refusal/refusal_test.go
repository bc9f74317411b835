package refusal_test

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"seckill/internal/refusal"
	"seckill/internal/workshop/check"
)

func TestLatest(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := refusal.New(0)
		said := 0
		refuse := func(err error) int {
			l.Note(err, func() { said++ })
			return said
		}
		full := errors.New("no space left on device")
		check.Must(t, l.Err())
		check.Equal(t, "the first one is said", refuse(full), 1)
		time.Sleep(5*time.Second - time.Nanosecond)
		check.Is(t, "it counts for five seconds", l.Err(), full)
		time.Sleep(time.Nanosecond)
		check.Must(t, l.Err())
		check.Equal(t, "the next one is not said", refuse(full), 1)
		check.Is(t, "it counts", l.Err(), full)
		l.Forget()
		check.Must(t, l.Err())
		time.Sleep(time.Minute - 5*time.Second)
		check.Equal(t, "one a minute is said", refuse(full), 2)
	})
}
