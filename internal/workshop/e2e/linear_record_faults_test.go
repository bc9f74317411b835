//go:build faults

//part:weather

package e2e_test

import (
	"context"
	"encoding/json"
	"errors"
	"math/rand/v2"
	"net"
	"net/http"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"

	"seckill/internal/api"
	"seckill/internal/workshop/check"
	"seckill/internal/workshop/remote"
	"seckill/model"
)

// The size of one history. The check takes exponentially longer with what is unknown, so that is bounded, and the
// chance comes from many histories.
const (
	historyUsers   = 6
	historyStock   = 3
	historySteps   = 10 // of each user
	historyUnknown = 2  // of each user, who then leaves
	looking        = 5  // see wait
	historyDoubts  = 9  // requests of a history that are unknown, or under way: so many may become unknown
)

// history records what the users of one voucher hear, with the times.
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
	t.Helper()
	now := time.Now().UTC()
	fields := map[string]any{"stock": historyStock, "cooldown": map[bool]string{false: "0s", true: "1h"}[r.cools], "waitlist": r.waits}
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
		h.as[true], h.as[false] = append(h.as[true], a), append(h.as[false], member)
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
			if out = h.cancel(t, a, user, order); out != none {
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

// recovers waits for an instance in trouble to be well again: what is unknown twice tells no more than what is unknown
// once.
func (a *app) recovers(t *testing.T) {
	t.Helper()
	a.ready(t)
	<-time.After(settles)
}

func (h *history) buy(t *testing.T, a *app, user int, order *string) (out result) {
	t.Helper()
	from, heard := h.now(), ""
	got, err := a.Place(t, h.voucher, h.users[user])
	switch {
	case neverSent(err):
		return none
	case err != nil || got.Code() == model.CodeUnavailable:
		out = unknown
	case got.Sells() && h.rules.draws:
		out, heard = yes, remote.Decode[model.Entry](t, got).Leaf
	case got.Sells():
		out, *order = yes, remote.Decode[model.Order](t, got).ID
	case got.Code() == model.CodeAlreadyOrdered:
		out, *order = already, remote.Decode[api.Problem](t, got).OrderID
	case got.Code() == model.CodeSoldOut:
		out, *order = soldOut, ""
	case got.Code() == model.CodeCoolingDown:
		out, *order = cooling, ""
	case got.Code() == model.CodeNotStarted && h.rules.early:
		out = early
	case got.Code() == model.CodeEnded && h.rules.draws:
		out = late
	case got.Code() == model.CodeLockBusy: // nothing has changed
		return none
	default:
		t.Errorf("%s buys: %d %s", h.users[user], got.Status, got.Body)
		return none
	}
	if out != unknown && heard == "" {
		heard = *order
	}
	h.note(user, buys, heard, from, out)
	return out
}

// wait has a user join by a chance below 4, leave by 4, or look at the place, and returns the order that is named.
func (h *history) wait(t *testing.T, a *app, user, chance int) (out result, order string) {
	t.Helper()
	what, method := stands, http.MethodGet
	switch {
	case chance < 4:
		what, method = joins, http.MethodPost
	case chance == 4:
		what, method = resigns, http.MethodDelete
	}
	from := h.now()
	got, err := a.Send(method, "/vouchers/"+h.voucher+"/waitlist", a.Token(t, h.users[user], model.RoleUser), nil)
	switch code := got.Code(); {
	case neverSent(err):
		return none, ""
	case err != nil || code == model.CodeUnavailable:
		if out = unknown; what == stands {
			return none, "" // nothing has changed
		}
	case what == stands && got.Status == http.StatusOK:
		out, order = waiting, remote.Decode[model.WaitlistPlace](t, got).OrderID
		if order != "" {
			out = yes
		}
	case code == "":
		out = yes
	case code == model.CodeNotFound:
		out = none
	case code == model.CodeAlreadyOrdered:
		out, order = already, remote.Decode[api.Problem](t, got).OrderID
	case code == model.CodeConflict:
		out = free
	case code == model.CodeCoolingDown:
		out = cooling
	case code == model.CodeNotStarted && h.rules.early:
		out = early
	default:
		t.Errorf("%s %s: %d %s", h.users[user], what, got.Status, got.Body)
		return none, ""
	}
	h.note(user, what, order, from, out)
	return out, order
}

func (h *history) cancel(t *testing.T, a *app, user int, order string) (out result) {
	t.Helper()
	from := h.now()
	got, err := a.Send(http.MethodPost, "/orders/"+order+"/cancel", a.Token(t, h.users[user], model.RoleUser), nil)
	switch {
	case neverSent(err):
		return none
	case err != nil || got.Code() == model.CodeUnavailable:
		out = unknown
	case got.Status == http.StatusOK:
		out = yes
	case got.Code() == model.CodeIllegalState || got.Code() == model.CodeNotFound: // processing, or not there yet: nothing has changed
		return none
	default:
		t.Errorf("%s cancels: %d %s", h.users[user], got.Status, got.Body)
		return none
	}
	h.note(user, cancels, order, from, out)
	return out
}

// neverSent reports that a request cannot have reached the service.
func neverSent(err error) bool {
	var failed *net.OpError
	return errors.As(err, &failed) && failed.Op == "dial"
}

// change has an administrator change the stock by one unit.
func (h *history) change(t *testing.T, a *app, what act) {
	t.Helper()
	delta := map[act]int{raises: 1, lowers: -1}[what]
	from := h.now()
	got, err := a.Send(http.MethodPost, "/admin/vouchers/"+h.voucher+"/stock", a.Admin(t), map[string]any{"delta": delta})
	out := unknown
	switch {
	case neverSent(err):
		return
	case err != nil || got.Code() == model.CodeUnavailable:
	case got.Status == http.StatusOK:
		out = yes
	case got.Code() == model.CodeConflict:
		out = soldOut
	default:
		t.Errorf("the stock %s: %d %s", what, got.Status, got.Body)
		return
	}
	h.note(0, what, "", from, out)
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
func (h *history) look(t *testing.T, a *app, user int, listed []string) (out result) {
	t.Helper()
	from := h.now()
	got, err := a.Send(http.MethodGet, "/vouchers/"+h.voucher+"/entry", a.Token(t, h.users[user], model.RoleUser), nil)
	if err != nil || got.Code() == model.CodeUnavailable {
		return none // nothing has changed
	}
	leaf := ""
	if out = none; got.Status == http.StatusOK {
		out, leaf = yes, remote.Decode[model.Entry](t, got).Leaf
	} else {
		check.Equal(t, "who looks for an entry", got.Code(), model.CodeNotFound)
	}
	if listed != nil && !slices.Contains(listed, leaf) {
		out, leaf = none, ""
	}
	h.note(user, looks, leaf, from, out)
	return out
}

// forgotten notes that Redis lost some or all of what it was told, between an instant and now.
func (h *history) forgotten(from time.Duration) { h.note(0, forgets, "", from, yes) }

// ends waits until everything has come to its end, or for so long: a broken variant may never be settled, and has to be
// caught all the same.
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

// list are the entries in drawn order, once there is one.
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

// owners looks who has an order, or a place.
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
