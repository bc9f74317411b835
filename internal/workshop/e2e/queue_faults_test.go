//go:build faults

//part:queue

package e2e_test

import (
	"testing"
	"time"

	"seckill/internal/workshop/testserver"
)

// The queue loses all promises before a worker has seen one, as three servers with lost disks do. Redis knows the
// reservations: they are published again once any start makes the stream anew.
func TestAQueueWithoutItsDisksLosesNoOrder(t *testing.T) {
	t.Parallel()
	own, s := asyncOnOwnNATS(t)
	a := start(t, s.role("api").with(settings{"SECKILL_BACKLOG_MAX_AGE": "1h"}))
	voucher := a.onSale(t, 30)
	promised := a.buysAll(t, voucher.ID, users(a, 0, 10))
	own.Kill()
	own.ClearData()
	own.Start()
	start(t, s.role("worker"))
	a.kept(t, voucher.ID, promised)
	a.sellsOn(t, voucher.ID, 100)
}

// TestAFullDisk fills the disks of the embedded servers, and of each server, in a sale. It stops, readiness says so,
// and room, or a start, resumes it. NATS and MariaDB (may end itself) need a start, as the runbook says. Promises hold.
func TestAFullDisk(t *testing.T) {
	t.Parallel()
	for what, tt := range map[string]struct {
		owned func(t *testing.T) (*testserver.Server, settings) // nil: embedded
		more  settings
		size  string
		renew bool
	}{
		"embedded, sync":  {more: settings{"SECKILL_ORDER_MODE": "sync"}, size: "96m"},
		"embedded, async": {more: settings{"SECKILL_ORDER_MODE": "async"}, size: "96m"},
		"MariaDB, sync":   {asyncOnOwnDatabase, settings{"SECKILL_ORDER_MODE": "sync", "SECKILL_NATS_URL": ""}, "400m", true},
		"MariaDB, async":  {asyncOnOwnDatabase, settings{"SECKILL_BACKLOG_MAX_AGE": "1s"}, "400m", true},
		"Redis":           {asyncOnOwnRedis, nil, "64m", false},
		"NATS":            {asyncOnOwnNATS, nil, "64m", true},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			var own *testserver.Server
			var disk *testserver.Disk
			s, rounds := embeddedSettings(t), 3
			if tt.owned == nil {
				disk = testserver.SmallDisk(t, tt.size)
				s["SECKILL_DATA_DIR"] = disk.Dir()
			} else {
				own, s = tt.owned(t)
				disk, rounds = own.OnSmallDisk(t, tt.size), 1
			}
			p := launch(t, s.with(tt.more))
			p.connect(t, 8)
			// No machine sells so many meanwhile: a refusal is never SOLD_OUT, which the crowd does not count.
			c := newCrowd(p.app, p.onSale(t, 1_000_000_000).ID)
			stop := c.coming(t, 8)
			defer stop()
			for round := range rounds {
				c.moreSales(t, 50)
				disk.Fill()
				c.moreRefusals(t, 16)
				p.unready(t)
				disk.Free()
				if tt.renew {
					own.Kill()
					own.Start()
				}
				freed := time.Now()
				c.moreSales(t, 50)
				t.Logf("round %d: 50 sales %s after there was room", round, time.Since(freed))
				p.ready(t)
			}
			if own == nil {
				disk.Fill()
				c.moreRefusals(t, 16)
				p.kill()
				disk.Free()
				p.serves(t)
				c.moreSales(t, 50)
				p.sellsOn(t, p.onSale(t, 10).ID, 1_000_000)
			}
			stop()
			p.conserved(t, c.voucher, c.promised)
		})
	}
}
