package lane_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"seckill/internal/lane"
	"seckill/internal/workshop/check"
	"seckill/model"
)

type item struct {
	key    string
	number int
}

// trouble is what a key, or one item, does to the runs that have it.
type trouble struct {
	takes time.Duration // before anything else
	err   error         // of the run; nil: it goes on
	judge lane.Trouble  // of the answers
}

func locked(key string) trouble {
	return trouble{takes: time.Second, err: &model.HeldError{VoucherID: key, Cause: errors.New("1205")}}
}

// store runs batches in 5 ms, and meets what a test has put in their way.
type store struct {
	mu    sync.Mutex
	keys  map[string]trouble
	items map[int]trouble
	away  error
	runs  []began
	done  map[int]int
}

// began is the beginning of a run, by its keys.
type began struct {
	at   time.Time
	keys string
}

func newStore() *store {
	return &store{keys: map[string]trouble{}, items: map[int]trouble{}, done: map[int]int{}}
}

func (s *store) run(_ context.Context, items []item) ([]lane.Trouble, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	keys := map[string]bool{}
	for _, i := range items {
		keys[i.key] = true
	}
	names := slices.Sorted(func(yield func(string) bool) {
		for key := range keys {
			if !yield(key) {
				return
			}
		}
	})
	s.runs = append(s.runs, began{time.Now(), strings.Join(names, "+")})
	s.pass(5 * time.Millisecond)
	if s.away != nil {
		return nil, s.away
	}
	for _, key := range names {
		s.pass(s.keys[key].takes)
		if err := s.keys[key].err; err != nil {
			return nil, err
		}
	}
	answers := make([]lane.Trouble, len(items))
	for n, i := range items {
		if err := s.items[i.number].err; err != nil {
			return nil, err
		}
		answers[n] = s.keys[i.key].judge
	}
	for _, i := range items {
		s.done[i.number]++
	}
	return answers, nil
}

func pass(takes time.Duration) { <-time.After(takes) }

// pass takes a part of a run's time, beside others.
func (s *store) pass(takes time.Duration) {
	if takes > 0 {
		s.mu.Unlock()
		pass(takes)
		s.mu.Lock()
	}
}

func (s *store) change(what func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	what()
}

func (s *store) did(i item) (times int) {
	s.change(func() { times = s.done[i.number] })
	return times
}

// ran lists the runs begun since the last call, those of one instant by name.
func (s *store) ran() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	slices.SortFunc(s.runs, func(a, b began) int { return cmp.Or(a.at.Compare(b.at), cmp.Compare(a.keys, b.keys)) })
	told := make([]string, len(s.runs))
	for n, run := range s.runs {
		told[n] = run.keys
	}
	s.runs = nil
	return strings.Join(told, " ")
}

type scene struct {
	*store
	*lane.Lane[item, lane.Trouble]

	last int
	told []string // of keys that are isolated, or well again
}

func onScene(t *testing.T, fruitless int, test func(*testing.T, *scene)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		s := &scene{store: newStore()}
		s.Lane = lane.NewLane(lane.Rules[item, lane.Trouble]{
			Key: func(i item) string { return i.key }, Run: s.run,
			Judge: func(said lane.Trouble) lane.Trouble { return said }, Total: 4, Fruitless: fruitless,
			Isolated: func(key string, cause error, first bool) {
				s.change(func() {
					s.told = append(s.told,
						fmt.Sprint(key, " for ", cause != nil, ", the first ", first))
				})
			},
			Recovered: func(key string) { s.change(func() { s.told = append(s.told, key+" is well") }) },
		}, lane.Options{Writers: 2, MaxBatch: 500, MaxQueue: 5000, Timeout: 10 * time.Second})
		test(t, s)
		s.Close(context.Background())
	})
}

type answer struct {
	err  error
	took time.Duration
}

// ask submits an item of each key together.
func (s *scene) ask(ctx context.Context, keys ...string) map[string]<-chan answer {
	items := make([]item, len(keys))
	for n, key := range keys {
		s.last++
		items[n] = item{key, s.last}
	}
	began, answers := time.Now(), map[string]<-chan answer{}
	for n, ticket := range s.Submit(ctx, items...) {
		told := make(chan answer, 1)
		answers[keys[n]] = told
		go func() {
			_, err := ticket.Wait(context.Background())
			told <- answer{err, time.Since(began)}
		}()
	}
	synctest.Wait()
	return answers
}

