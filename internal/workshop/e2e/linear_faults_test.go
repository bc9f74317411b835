//go:build faults

//part:weather

package e2e_test

import (
	"context"
	"math/rand/v2"
	"net/http"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"

	"seckill/internal/api"
	"seckill/internal/workshop/check"
	"seckill/internal/workshop/overlay"
	"seckill/internal/workshop/testserver"
)

// stage is a deployment on which histories are recorded, and what may happen to it.
type stage struct {
	own       servers
	redis     []*testserver.Server // one, or the primaries of a Cluster
	wire      *wire                // in front of NATS
	processes []*process
	histories []*history
	patience  time.Duration // with which everything has to come to its end
	plain     bool          // nobody waits, begins early, or enters a draw
}

// trouble is something that happens to a stage.
type trouble struct {
	name   string
	happen func(t *testing.T, s *stage, chance *rand.Rand)
}

// kills is the trouble of a kill -9 and a new start.
func kills(name string, of func(s *stage, chance *rand.Rand) (kill, start func())) trouble {
	return trouble{name, func(_ *testing.T, s *stage, chance *rand.Rand) {
		kill, start := of(s, chance)
		kill()
		<-time.After(time.Duration(chance.Int64N(int64(300 * time.Millisecond))))
		start()
	}}
}

// forgetting is trouble in which Redis may lose what it was told.
func forgetting(loses trouble) trouble {
	return trouble{loses.name, func(t *testing.T, s *stage, chance *rand.Rand) {
		t.Helper()
		from := make([]time.Duration, len(s.histories))
		for n, h := range s.histories {
			from[n] = h.now()
		}
		loses.happen(t, s, chance)
		for n, h := range s.histories {
			h.forgotten(from[n])
		}
	}}
}

// flushes is the trouble of a Redis that is emptied.
func flushes() trouble {
	return forgetting(trouble{"FLUSHALL", func(t *testing.T, s *stage, chance *rand.Rand) {
		t.Helper()
		flush(t, s.redis[chance.IntN(len(s.redis))])
	}})
}

// administers is the trouble that administrators make: one of the vouchers gets a unit more or less, or is rebuilt.
func administers() trouble {
	return trouble{"an administrator", func(t *testing.T, s *stage, chance *rand.Rand) {
		t.Helper()
		a := s.processes[chance.IntN(len(s.processes))].app
		for _, h := range s.histories {
			switch path, what := a.URL+"/api/v1/admin/vouchers/"+h.voucher, chance.IntN(3); {
			case what == 0 && !h.rules.draws: // what is sold is drawn behind the history
				h.change(t, a, raises)
			case what == 1 && !h.rules.draws:
				h.change(t, a, lowers)
			default:
				_, _ = api.Send(t.Context(), a.Client, http.MethodPost, path+"/rebuild", a.Admin(t), nil) // whatever it says
			}
		}
	}}
}

// lostAcks loses what NATS answers for a time that is sometimes long enough for a publish to be given up.
func lostAcks(least, most time.Duration) trouble {
	return trouble{"lost acks", func(_ *testing.T, s *stage, chance *rand.Rand) {
		release := s.wire.hold(down)
		<-time.After(least + time.Duration(chance.Int64N(int64(most-least))))
		s.wire.cut()
		release()
	}}
}

// everything is what the product has to endure.
func everything(t *testing.T) []trouble {
	t.Helper()
	return []trouble{
		kills("instance", func(s *stage, chance *rand.Rand) (func(), func()) {
			p := s.processes[chance.IntN(len(s.processes))]
			return p.kill, func() { p.start(t) }
		}),
		// With appendfsync everysec, what Redis has acknowledged while a flush is under way is not even written: up to two
		// seconds of it are lost with the process.
		forgetting(kills("Redis", func(s *stage, chance *rand.Rand) (func(), func()) {
			redis := s.redis[chance.IntN(len(s.redis))]
			return redis.Kill, redis.Start
		})),
		kills("NATS", func(s *stage, _ *rand.Rand) (func(), func()) { return s.own.nats.Kill, s.own.nats.Start }),
		kills("MariaDB", func(s *stage, _ *rand.Rand) (func(), func()) { return s.own.database.Kill, s.own.database.Start }),
		flushes(), lostAcks(0, 6*time.Second), administers(),
	}
}

