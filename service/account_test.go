package service

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"seckill/internal/budget"
	"seckill/internal/password"
	"seckill/internal/telemetry"
	"seckill/internal/token"
	"seckill/internal/workshop/check"
	"seckill/model"
	"seckill/service/sale/cache"
	"seckill/service/servicetest"
)

type people struct {
	mu   sync.Mutex
	all  map[string]model.Account // by id
	away error
	asks int // questions for one account by its id
}

func (p *people) find(match func(model.Account) bool) (model.Account, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.away != nil {
		return model.Account{}, p.away
	}
	for _, account := range p.all {
		if match(account) {
			return account, nil
		}
	}
	return model.Account{}, model.NotFound("account")
}

func (p *people) Create(_ context.Context, account model.Account) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	account.Version = 1
	p.all[account.ID] = account
	return p.away
}

func (p *people) ByUsername(_ context.Context, username string) (model.Account, error) {
	return p.find(func(a model.Account) bool { return strings.EqualFold(a.Username, username) })
}

func (p *people) ByID(_ context.Context, id string) (model.Account, error) {
	p.mu.Lock()
	p.asks++
	p.mu.Unlock()
	return p.find(func(a model.Account) bool { return a.ID == id })
}

func (p *people) Change(_ context.Context, id, _ string, change func(*model.Account) error) (model.Account, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	account, found := p.all[id]
	if p.away != nil {
		return model.Account{}, p.away
	}
	if !found {
		return model.Account{}, model.NotFound("account")
	}
	if err := change(&account); err != nil {
		return model.Account{}, err
	}
	now := time.Now()
	account.ChangedAt = &now
	p.all[id] = account
	return account, nil
}

func (p *people) put(account model.Account) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.all[account.ID] = account
}

func (p *people) Changed(_ context.Context, since time.Time, _ int) ([]model.Account, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	var changed []model.Account
	for _, account := range p.all {
		if account.ChangedAt != nil && !account.ChangedAt.Before(since) {
			changed = append(changed, account)
		}
	}
	return changed, p.away
}

func (p *people) Administrators(context.Context) ([]model.Account, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	var admins []model.Account
	for _, account := range p.all {
		if account.Role == model.RoleAdmin {
			admins = append(admins, account)
		}
	}
	return admins, p.away
}

type quickHasher struct{}

func (quickHasher) Hash(ctx context.Context, _ password.Caller, secret string) (string, error) {
	return "hash of " + secret, ctx.Err()
}

func (quickHasher) Verify(ctx context.Context, _ password.Caller, secret, hash string) (bool, error) {
	return hash == "hash of "+secret, ctx.Err()
}

const (
	right = "correct horse"
	wrong = "wrong horse!"
	home  = "192.0.2.1"
	away  = "198.51.100.1"
)

// alice has an account, and root is an administrator.
type crowd struct {
	*Accounts

	people *people
	said   *check.Log
}

func newCrowd(t *testing.T) *crowd {
	t.Helper()
	c := &crowd{people: &people{all: map[string]model.Account{}}, said: &check.Log{}}
	log := slog.New(slog.NewTextHandler(c.said, nil))
	tokens, err := token.New([]token.Key{{ID: "1", Secret: strings.Repeat("s", token.MinSecret)}}, "seckill", "seckill")
	check.Must(t, err)
	known, err := cache.NewAccounts(cache.AccountSource{ByID: c.people.ByID, Changed: c.people.Changed}, LongestSession,
		log)
	check.Must(t, err)
	c.Accounts = NewAccounts(AccountDeps{
		Store: c.people, Hasher: quickHasher{}, Tokens: tokens, Cache: known,
		Metrics: telemetry.NewAccounts(prometheus.NewRegistry()), Log: log,
	})
	_, err = c.Register(t.Context(), home, "alice", right)
	check.Must(t, err)
	_, err = NewAdministrators(c.people, c.Hasher).Create(t.Context(), "root", right, model.LevelAdmin)
	check.Must(t, err)
	return c
}

func (c *crowd) try(t *testing.T, address, username, secret string) (model.Code, time.Duration) {
	t.Helper()
	_, err := c.Login(t.Context(), address, username, secret)
	if err == nil {
		return "", 0
	}
	refusal, ok := errors.AsType[*model.Error](err)
	check.Need(t, ok, "login: %v", err)
	check.That(t, refusal.Code != model.CodeRateLimited ||
		(refusal.RetryAfter > 0 && refusal.RetryAfter <= budget.Settled), "stay away for %s", refusal.RetryAfter)
	return refusal.Code, refusal.RetryAfter
}

