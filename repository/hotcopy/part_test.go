//part:stores

package hotcopy_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/redis/go-redis/v9"

	"seckill/internal/workshop/check"
	"seckill/internal/workshop/testserver"
	"seckill/model"
	"seckill/repository/hotcopy"
)

// inParts opens a copy in several parts on the shared Redis.
func inParts(t *testing.T, stock int64, shards int) *sale {
	t.Helper()
	s := newDivided(t, testserver.SharedRedis(t), hotcopy.Options{}, stock, shards)
	s.group = 10
	return s
}

// store is that of one more instance, which knows what the copy is like now.
func (s *sale) store() *hotcopy.Store {
	s.t.Helper()
	store := hotcopy.New(s.client, hotcopy.Options{Slack: s.slack})
	check.Must(s.t, check.ErrorOf(store.Read(s.t.Context(), []string{s.v.ID})))
	return store
}

// usersOf are some users of one part.
func (s *sale) usersOf(part, n int) (users []string) {
	for i := 0; len(users) < n; i++ {
		if model.PartOf(user(i), s.shards) == part {
			users = append(users, user(i))
		}
	}
	return users
}

// usersBut are some users of all parts but one.
func (s *sale) usersBut(part, n int) (users []string) {
	for i := 0; len(users) < n; i++ {
		if model.PartOf(user(i), s.shards) != part {
			users = append(users, user(i))
		}
	}
	return users
}

// answer names what an order was answered.
func answer(err error) string {
	switch {
	case err == nil:
		return "reserved"
	case errors.Is(err, model.ErrCopyClosed):
		return "closed"
	default:
		return string(model.CodeOf(err))
	}
}

// sell has users ask for a unit at once, some in each call and through several stores, and
// counts the answers.
func (s *sale) sell(users []string, stores ...*hotcopy.Store) map[string]int {
	s.t.Helper()
	var mu sync.Mutex
	counts := make(map[string]int)
	groups := slices.Collect(slices.Chunk(users, s.group))
	check.Volley(len(groups), func(i int) {
		var asked []model.ReserveRequest
		for _, userID := range groups[i] {
			asked = append(asked, s.admission(userID))
		}
		answers, _ := stores[i%len(stores)].Reserve(s.t.Context(), asked) // each answer has its error
		mu.Lock()
		defer mu.Unlock()
		for _, a := range answers {
			counts[answer(a.Err)]++
		}
	})
	return counts
}

func wantAnswers(t testing.TB, what string, got, want map[string]int) {
	t.Helper()
	if !maps.Equal(got, want) {
		t.Errorf("%s: answers %v, want %v", what, got, want)
	}
}

// marks are the buyers of the open copy and their orders.
func (s *sale) marks() map[string]string {
	s.t.Helper()
	marks := make(map[string]string)
	check.Must(s.t, s.copies.Marks(s.t.Context(), s.v.ID, s.epoch, s.shards, func(userID, orderID string) error {
		marks[userID] = orderID
		return nil
	}))
	return marks
}

// divide rebuilds the copy, with all that is in it, in another number of parts.
func (s *sale) divide(shards int) {
	s.t.Helper()
	ctx := s.t.Context()
	next := model.EpochRecord{VoucherID: s.v.ID, Epoch: s.epoch + 1, OpenEpoch: s.epoch, Shards: shards, Spread: max(shards, s.shards)}
	check.Must(s.t, s.copies.Close(ctx, next))
	marks := s.marks()
	var carried []model.Reservation
	check.Must(s.t, s.copies.Pendings(ctx, s.v.ID, s.epoch, next.Spread, func(r model.Reservation) error {
		delete(marks, r.UserID)
		r.Epoch = next.Epoch
		carried = append(carried, r)
		return nil
	}))
	var live []model.Order
	for userID, orderID := range marks {
		live = append(live, model.Order{ID: orderID, VoucherID: s.v.ID, UserID: userID})
	}
	check.Must(s.t, s.copies.Load(ctx, next, nil, nil))
	check.Must(s.t, s.copies.Load(ctx, next, live, carried))
	s.epoch, s.shards, s.v.Shards = next.Epoch, shards, model.Shards(shards)
	check.Must(s.t, s.copies.Open(ctx, next, s.v, 0))
}

