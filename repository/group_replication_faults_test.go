//go:build faults

//part:mysql8

package repository_test

import (
	"context"
	"database/sql"
	"fmt"
	"strings"
	"testing"

	"seckill/internal/workshop/check"
	"seckill/internal/workshop/testserver"
	"seckill/model"
	"seckill/repository/sqldb"
)

// A connection gets the consistency that the service needs. A secondary is not ready, and neither is a primary without
// a majority. Nothing hangs for ever, and nothing is lost or sold twice.
func TestGroupReplicationMembers(t *testing.T) {
	t.Parallel()
	members := testserver.GroupReplication(t, 3)
	f := openFixture(t, stores()[0], sqldb.Options{DSN: testserver.Proxied(t, members).DSN(testserver.DefaultSchema)})
	check.Must(t, f.db.Migrate(t.Context())) // every table has a primary key, or a member would refuse its rows
	check.Must(t, f.db.Ready(t.Context()))
	check.Equal(t, "the port", f.number(t, "SELECT @@port"), int64(members[0].Port()))
	var consistency string
	check.Must(t, f.db.SQL().QueryRowContext(t.Context(), "SELECT @@group_replication_consistency").Scan(&consistency))
	check.Equal(t, "the consistency of a connection", consistency, "BEFORE_ON_PRIMARY_FAILOVER")

	secondary := openFixture(t, stores()[0], sqldb.Options{DSN: members[1].DSN(testserver.DefaultSchema)})
	if err := secondary.db.Ready(t.Context()); model.CodeOf(err) != model.CodeUnavailable ||
		!strings.Contains(err.Error(), "takes no writes") {
		t.Errorf("a secondary is ready: %v", err)
	}

	v := f.onSale(t, 100_000)
	check.Must(t, f.place(t, order(t, v.ID, "alice")).Err)
	// As MySQL has it by itself: the member waits for ever, and never becomes read-only.
	admin := check.Value(sql.Open("mysql", members[0].AdminDSN("")))(t)
	defer admin.Close()
	check.Must(t, check.ErrorOf(admin.ExecContext(t.Context(),
		"SET GLOBAL group_replication_unreachable_majority_timeout = 0")))
	members[1].Pause()
	members[2].Pause()
	check.Eventually(t, "the primary is not ready without the others", func() bool {
		return strings.Contains(fmt.Sprint(f.db.Ready(t.Context())), "takes no writes")
	})
	hanging := order(t, v.ID, "bob")
	ctx, cancel := context.WithTimeout(t.Context(), inDoubt)
	err := check.ErrorOf(f.orders.CreateOrders(ctx, []model.Order{hanging}))
	cancel()
	wantUnknown(t, err)
	members[1].Resume()
	members[2].Resume()
	check.Eventually(t, "a primary of the majority is ready", func() bool { return f.db.Ready(t.Context()) == nil })

	// The same order again: it is there once, whether or not its COMMIT came through in the end.
	check.Eventually(t, "bob has an order", func() bool {
		ctx, cancel := context.WithTimeout(t.Context(), inDoubt)
		defer cancel()
		outcomes, err := f.orders.CreateOrders(ctx, []model.Order{hanging})
		return err == nil && outcomes[0].Err == nil && outcomes[0].Order.ID == hanging.ID
	})
	f.balanced(t, v.ID, 2)
	connections := testserver.Status(t, admin, "Threads_connected")
	check.That(t, connections <= 100, "%d connections to a member that hung", connections)
}
