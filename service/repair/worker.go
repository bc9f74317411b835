package repair

import (
	"context"
	"time"

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
	// Relay brings the returned units of one voucher to its hot copy.
	Relay func(ctx context.Context, voucherID string) error
}

// helpAfter is the age of a message from which on every instance consumes: the elected one is dead, or cannot keep up.
const helpAfter = time.Second

// OthersConsume reports whether this instance may leave the queue to the one that is elected to reconcile. Orders that one
// instance persists share transactions; spread over four instances, they share 0.4 times as much. A mistake about who is
// elected costs that, and no order waits longer than helpAfter for it, but those that the queue has handed to an instance
// which stands still: the queue hands them on when their time for a sign of life is over (ackWait in package queue, 6 s).
func (w *Worker) OthersConsume() bool {
	return !w.Reconciler.elected.Load() && w.Reconciler.deps.Backlog.Younger(helpAfter)
}

// New puts a worker together. Nothing runs yet. The reconciler is not elected while selling answers an error.
func New(parts Deps, by Elector, selling func() error) *Worker {
	rebuilder := newRebuilder(parts)
	persisting := persist.Deps{
		Database: parts.Database, Epochs: parts.Epochs, Hot: parts.Hot, Queue: parts.Queue, Rebuild: rebuilder.Ask, Metrics: parts.Metrics, Log: parts.Log,
	}
	settler := persist.NewSettler(persisting)
	auditor := &Auditor{deps: parts, settler: settler, rebuilds: rebuilder}
	relay := &outbox{deps: parts, settler: settler, rebuilds: rebuilder}
	return &Worker{
		Rebuilder: rebuilder, Settler: settler, Auditor: auditor, Persister: persist.New(persisting, settler),
		Stock:    &Stock{deps: parts, rebuilder: rebuilder, auditor: auditor},
		Replayer: &Replayer{deps: parts}, Relay: relay.of,
		Reconciler: &Reconciler{
			deps: parts, selling: selling, settler: settler, rebuilds: rebuilder,
			election: &election{Elector: by, job: "reconciler", may: selling},
			outbox:   relay,
			stranded: &stranded{deps: parts, settler: settler, rebuilds: rebuilder},
			drift:    newDriftWatch(auditor),
		},
	}
}
