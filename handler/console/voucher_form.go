package console

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"seckill/handler/wire"
	"seckill/internal/words"
	"seckill/model"
)

// voucherForm is a voucher as it is typed. A refused one is shown again with everything in it.
type voucherForm struct {
	ID    string // empty: of a new voucher
	Title string

	Description, Price, FaceValue, Stock, BeginAt, EndAt, State, PaymentWindow string

	Groups, EarlyGroups, EarlyBeginAt string // a group a line
	Cooldown                          string // minutes
	Draw                              bool   // the units are drawn
	Waitlist                          string // "on" or empty

	Zone string // in which the times are
	Once string // makes the creation happen once, however often it is sent
	Tag  string // what the voucher was when it was read

	States  []model.VoucherState
	Refusal string
	Wrong   map[string]string // what is wrong, by field
}

// How browsers write a local time (HTML, 2.3.5.5).
const (
	toTheSecond = "2006-01-02T15:04:05"
	toTheMinute = "2006-01-02T15:04"
)

// local writes an instant as a browser's field of a local time wants it.
func local(at time.Time, zone *time.Location) string { return at.In(zone).Format(toTheSecond) }

// localEarly is local of an early beginning; empty: there is none.
func localEarly(early model.Early, zone *time.Location) string {
	if early.From == nil {
		return ""
	}
	return local(*early.From, zone)
}

// parseLocal reads a local time of a zone. Such a time may not exist there, in the hour that a summer time skips.
func parseLocal(location, text string, zone *time.Location) (time.Time, error) {
	for _, layout := range []string{toTheSecond, toTheMinute} {
		at, err := time.ParseInLocation(layout, text, zone)
		switch {
		case err != nil:
		case at.Format(layout) != text:
			return time.Time{}, model.Invalid(location, "This time does not exist in the zone: a summer time skips it.")
		case !model.StorableTime(at):
			return time.Time{}, model.Invalid(location, "must be in the years 1000 to 9999")
		default:
			return at.UTC(), nil
		}
	}
	return time.Time{}, model.Invalid(location, "must be a date and a time")
}

func parseWhole(location, text string) (int64, error) {
	number, err := strconv.ParseInt(strings.TrimSpace(text), 10, 64)
	if err != nil {
		return 0, model.Invalid(location, "must be a whole number")
	}
	return number, nil
}

// fields are the messages of a VALIDATION error, by the last name in each location.
func fields(l *words.Language, err error) map[string]string {
	refusal, ok := errors.AsType[*model.Error](err)
	if !ok || len(refusal.Fields) == 0 {
		return nil
	}
	wrong := map[string]string{}
	for _, field := range refusal.Fields {
		location := strings.ReplaceAll(field.Location, "early.", "early_")
		wrong[location[strings.LastIndexByte(location, '.')+1:]] = explainMessage(l, field.Message)
	}
	return wrong
}

// explainMessage is what is wrong with a field, in the words of the forms: the API names its own fields.
func explainMessage(l *words.Language, message string) string {
	if in := "form: " + message; l.Text(in) != in {
		return l.Text(in)
	}
	return l.Text(message)
}

// explainField is what to say of a refusal beside a form that has one field.
func explainField(l *words.Language, err error) string {
	for _, message := range fields(l, err) {
		return message
	}
	return l.Explain(err)
}

// once makes a call happen once for the key of a form. The same form sent again with other entries is a CONFLICT.
func once(v *visit, call, key string, asked ...string) model.Idempotency {
	sum := sha256.Sum256(fmt.Appendf(nil, "%q", asked))
	return model.Idempotency{Scope: v.claims.Subject + " console " + call, Key: key, Fingerprint: hex.EncodeToString(sum[:])}
}

// usualSale is how long a new voucher is offered, and soon when, unless the administrator types something else.
const (
	soon      = time.Hour
	usualSale = 24 * time.Hour
)

func (c *console) newVoucher(w http.ResponseWriter, r *http.Request, v *visit) error {
	begin := time.Now().Add(soon).Truncate(time.Hour)
	if c.Shop { // it is tried out: what is put up can be bought
		begin = time.Now().Truncate(time.Minute)
	}
	return c.show(w, r, v, http.StatusOK, "voucher_form", voucherForm{
		BeginAt: local(begin, v.zone), EndAt: local(begin.Add(usualSale), v.zone), State: string(model.VoucherPublished),
		Zone: v.zone.String(), Once: rand.Text(), States: model.VoucherStates(),
	})
}

// typed is the form as it was sent.
func typed(r *http.Request) voucherForm {
	get := r.PostForm.Get
	return voucherForm{
		ID: r.PathValue("id"), Title: get("title"), Description: strings.ReplaceAll(get("description"), "\r\n", "\n"),
		Price: get("price"), FaceValue: get("face_value"), Stock: get("stock"), BeginAt: get("begin_at"), EndAt: get("end_at"),
		State: get("state"), PaymentWindow: get("payment_window"), Zone: get("zone"), Once: get("once"), Tag: get("tag"),
		Groups: get("groups"), EarlyGroups: get("early_groups"), EarlyBeginAt: get("early_begin_at"), Cooldown: get("cooldown"), Waitlist: get("waitlist"), Draw: get("allocation") == string(model.ByDraw),
		States: model.VoucherStates(),
	}
}

