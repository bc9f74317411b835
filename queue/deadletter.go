package queue

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strings"

	"github.com/nats-io/nats.go/jetstream"

	"seckill/internal/budget"
	"seckill/internal/failpoint"
	"seckill/model"
)

const orderLetter = "order."

// letter1 is the body of a dead letter: what could not be persisted, and why.
type letter1 struct {
	Version int    `json:"v"`
	Reason  string `json:"reason"`
	// Order is the order with the sequence of its message, or else Raw is what could not be read.
	Order    *order1 `json:"order,omitempty"`
	Sequence uint64  `json:"sequence,omitempty"`
	Raw      []byte  `json:"raw,omitempty"`
}

// Bury stores a letter about an order that cannot be persisted. One buried again keeps its first letter.
func (q *Queue) Bury(ctx context.Context, letter model.DeadLetter) error {
	if letter.Reservation == nil {
		sum := sha256.Sum256(letter.Raw)
		return q.bury(ctx, "raw."+hex.EncodeToString(sum[:]), letter)
	}
	// An order id may hold dots where a subject must not have them.
	return q.bury(ctx, orderLetter+base64.RawURLEncoding.EncodeToString([]byte(letter.Reservation.ID)), letter)
}

// Buried names the orders that have a letter. It asks the server once, for the subjects of the letters.
func (q *Queue) Buried(ctx context.Context) (map[string]bool, error) {
	stream, err := q.deadStream(ctx)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, budget.Call+q.slack)
	defer cancel()
	info, err := stream.Info(ctx, jetstream.WithSubjectFilter(q.names.letters+orderLetter+"*"))
	if err != nil {
		return nil, unavailable("list the dead letters", err)
	}
	buried := make(map[string]bool, len(info.State.Subjects))
	for subject := range info.State.Subjects {
		id, err := base64.RawURLEncoding.DecodeString(strings.TrimPrefix(subject, q.names.letters+orderLetter))
		if err == nil { // else it is none of ours
			buried[string(id)] = true
		}
	}
	return buried, nil
}

func (q *Queue) bury(ctx context.Context, name string, letter model.DeadLetter) error {
	ctx, cancel := context.WithTimeout(ctx, budget.Call+q.slack)
	defer cancel()
	try := func() (err error) {
		// The server may take less than the size that it reports, or than that size in base64.
		for most := maxMessage; most > 0; most /= 2 {
			var body []byte
			if body, err = encodeLetter(letter, most); err != nil {
				return err
			}
			err = q.try(ctx, q.names.letters+name, body,
				jetstream.WithExpectStream(q.names.dead), jetstream.WithExpectLastSequencePerSubject(0))
			if !tooLarge(err) {
				break
			}
		}
		return err
	}
	err := try()
	if errors.Is(err, jetstream.ErrNoStreamResponse) {
		if _, _, err = q.prepareStream(ctx, q.wanted.dead); err == nil { // an operator has deleted it
			err = try()
		}
	}
	if refusal, ok := errors.AsType[*jetstream.APIError](err); ok &&
		(refusal.ErrorCode == jetstream.JSErrCodeStreamWrongLastSequence ||
			refusal.ErrorCode == jetstream.JSErrCodeStreamWrongLastSequenceConstant) {
		return nil // it is there already
	}
	if err != nil {
		return unknown("bury "+name, err)
	}
	return nil
}

func encodeLetter(letter model.DeadLetter, most int) ([]byte, error) {
	l := letter1{
		Version: version, Reason: strings.ToValidUTF8(letter.Reason[:min(len(letter.Reason), most)], ""),
		Raw: letter.Raw,
	}
	if r := letter.Reservation; r != nil {
		l.Sequence, l.Order = r.Sequence, new(orderOf(*r))
	}
	if len(l.Raw) > most {
		l.Reason = fmt.Sprintf("%s (the first %d of %d bytes)", l.Reason, most, len(l.Raw))
		l.Raw = l.Raw[:most]
	}
	body, err := json.Marshal(l)
	if err != nil {
		return nil, fmt.Errorf("encode a dead letter: %w", err)
	}
	return body, nil
}

// DeadLetters hands out all letters, oldest first, until yield fails.
func (q *Queue) DeadLetters(ctx context.Context, yield func(model.DeadLetter) error) error {
	stream, err := q.deadStream(ctx)
	if err != nil {
		return err
	}
	for next := uint64(1); ; {
		raw, err := q.letterAt(ctx, stream, next, jetstream.WithGetMsgSubject(q.names.letters+">"))
		if errors.Is(err, jetstream.ErrMsgNotFound) {
			return nil
		}
		if err != nil {
			return unavailable("read the dead letters", err)
		}
		if err := yield(decodeLetter(raw)); err != nil {
			return err
		}
		next = raw.Sequence + 1
	}
}

// DeadLetter is one letter, or NOT_FOUND.
func (q *Queue) DeadLetter(ctx context.Context, sequence uint64) (model.DeadLetter, error) {
	stream, err := q.deadStream(ctx)
	if err != nil {
		return model.DeadLetter{}, err
	}
	raw, err := q.letterAt(ctx, stream, sequence)
	if errors.Is(err, jetstream.ErrMsgNotFound) {
		return model.DeadLetter{}, fmt.Errorf("read dead letter %d: %w", sequence, model.NotFound("dead letter"))
	}
	if err != nil {
		return model.DeadLetter{}, unavailable(fmt.Sprintf("read dead letter %d", sequence), err)
	}
	return decodeLetter(raw), nil
}

