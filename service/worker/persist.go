package worker

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/bits"
	"math/rand/v2"
	"slices"
	"sync/atomic"
	"time"

	"seckill/internal/failpoint"
	"seckill/model"
)

// persistTimeout bounds one transaction of the worker with all its repetitions. It may
// be longer than a request's, because no request waits; the queue is told meanwhile
// that the message is being worked on.
const persistTimeout = 10 * time.Second

// Persister makes rows of the queue's reservations, and settles them in the hot copies.
type Persister struct {
	Deps

	settler  *Settler
	stored   atomic.Uint64 // orders that got a row here
	troubles *troubles
	suspects *suspects
}

// Persist makes rows of reservations and returns a verdict on each: nil means that a
// row is committed, UNAVAILABLE or an unknown outcome that the queue is to deliver the
// order again, and any other error is a bug, whose message must not be lost. The
// verdicts do not depend on whether the hot copies could be told.
//
// An order becomes a dead letter only when its own data are known to be the trouble
// (model.ErrDataRefused, or an outcome that says that no row can hold it). Any other
// error means later. Vouchers in trouble are tried alone, after the others, and less
// and less often.
func (p *Persister) Persist(ctx context.Context, reservations []model.Reservation) []error {
	failpoint.Reach(failpoint.BeforePersist)
	b := &persistence{
		Persister: p, reservations: slices.Clone(reservations), verdicts: make([]error, len(reservations)),
		missing: map[string]error{},
	}
	well, ill := b.byTrouble()
	b.together(ctx, well)
	b.settle(ctx)
	b.probe(ctx, ill)
	b.relocate(ctx)
	b.bury(ctx)
	b.settle(ctx)
	return b.verdicts
}

// settle settles the orders that are committed by now.
func (b *persistence) settle(ctx context.Context) {
	b.settler.finish(ctx, b.finished)
	b.finished = nil
}

// bury sends the poisoned orders to the dead letters, and leaves in the queue those
// that the database may have refused by its own fault.
func (b *persistence) bury(ctx context.Context) {
	for len(b.poison) > 0 { // a commit in the loop may add to it
		p := b.poison[0]
		b.poison = b.poison[1:]
		r := b.reservations[p.index]
		if !p.certain && !b.suspects.guilty(r.ID, b.stored.Load()) {
			b.verdicts[p.index] = model.Unavailable("The database refused the order.", p.err)
			continue
		}
		if !p.certain {
			// The database may not have been well when it refused, and is well now.
			err := b.commit(ctx, []int{p.index})
			if err == nil {
				continue // commit has given the verdict
			}
			if !errors.Is(err, model.ErrDataRefused) {
				b.verdicts[p.index] = err
				continue
			}
		}
		b.verdicts[p.index] = b.buryOne(ctx, r, p.err)
	}
}

// buryOne writes the dead letter and then the failed row: with the row the unit goes
// back on sale, and without the letter nothing would be left of the order's data. The
// message is done with once the row is committed.
func (b *persistence) buryOne(ctx context.Context, r model.Reservation, why error) error {
	ctx, cancel := context.WithTimeout(ctx, persistTimeout)
	defer cancel()
	failpoint.Reach(failpoint.BeforeDeadLetter)
	letter := model.DeadLetter{Reason: why.Error(), Reservation: &r}
	if err := b.Queue.Bury(ctx, letter); err != nil {
		return model.Unavailable("The dead letter could not be written.", fmt.Errorf("bury order %s: %w", r.ID, err))
	}
	failpoint.Reach(failpoint.AfterDeadLetter)
	if b.suspects.first(r.ID, saidBuried) {
		b.Metrics.Buried()
		b.Log.ErrorContext(ctx, "an order cannot be persisted and went to the dead letters",
			slog.String("order_id", r.ID), slog.String("user_id", r.UserID), slog.Any("error", why))
	}
	row, err := b.Database.Fail(ctx, r, model.ReasonUnprocessable)
	switch {
	case err == nil:
		b.finished = append(b.finished, decided{reservation: r, row: row})
	case model.CodeOf(err) == model.CodeConflict: // another order has a row of that id
		b.Log.ErrorContext(ctx, "the id of a dead letter belongs to another order; the unit stays reserved",
			slog.String("order_id", r.ID), slog.Any("error", err))
	default:
		if (errors.Is(err, model.ErrDataRefused) || unstorable(err)) && b.suspects.first(r.ID, saidStuck) {
			b.Metrics.Stuck()
			b.Log.ErrorContext(ctx, "the unit of a dead letter cannot be given back; its message stays in the queue",
				slog.String("order_id", r.ID), slog.Any("error", err))
		}
		return model.Unavailable("The order's row could not be written.", fmt.Errorf("fail order %s: %w", r.ID, err))
	}
	b.suspects.forget(r.ID)
	return nil
}

// unstorable reports whether an order was refused for good, for what it is itself. A voucher
// that is not found may be found again: its table may be on its way back from a dump.
func unstorable(err error) bool {
	return err != nil && slices.Contains([]model.Code{model.CodeValidation, model.CodeConflict}, model.CodeOf(err))
}

