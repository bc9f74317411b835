package repair

import (
	"seckill/model"
	"seckill/service/persist"
)

// Worker holds the parts that work for one database, those of the package persist among them.
type Worker struct {
	Rebuilder  *Rebuilder
	Settler    *persist.Settler
	Auditor    *Auditor
	Stock      *Stock
	Persister  *persist.Persister
	Replayer   *Replayer
	Reconciler *Reconciler
}

// New puts a worker together. Nothing runs yet. The reconciler is elected under
// locks, by the name of the deployment, and rests while selling answers an error.
func New(parts Deps, locks model.Locker, deployment string, selling func() error) *Worker {
	rebuilder := newRebuilder(parts)
	persisting := persist.Deps{
		Database: parts.Database, Epochs: parts.Epochs, Hot: parts.Hot, Queue: parts.Queue, Rebuild: rebuilder.Ask, Metrics: parts.Metrics, Log: parts.Log,
	}
	settler := persist.NewSettler(persisting)
	auditor := &Auditor{deps: parts, settler: settler, rebuilds: rebuilder}
	return &Worker{
		Rebuilder: rebuilder, Settler: settler, Auditor: auditor, Persister: persist.New(persisting, settler),
		Stock:    &Stock{deps: parts, rebuilder: rebuilder, auditor: auditor},
		Replayer: &Replayer{deps: parts},
		Reconciler: &Reconciler{
			deps: parts, selling: selling, settler: settler, rebuilds: rebuilder,
			election: &election{locks: locks, name: "seckill:reconciler:" + deployment, log: parts.Log},
			outbox:   &outbox{deps: parts, settler: settler, rebuilds: rebuilder},
			stranded: &stranded{deps: parts, settler: settler, rebuilds: rebuilder},
			drift:    newDriftWatch(auditor),
		},
	}
}