// partHead is the head of a part.
func (s *sale) partHead(part int) string {
	if part == 0 {
		return s.head()
	}
	return fmt.Sprintf("seckill:v1:{%s#%d}:head", s.v.ID, part)
}

// wantKeys checks which keys the copy has: those of its epoch in each part, and closed
// heads behind the last one, for stores that still look there.
func (s *sale) wantKeys(heads int) {
	s.t.Helper()
	ctx := s.t.Context()
	var want []string
	for part := range heads {
		want = append(want, s.partHead(part))
		if part >= s.shards {
			check.Equal(s.t, "the head of a part that is no more", s.client.HGet(ctx, s.partHead(part), "state").Val(), "closed")
			continue
		}
		for _, noun := range []string{"buyers", "pending", "due", "closed"} {
			want = append(want, s.partKey(part, noun))
		}
	}
	got := slices.Concat(
		check.Value(s.client.Keys(ctx, "seckill:v1:{"+s.v.ID+"}:*").Result())(s.t),
		check.Value(s.client.Keys(ctx, "seckill:v1:{"+s.v.ID+"#*").Result())(s.t))
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		s.t.Errorf("the keys are %v, want %v", got, want)
	}
}

// A copy is divided into more parts and into fewer. All that was sold and reserved is
// carried, and a store that knew another number of parts does everything right at its first
// call.
func TestACopyIsDividedAnew(t *testing.T) {
	t.Parallel()
	s := inParts(t, 40, 1)
	for i := range 12 {
		if r := s.buy(user(i)); i%2 == 0 {
			check.Must(t, s.copies.Settle(t.Context(), s.v.ID, []model.Order{r.Order}))
		}
	}
	sold, heads := s.marks(), 1
	for _, shards := range []int{4, 16, 2, 1} {
		var stale []*hotcopy.Store
		for range 12 {
			stale = append(stale, s.store())
		}
		s.divide(shards)
		heads = max(heads, shards)
		s.wantKeys(heads)
		s.firstCalls(fmt.Sprint("user of ", shards), stale)
		s.wants(model.CopyOpen, 28, 6, 12)
		if got := s.marks(); !maps.Equal(got, sold) {
			t.Errorf("in %d parts the marks are %v, want %v", shards, got, sold)
		}
		for userID, orderID := range sold {
			refusal, ok := errors.AsType[*model.Error](s.admit(s.admission(userID)).Err)
			if !ok || refusal.Code != model.CodeAlreadyOrdered || refusal.OrderID != orderID {
				t.Errorf("in %d parts %s is answered %+v", shards, userID, refusal)
			}
		}
	}
}

// firstCalls leads an order of a user through its life, each step by a store that has not
// heard yet how the copy is divided.
func (s *sale) firstCalls(userID string, stale []*hotcopy.Store) {
	s.t.Helper()
	ctx, t := s.t.Context(), s.t
	hot := check.Value(stale[0].Read(ctx, []string{s.v.ID}))(t)[s.v.ID]
	if hot.State != model.CopyOpen || hot.Shards != s.shards || hot.Buyers != 12 {
		t.Errorf("read at first %+v", hot)
	}
	a := check.Value(stale[1].Reserve(ctx, []model.ReserveRequest{s.admission(userID)}))(t)[0]
	check.Must(t, a.Err)
	r := a.Reservation
	check.Equal(t, "the epoch reserved in", r.Epoch, s.epoch)
	s.wants(model.CopyOpen, 27, 7, 13)
	if ok := check.Value(stale[2].Confirm(ctx, []model.Reservation{r}))(t); !ok[0] {
		t.Errorf("%+v is not confirmed", r)
	}
	check.Must(t, stale[3].Touch(ctx, []model.Reservation{r}))
	id, pending, err := stale[4].OrderOf(ctx, s.v.ID, userID)
	if check.Must(t, err); id != r.ID || pending == nil {
		t.Errorf("%s has %q, %+v", userID, id, pending)
	}
	if _, found, err := stale[5].Pending(ctx, r.ID, ""); err != nil || !found {
		t.Errorf("the entry of %s is found: %v, %v", r.ID, found, err)
	}
	due := check.Value(stale[6].Due(ctx, s.v.ID, 0, 100))(t)
	check.Equal(t, "orders due", len(due), 7)
	check.Must(t, stale[7].Settle(ctx, s.v.ID, []model.Order{r.Order}))
	s.wants(model.CopyOpen, 27, 6, 13)
	if applied := check.Value(stale[8].Release(ctx, releaseOf(r)))(t); !applied {
		t.Errorf("the release of %s was put off", r.ID)
	}
	s.v.Revision++
	if applied := check.Value(stale[9].Apply(ctx, s.v))(t); !applied {
		t.Error("a change was not applied")
	}
	s.v.Revision++
	check.Must(t, stale[10].Lower(ctx, s.v.ID, s.v.Stock, s.v.Revision))
	count := 0
	check.Must(t, stale[11].Buyers(ctx, s.v.ID, func(string) error { count++; return nil }))
	check.Equal(t, "buyers", count, 12)
}