const (
	// poisonAttempts is how often an order that is alone in its transaction may be
	// refused for its data: once could be chance, and more than this proves nothing new.
	poisonAttempts = 3
	// maxFruitless is how many vouchers in a row one batch tries in vain. After that
	// the database counts as away, and the other vouchers are not tried.
	maxFruitless = 3
	// maxSalvage bounds the tries to store parts of a voucher in trouble: enough to
	// divide 500 orders down to a single one, twice.
	maxSalvage = 18
	// probeBudget bounds the time in which one batch tries vouchers in trouble: the
	// acknowledgements of all the others wait meanwhile.
	probeBudget = time.Second
)

// persistence is one batch on its way into the database.
type persistence struct {
	*Persister

	reservations []model.Reservation
	verdicts     []error
	finished     []decided
	poison       []poisoned
	replaced     []int            // orders of hot copies that were replaced
	missing      map[string]error // vouchers that are not in the database
	fruitless    int              // vouchers in a row that were tried in vain
}

// ofVoucher are a batch's reservations of one voucher.
type ofVoucher struct {
	id      string
	indices []int
}

// poisoned is a reservation that was refused for its data, and why.
type poisoned struct {
	index   int
	err     error
	certain bool // no database would take it
}

// byTrouble groups the reservations by voucher, and separates the vouchers in trouble. A
// voucher that is not to be tried now gets its verdict here.
func (b *persistence) byTrouble() (well, ill []ofVoucher) {
	var all []ofVoucher
	places := map[string]int{}
	for i, r := range b.reservations {
		place, known := places[r.VoucherID]
		if !known {
			place = len(all)
			places[r.VoucherID] = place
			all = append(all, ofVoucher{id: r.VoucherID})
		}
		all[place].indices = append(all[place].indices, i)
	}
	for _, v := range all {
		troubled, notNow := b.troubles.look(v.id)
		switch {
		case notNow != nil:
			b.refuse(v.indices, notNow)
		case troubled:
			ill = append(ill, v)
		default:
			well = append(well, v)
		}
	}
	return well, ill
}

// together persists vouchers in one transaction, and if that fails one by one.
func (b *persistence) together(ctx context.Context, vouchers []ofVoucher) {
	var all []int
	for _, v := range vouchers {
		all = append(all, v.indices...)
	}
	if len(vouchers) > 1 && b.commit(ctx, all) == nil {
		for _, v := range vouchers {
			b.found(ctx, v.id)
		}
		return
	}
	for _, v := range vouchers {
		b.alone(ctx, v)
	}
}

// probe tries the vouchers in trouble, while there is time.
func (b *persistence) probe(ctx context.Context, vouchers []ofVoucher) {
	begun := time.Now()
	for _, v := range vouchers {
		if time.Since(begun) > probeBudget {
			b.troubles.later(v.id)
			b.refuse(v.indices, notTried(v.id, nil))
			continue
		}
		// After 2, 4, 8 … failures only, because it may well be in vain.
		if failures := b.alone(ctx, v); failures > 1 && bits.OnesCount(uint(failures)) == 1 && b.salvage(ctx, v.indices, begun) {
			b.troubles.eased(v.id)
		}
	}
}

// salvage persists parts of a voucher in trouble, because a single row may be the
// trouble. The parts are drawn at random, and are smaller after each refusal. Orders
// that are left over keep their verdict. It reports whether any were stored.
func (b *persistence) salvage(ctx context.Context, indices []int, begun time.Time) (some bool) {
	rest := slices.Clone(indices)
	rand.Shuffle(len(rest), func(i, j int) { rest[i], rest[j] = rest[j], rest[i] }) //nolint:gosec // guards nothing
	size := len(rest) / 2
	for range maxSalvage {
		if size = min(size, len(rest)); size == 0 || time.Since(begun) > probeBudget {
			break
		}
		if b.commit(ctx, rest[:size]) == nil {
			some, rest = true, rest[size:]
		} else {
			rest = append(rest[size:], rest[:size]...) // next time another part is tried
			size /= 2
		}
	}
	return some
}

// alone persists one voucher's reservations. It returns how often in a row the voucher was
// tried in vain.
func (b *persistence) alone(ctx context.Context, v ofVoucher) (failures int) {
	if b.fruitless >= maxFruitless {
		b.troubles.later(v.id)
		b.refuse(v.indices, model.Unavailable("The database does not take orders.", nil))
		return 0
	}
	if err := b.byThemselves(ctx, v.indices); err != nil {
		b.fruitless++
		return b.troubles.add(ctx, v.id, err)
	}
	b.fruitless = 0
	if b.found(ctx, v.id) {
		b.troubles.remove(ctx, v.id)
	}
	return 0
}

