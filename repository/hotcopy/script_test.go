//part:redis

package hotcopy_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"seckill/internal/workshop/check"
	"seckill/internal/workshop/testserver"
	"seckill/model"
	"seckill/repository/hotcopy"
)

// scene is a sale in which bob has reserved the first unit, before a step.
type scene struct {
	*sale

	bob model.Reservation
}

type step struct {
	name    string
	scripts []string
	builds  bool // it closes or opens the copy
	several bool // it calls scripts one after the other
	before  func(s *scene)
	do      func(ctx context.Context, s *scene) error
}

// steps are everything that scripts do, each with something to do for all of their commands.
func steps() []step {
	reserve := func(ctx context.Context, s *scene) error {
		answers, err := s.copies.Reserve(ctx,
			[]model.ReserveRequest{{OrderID: model.OrderID("eves", s.v.ID), VoucherID: s.v.ID, UserID: "eve"}})
		return cmp.Or(err, answers[0].Err)
	}
	live := func(s *scene) []model.Order { return []model.Order{{ID: "live." + s.v.ID, UserID: "zoe"}} }
	shut := func(s *scene) { check.Must(s.t, s.copies.Close(s.t.Context(), s.record(2, 1))) }
	loaded := func(s *scene) { check.Must(s.t, s.load(2, 1, live(s), nil)) }
	return []step{
		{name: "reserve", scripts: []string{"reserve"}, do: reserve},
		{
			name: "reserve beside tombstones", scripts: []string{"reserve"}, do: reserve,
			before: func(s *scene) { s.release(s.bob) },
		},
		{name: "settle", scripts: []string{"settle"}, do: func(ctx context.Context, s *scene) error {
			return s.copies.Settle(ctx, []model.Order{s.bob.Order})
		}},
		{name: "release", scripts: []string{"release"}, do: func(ctx context.Context, s *scene) error {
			return check.ErrorOf(s.copies.Release(ctx, releaseOf(s.bob)))
		}},
		{name: "touch", scripts: []string{"touch"}, do: func(ctx context.Context, s *scene) error {
			return s.copies.Touch(ctx, []model.Reservation{
				s.bob,
				{Order: model.Order{ID: "gone." + s.v.ID, VoucherID: s.v.ID, UserID: "x"}},
			})
		}},
		{
			name: "mend", scripts: []string{"touch"}, before: func(s *scene) { s.forgetDue(s.bob.ID) },
			do: func(ctx context.Context, s *scene) error {
				return s.copies.Mend(ctx, s.v.ID, []string{s.bob.ID})
			},
		},
		{name: "apply", scripts: []string{"apply"}, do: func(ctx context.Context, s *scene) error {
			v := s.v
			v.Revision, v.Stock = 2, 12
			return check.ErrorOf(s.copies.Apply(ctx, v))
		}},
		{
			name: "lower", scripts: []string{"lower"},
			do: func(ctx context.Context, s *scene) error { return s.copies.Lower(ctx, s.v.ID, 5, 2) },
		},
		{name: "close", scripts: []string{"close"}, builds: true, do: func(ctx context.Context, s *scene) error {
			return s.copies.Close(ctx, s.record(2, 1))
		}},
		{
			name: "load", scripts: []string{"load"}, builds: true, several: true, before: shut,
			do: func(ctx context.Context, s *scene) error {
				if err := s.copies.Load(ctx, s.record(2, 1), nil, nil); err != nil {
					return err
				}
				return s.copies.Load(ctx, s.record(2, 1), live(s), []model.Reservation{s.bob})
			},
		},
		{
			name: "open", scripts: []string{"open"}, builds: true, before: loaded,
			do: func(ctx context.Context, s *scene) error {
				return s.copies.Open(ctx, s.record(2, 1), s.v, 0)
			},
		},
		{name: "read", scripts: []string{"read"}, do: func(ctx context.Context, s *scene) error {
			return check.ErrorOf(s.copies.Read(ctx, []string{s.v.ID}))
		}},
		{name: "find", scripts: []string{"find"}, do: func(ctx context.Context, s *scene) error {
			_, _, err := s.copies.OrderOf(ctx, s.v.ID, "bob")
			return err
		}},
		{name: "due", scripts: []string{"due"}, do: func(ctx context.Context, s *scene) error {
			return check.ErrorOf(s.copies.Due(ctx, s.v.ID, 0, 1))
		}},
		{name: "confirm", scripts: []string{"confirm"}, do: func(ctx context.Context, s *scene) error {
			return check.ErrorOf(s.copies.Confirm(ctx, []model.Reservation{s.bob}))
		}},
	}
}

