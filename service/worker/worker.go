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
func New(parts Deps, locks model.Locker, deployment string, selling func() error) *Worker {
	rebuilder := newRebuilder(parts)
	settler := &Settler{Deps: parts, rebuilds: rebuilder}
	auditor := &Auditor{Deps: parts, settler: settler, rebuilds: rebuilder}
	return &Worker{
		Rebuilder: rebuilder, Settler: settler, Auditor: auditor,
		Stock:     &Stock{Deps: parts, rebuilder: rebuilder, auditor: auditor},
		Persister: newPersister(parts, settler),
		Replayer:  &Replayer{parts},
		Reconciler: &Reconciler{
			Deps: parts, selling: selling, settler: settler, rebuilds: rebuilder,
			election: &election{locks: locks, name: "seckill:reconciler:" + deployment, log: parts.Log},
			outbox:   &outbox{Deps: parts, settler: settler, rebuilds: rebuilder},
			stranded: &stranded{Deps: parts, settler: settler},
			drift:    newDriftWatch(auditor),
		},
	}
}