func (c *crowd) flood(t *testing.T, lasts time.Duration, address, username func(n int) string) (compared int) {
	t.Helper()
	began := time.Now()
	for n := 0; time.Since(began) < lasts; n++ {
		if code, _ := c.try(t, address(n), username(n), wrong); code == model.CodeUnauthenticated {
			compared++
		}
		servicetest.Pass(100 * time.Millisecond)
	}
	return compared
}

func just(name string) func(int) string { return func(int) string { return name } }

func many(format string) func(int) string {
	return func(n int) string { return fmt.Sprintf(format, n) }
}

func inBubble(t *testing.T, test func(*testing.T, *crowd)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) { test(t, newCrowd(t)) })
}

func (c *crowd) getsIn(t *testing.T, when, address, username, secret string) {
	t.Helper()
	code, _ := c.try(t, address, username, secret)
	check.Equal(t, when+": the refusal of "+username, code, "")
}

func (c *crowd) admits(t *testing.T, what string, claims token.Claims, admin bool, want model.Code) {
	t.Helper()
	servicetest.Hears(t, what, check.ErrorOf(c.Admit(t.Context(), claims, admin)), want)
}

func TestOneAddressFloodsOneAccount(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T, c *crowd) {
		for minute := range 5 {
			compared := c.flood(t, time.Minute, just(away), just("Alice"))
			if most := []int{13, 9}[min(minute, 1)]; compared > most || compared == 0 {
				t.Errorf("minute %d: %d passwords were compared, want at most %d", minute, compared, most)
			}
			c.getsIn(t, fmt.Sprint("at home in minute ", minute), home, "alice", right)
			c.getsIn(t, fmt.Sprint("at home in minute ", minute), home, "root", right)
		}
		// Even from there the right password gets in after the wait that is told.
		code, wait := c.try(t, away, "alice", right)
		if code == model.CodeRateLimited {
			servicetest.Pass(wait)
			code, _ = c.try(t, away, "alice", right)
		}
		check.Equal(t, "the answer to the right password after the wait", code, "")
		if said := c.said.String(); !strings.Contains(said, "wrong password") || !strings.Contains(said, away) ||
			strings.Contains(said, wrong) {
			t.Errorf("the log: %s", said)
		}
	})
}

func TestFloodsAreLimited(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		lasts             time.Duration
		address, username func(int) string
		least, most       int
		others            string
	}{
		"one address, many accounts":  {2 * time.Minute, just(away), many("user%d"), 20, 45, "alice"},
		"many addresses, one account": {time.Minute, many("2001:db8:0:%x::/64"), just("alice"), 10, 40, "root"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			inBubble(t, func(t *testing.T, c *crowd) {
				compared := c.flood(t, tt.lasts, tt.address, tt.username)
				check.That(t, compared >= tt.least && compared <= tt.most, "%d passwords were compared", compared)
				c.getsIn(t, "at home", home, tt.others, right)
				servicetest.Pass(budget.Settled)
				c.getsIn(t, "when it is over", home, "alice", right)
			})
		})
	}
}

func TestSuccessesBuyNoGuesses(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T, c *crowd) {
		compared := 0
		for end := time.Now().Add(time.Minute); time.Now().Before(end); {
			_, _ = c.try(t, away, "alice", right)
			if code, _ := c.try(t, away, "root", wrong); code == model.CodeUnauthenticated {
				compared++
			}
			servicetest.Pass(100 * time.Millisecond)
		}
		check.That(t, compared <= 13, "%d passwords were compared", compared)
	})
}

