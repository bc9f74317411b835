//go:build faults

//part:redis

package e2e_test

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"seckill/internal/workshop/check"
	"seckill/internal/workshop/remote"
	"seckill/internal/workshop/testserver"
	"seckill/model"
)

// refusedFor is how long a command is refused: long enough for every loop that repeats a call to meet it several times.
const refusedFor = 2 * time.Second

// breakage breaks scripts off, and ends it. It ends early when it has met a call and once is enough.
type breakage struct {
	name string
	do   func(t *testing.T, b *broken, voucherID string)
}

// broken is an instance that uses Redis with an account of its own.
type broken struct {
	*app

	admin   *redis.Client
	account string
}

// breakages are all commands of all scripts, refused once and for a while, and all keys with each type that is not
// theirs.
func breakages(t *testing.T) []breakage {
	t.Helper()
	var commands []string
	files := check.Value(filepath.Glob("../../../repository/hotcopy/lua/*.lua"))(t)
	for _, file := range files {
		text := check.Value(os.ReadFile(file))(t)
		for _, found := range regexp.MustCompile(`(?:redis\.p?call|write)\('([a-z]+)'`).FindAllStringSubmatch(string(text), -1) {
			commands = append(commands, found[1])
		}
	}
	slices.Sort(commands)
	var all []breakage
	for _, command := range slices.Compact(commands) {
		for _, once := range []bool{true, false} {
			all = append(all, breakage{fmt.Sprintf("%s refused, once %v", command, once), func(t *testing.T, b *broken, _ string) {
				t.Helper()
				b.refuse(t, command, once)
			}})
		}
	}
	for _, noun := range []string{"head", "buyers", "pending", "due", "closed"} {
		for _, kind := range []string{"set", "rpush", "sadd", "zadd", "hset", "xadd"} {
			if zset := noun == "due" || noun == "closed"; kind == "zadd" && zset || kind == "hset" && !zset {
				continue
			}
			all = append(all, breakage{noun + " by " + kind, func(t *testing.T, b *broken, voucherID string) {
				t.Helper()
				b.spoil(t, voucherID, noun, kind)
			}})
		}
	}
	return all
}

// refuse takes a right away and gives it back after a while, or once Redis has refused a call for it.
func (b *broken) refuse(t *testing.T, command string, once bool) {
	t.Helper()
	may := func(rule string) {
		check.Must(t, b.admin.Do(context.WithoutCancel(t.Context()), "acl", "setuser", b.account, rule+command).Err())
	}
	may("-")
	defer may("+")
	over := time.After(refusedFor)
	check.Eventually(t, command+" was refused", func() bool {
		select {
		case <-over:
			return true
		default:
			return once && b.met(t, command)
		}
	})
}

// met reports whether Redis has refused a call for a command.
func (b *broken) met(t *testing.T, command string) bool {
	t.Helper()
	entries := check.Value(b.admin.ACLLog(t.Context(), 100).Result())(t)
	return slices.ContainsFunc(entries, func(e *redis.ACLLogEntry) bool { return e.Username == b.account && e.Object == command })
}

// spoil puts something else under a key of the copy that is open.
func (b *broken) spoil(t *testing.T, voucherID, noun, kind string) {
	t.Helper()
	key := "seckill:v1:{" + voucherID + "}:head"
	epoch := check.Value(b.admin.HGet(t.Context(), key, "epoch").Result())(t)
	if noun != "head" {
		key = "seckill:v1:{" + voucherID + "}:" + epoch + ":" + noun
	}
	args := map[string][]any{
		"set": {"x"}, "rpush": {"x"}, "sadd": {"x"}, "zadd": {1, "x"}, "hset": {"x", "x"}, "xadd": {"*", "x", "x"},
	}[kind]
	_, err := b.admin.TxPipelined(t.Context(), func(pipe redis.Pipeliner) error {
		pipe.Del(t.Context(), key)
		pipe.Do(t.Context(), append([]any{kind, key}, args...)...)
		return nil
	})
	check.Must(t, err)
}

// Whatever breaks a script off in a rush, everything is well again by itself: whoever heard 202 has an order, no unit
// is lost and none is left over, and meanwhile buyers hear 503 and nothing else. There are always units, so nobody may
// hear SOLD_OUT.
func TestScriptsAreBrokenOffInARush(t *testing.T) {
	t.Parallel()
	server := testserver.Redis(t, "--appendonly", "no", "--acllog-max-len", "1000")
	admin := redis.NewClient(&redis.Options{Addr: server.Addr()})
	t.Cleanup(func() { check.Must(t, admin.Close()) })
	all := breakages(t)
	lanes := check.Count(t, "LANES", 4, 4)
	for lane := range lanes {
		t.Run(fmt.Sprint("lane ", lane), func(t *testing.T) {
			t.Parallel()
			b := &broken{admin: admin, account: fmt.Sprint("lane", lane)}
			check.Must(t, admin.Do(t.Context(), "acl", "setuser", b.account, "on", ">secret", "~*", "&*", "+@all").Err())
			s := asyncOnServers(t).with(settings{"SECKILL_REDIS_URL": strings.Replace(server.URL(), "redis://", "redis://"+b.account+":secret@", 1)})
			b.app = start(t, s)
			for n := lane; n < len(all); n += lanes {
				t.Run(all[n].name, func(t *testing.T) { b.rush(t, all[n]) })
			}
		})
	}
}

// rush sells while scripts are broken off, and checks what comes of it.
func (b *broken) rush(t *testing.T, how breakage) {
	t.Helper()
	b.prefix = strings.NewReplacer(" ", "-", ",", "").Replace(how.name) + "." + b.account + ":"
	const stock = 1_000_000
	voucher := b.onSale(t, stock)
	c := newCrowd(b.app, voucher.ID)
	var mu sync.Mutex
	returned := map[string]bool{}
	c.lives = func(t *testing.T, user string) { // a life: every tenth gives the order back
		got := c.insist(t, user)
		if !got.Sells() || !strings.HasSuffix(user, "0") {
			return
		}
		order := remote.Decode[model.Order](t, got)
		b.becomes(t, order, model.OrderUnpaid)
		b.cancels(t, order)
		mu.Lock()
		defer mu.Unlock()
		returned[order.ID] = true
	}
	stop := c.coming(t, 6)
	c.moreSales(t, 50)
	how.do(t, b, voucher.ID)
	ended := time.Now()
	c.moreSales(t, 20)
	stop()
	audit := b.quiet(t, voucher.ID)
	t.Logf("well again %.1f s after its end; %d sold, %d refused, %d returned", time.Since(ended).Seconds(), c.yes, c.refused, len(returned))
	check.Equal(t, "users who heard that all is sold", c.soldOut, 0)
	orders := b.conserved(t, voucher.ID, c.promised)
	for id := range c.promised {
		want := model.OrderUnpaid
		if returned[id] {
			want = model.OrderCanceled
		}
		if orders[id].Status != want {
			t.Errorf("order %s was promised and is %q (%s), want %s", id, orders[id].Status, orders[id].Reason, want)
		}
	}
	left := fmt.Sprintf(`{"stock":%d}`, audit.Database.LiveOrders+3)
	got := b.Insist(t, http.MethodPost, "/admin/vouchers/"+voucher.ID+"/stock", b.Admin(t), left)
	check.Need(t, got.Status == http.StatusOK, "lower the stock: %d %s", got.Status, got.Body)
	b.sellsOn(t, voucher.ID, stock)
}