// A store that was idle while the copy was divided twice is right at its first call too: the
// parts that it asks were closed by the first division, and say what was so then.
func TestAStoreThatMissedADivision(t *testing.T) {
	t.Parallel()
	for _, way := range [][]int{{16, 2, 1}, {16, 2, 4}, {16, 4, 2}, {2, 16, 4}, {16, 4, 2, 1}} {
		t.Run(fmt.Sprint(way), func(t *testing.T) {
			t.Parallel()
			s := inParts(t, 40, way[0])
			for i := range 12 {
				if r := s.buy(user(i)); i%2 == 0 {
					check.Must(t, s.copies.Settle(t.Context(), s.v.ID, []model.Order{r.Order}))
				}
			}
			var stale []*hotcopy.Store
			for range 12 {
				stale = append(stale, s.store())
			}
			for _, shards := range way[1:] {
				s.divide(shards)
			}
			s.firstCalls("late user", stale)
			s.wants(model.CopyOpen, 28, 6, 12)
		})
	}
}

// A divided voucher is sold to the last unit and not beyond, whether its users are of all
// parts or of one. All others hear that it is sold out.
func TestEveryPartIsSoldOutAtOnce(t *testing.T) {
	t.Parallel()
	for name, users := range map[string]func(*sale) []string{
		"users of all parts": func(s *sale) []string { return s.usersBut(-1, 300) },
		"users of one part":  func(s *sale) []string { return s.usersOf(11, 300) },
		"users of the first": func(s *sale) []string { return s.usersOf(0, 300) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := inParts(t, 50, 16)
			s.group = 25
			got := s.sell(users(s), s.store(), another(s.client))
			wantAnswers(t, name, got, map[string]int{"reserved": 50, "SOLD_OUT": 250})
			s.wants(model.CopyOpen, 0, 50, 50)
			check.Equal(t, "it reads as", s.read().Voucher.Phase, model.PhaseSoldOut)
		})
	}
}

// While a user's request looks for a unit in other parts, another one of that user is given the
// last. The first hears of that order, and not that all is sold.
func TestAnOwnerHearsOfTheOrderWhenAllPartsAreEmpty(t *testing.T) {
	t.Parallel()
	s := inParts(t, 1, 2)
	client := openRedis(t, testserver.SharedRedis(t))
	store := another(client)
	check.Must(t, check.ErrorOf(store.Read(t.Context(), []string{s.v.ID})))
	userID := s.usersOf(1, 1)[0]
	var bought model.Reservation
	client.AddHook(before(s.head(), s.shards, func() { bought = s.buy(userID) }))
	refusal, ok := errors.AsType[*model.Error](s.reserve(store, userID))
	if !ok || refusal.Code != model.CodeAlreadyOrdered || refusal.OrderID != bought.ID {
		t.Errorf("the owner of order %q is answered %+v", bought.ID, refusal)
	}
	s.wants(model.CopyOpen, 0, 1, 1)
}

