// Package worker is what happens behind the requests. In the order mode async it makes
// rows of the queue's orders, loads the hot copies, and finishes what dead processes have
// left; it also changes stocks and audits, which an administrator's request waits for. In
// both modes it expires unpaid orders and publishes events.
package worker

import "seckill/model"

// Worker holds the parts that work for one database.
type Worker struct {
	Rebuilder  *Rebuilder
	Settler    *Settler
	Auditor    *Auditor
	Stock      *Stock
	Persister  *Persister
	Replayer   *Replayer
	Reconciler *Reconciler
}

// New puts a worker together. Nothing runs yet. The reconciler is elected under
// locks, by the name of the deployment, and rests while selling answers an error.
func New(parts Parts, locks model.Locker, deployment string, selling func() error) *Worker {
	rebuilder := newRebuilder(parts)
	settler := &Settler{Parts: parts, rebuilds: rebuilder}
	auditor := &Auditor{Parts: parts, settler: settler, rebuilds: rebuilder}
	return &Worker{
		Rebuilder: rebuilder, Settler: settler, Auditor: auditor,
		Stock: &Stock{Parts: parts, rebuilder: rebuilder, auditor: auditor},
		Persister: &Persister{
			Parts: parts, settler: settler, troubles: newTroubles(parts.Log), suspects: newSuspects(),
		},
		Replayer: &Replayer{parts},
		Reconciler: &Reconciler{
			Parts: parts, selling: selling, settler: settler, rebuilds: rebuilder,
			election: &election{locks: locks, name: "seckill:reconciler:" + deployment, log: parts.Log},
			outbox:   &outbox{Parts: parts, settler: settler, rebuilds: rebuilder},
			due:      &overdue{Parts: parts, settler: settler},
			drift:    newDriftWatch(auditor),
		},
	}
}