func (p step) scene(t *testing.T, url string) *scene {
	t.Helper()
	s := &scene{sale: newSale(t, url, hotcopy.Options{}, 10)}
	s.bob = s.buy("bob")
	if p.before != nil {
		p.before(s)
	}
	return s
}

func (s *sale) forgetDue(orderID string) {
	s.t.Helper()
	check.Must(s.t, s.client.ZRem(s.t.Context(), s.key("due"), orderID).Err())
}

func (s *sale) keys() map[string]string {
	s.t.Helper()
	all := map[string]string{}
	for _, key := range check.Value(s.client.Keys(s.t.Context(), "seckill:v1:{"+s.v.ID+"*").Result())(s.t) {
		all[key] = check.Value(s.client.Dump(s.t.Context(), key).Result())(s.t)
	}
	return all
}

// owned checks that whoever looks for what is pending finds everything that was not done to its end.
func (s *sale) owned() {
	s.t.Helper()
	noted := check.Value(s.client.ZRange(s.t.Context(), s.key("due"), 0, -1).Result())(s.t)
	pending := check.Value(s.client.HKeys(s.t.Context(), s.key("pending")).Result())(s.t)
	marks := check.Value(s.client.HVals(s.t.Context(), s.key("buyers")).Result())(s.t)
	for _, id := range slices.Concat(pending, slices.DeleteFunc(marks, func(id string) bool { return id == "1" })) {
		if !slices.Contains(noted, id) {
			s.t.Errorf("nobody looks for order %s: due are %q", id, noted)
		}
	}
}

// limited lets an account of Redis use the copies without one command, and returns what ends a repeated call.
func (s *scene) limited(ctx context.Context, url, account, command string) (context.Context, context.CancelFunc) {
	s.t.Helper()
	rights := func(rule ...any) {
		check.Must(s.t, s.client.Do(s.t.Context(), append([]any{"acl", "setuser", account}, rule...)...).Err())
	}
	rights("on", ">secret", "~*", "&*", "+@all")
	client := openRedis(s.t, strings.Replace(url, "redis://", "redis://"+account+":secret@", 1))
	ctx, cancel := context.WithCancel(ctx)
	halves := 0
	client.AddHook(hotcopy.OnCommands(func(ctx context.Context, cmds []redis.Cmder, next hotcopy.Next) error {
		err := next(ctx, cmds)
		if hotcopy.Halfway(cmds[0]) {
			if halves++; halves == 2 {
				cancel()
			}
		}
		return err
	}))
	s.copies = another(client)
	check.Must(s.t, check.ErrorOf(s.copies.Read(s.t.Context(), []string{s.v.ID}))) // it knows the epoch
	rights("-" + command)
	return ctx, cancel
}

type outcome struct {
	state                                          model.CopyState
	epoch, remaining, reserved, due, stock, buyers int64
}

func (s *sale) outcome() outcome {
	s.t.Helper()
	hot := s.read()
	return outcome{hot.State, hot.Epoch, hot.Voucher.Remaining, hot.Reserved, hot.Due, hot.Voucher.Stock, hot.Buyers}
}

// A command refused inside a script changes nothing, and the error says so, or its outcome is unknown and repair finds
// what was left. Repeated, the step ends as without the refusal. It is no bug, and closes no copy that is well.
func TestEachCommandOfEachScriptRefused(t *testing.T) {
	t.Parallel()
	url := testserver.Redis(t, "--appendonly", "no").URL()
	for _, p := range steps() {
		well := p.scene(t, url)
		check.Must(t, p.do(t.Context(), well))
		want := well.outcome()
		var commands []string
		for _, script := range p.scripts {
			commands = append(commands, hotcopy.CommandsOf(script)...)
		}
		slices.Sort(commands)
		for i, command := range slices.Compact(commands) {
			t.Run(p.name+" without "+command, func(t *testing.T) {
				t.Parallel()
				s := p.scene(t, url)
				full, was := s.copies, s.keys()
				ctx, cancel := s.limited(t.Context(), url, fmt.Sprint(strings.ReplaceAll(p.name, " ", "-"), i), command)
				defer cancel()
				err := p.do(ctx, s)
				s.copies = full
				if err != nil {
					wantCode(t, err, model.CodeUnavailable)
				}
				switch {
				case errors.Is(err, model.ErrCopyClosed), errors.Is(err, model.ErrSuperseded):
					t.Errorf("the copy is said to be closed: %v", err)
				case errors.Is(err, model.ErrUnknownOutcome) && !p.builds:
					s.owned()
				case err != nil && !errors.Is(err, model.ErrUnknownOutcome) && !p.several && !maps.Equal(s.keys(), was):
					t.Errorf("something was changed, and the error is %v", err)
				}
				if p.name == "load" && err != nil {
					return // what was broken off is abandoned
				}
				check.Must(t, p.do(t.Context(), s))
				check.Equal(t, "what the step comes to after "+fmt.Sprint(err), s.outcome(), want)
			})
		}
	}
}