// TestALockedKeyIsWaitedForOnce: others lose one attempt, newcomers none; after its term the key shares runs again.
func TestALockedKeyIsWaitedForOnce(t *testing.T) {
	t.Parallel()
	onScene(t, 0, func(t *testing.T, s *scene) {
		s.keys["b"] = locked("b")
		first := s.ask(t.Context(), "a", "b", "c")
		pass(100 * time.Millisecond)
		second := s.ask(t.Context(), "b", "c", "d")
		check.Equal(t, "d, which shares nothing with it", (<-second["d"]).took, 5*time.Millisecond)
		check.Equal(t, "a, of its run", (<-first["a"]).took, 1010*time.Millisecond)
		check.Equal(t, "c, which came later", (<-second["c"]).took, 915*time.Millisecond)
		check.Equal(t, "runs", s.ran(), "a+b+c d a+c b c")
		check.Equal(t, "a, afterwards", (<-s.ask(t.Context(), "a", "b")["a"]).took, 5*time.Millisecond)
		got := <-first["b"]
		check.That(t, got.err != nil && got.took < 3*time.Second, "the locked one: %v after %v", got.err, got.took)
		s.change(func() { delete(s.keys, "b") })
		pass(15 * time.Second)
		s.ran()
		<-s.ask(t.Context(), "a", "b", "c")["b"]
		check.Equal(t, "runs, afterwards", s.ran(), "a+b+c")
	})
}

// TestManyLockedKeys: two of them cost the others of a run an attempt each, and then each goes by itself.
func TestManyLockedKeys(t *testing.T) {
	t.Parallel()
	onScene(t, 0, func(t *testing.T, s *scene) {
		keys := []string{"a"}
		for i := range 12 {
			keys = append(keys, fmt.Sprint("b", i))
			s.keys[keys[i+1]] = locked(keys[i+1])
		}
		check.Equal(t, "a, of their run", (<-s.ask(t.Context(), keys...)["a"]).took, 2015*time.Millisecond)
		for range 10 {
			check.Equal(t, "a, afterwards", (<-s.ask(t.Context(), keys...)["a"]).took, 5*time.Millisecond)
		}
	})
}

// TestAKeyThatSpoilsRuns: an error without a name has each key tried alone, at once. The failing one stays alone, is
// tried less and less often, and within two seconds of being well.
func TestAKeyThatSpoilsRuns(t *testing.T) {
	t.Parallel()
	onScene(t, 0, func(t *testing.T, s *scene) {
		s.keys["b"] = trouble{err: errors.New("a trigger")}
		first := s.ask(t.Context(), "a", "b")
		check.Equal(t, "a", <-first["a"], answer{nil, 10 * time.Millisecond})
		check.Is(t, "b", (<-first["b"]).err, s.keys["b"].err)
		s.ran()
		for range 600 {
			got := s.ask(t.Context(), "a", "b")
			check.Equal(t, "a", <-got["a"], answer{nil, 5 * time.Millisecond})
			pass(95 * time.Millisecond)
		}
		check.Is(t, "after a minute", s.Resting("b"), lane.ErrResting)
		runs := strings.Fields(s.ran())
		tries := len(slices.DeleteFunc(runs, func(run string) bool { return run != "b" }))
		check.That(t, tries > 25 && tries < 60, "%d runs in a minute", tries)
		s.change(func() { delete(s.keys, "b") })
		got := <-s.ask(t.Context(), "b")["b"]
		check.That(t, got.err == nil && got.took <= 2100*time.Millisecond, "when it is well: %v after %v", got.err,
			got.took)
		check.Must(t, s.Resting("b"))
		check.Equal(t, "what was told in all attempts", strings.Join(s.told, "; "),
			"b for true, the first true; b is well")
	})
}

// Who is only suspected is not said to be the trouble, however long it takes to show.
func TestASuspicionIsNoTrouble(t *testing.T) {
	t.Parallel()
	onScene(t, 0, func(t *testing.T, s *scene) {
		s.keys["b"] = trouble{takes: time.Second, err: errors.New("a time-out")}
		told := s.ask(t.Context(), "a", "b")
		<-told["a"]
		check.That(t, s.Isolated("b") && !s.Troubled("b") && !s.Troubled("a"),
			"isolated, and in trouble, before it is known")
		<-told["b"]
		synctest.Wait()
		check.That(t, s.Troubled("b") && !s.Troubled("a"), "not in trouble when it is known")
		pass(time.Minute)
		check.That(t, !s.Troubled("b"), "in trouble after a minute in which nobody asked")
	})
}