// RemoveDeadLetter removes a letter. Its order may be buried again afterwards.
func (q *Queue) RemoveDeadLetter(ctx context.Context, sequence uint64) error {
	if _, err := q.DeadLetter(ctx, sequence); err != nil {
		return err
	}
	stream, err := q.deadStream(ctx)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, budget.Call+q.slack)
	defer cancel()
	if err := stream.DeleteMsg(ctx, sequence); err != nil {
		return unavailable(fmt.Sprintf("remove dead letter %d", sequence), err)
	}
	return nil
}

// deadStream is the letters' stream, created again if deleted: letters are looked up before a republish.
func (q *Queue) deadStream(ctx context.Context) (jetstream.Stream, error) {
	ctx, cancel := context.WithTimeout(ctx, budget.Call+q.slack)
	defer cancel()
	stream, err := q.js.Stream(ctx, q.names.dead)
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		stream, _, err = q.prepareStream(ctx, q.wanted.dead)
	}
	if err != nil {
		return nil, unavailable("open the dead letters", err)
	}
	return stream, nil
}

// letterAt reads one message. Each has a deadline of its own, because there may be many.
func (q *Queue) letterAt(
	ctx context.Context, stream jetstream.Stream, sequence uint64, options ...jetstream.GetMsgOpt,
) (*jetstream.RawStreamMsg, error) {
	if sequence == 0 {
		return nil, jetstream.ErrMsgNotFound // the server would take it for "the last one"
	}
	ctx, cancel := context.WithTimeout(ctx, budget.Call+q.slack)
	defer cancel()
	return stream.GetMsg(ctx, sequence, options...)
}

// decodeLetter shows a letter that cannot be read as it is.
func decodeLetter(raw *jetstream.RawStreamMsg) model.DeadLetter {
	letter := model.DeadLetter{Sequence: raw.Sequence, At: raw.Time.UTC()}
	var l letter1
	if err := json.Unmarshal(raw.Data, &l); err != nil || l.Version != version {
		letter.Reason, letter.Raw = "the letter itself cannot be read", raw.Data
		return letter
	}
	letter.Reason, letter.Raw = l.Reason, l.Raw
	if l.Order == nil {
		return letter
	}
	r, err := l.Order.reservation(l.Sequence)
	if err != nil {
		letter.Reason, letter.Raw = fmt.Sprintf("%s; %v", l.Reason, err), raw.Data
		return letter
	}
	letter.Reservation = &r
	return letter
}

// An order that cannot be stored now, for its voucher's reason or its own, must not keep a shared message: a rebuild
// waits for the oldest of these. So its worker isolates it, durably, on a subject of its voucher, and acknowledges the
// message. There it comes again, later and later, until it is stored. If a process dies in between it is in both, and
// the database knows its id. It keeps the first message's sequence, by which a rebuild tells whether it counts.
//
// An order from behind a rebuild's barrier was never promised: its epoch was closed before. It waits for the rebuild,
// which waits for isolated orders, so it is published again behind all others.

// strayTries deliveries, some 1.5 s, a message waits for a running rebuild before its orders are published again.
const strayTries = 5

// leaving tells which orders leave a message, isolated or published again; none while anything stays in it.
func (m *message) leaving() (isolated, again []model.Reservation) {
	if m.trouble != nil {
		return nil, nil
	}
	for i, verdict := range m.verdicts {
		switch {
		case verdict == nil:
		case errors.Is(verdict, model.ErrCopyReplaced):
			again = append(again, m.orders[i])
		case errors.Is(verdict, model.ErrOutage), m.isolated:
			return nil, nil
		default:
			isolated = append(isolated, m.orders[i])
		}
	}
	if len(isolated) == 0 && m.delivered < strayTries {
		return nil, nil
	}
	return isolated, again
}

// moveAll moves the orders of a batch that are to leave their messages, all in one go, and marks these messages.
func (c *consumption) moveAll(ctx context.Context, batch []*message) {
	var isolated, again []model.Reservation
	var left []*message
	for _, m := range batch {
		mine, others := m.leaving()
		if isolated, again = append(isolated, mine...), append(again, others...); len(mine)+len(others) > 0 {
			left = append(left, m)
		}
	}
	if len(left) == 0 {
		return
	}
	// A queue that takes longer gets the messages back.
	ctx, cancel := context.WithTimeout(ctx, budget.Call+c.queue.slack)
	defer cancel()
	failpoint.Reach(failpoint.BeforeMove)
	err := c.queue.isolate(ctx, isolated)
	if err == nil {
		err = c.queue.Publish(ctx, again)
	}
	if err != nil {
		c.queue.log.WarnContext(ctx, "orders cannot be moved to messages of their own, and come again",
			slog.Any("error", err))
		return
	}
	failpoint.Reach(failpoint.AfterMove)
	for _, m := range left {
		m.moved = true
	}
}

func (q *Queue) isolate(ctx context.Context, orders []model.Reservation) error {
	own := map[string][]order1{}
	for _, r := range orders {
		o := orderOf(r)
		o.Sequence = r.Sequence
		subject := q.names.isolated(r.VoucherID)
		own[subject] = append(own[subject], o)
	}
	return q.publishAll(ctx, own)
}
