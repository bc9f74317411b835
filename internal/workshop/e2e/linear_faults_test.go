//go:build faults

//part:weather
package e2e_test

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"maps"
	"math/rand/v2"
	"net"
	"net/http"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"

	"seckill/internal/api"
	"seckill/internal/workshop/check"
	"seckill/internal/workshop/overlay"
	"seckill/internal/workshop/remote"
	"seckill/internal/workshop/testserver"
	"seckill/model"
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

type trouble struct {
	name   string
	happen func(t *testing.T, s *stage, chance *rand.Rand)
}

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

func flushes() trouble {
	return forgetting(trouble{"FLUSHALL", func(t *testing.T, s *stage, chance *rand.Rand) {
		flush(t, s.redis[chance.IntN(len(s.redis))])
	}})
}

// administers is the trouble that administrators make: one of the vouchers gets a unit more or less, or is rebuilt.
func administers() trouble {
	return trouble{"an administrator", func(t *testing.T, s *stage, chance *rand.Rand) {
		a := s.processes[chance.IntN(len(s.processes))].app
		for _, h := range s.histories {
			switch path, what := a.URL+"/api/v1/admin/vouchers/"+h.voucher, chance.IntN(3); {
			case what == 0 && !h.rules.draws: // what is sold is drawn behind the history
				h.change(t, a, raises)
			case what == 1 && !h.rules.draws:
				h.change(t, a, lowers)
			default:
				// Its answer does not matter.
				_, _ = api.Send(t.Context(), a.Client, http.MethodPost, path+"/rebuild", a.Admin(t), nil)
			}
		}
	}}
}

// lostAcks loses what NATS answers for a time that is sometimes long enough for a publish to be given up.
func lostAcks(least, most time.Duration) trouble {
	return trouble{"lost acks", func(_ *testing.T, s *stage, chance *rand.Rand) {
		release := s.wire.hold(down)
		<-time.After(least + time.Duration(chance.Int64N(int64(most-least))))
		s.wire.Sever()
		release()
	}}
}

func everything(t *testing.T) []trouble {
	t.Helper()
	return []trouble{
		kills("instance", func(s *stage, chance *rand.Rand) (func(), func()) {
			p := s.processes[chance.IntN(len(s.processes))]
			return p.kill, func() { p.start(t) }
		}),
		// With appendfsync everysec an acknowledged write may wait for a flush: up to two seconds die with it.
		forgetting(kills("Redis", func(s *stage, chance *rand.Rand) (func(), func()) {
			redis := s.redis[chance.IntN(len(s.redis))]
			return redis.Kill, redis.Start
		})),
		kills("NATS", func(s *stage, _ *rand.Rand) (func(), func()) { return s.own.nats.Kill, s.own.nats.Start }),
		kills("MariaDB",
			func(s *stage, _ *rand.Rand) (func(), func()) { return s.own.database.Kill, s.own.database.Start }),
		flushes(), lostAcks(0, 6*time.Second), administers(),
	}
}

func openStage(t *testing.T, program string, patience time.Duration, more settings) *stage {
	t.Helper()
	own, s := asyncOnOwnServers(t)
	stage := &stage{own: own, redis: []*testserver.Server{own.redis}, patience: patience}
	return stage.open(t, program, s, more)
}

