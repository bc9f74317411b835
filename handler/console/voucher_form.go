package console

import (
	"cmp"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"net/http"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"seckill/internal/budget"
	"seckill/internal/words"
	"seckill/model"
)

// voucherForm is a voucher as it is typed. A refused one is shown again with everything in it.
type voucherForm struct {
	ID    string            // empty: of a new voucher
	Typed map[string]string // by the names of controls

	Zone string // in which the times are
	Once string // makes the creation happen once, however often it is sent
	Tag  string // what the voucher was when it was read

	Above   bool // the price is above the face value, which was asked about
	Refusal string
	Wrong   map[string]string // what is wrong, by field
}

type control struct {
	name  string // in the form and, but for the parts of early, in the API
	field string // of model.VoucherFields
	value any    // where the fields have it
	once  bool   // only a new voucher has it
}

type amount int64

// days are a length that is typed in whole days.
type days model.Window

// controls are the fields of the form. begin_at and end_at are read last: see draft.
func controls(f *model.VoucherFields) []control {
	return []control{
		{name: "title", field: "Title", value: &f.Title},
		{name: "description", field: "Description", value: &f.Description},
		{name: "price", field: "Price", value: (*amount)(&f.Price)},
		{name: "face_value", field: "FaceValue", value: (*amount)(&f.FaceValue)},
		{name: "groups", field: "Groups", value: &f.Groups},
		{name: "early_groups", field: "Early", value: &f.Early.For},
		{name: "early_begin_at", field: "Early", value: &f.Early.From},
		{name: "cooldown", field: "Cooldown", value: &f.Cooldown},
		{name: "allocation", field: "Allocation", value: &f.Allocation},
		{name: "waitlist", field: "Waitlist", value: &f.Waitlist},
		{name: "beacon", field: "Beacon", value: &f.Beacon},
		{name: "valid_from", field: "ValidFrom", value: &f.ValidFrom},
		{name: "valid_until", field: "ValidUntil", value: &f.ValidUntil},
		{name: "valid_for", field: "ValidFor", value: (*days)(&f.ValidFor)},
		{name: "withdrawal", field: "Withdrawal", value: (*days)(&f.Withdrawal)},
		{name: "redeemers", field: "Redeemers", value: &f.Redeemers},
		{name: "time_zone", field: "TimeZone", value: &f.TimeZone},
		{name: "public_report", field: "PublicReport", value: &f.PublicReport},
		{name: "stock", field: "Stock", value: &f.Stock, once: true},
		{name: "payment_window", field: "PaymentWindow", value: &f.PaymentWindow, once: true},
		{name: "state", field: "State", value: &f.State, once: true},
		{name: "begin_at", field: "BeginAt", value: &f.BeginAt},
		{name: "end_at", field: "EndAt", value: &f.EndAt},
	}
}

// show is a field as it is typed. How long something lasts is in minutes, rounded up, or in days: the form shows no seconds.
func (c control) show(m money, zone *time.Location) string {
	switch value := c.value.(type) {
	case *string:
		return unixLines(*value)
	case *amount:
		return m.plain(int64(*value))
	case *model.Groups:
		return strings.Join(*value, "\n")
	case *time.Time:
		return local(*value, zone)
	case **time.Time:
		if *value != nil {
			return local(**value, zone)
		}
	case *model.Window:
		if *value > 0 {
			return fmt.Sprint(int64((time.Duration(*value) + time.Minute - 1) / time.Minute))
		}
	case *days:
		if *value > 0 {
			return fmt.Sprint(int64((time.Duration(*value) + budget.Day - 1) / budget.Day))
		}
	case *bool:
		if *value {
			return "on"
		}
	default:
		return fmt.Sprint(reflect.ValueOf(value).Elem())
	}
	return ""
}