// TestAnUnknownOutcomeIsTheAnswer: nothing runs again that may have happened; the keys run alone for a while.
func TestAnUnknownOutcomeIsTheAnswer(t *testing.T) {
	t.Parallel()
	onScene(t, 0, func(t *testing.T, s *scene) {
		s.keys["b"] = trouble{err: fmt.Errorf("%w; last: %w", model.ErrUnknownOutcome, locked("b").err)}
		first := s.ask(t.Context(), "a", "b")
		check.Is(t, "a", (<-first["a"]).err, model.ErrUnknownOutcome)
		check.Is(t, "b", (<-first["b"]).err, model.ErrUnknownOutcome)
		check.Must(t, (<-s.ask(t.Context(), "a", "b")["a"]).err)
		check.Equal(t, "runs", s.ran(), "a+b a b")
	})
}

// TestAnswersTellOfTrouble: nothing fails, but others would wait again and again. A key rests once its answers show it.
func TestAnswersTellOfTrouble(t *testing.T) {
	t.Parallel()
	onScene(t, 0, func(t *testing.T, s *scene) {
		s.keys["slow"] = trouble{takes: 500 * time.Millisecond, judge: lane.Trouble{Slow: true}}
		s.keys["ill"] = trouble{judge: lane.Trouble{Cause: errors.New("gone")}}
		check.Equal(t, "a, together", (<-s.ask(t.Context(), "a", "slow", "ill")["a"]).took, 505*time.Millisecond)
		got := s.ask(t.Context(), "a", "slow", "ill")
		check.Equal(t, "a, afterwards", (<-got["a"]).took, 5*time.Millisecond)
		check.Is(t, "the ill one", s.Resting("ill"), s.keys["ill"].judge.Cause)
		check.Equal(t, "the slow one does not rest", (<-got["slow"]).took, 505*time.Millisecond)
		check.Must(t, s.Resting("slow"))
	})
}

// TestOneBadItemIsFound: the others of its key are done, at once for refused data, else after the second attempt.
func TestOneBadItemIsFound(t *testing.T) {
	t.Parallel()
	for name, err := range map[string]error{"its data": fmt.Errorf("%w: 1366", model.ErrDataRefused), "another reason": errors.New("a damaged page")} {
		for _, bad := range []int{1, 317, 500} {
			t.Run(fmt.Sprint(name, " ", bad), func(t *testing.T) {
				t.Parallel()
				onScene(t, 0, func(t *testing.T, s *scene) {
					s.items[bad] = trouble{err: err}
					items := make([]item, 500)
					for n := range items {
						items[n] = item{"a", n + 1}
					}
					for range 2 {
						for n, ticket := range s.Submit(t.Context(), items...) {
							_, failed := ticket.Wait(t.Context())
							check.That(t, failed != nil || s.did(items[n]) > 0, "%v is said to be done", items[n])
						}
					}
					for _, i := range items {
						check.That(t, (s.did(i) > 0) == (i.number != bad), "%v: done %d times", i, s.did(i))
					}
				})
			})
		}
	}
}

// TestWhenAllFailFewAreTried: what all keys need is away, or refuses all that it is given.
func TestWhenAllFailFewAreTried(t *testing.T) {
	t.Parallel()
	for name, err := range map[string]error{"away": errors.New("connection refused"), "refuses": model.ErrDataRefused} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			onScene(t, 3, func(t *testing.T, s *scene) {
				s.away = err
				keys := make([]string, 500)
				for n := range keys {
					keys[n] = fmt.Sprint("v", n)
				}
				for _, told := range s.ask(t.Context(), keys...) {
					check.That(t, (<-told).err != nil, "an item is done, and nothing ran")
				}
				runs := len(strings.Fields(s.ran()))
				if name == "away" {
					check.That(t, runs <= 1+3+4, "%d runs", runs)
				}
				s.change(func() { s.away = nil })
				pass(3 * time.Second)
				for key, told := range s.ask(t.Context(), keys...) {
					check.That(t, (<-told).err == nil, "%s is not done", key)
				}
			})
		})
	}
}

// TestFewKeysAreRemembered: however many are in trouble, and none for ever.
func TestFewKeysAreRemembered(t *testing.T) {
	t.Parallel()
	onScene(t, 0, func(t *testing.T, s *scene) {
		for i := range 3000 {
			key := fmt.Sprint("v", i)
			s.keys[key] = trouble{judge: lane.Trouble{Slow: true}}
			<-s.ask(t.Context(), key)[key]
		}
		check.That(t, lane.Remembered(s.Lane) <= lane.MaxIsolated, "%d are remembered", lane.Remembered(s.Lane))
		pass(20 * time.Second)
		<-s.ask(t.Context(), "a")["a"]
		check.Equal(t, "keys remembered", lane.Remembered(s.Lane), 0)
	})
}