func openClusterStage(t *testing.T, program string) *stage {
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

// record plays several histories at once, each on its own voucher, under trouble, up to `most`, and returns them.
func (s *stage) record(t *testing.T, chance *rand.Rand, troubles []trouble, most, atOnce int) []recorded {
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

func (s *stage) rules(n int) rules {
	switch {
	case s.plain:
		return rules{cools: n%2 == 1}
	case n%5 == 4:
		return rules{draws: true}
	}
	return rules{cools: n%2 == 1, waits: n%4 < 2, early: n%3 == 0}
}

// legal checks one history, and leaves a picture of it when it is not linearizable.
func (r recorded) legal(t *testing.T) bool {
	t.Helper()
	check.That(t, ownersAreTold(r.operations), "the owner of an order heard SOLD_OUT:\n%s", r)
	specification, operations := r.sale()
	verdict, info := porcupine.CheckOperationsVerbose(specification, operations, checkBudget)
	switch verdict {
	case porcupine.Ok:
		return true
	case porcupine.Unknown:
		t.Fatalf("a history of %d operations was not decided within %v:\n%s", len(operations), checkBudget, r)
	case porcupine.Illegal:
	}
	picture := filepath.Join(t.ArtifactDir(), "history.html")
	if err := porcupine.VisualizePath(specification, info, picture); err != nil {
		t.Error(err)
	}
	t.Logf("not linearizable, see %s (go test -artifacts keeps it)", picture)
	return false
}

// What users hear under kills, lost answers and a forgetful Redis is what one shelf would say to one after the other.
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
			if !history.legal(t) {
				t.Errorf("not linearizable:\n%s", history)
				for id, order := range stage.processes[0].orders(t, stage.histories[i].voucher) {
					t.Logf("%s  %s: %s is %s %s", order.CreatedAt.Format("15:04:05.000"), order.UserID, id,
						order.Status, order.Reason)
				}
			}
		}
		t.Logf("%d operations; %d times a user found that a place had become an order", operations, served)
	}
}