// Units that one part has given and the other one has not taken over, because a process died
// in between, are left to be sold, and the next user who finds nothing takes them over.
func TestUnitsUnderWayAreNotLost(t *testing.T) {
	t.Parallel()
	for part := range 4 {
		s := inParts(t, 4, 4)
		for other := 1; other < 4; other++ {
			s.buy(s.usersOf(other, 1)[0])
		}
		check.Must(t, s.store().Give(t.Context(), s.v.ID, 1, 0, 2, 1)) // the last one
		s.wants(model.CopyOpen, 1, 3, 3)
		got := s.sell(s.usersOf(part, 5)[1:], s.store(), s.store())
		wantAnswers(t, fmt.Sprint("users of part ", part), got, map[string]int{"reserved": 1, "SOLD_OUT": 3})
		s.wants(model.CopyOpen, 0, 4, 4)
	}
	// Every part has given all that it has to the next one.
	s := inParts(t, 32, 16)
	for part := range 16 {
		check.Must(t, s.store().Give(t.Context(), s.v.ID, 1, part, (part+1)%16, 2))
	}
	s.wants(model.CopyOpen, 32, 0, 0)
	check.Equal(t, "it reads as", s.read().Voucher.Phase, model.PhaseLive)
	wantAnswers(t, "all under way", s.sell(s.usersOf(5, 40), s.store()), map[string]int{"reserved": 32, "SOLD_OUT": 8})
	s.wants(model.CopyOpen, 0, 32, 32)
}

func TestNothingIsSoldOutWhileAUnitIsFree(t *testing.T) {
	t.Parallel()
	inParts(t, 7, 16).keepsAUnit(6, check.Count(t, "ROUNDS", 12, 80))
}

// keepsAUnit has buyers buy and give back again and again, one less than there are units. One
// is left at every instant, of a part that changes all the time: so nothing is ever sold out.
func (s *sale) keepsAUnit(buyers, rounds int) {
	s.t.Helper()
	stores := []*hotcopy.Store{s.store(), s.store()}
	var sold atomic.Int32
	check.Volley(buyers, func(i int) {
		store := stores[i%len(stores)]
		for n := range rounds {
			a := check.Value(store.Reserve(s.t.Context(), []model.ReserveRequest{s.admission(user(1000*i + n))}))(s.t)[0]
			switch answer(a.Err) {
			case "reserved":
				sold.Add(1)
				if applied, err := store.Release(s.t.Context(), releaseOf(a.Reservation)); err != nil || !applied {
					s.t.Errorf("released %v, %v", applied, err)
				}
			default:
				s.t.Errorf("answer %v", a.Err)
			}
		}
	})
	check.Equal(s.t, "units reserved", int(sold.Load()), buyers*rounds)
	s.wants(model.CopyOpen, int64(buyers)+1, 0, 0)
}

// A stock is lowered by units that lie in other parts, and not below what is taken.
func TestAStockIsLoweredInAllParts(t *testing.T) {
	t.Parallel()
	s := inParts(t, 40, 4)
	lower := func(stock int64) error {
		s.v.Revision++
		return s.copies.Lower(t.Context(), s.v.ID, stock, s.v.Revision)
	}
	check.Must(t, lower(25))
	s.wants(model.CopyOpen, 25, 0, 0)
	for _, userID := range s.usersOf(3, 20) {
		s.buy(userID)
	}
	wantCode(t, lower(19), model.CodeConflict)
	s.wants(model.CopyOpen, 5, 20, 20)
	check.Must(t, lower(20))
	s.wants(model.CopyOpen, 0, 20, 20)
	wantCode(t, s.admit(s.admission("late")).Err, model.CodeSoldOut)
	// What is raised again reaches the users of every part.
	s.v.Revision++
	s.v.Stock = 24
	if applied := check.Value(s.copies.Apply(t.Context(), s.v))(t); !applied {
		t.Error("the stock was not raised")
	}
	for part := range 4 {
		s.buy(s.usersOf(part, 21)[20])
	}
	wantCode(t, s.admit(s.admission("later")).Err, model.CodeSoldOut)
	s.wants(model.CopyOpen, 0, 24, 24)
}

