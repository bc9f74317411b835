package repair

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math"
	"slices"
	"strconv"
	"sync/atomic"
	"time"

	"seckill/internal/budget"
	"seckill/internal/ids"
	"seckill/model"
	"seckill/service/persist"
)

const (
	sweepShare   = 200 // times what a sweep took is rested behind it, up to budget.Step: that part of a core
	closerSweeps = 24  // read each quiet copy once; the others ask whether it is loaded and reserves nothing
	findChunk    = 500 // rows, or hot copies, are read by id at once
)

// Reconciler finishes dead processes' work, and has lost hot copies rebuilt. One is elected; two repeat work.
type Reconciler struct {
	deps Deps

	election election
	settler  *persist.Settler
	rebuilds *Rebuilder
	outbox   *outbox
	stranded *stranded
	drift    *driftWatch
	list     watchlist
	elected  atomic.Bool
}

// Run reconciles while elected, until ctx ends. Only the database has the intents, and so decides when others try.
func (r *Reconciler) Run(ctx context.Context) {
	const always, pause = math.MaxInt, budget.Brief
	r.election.looks = []*look{
		{do: r.outbox.pass, pause: pause, rest: pause, what: "returned units", done: "relayed", tries: always},
		{do: r.dropIntents, pause: pause, rest: pause, what: "intended stocks", done: "taken back"},
		{do: r.watch, pause: pause, rest: pause, what: "hot copies", done: "looked at", tries: always},
		{
			do: r.drift.look, pause: budget.Answer, rest: budget.Answer, share: driftShare, what: "orders",
			done: "compared", tries: always,
		},
	}
	r.election.run(ctx)
}

func (r *Reconciler) term(begins bool) {
	r.elected.Store(begins)
	r.list = watchlist{}         // that of an earlier term is out of date
	r.deps.Metrics.Drift.Reset() // another one looks now
	if begins {
		r.deps.Log.Info("this instance reconciles")
	}
}

type watchlist struct {
	incarnation string    // of Redis at the latest sweep
	due         time.Time // the time of the next sweep
	sweeps      int
	epochs      map[string]model.EpochRecord // of the latest sweep; not changed any more
	// busy vouchers are read by the next look too: something is reserved, not open, behind, or was unreadable.
	busy map[string]bool
}

// watch compares epochs and hot copies. Quiet vouchers must be cheap: swept every few seconds, at once after a loss.
func (r *Reconciler) watch(ctx context.Context) error {
	r.stranded.begin()
	incarnation, err := r.deps.Hot.Incarnation(ctx)
	lost := err == nil && incarnation != r.list.incarnation
	began := time.Now()
	if !lost && began.Before(r.list.due) {
		busy, failed := r.epochs(ctx, r.list.busy)
		return errors.Join(err, failed, r.examine(ctx, busy))
	}
	watched, failed := r.deps.Epochs.Watched(ctx)
	if failed != nil {
		return errors.Join(err, fmt.Errorf("read the watched vouchers: %w", failed))
	}
	watched = slices.DeleteFunc(watched, func(epoch model.EpochRecord) bool {
		if epoch.Draw {
			r.rebuilds.found(epoch.VoucherID, false) // which closes what is open
		}
		return epoch.Draw
	})
	dropped, failed := r.dropped(ctx, watched)
	if failed != nil {
		return errors.Join(err, failed)
	}
	look := watched
	if !lost {
		look = r.awake(ctx, watched)
	}
	if err == nil {
		r.list.incarnation = incarnation
	}
	r.list.busy = map[string]bool{}
	r.list.sweeps++
	r.list.epochs = make(map[string]model.EpochRecord, len(watched))
	for _, epoch := range watched {
		r.list.epochs[epoch.VoucherID] = epoch
	}
	r.drift.watched(r.list.epochs)
	err = errors.Join(err, r.examine(ctx, slices.Concat(look, dropped)))
	r.list.due = began.Add(rest(time.Since(began), sweepShare, budget.Answer, budget.Step))
	return err
}

// dropped reads busy vouchers that are watched no more: an open hot copy's reservations must be settled all the same.
func (r *Reconciler) dropped(ctx context.Context, watched []model.EpochRecord) ([]model.EpochRecord, error) {
	busy := maps.Clone(r.list.busy)
	for _, epoch := range watched {
		delete(busy, epoch.VoucherID)
	}
	open, err := r.epochs(ctx, busy)
	return slices.DeleteFunc(open, func(epoch model.EpochRecord) bool { return !epoch.Open() }), err
}