// openStage starts two instances of a program.
func openStage(t *testing.T, program string, patience time.Duration, more settings) *stage {
	t.Helper()
	own, s := asyncOnOwnServers(t)
	stage := &stage{own: own, redis: []*testserver.Server{own.redis}, patience: patience}
	return stage.open(t, program, s, more)
}

// openClusterStage is openStage on three Redis primaries.
func openClusterStage(t *testing.T, program string) *stage {
	t.Helper()
	own, s := asyncOnOwnServers(t)
	cluster := testserver.RedisCluster(t, false)
	stage := &stage{own: own, redis: cluster.Primaries, patience: check.Deadline}
	return stage.open(t, program, s, settings{"SECKILL_REDIS_URL": cluster.URL()})
}

func (s *stage) open(t *testing.T, program string, on, more settings) *stage {
	t.Helper()
	s.wire, on = throughNATS(t, on)
	for range 2 {
		p := prepare(t, program, on.with(more))
		p.serves(t)
		s.processes = append(s.processes, p)
	}
	return s
}

// record plays so many histories at once, each on a voucher of its own, while there is trouble, so many times at the
// most, and returns them.
func (s *stage) record(t *testing.T, chance *rand.Rand, troubles []trouble, most, atOnce int) []recorded {
	t.Helper()
	instances := []*app{s.processes[0].app, s.processes[1].app}
	s.histories = nil
	for n := range atOnce {
		s.histories = append(s.histories, newHistory(t, instances, s.rules(n)))
	}
	over := make(chan struct{})
	var clients sync.WaitGroup
	for _, h := range s.histories {
		seed := chance.Uint64()
		clients.Go(func() { h.record(t, seed) })
	}
	go func() {
		defer close(over)
		clients.Wait()
	}()
	for left := most; left > 0 && len(troubles) > 0; left-- {
		select {
		case <-over:
			left = 0
		case <-time.After(time.Duration(chance.Int64N(int64(1500 * time.Millisecond)))):
			next := troubles[chance.IntN(len(troubles))]
			t.Logf("%8v %s", s.histories[0].now().Round(time.Millisecond), next.name)
			next.happen(t, s, chance)
			for _, p := range s.processes {
				p.revive(t)
			}
		}
	}
	<-over
	for _, p := range s.processes {
		p.revive(t)
		p.awaitReady(t)
	}
	patience, cancel := context.WithTimeout(t.Context(), s.patience)
	defer cancel()
	for _, h := range s.histories {
		h.ends(patience, t)
	}
	var all []recorded
	for _, h := range s.histories {
		all = append(all, recorded{h.close(t), h.rules})
	}
	return all
}

// rules are those of one of many histories.
func (s *stage) rules(n int) rules {
	switch {
	case s.plain:
		return rules{cools: n%2 == 1}
	case n%5 == 4:
		return rules{draws: true}
	}
	return rules{cools: n%2 == 1, waits: n%4 < 2, early: n%3 == 0}
}

// linearizable checks one history, and leaves a picture of it when it is not.
func linearizable(t *testing.T, history recorded) bool {
	t.Helper()
	specification, operations := history.sale()
	verdict, info := porcupine.CheckOperationsVerbose(specification, operations, checkBudget)
	switch verdict {
	case porcupine.Ok:
		return true
	case porcupine.Unknown:
		t.Fatalf("a history of %d operations was not decided within %v:\n%s", len(operations), checkBudget, history)
	case porcupine.Illegal:
	}
	picture := filepath.Join(t.ArtifactDir(), "history.html")
	if err := porcupine.VisualizePath(specification, info, picture); err != nil {
		t.Error(err)
	}
	t.Logf("not linearizable, see %s (go test -artifacts keeps it)", picture)
	return false
}