// byThemselves persists reservations of one voucher. Those that were refused before come
// last and each by itself, so that they hold up no other one.
func (b *persistence) byThemselves(ctx context.Context, indices []int) error {
	var parts [][]int
	var others []int
	for _, i := range indices {
		if b.suspects.known(b.reservations[i].ID) {
			parts = append(parts, []int{i})
		} else {
			others = append(others, i)
		}
	}
	if len(others) > 0 {
		parts = slices.Insert(parts, 0, others)
	}
	return b.each(ctx, parts, limit{b.stored.Load(), len(b.poison) + poisonSuspicion})
}

// limit ends the search for poisoned orders: when so many are poisoned, and no more
// are stored than before, the database itself is the trouble.
type limit struct {
	stored uint64
	poison int
}

// each divides the parts of one voucher. When a part meets trouble that is no order's
// own, that becomes the verdict on the rest.
func (b *persistence) each(ctx context.Context, parts [][]int, most limit) error {
	for n, part := range parts {
		if err := b.divide(ctx, part, most); err != nil {
			for _, rest := range parts[n+1:] {
				b.refuse(rest, err)
			}
			return err
		}
	}
	return nil
}

// divide persists reservations in one transaction. If their data are refused it
// persists the halves, down to the single order.
func (b *persistence) divide(ctx context.Context, indices []int, most limit) error {
	attempts := 1
	if len(indices) == 1 {
		attempts = poisonAttempts
	}
	var err error
	for range attempts {
		if err = b.commit(ctx, indices); err == nil {
			return nil
		}
		if !errors.Is(err, model.ErrDataRefused) {
			b.refuse(indices, err)
			return err
		}
	}
	if len(indices) > 1 {
		half := len(indices) / 2
		return b.each(ctx, [][]int{indices[:half], indices[half:]}, most)
	}
	b.poison = append(b.poison, poisoned{index: indices[0], err: err})
	b.suspects.refused(b.reservations[indices[0]].ID, b.stored.Load())
	if len(b.poison) < most.poison || b.stored.Load() > most.stored {
		return nil
	}
	b.Log.ErrorContext(ctx, "the database refuses whatever it is given of a voucher; the orders stay in the queue",
		slog.String("voucher_id", b.reservations[indices[0]].VoucherID), slog.Any("error", err))
	return model.Unavailable("The database refuses whatever it is given.", err)
}

// commit persists reservations in one transaction, and judges the outcomes.
func (b *persistence) commit(ctx context.Context, indices []int) error {
	ctx, cancel := context.WithTimeout(ctx, persistTimeout)
	defer cancel()
	batch := make([]model.Reservation, len(indices))
	for i, index := range indices {
		batch[i] = b.reservations[index]
	}
	outcomes, err := b.Database.Persist(ctx, batch)
	if err != nil {
		return fmt.Errorf("persist %d orders, the first of them %s: %w", len(batch), batch[0].ID, err)
	}
	if len(outcomes) != len(batch) { // a bug, for which no order must be buried
		return model.Unavailable("The store lost count.", fmt.Errorf("%d outcomes of %d orders", len(outcomes), len(batch)))
	}
	b.finished = slices.Grow(b.finished, len(indices))
	for i, index := range indices {
		b.judge(index, outcomes[i])
	}
	return nil
}

func (b *persistence) judge(index int, outcome model.Outcome) {
	switch {
	case outcome.Err == nil:
		if outcome.Created {
			b.stored.Add(1)
		}
		b.suspects.forget(b.reservations[index].ID)
		b.verdicts[index] = nil // an earlier try may have failed because of another order
		b.finished = append(b.finished, decided{b.reservations[index], outcome.Order})
	case unstorable(outcome.Err):
		b.poison = append(b.poison, poisoned{index: index, err: outcome.Err, certain: true})
	case model.CodeOf(outcome.Err) == model.CodeNotFound:
		b.verdicts[index] = model.Unavailable("The order's voucher is not there.", outcome.Err)
		b.missing[b.reservations[index].VoucherID] = outcome.Err
	default:
		b.verdicts[index] = outcome.Err
		if errors.Is(outcome.Err, model.ErrCopyReplaced) {
			b.replaced = append(b.replaced, index)
		}
	}
}

// found reports whether a voucher was in the database. One that was not is in trouble.
func (b *persistence) found(ctx context.Context, voucherID string) bool {
	err := b.missing[voucherID]
	if err != nil && b.troubles.add(ctx, voucherID, err) == 1 {
		b.Log.ErrorContext(ctx, "accepted orders wait for a voucher that is not in the database", slog.String("voucher_id", voucherID))
	}
	return err == nil
}

// relocate asks about orders whose hot copy was replaced, and persists those of which the
// answer decides. The others come again.
func (b *persistence) relocate(ctx context.Context) {
	for _, v := range b.settler.locate(ctx, b.reservations, b.replaced) {
		if err := b.byThemselves(ctx, v.indices); err != nil {
			b.troubles.add(ctx, v.id, err)
		}
	}
}

func (b *persistence) refuse(indices []int, err error) {
	for _, index := range indices {
		b.verdicts[index] = err
	}
}
