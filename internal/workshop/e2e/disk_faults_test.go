//go:build faults

//part:queue

package e2e_test

import (
	"testing"
	"time"

	"seckill/internal/workshop/testserver"
)

// TestAFullDisk fills the disk of the embedded database and queue in the middle of a sale, three times. The sale stops,
// readiness says so, and it goes on by itself as soon as there is room, and after a start. Promises are kept.
func TestAFullDisk(t *testing.T) {
	t.Parallel()
	for _, mode := range []string{"sync", "async"} {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			disk := testserver.SmallDisk(t, "96m")
			p := launch(t, embeddedSettings(t).with(settings{"SECKILL_ORDER_MODE": mode, "SECKILL_DATA_DIR": disk.Dir()}))
			p.connect(t, 8)
			voucher := p.onSale(t, 100_000)
			c := newCrowd(p.app, voucher.ID)
			stop := c.coming(t, 8)
			defer stop()
			for round := range 3 {
				c.moreSales(t, 50)
				disk.Fill()
				c.moreRefusals(t, 16)
				p.unready(t)
				disk.Free()
				freed := time.Now()
				c.moreSales(t, 50)
				t.Logf("round %d: 50 sales %s after there was room", round, time.Since(freed))
				p.ready(t)
			}
			disk.Fill()
			c.moreRefusals(t, 16)
			p.kill()
			disk.Free()
			p.start(t)
			p.awaitReady(t)
			ready := time.Now()
			c.moreSales(t, 50)
			t.Logf("50 sales %s after the start", time.Since(ready))
			other := p.onSale(t, 10)
			p.sellsOn(t, other.ID, 1_000_000)
			stop()
			p.conserved(t, voucher.ID, c.promised)
		})
	}
}

// TestAFullDiskOfAServer fills the disk of each server in turn. Redis writes again by itself; NATS has to be started anew,
// as the runbook says, and so has MariaDB, which may end itself.
func TestAFullDiskOfAServer(t *testing.T) {
	t.Parallel()
	for what, filled := range map[string]func(t *testing.T) (own *testserver.Server, s settings, size string, renew bool){
		"MariaDB, sync": func(t *testing.T) (*testserver.Server, settings, string, bool) {
			t.Helper()
			own, s := asyncOnOwnDatabase(t)
			return own, s.with(settings{"SECKILL_ORDER_MODE": "sync", "SECKILL_NATS_URL": ""}), "400m", true
		},
		"MariaDB, async": func(t *testing.T) (*testserver.Server, settings, string, bool) {
			t.Helper()
			own, s := asyncOnOwnDatabase(t)
			return own, s.with(settings{"SECKILL_BACKLOG_MAX_AGE": "1s"}), "400m", true
		},
		"Redis": func(t *testing.T) (*testserver.Server, settings, string, bool) {
			t.Helper()
			own, s := asyncOnOwnRedis(t)
			return own, s, "64m", false
		},
		"NATS": func(t *testing.T) (*testserver.Server, settings, string, bool) {
			t.Helper()
			own, s := asyncOnOwnNATS(t)
			return own, s, "64m", true
		},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			own, s, size, renew := filled(t)
			disk := own.OnSmallDisk(t, size)
			p := launch(t, s)
			p.connect(t, 8)
			voucher := p.onSale(t, 100_000)
			c := newCrowd(p.app, voucher.ID)
			stop := c.coming(t, 8)
			defer stop()
			c.moreSales(t, 50)
			disk.Fill()
			c.moreRefusals(t, 16)
			p.unready(t)
			disk.Free()
			if renew {
				own.Kill()
				own.Start()
			}
			c.moreSales(t, 50)
			p.ready(t)
			stop()
			p.conserved(t, voucher.ID, c.promised)
		})
	}
}