// Limits do not depend on whether an account exists. No log shows an odd username: it may be a mistyped password.
func TestUnknownUsernamesAreLimitedAsOthers(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T, c *crowd) {
		var told [2]string
		for n, username := range []string{"alice", "nobody"} {
			address := fmt.Sprint("192.0.2.1", n)
			for range 12 {
				_, err := c.Login(t.Context(), address, username, wrong)
				refusal, _ := errors.AsType[*model.Error](err)
				told[n] += fmt.Sprintln(refusal, refusal.RetryAfter)
			}
		}
		check.Equal(t, "what is told of an unknown username", told[1], told[0])
		check.Equal(t, "it is limited", strings.Contains(told[1], "Too many"), true)
		spray := many("secret\n%d")
		compared := c.flood(t, time.Minute, just(away), spray)
		check.That(t, compared <= 35 && compared != 0, "%d passwords were compared for what is no username", compared)
		check.Equal(t, "the log tells of them", c.said.Has("wrong password", away), true)
		check.Equal(t, "the log tells what was typed", c.said.Has("secret"), false)
	})
}

func TestRightPasswordsDoNotWait(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T, c *crowd) {
		for n := range 30 {
			c.getsIn(t, fmt.Sprint("login ", n), home, "alice", right)
		}
		check.Equal(t, "they count as no failures", c.attempts.addresses.Clean(home), true)
		// An unknown user, a disabled one and a wrong password get the same answer.
		root := check.Value(c.people.ByUsername(t.Context(), "root"))(t)
		root.Disabled = true
		c.people.put(root)
		var answers []string
		for _, test := range [][2]string{{"alice", wrong}, {"nobody", wrong}, {"root", right}, {"root", wrong}, {"a\nb", wrong}} {
			_, err := c.Login(t.Context(), home, test[0], test[1])
			answers = append(answers, fmt.Sprint(err))
		}
		if slices.Sort(answers); answers[0] != answers[len(answers)-1] {
			t.Errorf("%q", answers)
		}
	})
}

func TestWhatIsOurTroubleIsNoFailure(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T, c *crowd) {
		c.people.away = model.Unavailable("away", nil)
		for range 40 {
			servicetest.Hears(t, "the database is away", check.ErrorOf(c.Login(t.Context(), home, "alice", right)),
				model.CodeUnavailable)
		}
		c.people.away = nil
		check.Equal(t, "the address is not blamed", c.attempts.addresses.Clean(home), true)
		// A client that hangs up does not get its guess for nothing.
		gone, cancel := context.WithCancel(t.Context())
		cancel()
		check.Is(t, "hung up", check.ErrorOf(c.Login(gone, home, "alice", wrong)), context.Canceled)
		check.Equal(t, "a client that hung up is counted", c.attempts.addresses.Clean(home), false)
	})
}

// A loop that ignores the wait gets one answer a second; beyond the places for it refusals come at once.
func TestRefusalsAreHeldBack(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T, c *crowd) {
		c.flood(t, 5*time.Second, just(away), just("alice")) // now alice's wait is 2 s or more
		began := time.Now()
		servicetest.Hears(t, "too early", check.ErrorOf(c.Login(t.Context(), away, "alice", wrong)),
			model.CodeRateLimited)
		servicetest.Took(t, "the answer", began, budget.Look, budget.Look)
		var waiting sync.WaitGroup
		for range maxHeld {
			waiting.Go(func() { _, _ = c.try(t, away, "alice", wrong) })
		}
		synctest.Wait()
		began = time.Now()
		servicetest.Hears(t, "one too many", check.ErrorOf(c.Login(t.Context(), away, "alice", wrong)),
			model.CodeRateLimited)
		servicetest.Took(t, "its answer", began, 0, 0)
		waiting.Wait()
		check.Equal(t, "held for ever", c.attempts.held.Load(), 0)
	})
}

func TestRegistrationsAreLimited(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T, c *crowd) {
		made := 0
		for end := time.Now().Add(30 * time.Second); time.Now().Before(end); {
			_, err := c.attempts.register(t.Context(), away) // without the hash, which takes most of the time
			if err == nil {
				made++
			} else if model.CodeOf(err) != model.CodeRateLimited {
				t.Fatal(err)
			}
			servicetest.Pass(100 * time.Millisecond)
		}
		check.That(t, made <= 140 && made >= 100, "%d accounts were made in half a minute", made)
		check.Must(t, check.ErrorOf(c.attempts.register(t.Context(), away)))
		impatient, leave := context.WithCancel(t.Context())
		leave()
		servicetest.Hears(t, "one more from that address", check.ErrorOf(c.Register(impatient, away, "robot", right)),
			model.CodeRateLimited)
		servicetest.Hears(t, "from another address", check.ErrorOf(c.Register(t.Context(), home, "human", right)), "")
	})
}