func (r *Reconciler) epochs(ctx context.Context, of map[string]bool) (all []model.EpochRecord, err error) {
	for ids := range slices.Chunk(slices.Collect(maps.Keys(of)), findChunk) {
		found, failed := r.deps.Epochs.Read(ctx, ids)
		if failed != nil {
			err = errors.Join(err, fmt.Errorf("read %d watched vouchers: %w", len(ids), failed))
			continue
		}
		all = slices.AppendSeq(all, maps.Values(found))
	}
	return all, err
}

// awake returns the vouchers of a sweep, without open, unchanged and quiet ones that have not their turn.
func (r *Reconciler) awake(ctx context.Context, watched []model.EpochRecord) []model.EpochRecord {
	quiet := r.deps.Hot.Quiet(ctx, watched)
	var look []model.EpochRecord
	for i, epoch := range watched {
		id := epoch.VoucherID
		before := r.list.epochs[id]
		same := before.Epoch == epoch.Epoch && before.Revision == epoch.Revision && before.Version == epoch.Version
		turn := (i+r.list.sweeps)%closerSweeps == 0
		if turn || !epoch.Open() || !same || !quiet[i] || r.list.busy[id] {
			look = append(look, epoch)
		}
	}
	return look
}

// examine looks at vouchers' hot copies. An unreadable one holds up no other one.
func (r *Reconciler) examine(ctx context.Context, epochs []model.EpochRecord) error {
	var failed []error
	for part := range slices.Chunk(epochs, findChunk) {
		ids := each(part, func(epoch model.EpochRecord) string { return epoch.VoucherID })
		hot, err := r.deps.Hot.Read(ctx, ids)
		if err != nil {
			failed = append(failed, fmt.Errorf("read %d hot copies: %w", len(ids), err))
		}
		failed = append(failed, r.compare(ctx, part, hot))
		r.drift.seen(hot)
	}
	return errors.Join(failed...)
}

// compare compares epochs with the copies that were read, asks for rebuilds, and brings open copies what they lack.
func (r *Reconciler) compare(ctx context.Context, epochs []model.EpochRecord, found map[string]model.HotCopy) error {
	var stale []string
	var reserved []model.HotCopy
	for _, epoch := range epochs {
		id := epoch.VoucherID
		hot, known := found[id]
		open := known && fits(epoch, hot)
		behind := open && hot.Voucher.Revision < epoch.Revision
		waits := hot.Reserved > 0 || hot.Due > 0
		if !open || behind || waits {
			r.list.busy[id] = true
		} else {
			delete(r.list.busy, id)
		}
		if known && !open {
			r.rebuilds.found(id, epoch.OnSale) // looks again before it rebuilds
		}
		if behind {
			stale = append(stale, id)
		}
		if open && waits {
			reserved = append(reserved, hot)
		}
	}
	var failed []error
	if len(stale) > 0 {
		applied, err := r.rebuilds.update(ctx, 0, stale...)
		failed = append(failed, err)
		for _, v := range applied {
			r.deps.Metrics.Reconciled.WithLabelValues("applied").Inc()
			r.deps.Log.InfoContext(ctx, "a hot copy had missed a change", slog.String("voucher_id", v.ID),
				slog.Int64("revision", v.Revision))
		}
	}
	for _, hot := range reserved {
		failed = append(failed, r.stranded.reconcile(ctx, hot))
	}
	return errors.Join(failed...)
}

// Replayer gives the buyers of dead letters another chance.
type Replayer struct{ deps Deps }

// Replay reserves a dead letter's order again at any time, because it came in time, under a new id, because the old one
// failed. One without a row that is still reserved is queued as it is. The letter goes once the queue has the order or
// it has a live row; a refusal (ALREADY_ORDERED, SOLD_OUT …) keeps it. No adminID is nobody.
func (r *Replayer) Replay(ctx context.Context, sequence uint64, adminID string) (model.Reservation, error) {
	ctx, cancel := context.WithTimeout(ctx, budget.Step)
	defer cancel()
	letter, err := r.read(ctx, sequence, adminID, model.ActionLetterReplay)
	if err != nil {
		return model.Reservation{}, err
	}
	reserved, err := r.again(ctx, *letter.Reservation)
	if err != nil {
		return reserved, fmt.Errorf("replay dead letter %d: %w", sequence, err)
	}
	if err := r.deps.Queue.RemoveDeadLetter(ctx, sequence); err != nil {
		return reserved, fmt.Errorf("dead letter %d was replayed as order %s and could not be removed: %w", sequence,
			reserved.ID, err)
	}
	return reserved, nil
}