// What users hear under kills, lost answers and a Redis that forgets is what one shelf would say to one user after the
// other.
func TestHistoriesAreLinearizable(t *testing.T) {
	t.Parallel()
	for name, open := range map[string]func(*testing.T) *stage{
		"one Redis":       func(t *testing.T) *stage { t.Helper(); return openStage(t, testserver.Program(t), check.Deadline, nil) },
		"three primaries": func(t *testing.T) *stage { t.Helper(); return openClusterStage(t, testserver.Program(t)) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			linearizableOn(t, open(t))
		})
	}
}

func linearizableOn(t *testing.T, stage *stage) {
	t.Helper()
	chance := check.Seeded(t)
	for round := range check.Count(t, "ROUNDS", 1, 3) {
		operations, served := 0, 0
		for i, history := range stage.record(t, chance, everything(t), 100, vouchersAtOnce(round+1)) {
			operations += len(history.operations)
			for _, o := range history.operations {
				if o.Input.(step).act == stands && o.Output == yes {
					served++
				}
			}
			check.That(t, ownersAreTold(history.operations), "the owner of an order heard SOLD_OUT:\n%s", history)
			if !linearizable(t, history) {
				t.Errorf("not linearizable:\n%s", history)
				for id, order := range stage.processes[0].orders(t, stage.histories[i].voucher) {
					t.Logf("%s  %s: %s is %s %s", order.CreatedAt.Format("15:04:05.000"), order.UserID, id, order.Status, order.Reason)
				}
			}
		}
		t.Logf("%d operations; %d times a user found that a place had become an order", operations, served)
	}
}

// brokenPatience is what a broken variant has to settle, which may be never.
const brokenPatience = 5 * time.Second

// The same check catches variants that are broken on purpose.
func TestBrokenVariantsAreNotLinearizable(t *testing.T) {
	t.Parallel()
	for _, variant := range []struct {
		name     string
		more     settings
		defect   overlay.Change // of the program; none: it is the one that is shipped
		sabotage func(t *testing.T, s *stage)
		troubles []trouble
		waits    bool // it is broken where users wait; others are found sooner where more users buy
	}{
		{
			// In sync mode, where nothing but the database stands between a user and a second order.
			name: "no unique key", more: settings{"SECKILL_ORDER_MODE": "sync", "SECKILL_LOCK_MODE": "none"}, sabotage: dropUniqueKey,
		},
		{
			name: "publish failure undoes the reservation", defect: publishUndoes(),
			troubles: []trouble{lostAcks(5*time.Second, 6*time.Second)},
		},
		{
			name: "missing key is sold out", defect: missingIsSoldOut(),
			troubles: []trouble{flushes()},
		},
		{name: "a cool-down is looked at before the unit is taken", defect: cooledBefore()},
		{name: "the last who waits is served first", defect: lastIsFirst(), waits: true},
		{name: "a unit that changes hands is free in between", defect: handedToAnybody(), waits: true},
	} {
		t.Run(variant.name, func(t *testing.T) {
			t.Parallel()
			chance := check.Seeded(t)
			program := testserver.Program(t)
			if variant.defect != (overlay.Change{}) {
				program = testserver.Defective(t, variant.defect)
			}
			stage := openStage(t, program, brokenPatience, variant.more)
			stage.plain = !variant.waits
			if variant.sabotage != nil {
				variant.sabotage(t, stage)
			}
			const rounds = 6 // in each of which it may go well by chance
			for range rounds {
				for _, history := range stage.record(t, chance, variant.troubles, 1, 8) {
					// One that cannot be decided in time has not caught anything.
					if !ownersAreTold(history.operations) || history.follows(checkBudget/6) == porcupine.Illegal {
						return
					}
				}
			}
			t.Error("it was not noticed")
		})
	}
}

// dropUniqueKey makes the database forget that a user has a live order: without the column there is neither the key nor
// anything to look up.
func dropUniqueKey(t *testing.T, s *stage) {
	t.Helper()
	db := adminOf(t, s.own.database, testserver.DefaultSchema)
	const alteration = "ALTER TABLE orders DROP INDEX orders_one_live, DROP COLUMN slot, ADD COLUMN slot TINYINT NULL"
	check.Must(t, check.ErrorOf(db.ExecContext(t.Context(), alteration)))
}