// brokenPatience is what a broken variant has to settle, which may be never.
const brokenPatience = 5 * time.Second

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
			name: "no unique key", more: settings{"SECKILL_ORDER_MODE": "sync", "SECKILL_LOCK_MODE": "none"},
			sabotage: dropUniqueKey,
		},
		{
			name: "publish failure undoes the reservation", defect: publishUndoes(),
			troubles: []trouble{lostAcks(5*time.Second, 6*time.Second)},
		},
		{
			name: "missing key is sold out", defect: missingIsSoldOut(),
			troubles: []trouble{flushes()},
		},
		{name: "a unit that changes hands is free in between", defect: handedToAnybody(), waits: true},
	} {
		t.Run(variant.name, func(t *testing.T) {
			t.Parallel()
			chance := check.Seeded(t)
			program := testserver.Program(t)
			if variant.defect != (overlay.Change{}) {
				root := check.Value(filepath.Abs("../../.."))(t)
				program = testserver.Built(t, "-overlay", check.Value(variant.defect.Write(root, t.TempDir()))(t))
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

// dropUniqueKey lets a user have two live orders: without the column there is no key, and nothing to look up.
func dropUniqueKey(t *testing.T, s *stage) {
	db := adminOf(t, s.own.database, testserver.DefaultSchema)
	const alteration = "ALTER TABLE orders DROP INDEX orders_one_live, DROP COLUMN slot, ADD COLUMN slot TINYINT NULL"
	check.Must(t, check.ErrorOf(db.ExecContext(t.Context(), alteration)))
}

// The size of one history: the check is exponential in what is unknown, so that is bounded. Chances come from many.
const (
	historyUsers   = 6
	historyStock   = 3
	historySteps   = 10 // of each user
	historyUnknown = 2  // of each user, who then leaves
	looking        = 5  // see wait
	historyDoubts  = 9  // requests of a history that are unknown, or under way: so many may become unknown
)

type history struct {
	instances []*app
	voucher   string
	rules     rules
	users     []string
	as        map[bool][]*app // the instances, as strangers ask them and as the others do
	began     time.Time

	doubts chan struct{} // places of requests that are under way or unknown
	full   chan struct{} // closed when all of them are unknown

	mu         sync.Mutex
	orders     map[string]int // their ids, numbered
	operations []porcupine.Operation
	unsettled  []porcupine.Operation // unknown ones, which may happen until all is quiet
}

func newHistory(t *testing.T, instances []*app, r rules) *history {
	now := time.Now().UTC()
	fields := map[string]any{
		"stock": historyStock, "cooldown": map[bool]string{false: "0s", true: "1h"}[r.cools],
		"waitlist": r.waits,
	}
	if r.early {
		fields["early"] = map[string]any{"groups": []string{earlyGroup}, "begin_at": now.Add(-3 * time.Hour)}
		fields["begin_at"], fields["end_at"] = now.Add(time.Hour), now.Add(2*time.Hour)
	}
	if r.draws {
		fields["allocation"] = model.ByDraw
	}
	v := instances[0].Create(t, fields)
	h := &history{
		instances: instances, voucher: v.ID, rules: r,
		as: map[bool][]*app{}, began: time.Now(), orders: map[string]int{},
		doubts: make(chan struct{}, historyDoubts), full: make(chan struct{}),
	}
	for _, a := range instances {
		member := a.stranger()
		member.Groups = []string{earlyGroup}
		h.as[true], h.as[false] = append(h.as[true], a.stranger()), append(h.as[false], member)
	}
	for n := range historyUsers {
		h.users = append(h.users, h.voucher[len(h.voucher)-20:]+instances[0].user(n))
	}
	return h
}

func (h *history) now() time.Duration { return time.Since(h.began) }

// note keeps one line; order is the id of the one that the user hears of, cancels or has.
func (h *history) note(user int, what act, order string, from time.Duration, out result) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if _, known := h.orders[order]; order != "" && !known {
		h.orders[order] = len(h.orders) + 1
	}
	o := operation(step{what, user, h.orders[order]}, from, h.now(), out)
	if out == unknown {
		if h.unsettled = append(h.unsettled, o); len(h.unsettled) == historyDoubts {
			close(h.full)
		}
		return
	}
	h.operations = append(h.operations, o)
}

// record lets every user buy, wait and cancel at random, and the sale begin for strangers meanwhile, or end.
func (h *history) record(t *testing.T, seed uint64) {
	t.Helper()
	var clients sync.WaitGroup
	if h.rules.early || h.rules.draws {
		clients.Go(func() {
			<-time.After(time.Duration(rand.New(rand.NewPCG(seed, historyUsers)).Int64N(int64(3 * time.Second))))
			h.turn(t)
		})
	}
	for user := range h.users {
		clients.Go(func() { h.client(t, user, rand.New(rand.NewPCG(seed, uint64(user)))) })
	}
	clients.Wait()
}

func (h *history) client(t *testing.T, user int, chance *rand.Rand) {
	order, unknowns, given := "", 0, map[string]bool{}
	for range historySteps {
		<-time.After(time.Duration(chance.Int64N(int64(400 * time.Millisecond))))
		a := h.as[stranger(user)][chance.IntN(len(h.instances))]
		select {
		case h.doubts <- struct{}{}:
		case <-h.full:
			return
		}
		var out result
		switch what := chance.IntN(4); {
		case order != "" && what < 2:
			if out = h.cancel(t, a, user, order); out != nothing {
				given[order], order = true, "" // also when it is unknown: a second time, 200 would tell nothing
			}
		case h.rules.draws && what == 0:
			out = h.look(t, a, user, nil)
		case h.rules.waits && what > 0:
			var heard string
			if out, heard = h.wait(t, a, user, chance.IntN(8)); heard != "" && !given[heard] {
				order = heard
			}
		default:
			out = h.buy(t, a, user, &order)
		}
		if out != unknown {
			<-h.doubts
			continue
		}
		if unknowns++; unknowns == historyUnknown {
			return
		}
		a.recovers(t)
	}
}

// settles is until an instance that is ready has looked at everything it depends on.
const settles = 700 * time.Millisecond

// recovers waits until a troubled instance is well: what is unknown twice says no more than once.
func (a *app) recovers(t *testing.T) {
	a.ready(t)
	<-time.After(settles)
}

// means is what an answer says to its caller, or `nothing`, which is not noted. An unnamed code breaks the contract.
func (h *history) means(t *testing.T, what act, got api.Answer, err error, named map[model.Code]result) result {
	t.Helper()
	out, known := named[got.Code()]
	var failed *net.OpError
	switch {
	case errors.As(err, &failed) && failed.Op == "dial": // the request cannot have reached the service
		return nothing
	case err != nil || got.Code() == model.CodeUnavailable:
		return unknown
	case !known:
		t.Errorf("a user %s: %d %s", what, got.Status, got.Body)
		return nothing
	}
	return out
}

func (h *history) refusals(more map[model.Code]result) map[model.Code]result {
	named := map[model.Code]result{"": yes, model.CodeAlreadyOrdered: already, model.CodeCoolingDown: cooling}
	if h.rules.early {
		named[model.CodeNotStarted] = early
	}
	if h.rules.draws {
		named[model.CodeEnded] = late
	}
	maps.Copy(named, more)
	return named
}

func (h *history) buy(t *testing.T, a *app, user int, order *string) result {
	from, heard := h.now(), ""
	got, err := a.Place(t, h.voucher, h.users[user])
	out := h.means(t, buys, got, err, h.refusals(map[model.Code]result{
		model.CodeSoldOut:  soldOut,
		model.CodeLockBusy: nothing,
	}))
	switch {
	case out == nothing:
		return out
	case out == yes && h.rules.draws:
		heard = remote.Decode[model.Entry](t, got).Leaf
	case out == yes:
		*order = remote.Decode[model.Order](t, got).ID
	case out == already:
		*order = remote.Decode[api.Problem](t, got).OrderID
	case out == soldOut || out == cooling:
		*order = ""
	}
	if out != unknown {
		heard = cmp.Or(heard, *order)
	}
	h.note(user, buys, heard, from, out)
	return out
}

// wait has a user join by a chance below 4, leave by 4, or look at the place, and returns the order that is named.
func (h *history) wait(t *testing.T, a *app, user, chance int) (out result, order string) {
	what, method := stands, http.MethodGet
	switch {
	case chance < 4:
		what, method = joins, http.MethodPost
	case chance == 4:
		what, method = resigns, http.MethodDelete
	}
	from := h.now()
	got, err := a.Send(method, "/vouchers/"+h.voucher+"/waitlist", a.as(t, h.users[user]), nil)
	out = h.means(t, what, got, err, h.refusals(map[model.Code]result{
		model.CodeNotFound: none,
		model.CodeConflict: free,
	}))
	switch {
	case out == nothing || what == stands && out == unknown: // nothing has changed
		return nothing, ""
	case what == stands && out == yes:
		if order = remote.Decode[model.WaitlistPlace](t, got).OrderID; order == "" {
			out = waiting
		}
	case out == already:
		order = remote.Decode[api.Problem](t, got).OrderID
	}
	h.note(user, what, order, from, out)
	return out, order
}

func (h *history) posts(
	t *testing.T, a *app, user int, what act, order, path, token string, body any, named map[model.Code]result,
) result {
	t.Helper()
	from := h.now()
	got, err := a.Send(http.MethodPost, path, token, body)
	out := h.means(t, what, got, err, named)
	if out != nothing {
		h.note(user, what, order, from, out)
	}
	return out
}

// cancel gives an order back. What is processing, or not there yet, stays as it is.
func (h *history) cancel(t *testing.T, a *app, user int, order string) result {
	t.Helper()
	return h.posts(t, a, user, cancels, order, "/orders/"+order+"/cancel", a.as(t, h.users[user]), nil,
		map[model.Code]result{"": yes, model.CodeIllegalState: nothing, model.CodeNotFound: nothing})
}

func (h *history) change(t *testing.T, a *app, what act) {
	t.Helper()
	body := map[string]any{"delta": map[act]int{raises: 1, lowers: -1}[what]}
	h.posts(t, a, 0, what, "", "/admin/vouchers/"+h.voucher+"/stock", a.Admin(t), body,
		map[model.Code]result{"": yes, model.CodeConflict: soldOut})
}

// turn has an administrator let the sale begin for strangers, or end. That is obeyed within a second.
func (h *history) turn(t *testing.T) {
	t.Helper()
	what, from, hour := begins, h.now(), h.began.Add(-time.Hour).UTC().Truncate(time.Second)
	fields := map[string]any{"begin_at": hour}
	if h.rules.draws {
		what, fields = ends, map[string]any{"begin_at": hour.Add(-time.Hour), "end_at": hour}
	}
	got := remote.Insist(t, "it "+string(what), func(attempt int) (api.Answer, error) {
		a := h.instances[attempt%len(h.instances)]
		return a.Send(http.MethodPatch, "/admin/vouchers/"+h.voucher, a.Admin(t), fields)
	})
	check.Equal(t, "it "+string(what), got.Status, http.StatusOK)
	h.mu.Lock()
	defer h.mu.Unlock()
	h.operations = append(h.operations, operation(step{act: what}, from, h.now()+grace, yes))
}

// look has a user look for an entry, which must be on the list once it is closed: nil before.
func (h *history) look(t *testing.T, a *app, user int, listed []string) result {
	t.Helper()
	from, leaf := h.now(), ""
	got, err := a.Send(http.MethodGet, "/vouchers/"+h.voucher+"/entry", a.as(t, h.users[user]), nil)
	out := h.means(t, looks, got, err, map[model.Code]result{"": yes, model.CodeNotFound: none})
	if out == nothing || out == unknown {
		return nothing // has changed
	}
	if out == yes {
		leaf = remote.Decode[model.Entry](t, got).Leaf
	}
	if listed != nil && !slices.Contains(listed, leaf) {
		out, leaf = none, ""
	}
	h.note(user, looks, leaf, from, out)
	return out
}

// forgotten notes that Redis lost some or all of what it was told, between an instant and now.
func (h *history) forgotten(from time.Duration) { h.note(0, forgets, "", from, yes) }

// ends waits until all has ended, or for so long: a broken variant may never settle, and must be caught all the same.
func (h *history) ends(patience context.Context, t *testing.T) {
	t.Helper()
	a := h.instances[0]
	quiet := func() bool {
		if _, drawn := h.list(); h.rules.draws && !drawn {
			return false
		}
		got, err := a.Send(http.MethodGet, "/admin/vouchers/"+h.voucher+"/audit", a.Admin(t), nil)
		return err == nil && got.Status == http.StatusOK && settled(remote.Decode[model.Audit](t, got))
	}
	for !quiet() && patience.Err() == nil {
		<-time.After(between)
	}
}

func (h *history) list() (leaves []string, drawn bool) {
	got, err := h.instances[0].Send(http.MethodGet, "/vouchers/"+h.voucher+"/draw/entries", "", nil)
	var list model.DrawnLeaves
	drawn = err == nil && got.Status == http.StatusOK && json.Unmarshal(got.Body, &list) == nil
	return append([]string{}, list.Items...), drawn
}

// close looks who has an order, an entry, or a place, and returns the whole history.
func (h *history) close(t *testing.T) []porcupine.Operation {
	t.Helper()
	quiet := h.now()
	if h.rules.draws {
		h.entries(t)
	} else {
		h.owners(t, quiet)
	}
	for _, o := range h.unsettled {
		o.Return = int64(quiet) - 1
		h.operations = append(h.operations, o)
	}
	return h.operations
}

// entries looks who is on the list, and whether there is somebody else.
func (h *history) entries(t *testing.T) {
	t.Helper()
	listed, _ := h.list()
	entries := 0
	for user := range h.users {
		if h.look(t, h.instances[0], user, listed) == yes {
			entries++
		}
	}
	if entries != len(listed) {
		h.note(0, looks, "nobody's", h.now(), yes)
	}
}

func (h *history) owners(t *testing.T, quiet time.Duration) {
	t.Helper()
	owns := owners(h.instances[0].orders(t, h.voucher))
	for user, name := range h.users {
		if len(owns[name]) == 0 {
			h.note(user, looks, "", quiet, none)
		}
		for _, order := range owns[name] { // one, or the history is illegal
			h.note(user, looks, order, quiet, yes)
		}
		if h.rules.waits {
			h.wait(t, h.instances[0], user, looking)
		}
	}
}
