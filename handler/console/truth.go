package console

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"time"

	"seckill/model"
	"seckill/service"
)

// auditTimeout is how long the answer to an audit, or to a repair, may take: an audit has a minute, and a repair audits twice.
const auditTimeout = 130 * time.Second

// auditPage is what an audit has found.
type auditPage struct {
	model.Audit

	Title  string
	Behind bool // there is a hot copy that could be repaired
	Took   time.Duration
}

// Adds reports whether the database adds up by itself.
func (p auditPage) Adds() bool { return p.Database.Stock == p.Database.Remaining+p.Database.LiveOrders }

func (c *console) audit(w http.ResponseWriter, r *http.Request, v *visit) error {
	c.patiently(w)
	voucher, err := c.Vouchers.Get(r.Context(), r.PathValue("id"), true)
	if err != nil {
		return err
	}
	began := time.Now()
	found, err := c.Vouchers.Audit(r.Context(), voucher.ID)
	if err != nil {
		return err
	}
	return c.show(w, r, v, http.StatusOK, "audit", auditPage{
		Audit: found, Title: voucher.Title, Behind: c.Behind != nil, Took: time.Since(began).Round(time.Millisecond),
	})
}

// patiently moves the deadline of an answer that may take long.
func (c *console) patiently(w http.ResponseWriter) {
	_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(auditTimeout)) // without one there is nothing to move
}

func auditPath(id string) string { return voucherPath(id) + "/audit" }

// repair puts right by order id what an audit finds, and has the hot copy rebuilt where that is not enough.
func (c *console) repair(w http.ResponseWriter, r *http.Request, v *visit) error {
	id := r.PathValue("id")
	if c.Behind == nil {
		return model.Conflict("In the order mode sync there is no hot copy to repair.")
	}
	if !model.ValidID(id) {
		return model.NotFound("voucher")
	}
	c.patiently(w)
	if _, err := c.Behind.Repair(r.Context(), id); err != nil {
		return err
	}
	c.Log.InfoContext(r.Context(), "an administrator had a voucher repaired", slog.String("voucher_id", id), slog.String("by", v.claims.Subject))
	return done(w, r, auditPath(id), "repaired")
}

func (c *console) rebuild(w http.ResponseWriter, r *http.Request, v *visit) error {
	id := r.PathValue("id")
	if err := c.Vouchers.Rebuild(r.Context(), id, v.claims.Subject); err != nil {
		return err
	}
	c.Log.InfoContext(r.Context(), "an administrator had a hot copy rebuilt", slog.String("voucher_id", id), slog.String("by", v.claims.Subject))
	return done(w, r, auditPath(id), "rebuilding")
}

// behind is what works behind the requests in the order mode async.
type behind interface {
	// Repair puts right what an audit finds, and audits again.
	Repair(ctx context.Context, voucherID string) (model.Audit, error)
	DeadLetters(ctx context.Context, yield func(model.DeadLetter) error) error
	DeadLetter(ctx context.Context, sequence uint64) (model.DeadLetter, error)
	RemoveDeadLetter(ctx context.Context, sequence uint64) error
	Replay(ctx context.Context, sequence uint64) (model.Reservation, error)
}

// maxLetters bounds one page of dead letters.
const maxLetters = 100

// letterList is the page of dead letters.
type letterList struct {
	Behind  bool // there is a queue
	Letters []model.DeadLetter
	More    bool
}

var errEnough = errors.New("the page is full")

func (c *console) listLetters(w http.ResponseWriter, r *http.Request, v *visit) error {
	list := letterList{Behind: c.Behind != nil}
	if list.Behind {
		err := c.Behind.DeadLetters(r.Context(), func(letter model.DeadLetter) error {
			if list.More = len(list.Letters) == maxLetters; list.More {
				return errEnough
			}
			list.Letters = append(list.Letters, letter)
			return nil
		})
		if err != nil && !errors.Is(err, errEnough) {
			return err
		}
	}
	return c.show(w, r, v, http.StatusOK, "dead_letters", list)
}

// letterPage is one dead letter.
type letterPage struct {
	model.DeadLetter

	Text string // the reservation, or the message that could not be read
}

// letter finds the dead letter of a path.
func (c *console) letter(r *http.Request) (model.DeadLetter, error) {
	sequence, err := strconv.ParseUint(r.PathValue("sequence"), 10, 64)
	if err != nil || c.Behind == nil {
		return model.DeadLetter{}, model.NotFound("dead letter")
	}
	return c.Behind.DeadLetter(r.Context(), sequence)
}

func (c *console) showLetter(w http.ResponseWriter, r *http.Request, v *visit) error {
	letter, err := c.letter(r)
	if err != nil {
		return err
	}
	page := letterPage{DeadLetter: letter, Text: string(bytes.ToValidUTF8(letter.Raw, []byte("\uFFFD")))}
	if letter.Reservation != nil {
		text, err := json.MarshalIndent(letter.Reservation.Order, "", "  ")
		if err != nil {
			return fmt.Errorf("write dead letter %d: %w", letter.Sequence, err)
		}
		page.Text = string(text)
	}
	return c.show(w, r, v, http.StatusOK, "dead_letter", page)
}

