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
	"seckill/internal/budget"
	"seckill/internal/words"
	"seckill/model"
)

// voucherForm is a voucher as it is typed. A refused one is shown again with everything in it.
type voucherForm struct {
	ID    string            // empty: of a new voucher
	Typed map[string]string // by the names of formFields

	Zone string // in which the times are
	Once string // makes the creation happen once, however often it is sent
	Tag  string // what the voucher was when it was read

	States  []model.VoucherState
	Refusal string
	Wrong   map[string]string // what is wrong, by field
}

// formField is one field of the form.
type formField struct {
	name  string // in the form and, but for the parts of early, in the API
	field string // of model.VoucherFields
	once  bool   // only a new voucher has it
	show  func(from *model.VoucherFields) string
	read  func(text string, to *model.VoucherFields) error
}

// field is one that shows and reads what is found at a place of the fields.
func field[T any](
	name, field string, at func(*model.VoucherFields) *T, show func(T) string, read func(location, text string) (T, error),
) formField {
	return formField{
		name: name, field: field,
		show: func(from *model.VoucherFields) string { return show(*at(from)) },
		read: func(text string, to *model.VoucherFields) (err error) {
			*at(to), err = read("body."+name, text)
			return err
		},
	}
}

// onlyNew is a field that no change has.
func onlyNew(f formField) formField {
	f.once = true
	return f
}

// formFields are the fields of the form. begin_at and end_at are read last: see draft.
func formFields(m money, zone *time.Location) []formField {
	type fields = model.VoucherFields
	instant := func(at time.Time) string { return local(at, zone) }
	parseInstant := func(location, text string) (time.Time, error) { return parseLocal(location, text, zone) }
	whole := func(number int64) string { return strconv.FormatInt(number, 10) }
	return []formField{
		field("title", "Title", func(f *fields) *string { return &f.Title }, unixLines, parseText),
		field("description", "Description", func(f *fields) *string { return &f.Description }, unixLines, parseText),
		field("price", "Price", func(f *fields) *int64 { return &f.Price }, m.plain, m.parse),
		field("face_value", "FaceValue", func(f *fields) *int64 { return &f.FaceValue }, m.plain, m.parse),
		field("groups", "Groups", func(f *fields) *model.Groups { return &f.Groups }, groupLines, parseGroups),
		field("early_groups", "Early", func(f *fields) *model.Groups { return &f.Early.For }, groupLines, parseGroups),
		field("early_begin_at", "Early", func(f *fields) **time.Time { return &f.Early.From }, func(at *time.Time) string {
			if at == nil {
				return ""
			}
			return instant(*at)
		}, func(location, text string) (*time.Time, error) {
			if text == "" {
				return nil, nil
			}
			at, err := parseInstant(location, text)
			return &at, err
		}),
		field("cooldown", "Cooldown", func(f *fields) *model.Window { return &f.Cooldown }, inMinutes,
			parseMinutes(0, 24*60, model.Invalid("body.cooldown", "must be minutes, from 0 to 1440"))),
		field("allocation", "Allocation", func(f *fields) *model.Allocation { return &f.Allocation },
			func(a model.Allocation) string { return string(a) },
			func(_, text string) (a model.Allocation, _ error) {
				if text == string(model.ByDraw) {
					a = model.ByDraw
				}
				return a, nil
			}),
		field("waitlist", "Waitlist", func(f *fields) *bool { return &f.Waitlist }, func(is bool) string {
			if is {
				return "on"
			}
			return ""
		}, func(_, text string) (bool, error) { return text != "", nil }),
		onlyNew(field("stock", "Stock", func(f *fields) *int64 { return &f.Stock }, whole, parseWhole)),
		onlyNew(field("payment_window", "PaymentWindow", func(f *fields) *model.Window { return &f.PaymentWindow }, inMinutes,
			parseMinutes(1, 366*24*60, model.Invalid("body.payment_window", "must be minutes, from 1 to 527040")))),
		onlyNew(field("state", "State", func(f *fields) *model.VoucherState { return &f.State },
			func(s model.VoucherState) string { return string(s) }, parseState)),
		field("begin_at", "BeginAt", func(f *fields) *time.Time { return &f.BeginAt }, instant, parseInstant),
		field("end_at", "EndAt", func(f *fields) *time.Time { return &f.EndAt }, instant, parseInstant),
	}
}

// unixLines ends lines as they are compared: browsers end them with CR LF.
func unixLines(text string) string { return strings.ReplaceAll(text, "\r\n", "\n") }

func parseText(_, text string) (string, error) { return unixLines(text), nil }

func groupLines(groups model.Groups) string { return strings.Join(groups, "\n") }

// parseGroups reads groups, one a line.
func parseGroups(_, text string) (model.Groups, error) { return groups(text), nil }

func parseState(location, text string) (model.VoucherState, error) {
	state := model.VoucherState(text)
	if !slices.Contains(model.VoucherStates(), state) {
		return "", model.Invalid(location, "is no state of a voucher")
	}
	return state, nil
}

// How browsers write a local time (HTML, 2.3.5.5).
const (
	toTheSecond = "2006-01-02T15:04:05"
	toTheMinute = "2006-01-02T15:04"
)