// groups are those of a field, one a line.
func groups(text string) (found model.Groups) {
	for line := range strings.Lines(text) {
		if name := strings.TrimSpace(line); name != "" {
			found = append(found, name)
		}
	}
	return found
}

// early is who may begin early, as the form says.
func (f voucherForm) early(zone *time.Location) (model.Early, error) {
	early := model.Early{For: groups(f.EarlyGroups)}
	if f.EarlyBeginAt == "" {
		return early, nil
	}
	from, err := parseLocal("body.early.begin_at", f.EarlyBeginAt, zone)
	if err != nil {
		return model.Early{}, err
	}
	early.From = &from
	return early, nil
}

// draft is what the form says. Its error names every field that is wrong, as the API's does.
func (f voucherForm) draft(m money) (model.NewVoucher, error) {
	zone, zoneErr := loadZone(f.Zone)
	if zoneErr != nil {
		return model.NewVoucher{}, model.Invalid("body.zone", "is no time zone")
	}
	var wrong []error
	note := func(err error) { wrong = append(wrong, err) }
	draft := model.NewVoucher{Title: f.Title, Description: f.Description, State: model.VoucherState(f.State), Groups: groups(f.Groups), Waitlist: f.Waitlist != ""}
	if f.Draw {
		draft.Allocation = model.ByDraw
	}
	var err error
	draft.Price, err = m.parse("body.price", f.Price)
	note(err)
	draft.FaceValue, err = m.parse("body.face_value", f.FaceValue)
	note(err)
	if f.ID == "" {
		draft.Stock, err = parseWhole("body.stock", f.Stock)
		note(err)
		draft.PaymentWindow, err = parseWindow(f.PaymentWindow)
		note(err)
		if !slices.Contains(model.VoucherStates(), draft.State) {
			note(model.Invalid("body.state", "is no state of a voucher"))
		}
	}
	draft.Early, err = f.early(zone)
	note(err)
	draft.Cooldown, err = parseCooldown(f.Cooldown)
	note(err)
	begin, beginErr := parseLocal("body.begin_at", f.BeginAt, zone)
	end, endErr := parseLocal("body.end_at", f.EndAt, zone)
	note(beginErr)
	note(endErr)
	draft.BeginAt, draft.EndAt = begin, end
	if beginErr != nil || endErr != nil { // what is missing is no wrong order
		draft.BeginAt, draft.EndAt, draft.Early = time.Time{}, time.Time{}.Add(1), model.Early{}
	}
	note(draft.Check())
	return draft, model.JoinInvalid(wrong...)
}

// parseWindow reads how long orders stay unpaid, in minutes; none is what the settings say.
func parseWindow(text string) (time.Duration, error) {
	if strings.TrimSpace(text) == "" {
		return 0, nil
	}
	const longest = 366 * 24 * 60 // minutes: a year, as the model has it
	minutes, err := parseWhole("body.payment_window", text)
	if err != nil || minutes < 1 || minutes > longest {
		return 0, model.Invalid("body.payment_window", "must be minutes, from 1 to 527040")
	}
	return time.Duration(minutes) * time.Minute, nil
}

// parseCooldown reads how long users wait after an order that ended unpaid, in minutes; none is not at all.
func parseCooldown(text string) (model.Window, error) {
	if strings.TrimSpace(text) == "" {
		return 0, nil
	}
	const longest = 24 * 60 // minutes: a day, as the model has it
	minutes, err := parseWhole("body.cooldown", text)
	if err != nil || minutes < 0 || minutes > longest {
		return 0, model.Invalid("body.cooldown", "must be minutes, from 0 to 1440")
	}
	return model.Window(time.Duration(minutes) * time.Minute), nil
}

// inMinutes is a cool-down in minutes, rounded up: the form shows no seconds.
func inMinutes(cooldown model.Window) int64 {
	return int64((time.Duration(cooldown) + time.Minute - 1) / time.Minute)
}

func (c *console) createVoucher(w http.ResponseWriter, r *http.Request, v *visit) error {
	form := typed(r)
	if toShowAgain(r) {
		return c.show(w, r, v, http.StatusOK, "voucher_form", form)
	}
	draft, err := form.draft(c.money)
	if err != nil {
		return c.retype(w, r, v, form, err)
	}
	draft.By = v.claims.Subject
	created, err := c.Vouchers.Create(r.Context(), draft, once(v, "create", form.Once, form.entries()...))
	if err != nil {
		return c.retype(w, r, v, form, err)
	}
	return done(w, r, voucherPath(created.ID), "created")
}