func (c control) read(text string, m money, zone *time.Location) (err error) {
	location := "body." + c.name
	switch value := c.value.(type) {
	case *string:
		*value = unixLines(text)
	case *amount:
		var minor int64
		minor, err = m.parse(location, text)
		*value = amount(minor)
	case *int64:
		*value, err = parseWhole(location, text)
	case *model.Groups:
		*value = groups(text)
	case *time.Time:
		*value, err = parseLocal(location, text, zone)
	case **time.Time:
		if text != "" {
			*value = new(time.Time)
			**value, err = parseLocal(location, text, zone)
		}
	case *model.Window:
		*value, err = parseMinutes(location, text)
	case *days:
		if strings.TrimSpace(text) != "" {
			var number int64
			number, err = parseWhole(location, text)
			*value = days(time.Duration(min(max(number, -1), 1<<15)) * budget.Day)
		}
	case *bool:
		*value = text != ""
	case *model.Allocation:
		if text == string(model.ByDraw) {
			*value = model.ByDraw
		}
	case *model.VoucherState:
		if *value = model.VoucherState(cmp.Or(text, string(model.VoucherDraft))); !slices.Contains(model.VoucherStates(), *value) {
			return model.Invalid(location, "is no state of a voucher")
		}
	}
	return err
}

// unixLines ends lines as they are compared: browsers end them with CR LF.
func unixLines(text string) string { return strings.ReplaceAll(text, "\r\n", "\n") }

// How browsers write a local time (HTML, 2.3.5.5).
const (
	toTheSecond = "2006-01-02T15:04:05"
	toTheMinute = "2006-01-02T15:04"
)

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
func once(by, call, key string, asked ...string) model.Idempotency {
	sum := sha256.Sum256(fmt.Appendf(nil, "%q", asked))
	return model.Idempotency{
		Scope: by + " console " + call, Key: key,
		Fingerprint: hex.EncodeToString(sum[:]),
	}
}

// newVoucher shows the form of a new voucher. By default its sale begins in an hour and lasts for a day; like another
// one, it is the same some weeks later.
func (c *console) newVoucher(r *http.Request, v *visit) (any, error) {
	begin := time.Now().Add(budget.Hour).Truncate(time.Hour)
	fields := model.VoucherFields{TimeZone: v.zone.String(), BeginAt: begin, EndAt: begin.Add(budget.Day)}
	if c.Shop { // it is tried out: what is put up can be bought
		fields.BeginAt = time.Now().Truncate(time.Minute)
	}
	like := r.URL.Query().Get("like")
	if like != "" {
		found, err := c.Vouchers.Get(r.Context(), like, true)
		if err != nil {
			return nil, err
		}
		fields = found.VoucherFields
		in := zoneOf(&fields, v.zone)
		for days := 7; !fields.BeginAt.After(time.Now()); {
			for _, at := range []*time.Time{&fields.BeginAt, &fields.EndAt, fields.Early.From, fields.ValidFrom, fields.ValidUntil} {
				if at != nil {
					*at = at.In(in).AddDate(0, 0, days)
				}
			}
		}
	}
	form := c.form(&fields, v)
	form.Once = rand.Text()
	if like == "" {
		for _, name := range []string{"price", "face_value", "stock"} {
			form.Typed[name] = ""
		}
	}
	return form, nil
}

// form has what a voucher is, as it is typed.
func (c *console) form(f *model.VoucherFields, v *visit) voucherForm {
	zone := zoneOf(f, v.zone)
	form := voucherForm{Zone: zone.String(), Typed: map[string]string{}}
	for _, control := range controls(f) {
		form.Typed[control.name] = control.show(c.money, zone)
	}
	return form
}

// zoneOf is the zone in which people say the times of a voucher.
func zoneOf(f *model.VoucherFields, otherwise *time.Location) *time.Location {
	if zone, err := loadZone(f.TimeZone); err == nil {
		return zone
	}
	return otherwise
}

