//go:build faults

//part:weather

package e2e_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"

	"seckill/internal/failpoint"
	"seckill/internal/workshop/check"
	"seckill/internal/workshop/testserver"
	"seckill/model"
)

// Everybody moves the same orders at once: buyers pay and cancel, money comes too late, administrators redeem and
// refund, time passes. Two processes serve them, in either order mode; each is killed in the middle, by its process id,
// and then dies once more, by itself at a step of these roads. Calls of the provider lose their answers, and its
// webhooks come twice. In the end each order has one legal history, and the units, the money, the codes and the events
// add up.
//
//nolint:tparallel // rounds come one after the other: each is as much as a machine can do
func TestLivesAtOnce(t *testing.T) {
	t.Parallel()
	chance, modes := check.Seeded(t), []model.OrderMode{model.ModeSync, model.ModeAsync}
	first := chance.IntN(len(modes))
	for round := range check.Count(t, "ROUNDS", 2, 2) {
		mode := modes[(first+round)%len(modes)]
		t.Run(fmt.Sprintf("%s %d", mode, round+1), func(t *testing.T) {
			x, s := openTill(t), lifeSettings(t, mode)
			s = s.with(x.settings())
			var mortals []*process
			for range 2 {
				p := prepare(t, testserver.Program(t, "failpoint"), s)
				p.serves(t)
				mortals = append(mortals, p)
			}
			l := newLives(t, x, s, mortals[0].app, mortals[1].app)
			l.race(t, chance, check.Count(t, "ORDERS", 300, 300), 200, func(thirds <-chan struct{}) (heal func()) {
				return l.kill(t, mortals, chance, thirds)
			})
		})
	}
}

// kill kills one process after the other by its process id, and has it kill itself at a step of later lives once it is
// there again. The function it returns starts those that have never come to their step without one, and waits for all.
func (l *lives) kill(t *testing.T, mortals []*process, chance *rand.Rand, thirds <-chan struct{}) (heal func()) {
	t.Helper()
	steps := slices.Concat(paySteps(), refundSteps(), []failpoint.Step{
		failpoint.BeforeCancel, failpoint.AfterCancel, failpoint.BeforeExpire, failpoint.AfterExpire, failpoint.AfterEventsPublished,
	})
	if l.settings["SECKILL_ORDER_MODE"] == string(model.ModeAsync) {
		steps = append(steps, failpoint.AfterReturn, failpoint.AfterReturnNoted, failpoint.BeforeRelease, failpoint.AfterRelease,
			failpoint.AfterReleaseNoted, failpoint.BeforeSettle, failpoint.AfterSettle, failpoint.BeforeAck, failpoint.AfterAck)
	}
	enough := make(chan struct{})
	var dying sync.WaitGroup
	for _, p := range mortals {
		step := steps[chance.IntN(len(steps))]
		<-thirds
		p.kill()
		p.start(t, settings{"SECKILL_FAILPOINT": string(step)})
		exited := p.exited
		dying.Go(func() {
			select {
			case <-exited:
				t.Logf("a process was killed, and then died at %s", step)
			case <-enough:
				t.Logf("a process was killed, and then never at %s", step)
				p.kill()
			}
			p.start(t)
		})
	}
	return func() {
		close(enough)
		dying.Wait()
		for _, p := range mortals {
			p.awaitReady(t)
		}
	}
}
