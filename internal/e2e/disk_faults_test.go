//go:build faults

//part:queue

package e2e_test

import (
	"testing"
	"time"

	"seckill/internal/testserver"
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
