package console

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strconv"
	"time"

	"seckill/handler/wire"
	"seckill/internal/budget"
	"seckill/internal/version"
	"seckill/model"
	"seckill/service"
)

const auditTimeout = 2*budget.Survey + budget.Step // an audit has a minute, and a repair audits twice

type auditPage struct {
	model.Audit

	Title  string
	Behind bool // there is a hot copy that could be repaired
	Took   time.Duration
}

// Adds reports whether the database adds up by itself.
func (p auditPage) Adds() bool { return p.Database.Stock == p.Database.Remaining+p.Database.LiveOrders }

func (c *console) audit(r *http.Request, v *visit) (any, error) {
	voucher, err := c.Vouchers.Get(r.Context(), r.PathValue("id"), true)
	if err != nil {
		return nil, err
	}
	began := time.Now()
	found, err := c.Vouchers.Audit(r.Context(), voucher.ID)
	return auditPage{Audit: found, Title: voucher.Title, Behind: c.Behind != nil, Took: took(began)}, err
}

func took(began time.Time) time.Duration {
	return max(time.Since(began).Round(time.Millisecond), time.Millisecond)
}

func patiently(do handle) handle {
	return func(w http.ResponseWriter, r *http.Request, v *visit) error {
		// Without a deadline there is nothing to move.
		_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(auditTimeout))
		return do(w, r, v)
	}
}

func auditPath(id string) string { return voucherPath(id) + "/audit" }

// repair puts right by order id what an audit finds, and has the hot copy rebuilt where that is not enough.
func (c *console) repair(r *http.Request, by string) (leads string, err error) {
	id := r.PathValue("id")
	if c.Behind == nil {
		return "", model.Conflict("In the order mode sync there is no hot copy to repair.")
	}
	if !model.ValidID(id) {
		return "", model.NotFound("voucher")
	}
	_, err = c.Behind.Repair(r.Context(), id, by)
	return auditPath(id), err
}

func (c *console) rebuild(r *http.Request, by string) (leads string, err error) {
	id := r.PathValue("id")
	return auditPath(id), c.Vouchers.Rebuild(r.Context(), id, by)
}

// behind is what works behind the requests in async. The administrators' log records what it does for one of them.
type behind interface {
	// Repair puts right what an audit finds, and audits again.
	Repair(ctx context.Context, voucherID, adminID string) (model.Audit, error)
	DeadLetters(ctx context.Context, yield func(model.DeadLetter) error) error
	DeadLetter(ctx context.Context, sequence uint64) (model.DeadLetter, error)
	// Replay gives the buyer of a dead letter another chance.
	Replay(ctx context.Context, sequence uint64, adminID string) (model.Reservation, error)
	// Drop removes a dead letter for good.
	Drop(ctx context.Context, sequence uint64, adminID string) error
}

const maxLetters = 100

type letterList struct {
	Behind  bool // there is a queue
	Letters []model.DeadLetter
	More    bool
}

var errEnough = errors.New("the page is full")

func (c *console) listLetters(r *http.Request, _ *visit) (any, error) { return c.letters(r.Context()) }

func (c *console) letters(ctx context.Context) (list letterList, err error) {
	if list.Behind = c.Behind != nil; !list.Behind {
		return list, nil
	}
	err = c.Behind.DeadLetters(ctx, func(letter model.DeadLetter) error {
		if list.More = len(list.Letters) == maxLetters; list.More {
			return errEnough
		}
		list.Letters = append(list.Letters, letter)
		return nil
	})
	if errors.Is(err, errEnough) {
		err = nil
	}
	return list, err
}

type letterPage struct {
	model.DeadLetter

	Text string // the reservation, or the message that could not be read
}

func (c *console) sequence(r *http.Request) (uint64, error) {
	sequence, err := strconv.ParseUint(r.PathValue("sequence"), 10, 64)
	if err != nil || c.Behind == nil {
		return 0, model.NotFound("dead letter")
	}
	return sequence, nil
}

func (c *console) showLetter(r *http.Request, v *visit) (any, error) {
	sequence, err := c.sequence(r)
	if err != nil {
		return nil, err
	}
	letter, err := c.Behind.DeadLetter(r.Context(), sequence)
	if err != nil {
		return nil, err
	}
	page := letterPage{DeadLetter: letter, Text: string(bytes.ToValidUTF8(letter.Raw, []byte("\uFFFD")))}
	if letter.Reservation != nil {
		text, err := json.MarshalIndent(letter.Reservation.Order, "", "  ")
		if err != nil {
			return nil, fmt.Errorf("write dead letter %d: %w", letter.Sequence, err)
		}
		page.Text = string(text)
	}
	return page, nil
}

func (c *console) replayLetter(r *http.Request, by string) (leads string, err error) {
	sequence, err := c.sequence(r)
	if err != nil {
		return "", err
	}
	made, err := c.Behind.Replay(r.Context(), sequence, by)
	return orderPath(made.ID), err
}