// Five accents of two characters each count as five.
func TestPasswordsAreCountedInTheirNormalSpelling(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T, c *crowd) {
		for name, test := range map[string]struct {
			characters int
			code       model.Code
		}{
			"short": {9, model.CodeValidation}, "shortest": {10, ""}, "longest": {128, ""},
			"long": {129, model.CodeValidation},
		} {
			typed := strings.Repeat("e\u0301", test.characters)
			servicetest.Hears(t, name, check.ErrorOf(c.Register(t.Context(), home, name, typed)), test.code)
			admins := NewAdministrators(c.people, c.Hasher)
			servicetest.Hears(t, name+" of an administrator",
				check.ErrorOf(admins.Create(t.Context(), name+"-admin", typed, model.LevelViewer)), test.code)
			if test.code == "" {
				c.getsIn(t, name, home, name, typed)
			}
		}
	})
}

func TestAdmit(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T, c *crowd) {
		session := check.Value(c.Login(t.Context(), home, "root", right))(t)
		check.That(t, session.ExpiresIn <= time.Hour, "an administrator's token lasts %s", session.ExpiresIn)
		root := check.Value(c.Tokens.Verify(t.Context(), session.AccessToken))(t)
		operator := token.Claims{Subject: "1", Role: model.RoleAdmin, Level: model.LevelOperator}
		account := check.Value(c.people.ByID(t.Context(), root.Subject))(t)
		answers := func(what string, claims token.Claims, asUser, asAdmin model.Code) {
			t.Helper()
			servicetest.Pass(time.Second)
			check.Must(t, c.Cache.Refresh(t.Context()))
			c.admits(t, what+", as a user", claims, false, asUser)
			c.admits(t, what+", as an administrator", claims, true, asAdmin)
		}
		const out = model.CodeUnauthenticated
		answers("an administrator", root, "", "")
		answers("the operator", operator, "", "")
		check.Equal(t, "the level of a token of no account", check.Value(c.Admit(t.Context(), operator, true))(t).Level,
			model.LevelOperator)
		// The account says in which groups it is now, and not the token.
		for _, groups := range []model.Groups{{"gold", "staff"}, {"staff"}, nil} {
			check.Value(c.SetGroups(t.Context(), root.Subject, "1", groups))(t)
			check.That(t, slices.Equal(check.Value(c.Admit(t.Context(), root, false))(t).Groups, groups),
				"the token's user is not in %q", groups)
		}
		check.That(t, len(check.Value(c.Admit(t.Context(),
			token.Claims{Subject: root.Subject, Groups: []string{"gold"}}, false))(t).Groups) == 1,
			"a token of no account lost its groups")
		// The account says what its administrator may do now, and not the token.
		for _, level := range []model.Level{model.LevelViewer, "", "none"} {
			lowered := account
			lowered.Level = level
			c.people.put(lowered)
			answers("with another level", root, "", "")
			check.Equal(t, "the level", check.Value(c.Admit(t.Context(), root, true))(t).Level,
				cmp.Or(level, model.LevelAdmin))
		}
		former := account
		former.Role = model.RoleUser
		c.people.put(former)
		answers("demoted", root, "", model.CodeForbidden)
		delete(c.people.all, account.ID)
		answers("deleted", root, "", out)

		c.people.put(account)
		c.people.away = model.Unavailable("away", nil)
		servicetest.Pass(time.Second)
		c.admits(t, "an administrator while the database is away", root, true, model.CodeUnavailable)
		for _, claims := range []token.Claims{root, operator, {Subject: "x", Role: model.RoleUser, Version: 1}} {
			c.admits(t, "a buyer while the database is away", claims, false, "")
		}
		c.admits(t, "the operator while the database is away", operator, true, "")
		c.people.away = nil

		admins := NewAdministrators(c.people, c.Hasher)
		check.Equal(t, "another level changes it",
			check.Value(admins.SetLevel(t.Context(), "Root", model.LevelViewer))(t), true)
		check.Equal(t, "the same level changes it",
			check.Value(admins.SetLevel(t.Context(), "root", model.LevelViewer))(t), false)
		servicetest.Hears(t, "an unknown level", check.ErrorOf(admins.SetLevel(t.Context(), "root", "none")),
			model.CodeValidation)
		servicetest.Hears(t, "a new one of an unknown level",
			check.ErrorOf(admins.Create(t.Context(), "other", right, "")), model.CodeValidation)
		check.Equal(t, "disabling changes it", check.Value(admins.SetDisabled(t.Context(), "ROOT", true))(t), true)
		check.Equal(t, "disabling again changes it", check.Value(admins.SetDisabled(t.Context(), "root", true))(t),
			false)
		answers("disabled", root, out, out)
		old := root
		old.Version = 0 // as an instance made it that knew no versions
		answers("disabled, without a version", old, out, out)
		check.Equal(t, "enabling changes it", check.Value(admins.SetDisabled(t.Context(), "root", false))(t), true)
		answers("enabled again", root, out, out)
		renewed := root
		renewed.Version = 2
		answers("logged in again", renewed, "", "")
		check.Must(t, admins.SetPassword(t.Context(), "root", "another horse"))
		answers("another password", renewed, out, out)
		servicetest.Hears(t, "alice is no administrator", check.ErrorOf(admins.SetDisabled(t.Context(), "alice", true)),
			model.CodeNotFound)
	})
}