// replayLetter gives the buyer of a dead letter another chance, and leads to the new order.
func (c *console) replayLetter(w http.ResponseWriter, r *http.Request, v *visit) error {
	letter, err := c.letter(r)
	if err != nil {
		return err
	}
	made, err := c.Behind.Replay(r.Context(), letter.Sequence)
	if err != nil {
		return err
	}
	c.Log.InfoContext(r.Context(), "an administrator replayed a dead letter",
		slog.Uint64("sequence", letter.Sequence), slog.String("order_id", made.ID), slog.String("by", v.claims.Subject))
	return done(w, r, orderPath(made.ID), "replayed")
}

func (c *console) dropLetter(w http.ResponseWriter, r *http.Request, v *visit) error {
	letter, err := c.letter(r)
	if err != nil {
		return err
	}
	if err := c.Behind.RemoveDeadLetter(r.Context(), letter.Sequence); err != nil {
		return err
	}
	c.Log.WarnContext(r.Context(), "an administrator dropped a dead letter",
		slog.Uint64("sequence", letter.Sequence), slog.String("reason", letter.Reason), slog.String("by", v.claims.Subject))
	return done(w, r, Path+"/dead-letters", "dropped")
}

// systemPage is the state of this instance.
type systemPage struct {
	Mode   model.OrderMode
	Checks []checkLine
	Ready  bool
	Limits model.Limits
	Rates  Rates
}

// checkLine is one line of the readiness check; an empty Trouble says that all is well.
type checkLine struct{ Name, Trouble string }

func (c *console) system(w http.ResponseWriter, r *http.Request, v *visit) error {
	page := systemPage{Mode: c.Mode, Ready: true, Limits: c.Limits.InForce(), Rates: c.hub.meter.read(time.Now())}
	for _, check := range c.Health.Check(r.Context()) {
		line := checkLine{Name: check.Name}
		if check.Err != nil {
			page.Ready = false
			line.Trouble = c.trouble(r.Context(), v, check)
		}
		page.Checks = append(page.Checks, line)
	}
	return c.show(w, r, v, http.StatusOK, "system", page)
}

// trouble is what a page tells of a failed check. The error itself, with its addresses, goes to the log.
func (c *console) trouble(ctx context.Context, v *visit, check service.Check) string {
	c.Log.WarnContext(ctx, "not ready", slog.String("check", check.Name), slog.Any("error", check.Err))
	if refusal, ok := errors.AsType[*model.Error](check.Err); ok && refusal.Detail != "" {
		return v.language.text(refusal.Detail)
	}
	return v.language.text("It cannot be reached.")
}

// logPage is one page of what administrators changed.
type logPage struct {
	Actor string // empty: everybody's
	Items []logEntry
	First bool
	Next  string
}

// logEntry is one change, with what is different after it.
type logEntry struct {
	model.AdminChange

	Differences []memberChange
	Where       string // the page of its subject
}

// memberChange is one member of a subject that has changed.
type memberChange struct{ Name, Before, After string }

func (c *console) adminLog(w http.ResponseWriter, r *http.Request, v *visit) error {
	query := r.URL.Query()
	page := logPage{Actor: query.Get("actor"), First: query.Get("cursor") == ""}
	found, err := c.AdminLog.List(r.Context(), model.AdminLogQuery{Actor: page.Actor, Cursor: query.Get("cursor"), Limit: pageSize})
	if err != nil {
		return err
	}
	page.Next = nextPage(r.URL, found.NextCursor)
	for _, change := range found.Items {
		entry := logEntry{AdminChange: change, Differences: differences(change.Before, change.After), Where: voucherPath(change.Subject)}
		if change.Action == model.ActionOrderRedeem || change.Action == model.ActionOrderRefund {
			entry.Where = orderPath(change.Subject)
		}
		page.Items = append(page.Items, entry)
	}
	return c.show(w, r, v, http.StatusOK, "log", page)
}

// differences compares two JSON objects, member by member.
func differences(before, after json.RawMessage) []memberChange {
	was, became := map[string]json.RawMessage{}, map[string]json.RawMessage{}
	_ = json.Unmarshal(before, &was) // what is no object, or absent, has no members
	_ = json.Unmarshal(after, &became)
	names := map[string]bool{}
	for name := range was {
		names[name] = true
	}
	for name := range became {
		names[name] = true
	}
	var found []memberChange
	for _, name := range slices.Sorted(maps.Keys(names)) {
		if !bytes.Equal(was[name], became[name]) {
			found = append(found, memberChange{name, string(was[name]), string(became[name])})
		}
	}
	return found
}