func (c *console) dropLetter(r *http.Request, by string) (leads string, err error) {
	sequence, err := c.sequence(r)
	if err != nil {
		return "", err
	}
	return Path + "/dead-letters", c.Behind.Drop(r.Context(), sequence, by)
}

// replayEvents sends again what happened within a time before now; within none it only restarts a receiver.
func (c *console) replayEvents(r *http.Request, by string) (leads string, err error) {
	within, err := time.ParseDuration(r.PostForm.Get("within"))
	if err != nil || within < 0 {
		return "", model.Invalid("body.within", "is no time")
	}
	return Path + "/events", c.ReplayEvents(r.Context(), by, time.Now().Add(-within), r.PostForm.Get("url"))
}

type systemPage struct {
	Build     version.Build
	Mode      model.OrderMode
	Checks    []checkLine
	Ready     bool
	Limits    model.Limits
	Backlog   *Backlog
	Instances []model.Instance // by name
	Unknown   bool             // the instances cannot be listed now
}

// checkLine is one line of the readiness check; an empty Trouble says that all is well.
type checkLine struct{ Name, Trouble string }

func (c *console) system(r *http.Request, v *visit) (any, error) {
	page := systemPage{
		Build: c.Build, Mode: c.Mode, Ready: true, Limits: c.Limits.InForce(),
		Backlog: backlogOf(c.Metrics, c.Log),
	}
	for _, check := range c.Health.Check(r.Context()) {
		line := checkLine{Name: check.Name}
		if check.Err != nil {
			page.Ready = false
			line.Trouble = c.trouble(r.Context(), v, check)
		}
		page.Checks = append(page.Checks, line)
	}
	ctx, enough := context.WithTimeout(r.Context(), budget.Look)
	defer enough()
	var err error
	if page.Instances, err = c.Instances(ctx); err != nil {
		page.Unknown = true
		c.Log.WarnContext(r.Context(), "the instances cannot be listed", slog.Any("error", err))
	}
	return page, nil
}

// trouble is what a page tells of a failed check. The error itself, with its addresses, goes to the log.
func (c *console) trouble(ctx context.Context, v *visit, check service.Check) string {
	c.Log.WarnContext(ctx, "not ready", slog.String("check", check.Name), slog.Any("error", check.Err))
	if refusal, ok := errors.AsType[*model.Error](check.Err); ok && refusal.Detail != "" {
		return v.language.Text(refusal.Detail)
	}
	return v.language.Text("It cannot be reached.")
}

// replayPage is a sale again, as a table; a script makes it a picture that is played.
type replayPage struct {
	model.Replay

	Source string // where the script reads it; empty: Known is the same as JSON
	Known  string
	Origin string // of the page, for a link to send
	Public bool   // everybody may read it
}

// known is what an administrator sees, whose script may ask for nothing.
func known(replay model.Replay) (page replayPage, err error) {
	text, err := json.Marshal(replay)
	return replayPage{Replay: replay, Known: string(text)}, err
}

// replay shows everybody what is public, and the rest to administrators.
func (c *console) replay(r *http.Request, v *visit) (page any, err error) {
	id := r.PathValue("id")
	found, err := c.Reports.Replay(r.Context(), id, false)
	page = replayPage{Replay: found, Source: "/api/v1/vouchers/" + id + "/replay", Origin: origin(r), Public: true}
	if model.CodeOf(err) != model.CodeNotFound {
		return page, err
	}
	if claims, unknown := c.session(r.Context(), r); unknown != nil || wire.Allow(claims.Level, "voucher-report") != nil {
		return nil, err
	}
	if found, err = c.Reports.Replay(r.Context(), id, true); err != nil {
		return nil, err
	}
	return known(found)
}

type replayRow struct{ AtMS, Left, Sold, SoldOut, Else int64 }

// Rows are what has happened until then, at instants that are ever farther apart.
func (p replayPage) Rows() (rows []replayRow) {
	var row replayRow
	for n, at := range p.Curve.StepsMS {
		for code, heard := range p.Curve.Heard {
			into := map[string]*int64{"OK": &row.Sold, string(model.CodeSoldOut): &row.SoldOut}[code]
			*cmp.Or(into, &row.Else) += heard[n]
		}
		if row.Left = p.Curve.Left[n]; at >= 2*row.AtMS || n == len(p.Curve.StepsMS)-1 {
			row.AtMS = at
			rows = append(rows, row)
		}
	}
	return rows
}

type reportPage struct {
	model.Report

	Again replayPage
	Took  time.Duration
}

func (c *console) report(r *http.Request, v *visit) (any, error) {
	began := time.Now()
	voucher, err := c.Vouchers.Get(r.Context(), r.PathValue("id"), true)
	if err != nil {
		return nil, err
	}
	page := reportPage{}
	if page.Report, err = c.Reports.Make(r.Context(), voucher.ID); err != nil {
		return nil, err
	}
	page.Again, err = known(model.Replay{PublicReport: page.Public(""), Curve: page.Curve})
	page.Again.Origin, page.Again.Public = origin(r), voucher.PublicReport && c.Shop && voucher.Phase == model.PhaseEnded
	page.Took = took(began)
	return page, err
}