func (c *console) typed(r *http.Request) voucherForm {
	get := r.PostForm.Get
	form := voucherForm{
		ID: r.PathValue("id"), Zone: get("zone"), Once: get("once"), Tag: get("tag"),
		Typed: map[string]string{},
	}
	for _, control := range controls(&model.VoucherFields{}) {
		form.Typed[control.name] = unixLines(get(control.name))
	}
	return form
}

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
	zone, err := loadZone(cmp.Or(f.Typed["time_zone"], f.Zone))
	if err != nil {
		return draft, model.Invalid("body.time_zone", "is no time zone")
	}
	var wrong []error
	for _, control := range controls(&draft) {
		if control.once && f.ID != "" {
			continue
		}
		err := control.read(f.Typed[control.name], m, zone)
		if wrong = append(wrong, err); err != nil && strings.HasSuffix(control.name, "_at") {
			draft.EndAt, draft.Early = draft.BeginAt.Add(1), model.Early{} // what is missing is no wrong order
		}
	}
	return draft, model.JoinInvalid(append(wrong, draft.Check())...)
}

// parseMinutes reads a length in minutes; empty is zero. A cool-down lasts a day at most, a payment window a year.
func parseMinutes(location, text string) (model.Window, error) {
	if strings.TrimSpace(text) == "" {
		return 0, nil
	}
	least, most, wrong := int64(1), int64(366*24*60), model.Invalid(location, "must be minutes, from 1 to 527040")
	if location == "body.cooldown" {
		least, most, wrong = 0, 24*60, model.Invalid(location, "must be minutes, from 0 to 1440")
	}
	minutes, err := parseWhole(location, text)
	if err != nil || minutes < least || minutes > most {
		return 0, wrong
	}
	return model.Window(time.Duration(minutes) * time.Minute), nil
}

func (c *console) editVoucher(r *http.Request, v *visit) (any, error) {
	voucher, err := c.Vouchers.Get(r.Context(), r.PathValue("id"), true)
	if err != nil {
		return nil, err
	}
	form := c.form(&voucher.VoucherFields, v)
	form.ID, form.Tag = voucher.ID, voucher.Tag()
	return form, nil
}

// saveVoucher makes a voucher, or changes what was typed over if it has not changed since the form was made. Otherwise
// the form is shown again as typed; sent once more, it is meant for the voucher as it is now.
func (c *console) saveVoucher(w http.ResponseWriter, r *http.Request, v *visit) (err error) {
	form, saved, said := c.typed(r), model.Voucher{}, "changed"
	if form.ID != "" {
		if saved, err = c.Vouchers.Get(r.Context(), form.ID, true); err != nil {
			return err
		}
	}
	if toShowAgain(r) {
		return c.show(w, r, v, http.StatusOK, "voucher_form", form)
	}
	draft, err := form.draft(c.money)
	dearer := draft.Price > draft.FaceValue && (saved.Price != draft.Price || saved.FaceValue != draft.FaceValue)
	switch {
	case err != nil:
	case dearer && r.PostForm.Get("above") == "":
		form.Above, err = true, model.Invalid("body.price", "is above the face value; if it is meant to be, save once more")
	case form.ID == "":
		key := once(v.claims.Subject, "create", form.Once, fmt.Sprintf("%q", form.Typed), form.Zone)
		said = "created"
		saved, err = c.Vouchers.Create(r.Context(), draft, v.claims.Subject, key)
	default:
		patch := c.difference(draft, saved.VoucherFields)
		patch.IfMatch, patch.By = model.Tags{form.Tag}, v.claims.Subject
		_, err = c.Vouchers.Patch(r.Context(), form.ID, patch)
	}
	if err == nil {
		return done(w, r, voucherPath(saved.ID), said)
	}
	form.Refusal, form.Wrong = v.language.Explain(err), fields(v.language, err)
	if code := model.CodeOf(err); code == model.CodeConflict { // perhaps of the key, which was used for other entries
		form.Once = rand.Text()
	} else if code == model.CodePreconditionFailed {
		form.Tag = saved.Tag()
	}
	return c.refuse(w, r, v, err, "voucher_form", form)
}

// difference is what of a form differs from the voucher. A field left alone keeps what a form cannot show.
func (c *console) difference(typed, now model.VoucherFields) model.VoucherPatch {
	changed := map[string]bool{}
	before := controls(&now)
	for i, control := range controls(&typed) {
		if !control.once && control.show(c.money, time.UTC) != before[i].show(c.money, time.UTC) {
			changed[control.field] = true
		}
	}
	return typed.Patch(func(name string) bool { return changed[name] })
}