// spoilers put something under a key that no copy has there: by the kind of what the key is to be.
func spoilers(s *sale, key string) map[string]func(ctx context.Context) error {
	return map[string]func(ctx context.Context) error{
		"string": func(ctx context.Context) error { return s.client.Set(ctx, key, "x", 0).Err() },
		"list":   func(ctx context.Context) error { return s.client.RPush(ctx, key, "x").Err() },
		"set":    func(ctx context.Context) error { return s.client.SAdd(ctx, key, "x").Err() },
		"stream": func(ctx context.Context) error {
			return s.client.XAdd(ctx, &redis.XAddArgs{Stream: key, Values: []string{"x", "x"}}).Err()
		},
		"hash": func(ctx context.Context) error { return s.client.HSet(ctx, key, "x", "x").Err() },
		"zset": func(ctx context.Context) error { return s.client.ZAdd(ctx, key, redis.Z{Member: "x"}).Err() },
	}
}

// A wrong key, or a word for a number in the head, closes the copy and changes nothing else. A rebuild frees all keys.
func TestEachKeyOfAnotherTypeClosesTheCopy(t *testing.T) {
	t.Parallel()
	url := testserver.Redis(t, "--appendonly", "no").URL()
	kinds := check.Count(t, "KINDS", 1, 5)
	for _, p := range steps() {
		for _, noun := range []string{"head", "buyers", "pending", "due", "closed"} {
			own := "hash"
			if noun == "due" || noun == "closed" {
				own = "zset"
			}
			others := slices.DeleteFunc([]string{"string", "list", "set", "stream", "hash", "zset"},
				func(kind string) bool { return kind == own })
			for _, kind := range append(others[:min(kinds, len(others))], "nothing") {
				if p.name == "open" && noun == "head" && kind == "nothing" {
					continue // nobody knows of the epoch before, whose keys expire
				}
				t.Run(fmt.Sprintf("%s upon a %s of %s", p.name, kind, noun), func(t *testing.T) {
					t.Parallel()
					s := p.scene(t, url)
					key := s.keyOf(noun)
					check.Must(t, s.client.Del(t.Context(), key).Err())
					if spoil := spoilers(s.sale, key)[kind]; spoil != nil {
						check.Must(t, spoil(t.Context()))
					}
					s.closesAndHeals(p)
				})
			}
		}
		for _, field := range []string{"epoch", "stock", "revision", "changes", "price", "begin_us", "end_us"} {
			t.Run(p.name+" upon a word for "+field, func(t *testing.T) {
				t.Parallel()
				s := p.scene(t, url)
				check.Must(t, s.client.HSet(t.Context(), s.head(), field, "word").Err())
				s.closesAndHeals(p)
			})
		}
	}
}

func (s *scene) closesAndHeals(p step) {
	s.t.Helper()
	was := s.keys()
	err := p.do(s.t.Context(), s)
	if err != nil && !errors.Is(err, model.ErrCopyClosed) && !errors.Is(err, model.ErrSuperseded) {
		s.t.Errorf("the step is answered with %v", err)
	}
	if !p.builds {
		if !maps.Equal(s.keys(), was) {
			s.t.Error("the step has changed something")
		}
		check.Equal(s.t, "the copy", s.read().State, model.CopyClosed)
		check.Is(s.t, "the answer to a buyer", s.admit(s.admission("eve")).Err, model.ErrCopyClosed)
	}
	opened := int64(1)
	if p.name == "open" {
		opened = 2
	}
	s.rebuild(3, opened, nil, nil)
	s.buy("eve")
	for key := range s.keys() {
		if !strings.HasSuffix(key, ":head") && !strings.Contains(key, "}:3:") {
			s.t.Errorf("%s is left", key)
		}
	}
}