// entries are what was typed.
func (f voucherForm) entries() []string {
	return []string{f.Title, f.Description, f.Price, f.FaceValue, f.Stock, f.BeginAt, f.EndAt, f.State, f.PaymentWindow, f.Groups, f.EarlyGroups, f.EarlyBeginAt, f.Cooldown, f.Waitlist, strconv.FormatBool(f.Draw), f.Zone}
}

// retype shows a form again, with everything that was typed and what is wrong with it.
func (c *console) retype(w http.ResponseWriter, r *http.Request, v *visit, form voucherForm, err error) error {
	code := model.CodeOf(err)
	if hasOwnPage(code) {
		return err
	}
	form.Refusal, form.Wrong = v.language.Explain(err), fields(v.language, err)
	if code == model.CodeConflict { // perhaps of the key, which was used for other entries
		form.Once = rand.Text()
	}
	return c.show(w, r, v, wire.KindOf(code).Status, "voucher_form", form)
}

// formOf is a voucher as it would be typed.
func (c *console) formOf(voucher model.Voucher, zone *time.Location) voucherForm {
	waitlist := ""
	if voucher.Waitlist {
		waitlist = "on"
	}
	cooldown := ""
	if voucher.Cooldown > 0 {
		cooldown = strconv.FormatInt(inMinutes(voucher.Cooldown), 10)
	}
	return voucherForm{
		Groups: strings.Join(voucher.Groups, "\n"), EarlyGroups: strings.Join(voucher.Early.For, "\n"), EarlyBeginAt: localEarly(voucher.Early, zone), Cooldown: cooldown, Waitlist: waitlist, Draw: voucher.Allocation == model.ByDraw,
		ID: voucher.ID, Title: voucher.Title, Description: voucher.Description, Price: c.money.plain(voucher.Price),
		FaceValue: c.money.plain(voucher.FaceValue), BeginAt: local(voucher.BeginAt, zone), EndAt: local(voucher.EndAt, zone),
		Zone: zone.String(), Tag: voucher.Tag(),
	}
}

func (c *console) editVoucher(w http.ResponseWriter, r *http.Request, v *visit) error {
	voucher, err := c.Vouchers.Get(r.Context(), r.PathValue("id"), true)
	if err != nil {
		return err
	}
	return c.show(w, r, v, http.StatusOK, "voucher_form", c.formOf(voucher, v.zone))
}

// changeVoucher changes the fields that were typed over, if the voucher has not changed
// since the form was made. Otherwise the form is shown again as it was typed;
// sent once more, it is meant for the voucher as it is by then.
func (c *console) changeVoucher(w http.ResponseWriter, r *http.Request, v *visit) error {
	form := typed(r)
	now, err := c.Vouchers.Get(r.Context(), form.ID, true)
	if err != nil {
		return err
	}
	if toShowAgain(r) {
		return c.show(w, r, v, http.StatusOK, "voucher_form", form)
	}
	draft, err := form.draft(c.money)
	if err != nil {
		return c.retype(w, r, v, form, err)
	}
	patch := difference(draft, now)
	patch.IfMatch = model.Tags{form.Tag}
	patch.By = v.claims.Subject
	if _, err := c.Vouchers.Patch(r.Context(), form.ID, patch); err != nil {
		if model.CodeOf(err) == model.CodePreconditionFailed {
			form.Tag = now.Tag()
		}
		return c.retype(w, r, v, form, err)
	}
	return done(w, r, voucherPath(form.ID), "changed")
}

// difference is what of a form differs from the voucher. A field that was left alone keeps
// what a form cannot show: a time's fraction of a second, and the ends of lines.
func difference(typed model.NewVoucher, now model.Voucher) model.VoucherPatch {
	patch := model.VoucherPatch{}
	if typed.Title != now.Title {
		patch.Title = &typed.Title
	}
	if typed.Description != strings.ReplaceAll(now.Description, "\r\n", "\n") {
		patch.Description = &typed.Description
	}
	if typed.Price != now.Price {
		patch.Price = &typed.Price
	}
	if typed.FaceValue != now.FaceValue {
		patch.FaceValue = &typed.FaceValue
	}
	if !typed.BeginAt.Equal(now.BeginAt.Truncate(time.Second)) {
		patch.BeginAt = &typed.BeginAt
	}
	if !typed.EndAt.Equal(now.EndAt.Truncate(time.Second)) {
		patch.EndAt = &typed.EndAt
	}
	if !slices.Equal(typed.Groups, now.Groups) {
		patch.Groups = &typed.Groups
	}
	if !slices.Equal(typed.Early.For, now.Early.For) || localEarly(typed.Early, time.UTC) != localEarly(now.Early, time.UTC) {
		patch.Early = &typed.Early
	}
	if inMinutes(typed.Cooldown) != inMinutes(now.Cooldown) {
		patch.Cooldown = &typed.Cooldown
	}
	if typed.Allocation != now.Allocation {
		patch.Allocation = &typed.Allocation
	}
	if typed.Waitlist != now.Waitlist {
		patch.Waitlist = &typed.Waitlist
	}
	return patch
}