// A stock is lowered during a crowd. As many units are sold as are left of it then.
func TestAStockIsLoweredDuringACrowd(t *testing.T) {
	t.Parallel()
	s := inParts(t, 200, 8)
	stores := []*hotcopy.Store{s.store(), s.store()}
	users := s.usersBut(-1, 250)
	var group sync.WaitGroup
	group.Go(func() { // at most 100 are taken, so there is no conflict
		for stock := int64(190); stock >= 120; stock -= 10 {
			if err := s.copies.Lower(t.Context(), s.v.ID, stock, s.v.Revision); err != nil {
				t.Errorf("lowered to %d: %v", stock, err)
			}
		}
	})
	wantAnswers(t, "at first", s.sell(users[:100], stores...), map[string]int{"reserved": 100})
	group.Wait()
	lowest := int64(120)
	group.Go(func() { // until there is one
		var err error
		for err == nil {
			if err = s.copies.Lower(t.Context(), s.v.ID, lowest-2, s.v.Revision); err == nil {
				lowest -= 2
			}
		}
		wantCode(t, err, model.CodeConflict)
	})
	got := s.sell(users[100:], stores...)
	group.Wait()
	wantAnswers(t, "to the end", got, map[string]int{"reserved": int(lowest) - 100, "SOLD_OUT": 250 - int(lowest)})
	s.wants(model.CopyOpen, 0, lowest, lowest)
}

// What an administrator changes holds for the users of every part.
func TestEveryPartIsPaused(t *testing.T) {
	t.Parallel()
	s := inParts(t, 40, 4)
	change := func(state model.VoucherState) {
		s.v.State = state
		s.v.Revision++
		if applied := check.Value(s.copies.Apply(t.Context(), s.v))(t); !applied {
			t.Errorf("the state %s was not applied", state)
		}
	}
	change(model.VoucherPaused)
	wantAnswers(t, "paused", s.sell(s.usersBut(-1, 20), s.store()), map[string]int{"PAUSED": 20})
	change(model.VoucherPublished)
	wantAnswers(t, "published", s.sell(s.usersBut(-1, 20), s.store()), map[string]int{"reserved": 20})
}

// Something of one part is lost. Its users cannot buy, those of the others can, and neither
// hear that all is sold. A rebuild repairs it.
func TestAPartIsLost(t *testing.T) {
	t.Parallel()
	for _, part := range []int{0, 2} {
		for _, noun := range []string{"head", "buyers", "pending", "due", "closed"} {
			t.Run(fmt.Sprintf("%s of part %d", noun, part), func(t *testing.T) {
				t.Parallel()
				aPartIsLost(t, part, noun, false)
			})
			t.Run(fmt.Sprintf("another kind of %s of part %d", noun, part), func(t *testing.T) {
				t.Parallel()
				aPartIsLost(t, part, noun, true)
			})
		}
	}
}

func aPartIsLost(t *testing.T, part int, noun string, otherKind bool) {
	t.Helper()
	s := inParts(t, 40, 4)
	key := s.partHead(part)
	if noun != "head" {
		key = s.partKey(part, noun)
	}
	const lost = "closed"
	check.Must(t, s.client.Del(t.Context(), key).Err())
	if otherKind {
		check.Must(t, s.client.Set(t.Context(), key, "text", 0).Err())
	}
	check.Equal(t, "the copy", s.read().State, model.CopyClosed)
	wantAnswers(t, "users of the part", s.sell(s.usersOf(part, 5), s.store()), map[string]int{lost: 5})
	sold := int64(0)
	store := s.store()
	for _, userID := range s.usersBut(part, 60) {
		word := answer(s.reserve(store, userID))
		switch word {
		case "reserved":
			sold++
		case lost, "UNAVAILABLE":
		default:
			t.Errorf("a user of another part is answered %s", word)
		}
	}
	if headless := part == 0 && noun == "head"; !headless && sold != 30 {
		t.Errorf("%d units of the other parts were sold", sold)
	}
	var carried []model.Reservation
	if noun != "pending" || part != 0 {
		carried = s.carried()
	}
	s.rebuild(2, 1, nil, carried)
	s.wants(model.CopyOpen, 40-int64(len(carried)), int64(len(carried)), int64(len(carried)))
	s.buy(s.usersOf(part, 1)[0])
}

// reserve asks for a unit through a store.
func (s *sale) reserve(store *hotcopy.Store, userID string) error {
	s.t.Helper()
	answers, _ := store.Reserve(s.t.Context(), []model.ReserveRequest{s.admission(userID)})
	return answers[0].Err
}

// carried are the reservations that a rebuild finds.
func (s *sale) carried() (all []model.Reservation) {
	s.t.Helper()
	check.Must(s.t, s.copies.Pendings(s.t.Context(), s.v.ID, s.epoch, s.shards, func(r model.Reservation) error {
		all = append(all, r)
		return nil
	}))
	return all
}

