//go:build faults

//part:databases

package repository_test

import (
	"context"
	"database/sql"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"seckill/internal/workshop/check"
	"seckill/internal/workshop/testserver"
	"seckill/model"
)

// TestServerFrozen (SIGSTOP): no connection breaks, nothing is answered.
func TestServerFrozen(t *testing.T) {
	t.Parallel()
	f, server, _ := ownServer(t)
	hasty := f.hasty(t)
	v := f.onSale(t, 10)
	server.Pause()
	check.Eventually(t, "every thread has stopped", func() bool {
		threads := check.Value(filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", server.PID())))(t)
		for _, thread := range threads {
			if stat, err := os.ReadFile(thread); err == nil && !strings.Contains(string(stat), ") T ") {
				return false
			}
		}
		return len(threads) > 0
	})
	hasty.unavailable(t, v.ID)
	server.Resume()
	check.Must(t, f.place(t, order(t, v.ID, "alice")).Err)
	f.balanced(t, v.ID, 1)
}

// TestServerThatHangsIsLeft: also by those who wait for its answer.
func TestServerThatHangsIsLeft(t *testing.T) {
	t.Parallel()
	p := newPair(t)
	f := p.open(t).hasty(t)
	f.fill(t)
	waiting := make(chan error, 1)
	conn := check.Value(f.db.SQL().Conn(t.Context()))(t)
	go func() { waiting <- check.ErrorOf(conn.ExecContext(context.Background(), "DO SLEEP(3)")) }()
	check.Eventually(t, "it is asked", func() bool { return testserver.Waiting(t, f.db.SQL(), "DO SLEEP(3)") })
	p.first.Pause()
	defer p.first.Resume()
	check.Eventually(t, "another order is made", func() bool {
		return check.ErrorOf(f.orders.CreateOrders(t.Context(), []model.Order{order(t, p.voucher, "alice")})) == nil
	})
	if err := check.Receive(t, "the end of the question", waiting); err == nil {
		t.Error("the server that hangs has answered")
	}
	_ = conn.Close() // it is broken
	check.Equal(t, "the port", check.Value(f.port(t.Context()))(t), p.second.Port())
}

// TestClaimMoves: a named lock is a server's. It is taken on the server in use.
func TestClaimMoves(t *testing.T) {
	t.Parallel()
	p := newPair(t)
	setReadOnly(t, p.second, true)
	f := p.open(t)
	claim := f.db.Exclusive("embedded")
	defer func() { check.Must(t, claim.Close()) }()
	holder := func(server *testserver.Server) bool {
		held := check.Value(claim.Held(t.Context()))(t)
		db := check.Value(sql.Open("mysql", server.AdminDSN("")))(t)
		defer db.Close()
		var free bool
		check.Must(t, db.QueryRowContext(t.Context(), "SELECT IS_FREE_LOCK('seckill.seckill.embedded')").Scan(&free))
		return held && !free
	}
	check.Eventually(t, "the claim is held on the first server", func() bool { return holder(p.first) })
	setReadOnly(t, p.second, false)
	setReadOnly(t, p.first, true)
	check.Eventually(t, "the claim is held on the second server", func() bool { return holder(p.second) })
}
