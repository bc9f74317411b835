package e2e_test

import (
	"net/http"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"seckill/internal/draw"
	"seckill/internal/failpoint"
	"seckill/internal/workshop/check"
	"seckill/internal/workshop/remote"
	"seckill/internal/workshop/testserver"
	"seckill/model"
)

// drawSteps are the steps of a draw.
func drawSteps() []failpoint.Step {
	return []failpoint.Step{failpoint.AfterDrawClosed, failpoint.AfterDrawRoot, failpoint.AfterDrawBatch}
}

// The real program is killed with SIGKILL, by itself, at every step of a draw, one process after the other, in both order
// modes. The last one comes to the order that everybody can compute.
func TestKilledInADraw(t *testing.T) {
	t.Parallel()
	program := testserver.Program(t, "failpoint")
	for mode, open := range map[string]func(*testing.T) settings{"sync": onServers, "async": asyncOnServers} {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			killedInADraw(t, prepare(t, program, open(t)))
		})
	}
}

func killedInADraw(t *testing.T, p *process) {
	t.Helper()
	const users, units = 9, 4
	p.start(t)
	p.awaitReady(t)
	v := p.Create(t, map[string]any{"stock": units, "allocation": "draw"})
	for n := range users {
		got := p.Insist(t, http.MethodPost, "/vouchers/"+v.ID+"/seckill", p.Token(t, p.user(n), model.RoleUser), nil)
		check.Equal(t, "entered", got.Status, http.StatusAccepted)
	}
	p.kill()
	begin := time.Now().UTC().Add(-2 * time.Hour)
	execute(t, p.settings, "UPDATE vouchers SET begin_at = '"+begin.Format(time.DateTime)+"', end_at = '"+begin.Add(time.Hour).Format(time.DateTime)+"' WHERE id = '"+v.ID+"'")
	leases := redis.NewClient(check.Value(redis.ParseURL(p.settings["SECKILL_REDIS_URL"]))(t))
	defer leases.Close()
	lapse := func() { // the lease of the dead process
		check.Must(t, leases.Del(t.Context(), "seckill:draw:"+deploymentOf(t, p.settings)).Err())
	}
	for _, step := range drawSteps() {
		lapse()
		p.start(t, settings{"SECKILL_FAILPOINT": string(step)})
		check.Receive(t, "the program is dead at "+string(step), p.exited)
	}
	lapse()
	p.start(t)
	p.awaitReady(t)
	var proof model.Draw
	check.Patiently(t, "it is drawn", func() bool {
		proof = remote.Decode[model.Draw](t, p.Insist(t, http.MethodGet, "/vouchers/"+v.ID+"/draw", "", nil))
		return proof.DrawnAt != nil
	})
	leaves := remote.Decode[model.DrawnLeaves](t, p.Insist(t, http.MethodGet, "/vouchers/"+v.ID+"/draw/entries", "", nil))
	check.Must(t, draw.Verify(proof, leaves.Items))
	check.That(t, proof.Entries == users && proof.Winners == units, "%+v", proof)
	audit := p.Audit(t, v.ID)
	check.That(t, audit.Balanced && audit.Database.LiveOrders == units, "%+v", audit)
}