// before does something before the first time that a part is asked first in a pipeline of so many calls.
func before(head string, calls int, act func()) hotcopy.OnPipeline {
	var once sync.Once
	return func(ctx context.Context, cmds []redis.Cmder, next redis.ProcessPipelineHook) error {
		if len(cmds) == calls && len(cmds[0].Args()) > 3 && cmds[0].Args()[3] == head {
			once.Do(act)
		}
		return next(ctx, cmds)
	}
}

// Another rebuild begins while a copy is being opened, after all parts but the first were.
// What was reserved in between is carried by that rebuild, and nothing is reserved until then.
func TestACopyIsSupersededWhileItIsOpened(t *testing.T) {
	t.Parallel()
	s := inParts(t, 40, 4)
	check.Must(t, s.load(2, 1, nil, nil))
	check.Must(t, s.copies.Close(t.Context(), s.record(2, 1))) // it changes nothing when it comes twice
	client := openRedis(t, testserver.SharedRedis(t))
	client.AddHook(before(s.head(), 1, func() {
		wantAnswers(t, "half-way", s.sell(s.usersOf(2, 3), s.store()), map[string]int{"reserved": 3})
		wantAnswers(t, "half-way", s.sell(s.usersOf(0, 3), s.store()), map[string]int{"closed": 3})
		check.Must(t, s.copies.Close(t.Context(), s.record(3, 2)))
	}))
	opener := another(client)
	for range 2 {
		check.Is(t, "the answer", opener.Open(t.Context(), s.record(2, 1), s.v, 0), model.ErrSuperseded)
		wantAnswers(t, "superseded", s.sell(s.usersBut(-1, 20), s.store(), opener), map[string]int{"closed": 20})
	}
	s.epoch = 2
	carried := s.carried()
	check.Equal(t, "carried", len(carried), 3)
	s.rebuild(3, 2, nil, carried)
	s.wants(model.CopyOpen, 37, 3, 3)
	wantAnswers(t, "all", s.sell(s.usersBut(2, 40), s.store(), opener), map[string]int{"reserved": 37, "SOLD_OUT": 3})
}

// An open copy that is opened again keeps all that its parts have given each other since.
func TestACopyIsOpenedAgain(t *testing.T) {
	t.Parallel()
	s := inParts(t, 40, 4)
	wantAnswers(t, "first", s.sell(s.usersOf(3, 25), s.store()), map[string]int{"reserved": 25})
	s.release(s.carried()[0])
	check.Must(t, s.copies.Open(t.Context(), s.record(1, 0), s.v, 0))
	s.wants(model.CopyOpen, 16, 24, 24)
	wantAnswers(t, "then", s.sell(s.usersOf(1, 20), s.store()), map[string]int{"reserved": 16, "SOLD_OUT": 4})
	check.Must(t, s.copies.Open(t.Context(), s.record(1, 0), s.v, 0))
	s.wants(model.CopyOpen, 0, 40, 40)
}

// One part could not be opened with the others, and is opened later. What users of the others have
// given back meanwhile is not given out a second time.
func TestACopyIsOpenedInTwoGoes(t *testing.T) {
	t.Parallel()
	s := inParts(t, 40, 4)
	wantAnswers(t, "before", s.sell(s.usersOf(1, 40), s.store()), map[string]int{"reserved": 40})
	carried := s.carried()
	check.Must(t, s.load(2, 1, nil, carried))
	s.epoch = 2
	check.Must(t, s.client.Rename(t.Context(), s.partKey(2, "due"), s.partKey(2, "away")).Err())
	check.Is(t, "the answer", s.copies.Open(t.Context(), s.record(2, 1), s.v, 0), model.ErrSuperseded)
	for _, r := range carried[:20] {
		s.release(r)
	}
	check.Must(t, s.client.Rename(t.Context(), s.partKey(2, "away"), s.partKey(2, "due")).Err())
	check.Must(t, s.copies.Open(t.Context(), s.record(2, 1), s.v, 0))
	s.wants(model.CopyOpen, 20, 20, 20)
	wantAnswers(t, "after", s.sell(s.usersOf(3, 50), s.store()), map[string]int{"reserved": 20, "SOLD_OUT": 30})
}