// Drop removes a dead letter for good. The administrators' log has who asked, and the letter; "" is nobody.
func (r *Replayer) Drop(ctx context.Context, sequence uint64, adminID string) error {
	ctx, cancel := context.WithTimeout(ctx, budget.Step)
	defer cancel()
	if _, err := r.read(ctx, sequence, adminID, model.ActionLetterDrop); err != nil {
		return err
	}
	return r.deps.Queue.RemoveDeadLetter(ctx, sequence)
}

type loggedLetter struct {
	Reason    string `json:"reason"`
	OrderID   string `json:"order_id,omitempty"`
	VoucherID string `json:"voucher_id,omitempty"`
	UserID    string `json:"user_id,omitempty"`
}

// read reads a letter, for an action that the administrators' log has then.
func (r *Replayer) read(
	ctx context.Context, sequence uint64, adminID, action string,
) (letter model.DeadLetter, err error) {
	if letter, err = r.deps.Queue.DeadLetter(ctx, sequence); err != nil {
		return letter, fmt.Errorf("read dead letter %d: %w", sequence, err)
	}
	held := loggedLetter{Reason: letter.Reason}
	if of := letter.Reservation; of != nil {
		held.OrderID, held.VoucherID, held.UserID = of.ID, of.VoucherID, of.UserID
	} else if action == model.ActionLetterReplay {
		return letter, model.Conflict(fmt.Sprintf(
			"Dead letter %d is a message that could not be read; it names no order that could be replayed.", sequence))
	}
	return letter, r.deps.record(ctx, adminID, action, strconv.FormatUint(letter.Sequence, 10), held)
}

func (r *Replayer) again(ctx context.Context, old model.Reservation) (model.Reservation, error) {
	rows, err := r.deps.Database.Find(ctx, []string{old.ID})
	if err != nil {
		return model.Reservation{}, err
	}
	row, decided := rows[old.ID]
	if row.Live() {
		return model.Reservation{Order: row}, nil
	}
	reserved, stands := model.Reservation{}, false
	if !decided {
		if reserved, stands, err = r.deps.Hot.Pending(ctx, old.ID); err != nil {
			return model.Reservation{}, fmt.Errorf("look for the reservation of order %s: %w", old.ID, closed(err))
		}
	}
	if stands { // its hot copy must be open, or the message would come too late
		err = r.confirm(ctx, reserved)
	} else {
		reserved, err = r.reserve(ctx, old)
	}
	if err != nil {
		return model.Reservation{}, err
	}
	if err := r.publish(ctx, reserved); err != nil {
		return reserved, fmt.Errorf("as order %s: %w", reserved.ID, err)
	}
	return reserved, nil
}

func (r *Replayer) reserve(ctx context.Context, old model.Reservation) (model.Reservation, error) {
	unique, err := ids.New()
	if err != nil {
		return model.Reservation{}, err
	}
	results, err := r.deps.Hot.Reserve(ctx, []model.ReserveRequest{{
		OrderID: model.OrderID(unique, old.VoucherID), VoucherID: old.VoucherID, UserID: old.UserID, Anytime: true,
	}})
	if err != nil {
		return model.Reservation{}, fmt.Errorf("reserve for user %s: %w", old.UserID, err)
	}
	refusal := results[0].Err
	if errors.Is(refusal, model.ErrUserLocked) {
		return model.Reservation{}, &model.Error{
			Code: model.CodeLockBusy, Detail: "Another request of this user is under way.", RetryAfter: time.Second,
			Cause: refusal,
		}
	}
	return results[0].Reservation, closed(refusal)
}

func closed(err error) error {
	if errors.Is(err, model.ErrCopyClosed) {
		return model.Unavailable("The voucher's hot copy is closed.", err)
	}
	return err
}

// publish queues the order. If that is unknown, the reconciler publishes it again, and the letter stays.
func (r *Replayer) publish(ctx context.Context, reserved model.Reservation) error {
	if err := r.deps.Queue.Publish(ctx, []model.Reservation{reserved}); err != nil {
		return fmt.Errorf("publish: %w", err)
	}
	return r.confirm(ctx, reserved)
}

func (r *Replayer) confirm(ctx context.Context, reserved model.Reservation) error {
	confirmed, err := r.deps.Hot.Confirm(ctx, []model.Reservation{reserved})
	if err != nil {
		return fmt.Errorf("confirm: %w", err)
	}
	if !confirmed[0] {
		return model.Unavailable("The voucher was rebuilt meanwhile.", model.ErrCopyClosed)
	}
	return nil
}