// A token of a version that this instance has not heard of is not refused for that.
func TestANewTokenWorksAtOnce(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T, c *crowd) {
		session := check.Value(c.Login(t.Context(), home, "root", right))(t)
		claims := check.Value(c.Tokens.Verify(t.Context(), session.AccessToken))(t)
		check.Value(c.Admit(t.Context(), claims, true))(t)
		c.people.mu.Lock()
		asked := c.people.asks
		c.people.mu.Unlock()
		for range 100 {
			check.Value(c.Admit(t.Context(), claims, true))(t)
		}
		check.Equal(t, "how often a hundred requests asked the database", c.people.asks-asked, 0)
		account := check.Value(c.people.ByID(t.Context(), claims.Subject))(t)
		account.Version, claims.Version = 2, 2 // changed by another instance
		c.people.put(account)
		c.admits(t, "the new token", claims, true, "")
	})
}

func TestPasswordsAreChanged(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T, c *crowd) {
		session := check.Value(c.Login(t.Context(), home, "alice", right))(t)
		claims := check.Value(c.Tokens.Verify(t.Context(), session.AccessToken))(t)
		// A stolen token does not try passwords any faster than a login does.
		compared := 0
		for range 40 {
			err := c.ChangePassword(t.Context(), away, claims, wrong, "another horse")
			if model.CodeOf(err) == model.CodeUnauthenticated {
				compared++
			}
		}
		check.That(t, compared <= 14 && compared >= 3, "%d passwords of 40 were compared", compared)
		check.Must(t, c.ChangePassword(t.Context(), home, claims, right, "another horse"))
		c.admits(t, "the old token", claims, false, model.CodeUnauthenticated)
		err := c.ChangePassword(t.Context(), home, claims, "another horse", right)
		servicetest.Hears(t, "a change with the old token", err, model.CodeUnauthenticated)
		c.getsIn(t, "with the new password", home, "alice", "another horse")
	})
}

type slowHasher struct{ quickHasher }

func (h slowHasher) Hash(ctx context.Context, caller password.Caller, secret string) (string, error) {
	servicetest.Pass(20 * time.Millisecond)
	return h.quickHasher.Hash(ctx, caller, secret)
}

func TestParallelPasswordChanges(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T, c *crowd) {
		session := check.Value(c.Login(t.Context(), home, "alice", right))(t)
		claims := check.Value(c.Tokens.Verify(t.Context(), session.AccessToken))(t)
		c.Hasher = slowHasher{}
		var answers [3]error
		check.Volley(len(answers), func(i int) {
			answers[i] = c.ChangePassword(t.Context(), home, claims, right, fmt.Sprint("another horse ", i))
		})
		changed := slices.Index(answers[:], nil)
		check.Need(t, changed >= 0, "no change happened: %v", answers)
		for i, err := range answers {
			if i != changed {
				servicetest.Hears(t, "another change", err, model.CodeUnauthenticated)
			}
		}
		c.admits(t, "the old token", claims, false, model.CodeUnauthenticated)
		c.getsIn(t, "with the new password", home, "alice", fmt.Sprint("another horse ", changed))
	})
}