// TestHistories generates troubles of keys and items, and holds the lane to its promises: one true answer for each
// item; a well key's fails only with an unknown outcome, and waits for few spoiled runs; all well keys share runs.
func TestHistories(t *testing.T) {
	t.Parallel()
	seeds := check.Seeded(t)
	for n := range 12 {
		seed := seeds.Uint64()
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			t.Parallel()
			onScene(t, 0, func(t *testing.T, s *scene) {
				(&history{scene: s, random: rand.New(rand.NewPCG(seed, uint64(n))), ill: map[string]bool{}}).play(t)
			})
		})
	}
}

type history struct {
	*scene

	random  *rand.Rand
	ill     map[string]bool // keys that have ever been in trouble
	unknown bool            // some run's outcome was
	wg      sync.WaitGroup
}

func (h *history) play(t *testing.T) {
	t.Helper()
	vouchers := []int{1, 10, 100}[h.random.IntN(3)]
	for range 200 {
		key := fmt.Sprint("v", h.random.IntN(vouchers))
		switch h.random.IntN(12) {
		case 0:
			if h.mayBeIll(key, vouchers) {
				said := h.anyTrouble(key)
				h.change(func() {
					h.unknown = h.unknown || errors.Is(said.err, model.ErrUnknownOutcome)
					h.ill[key], h.keys[key] = true, said
				})
			}
		case 1:
			h.change(func() { delete(h.keys, key) })
		default:
			h.submit(t, vouchers)
		}
		pass(time.Duration(h.random.IntN(200)) * time.Millisecond)
	}
	h.change(func() { clear(h.keys); clear(h.items) })
	pass(time.Minute)
	h.wg.Wait()
	h.ran()
	keys := []string{"v0", "w"}
	for _, told := range h.ask(t.Context(), keys...) {
		check.Must(t, (<-told).err)
	}
	check.Equal(t, "runs, when all are well", h.ran(), "v0+w")
}

func (h *history) mayBeIll(key string, vouchers int) bool {
	return h.ill[key] || len(h.ill) < (vouchers+1)/2
}

func (h *history) anyTrouble(key string) trouble {
	return []trouble{
		locked(key),
		{err: errors.New("a trigger")},
		{takes: 3 * time.Second, err: errors.New("a time-out")},
		{takes: 400 * time.Millisecond, judge: lane.Trouble{Slow: true}},
		{judge: lane.Trouble{Cause: errors.New("gone")}},
		{err: model.ErrDataRefused},
		{takes: time.Second, err: model.ErrUnknownOutcome},
	}[h.random.IntN(7)]
}

func (h *history) submit(t *testing.T, vouchers int) {
	t.Helper()
	items := make([]item, 1+h.random.IntN(30))
	for n := range items {
		h.last++
		items[n] = item{fmt.Sprint("v", h.random.IntN(vouchers)), h.last}
		if key := items[n].key; h.random.IntN(100) == 0 && h.mayBeIll(key, vouchers) {
			err := []error{model.ErrDataRefused, errors.New("a damaged page")}[h.random.IntN(2)]
			h.change(func() { h.ill[key], h.items[h.last] = true, trouble{err: err} })
		}
	}
	ctx, leave := context.WithTimeout(t.Context(), 20*time.Second)
	if h.random.IntN(10) == 0 {
		ctx, leave = context.WithTimeout(t.Context(), time.Duration(h.random.IntN(50))*time.Millisecond)
	}
	began := time.Now()
	for n, ticket := range h.Submit(ctx, items...) {
		h.wg.Go(func() {
			_, err := ticket.Wait(context.Background())
			took := time.Since(began)
			h.mu.Lock()
			defer h.mu.Unlock()
			done, well := h.done[items[n].number], !h.ill[items[n].key]
			check.That(t, done <= 1 && (err != nil || done == 1), "%v: done %d times, %v", items[n], done, err)
			if !well || errors.Is(err, lane.ErrNotRun) {
				return
			}
			check.That(t, err == nil || h.unknown && errors.Is(err, model.ErrUnknownOutcome),
				"%v, whose key is well: %v", items[n], err)
			check.That(t, took <= h.bound(), "%v, whose key is well: after %v", items[n], took)
			check.That(t, h.unknown || !h.Troubled(items[n].key), "%v, whose key is well, is said to be the trouble",
				items[n])
		})
	}
	_ = leave
}

// bound is how long a well key's item may take: two spoiled runs (3 s at most), another writer's, and its own.
func (*history) bound() time.Duration { return 13 * time.Second }