// local writes an instant as a browser's field of a local time wants it.
func local(at time.Time, zone *time.Location) string { return at.In(zone).Format(toTheSecond) }

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

// newVoucher shows the form of a new voucher. By default its sale begins in an hour and lasts for a day.
func (c *console) newVoucher(w http.ResponseWriter, r *http.Request, v *visit) error {
	begin := time.Now().Add(budget.Hour).Truncate(time.Hour)
	if c.Shop { // it is tried out: what is put up can be bought
		begin = time.Now().Truncate(time.Minute)
	}
	return c.show(w, r, v, http.StatusOK, "voucher_form", voucherForm{
		Typed: map[string]string{
			"begin_at": local(begin, v.zone), "end_at": local(begin.Add(budget.Day), v.zone), "state": string(model.VoucherPublished),
		},
		Zone: v.zone.String(), Once: rand.Text(), States: model.VoucherStates(),
	})
}

// typed is the form as it was sent.
func (c *console) typed(r *http.Request) voucherForm {
	get := r.PostForm.Get
	form := voucherForm{
		ID: r.PathValue("id"), Zone: get("zone"), Once: get("once"), Tag: get("tag"), States: model.VoucherStates(), Typed: map[string]string{},
	}
	for _, f := range formFields(c.money, time.UTC) {
		form.Typed[f.name] = unixLines(get(f.name))
	}
	return form
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

// draft is what the form says. Its error names every field that is wrong, as the API's does.
func (f voucherForm) draft(m money) (draft model.VoucherFields, err error) {
	zone, err := loadZone(f.Zone)
	if err != nil {
		return draft, model.Invalid("body.zone", "is no time zone")
	}
	var wrong []error
	for _, field := range formFields(m, zone) {
		if field.once && f.ID != "" {
			continue
		}
		err := field.read(f.Typed[field.name], &draft)
		if wrong = append(wrong, err); err != nil && strings.HasSuffix(field.name, "_at") {
			draft.EndAt, draft.Early = draft.BeginAt.Add(1), model.Early{} // what is missing is no wrong order
		}
	}
	return draft, model.JoinInvalid(append(wrong, draft.Check())...)
}

// parseMinutes reads how long something lasts, in minutes; none is zero.
func parseMinutes(least, most int64, otherwise error) func(location, text string) (model.Window, error) {
	return func(location, text string) (model.Window, error) {
		if strings.TrimSpace(text) == "" {
			return 0, nil
		}
		minutes, err := parseWhole(location, text)
		if err != nil || minutes < least || minutes > most {
			return 0, otherwise
		}
		return model.Window(time.Duration(minutes) * time.Minute), nil
	}
}

// inMinutes is how long something lasts in minutes, rounded up: the form shows no seconds. Zero is none.
func inMinutes(window model.Window) string {
	if window <= 0 {
		return ""
	}
	return strconv.FormatInt(int64((time.Duration(window)+time.Minute-1)/time.Minute), 10)
}

func (c *console) createVoucher(w http.ResponseWriter, r *http.Request, v *visit) error {
	form := c.typed(r)
	if toShowAgain(r) {
		return c.show(w, r, v, http.StatusOK, "voucher_form", form)
	}
	draft, err := form.draft(c.money)
	if err != nil {
		return c.retype(w, r, v, form, err)
	}
	created, err := c.Vouchers.Create(r.Context(), draft, v.claims.Subject, once(v, "create", form.Once, fmt.Sprintf("%q", form.Typed), form.Zone))
	if err != nil {
		return c.retype(w, r, v, form, err)
	}
	return done(w, r, voucherPath(created.ID), "created")
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
	form := voucherForm{ID: voucher.ID, Zone: zone.String(), Tag: voucher.Tag(), Typed: map[string]string{}}
	for _, f := range formFields(c.money, zone) {
		if !f.once {
			form.Typed[f.name] = f.show(&voucher.VoucherFields)
		}
	}
	return form
}

func (c *console) editVoucher(w http.ResponseWriter, r *http.Request, v *visit) error {
	voucher, err := c.Vouchers.Get(r.Context(), r.PathValue("id"), true)
	if err != nil {
		return err
	}
	return c.show(w, r, v, http.StatusOK, "voucher_form", c.formOf(voucher, v.zone))
}

// changeVoucher changes the fields that were typed over, if the voucher has not changed since the form was made.
// Otherwise the form is shown again as it was typed; sent once more, it is meant for the voucher as it is by then.
func (c *console) changeVoucher(w http.ResponseWriter, r *http.Request, v *visit) error {
	form := c.typed(r)
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
	patch := c.difference(draft, now.VoucherFields)
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

// difference is what of a form differs from the voucher. A field left alone keeps what a form cannot show.
func (c *console) difference(typed, now model.VoucherFields) model.VoucherPatch {
	changed := map[string]bool{}
	for _, f := range formFields(c.money, time.UTC) {
		if !f.once && f.show(&typed) != f.show(&now) {
			changed[f.field] = true
		}
	}
	return typed.Patch(func(name string) bool { return changed[name] })
}
