// Package worker is what happens behind the requests in the order mode async: the
// queue's orders become rows, and what dead processes and lost hot copies have left
// behind is put right.
package worker

import "seckill/model"

// Worker is everything that works behind the requests of one database.
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
			Parts: parts, locks: locks, name: "seckill:reconciler:" + deployment, selling: selling,
			settler: settler, rebuilds: rebuilder,
			outbox: &outbox{Parts: parts, settler: settler, rebuilds: rebuilder},
			due:    &overdue{Parts: parts, settler: settler},
			drift:  newDriftWatch(auditor),
		},
	}
}
