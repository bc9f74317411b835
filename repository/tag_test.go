package repository_test

import (
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"seckill/internal/workshop/check"
	"seckill/model"
	"seckill/repository"
)

// fieldsOf are two vouchers that differ in every field, and are zero in none.
func fieldsOf() (one, other model.VoucherFields) {
	begin := time.Now().Add(time.Hour).UTC().Truncate(time.Microsecond)
	for i, f := range []*model.VoucherFields{&one, &other} {
		for n, field := range reflect.VisibleFields(reflect.TypeFor[model.VoucherFields]()) {
			switch to := reflect.ValueOf(f).Elem().Field(n).Addr().Interface().(type) {
			case *string:
				*to = fmt.Sprintf("%s %d", field.Name, i)
			case *int64:
				*to = int64(7 + i)
			case *bool:
				*to = i == 0
			case *model.Window:
				*to = model.Window(time.Duration(1+i) * time.Minute)
			case *model.Groups:
				*to = model.Groups{"gold", fmt.Sprint(i)}
			}
		}
		f.State = []model.VoucherState{model.VoucherDraft, model.VoucherPaused}[i]
		f.Allocation = []model.Allocation{model.ByDraw, model.FirstCome}[i]
		f.BeginAt, f.EndAt = begin.Add(time.Duration(i)*time.Minute), begin.Add(time.Duration(5+i)*time.Hour)
		f.Early = model.Early{For: model.Groups{"early"}, From: new(begin.Add(time.Duration(i-2) * time.Minute))}
	}
	return one, other
}

// TestEveryFieldOfAVoucher is stored as it was made and as it was patched, is in the administrators' log, and moves the
// tag. A field that a patch does not have is on a list with the reason.
func TestEveryFieldOfAVoucher(t *testing.T) {
	t.Parallel()
	unpatched := map[string]string{
		"Currency": "is the shop's when the voucher is made", "Remaining": "is moved by sales", "Waiting": "is moved by the waitlist",
		"Stock": "is changed by ChangeStock", "PaymentWindow": "is that of the orders which were made with it",
	}
	overDialects(t, func(t *testing.T, f *fixture) {
		one, other := fieldsOf()
		id := newID(t)
		read := func() model.Voucher { return check.Value(f.vouchers.Get(t.Context(), id))(t) }
		made := check.Value(f.vouchers.Create(t.Context(), id, one, "", model.Idempotency{}))(t)
		one.Currency, one.Remaining, one.Waiting = "CNY", one.Stock, 0
		check.That(t, reflect.DeepEqual(made.VoucherFields, one) && reflect.DeepEqual(read().VoucherFields, one), "made as %+v: %+v, read %+v", one, made, read())
		for n, field := range reflect.VisibleFields(reflect.TypeFor[model.VoucherFields]()) {
			before := read()
			patched := check.Value(f.vouchers.Patch(t.Context(), id, other.Patch(func(name string) bool { return name == field.Name })))(t)
			want := before.VoucherFields
			if unpatched[field.Name] == "" {
				reflect.ValueOf(&want).Elem().Field(n).Set(reflect.ValueOf(other).Field(n))
				check.That(t, patched.Tag() != before.Tag(), "another %s has the tag of before", field.Name)
			}
			check.That(t, reflect.DeepEqual(patched.VoucherFields, want) && reflect.DeepEqual(read().VoucherFields, want) && read().Tag() == patched.Tag(),
				"another %s: %+v, read %+v", field.Name, patched, read())
			entry := check.Value(repository.NewAdminLog(f.db).List(t.Context(), model.AdminLogQuery{Subject: id, Limit: 1}))(t).Items[0]
			var was, became map[string]any
			check.Must(t, json.Unmarshal(entry.Before, &was))
			check.Must(t, json.Unmarshal(entry.After, &became))
			name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
			check.Equal(t, "the log has another "+name, !reflect.DeepEqual(was[name], became[name]), unpatched[field.Name] == "")
		}
	})
}

// TestTagIsOfWhatAdministratorsChange, and of nothing else: a sale and a rebuild leave it as it is.
func TestTagIsOfWhatAdministratorsChange(t *testing.T) {
	t.Parallel()
	overDialects(t, func(t *testing.T, f *fixture) {
		v := f.onSale(t, 5)
		check.Must(t, f.place(t, order(t, v.ID, user(1))).Err)
		f.exec(t, "UPDATE vouchers SET revision = revision + 1, version = version + 1 WHERE id = ?", v.ID) // a rebuild does
		now := check.Value(f.vouchers.Get(t.Context(), v.ID))(t)
		check.That(t, now.Tag() == v.Tag() && now.Version != v.Version, "a sale and a rebuild moved the tag of %+v", now)
		changed := check.Value(f.vouchers.ChangeStock(t.Context(), v.ID, model.StockChange{Delta: new(int64(1))}, model.Idempotency{}))(t)
		now = check.Value(f.vouchers.Get(t.Context(), v.ID))(t)
		check.That(t, changed.Tag() != v.Tag() && changed.Tag() == now.Tag(), "another stock left the tag %s, read %s", changed.Tag(), now.Tag())
	})
}

// TestUnseenChangeIsNotOverwritten, in the same instant on two instances: of those who
// have seen one voucher, one changes it.
func TestUnseenChangeIsNotOverwritten(t *testing.T) {
	t.Parallel()
	overDialects(t, func(t *testing.T, f *fixture) {
		other := openFixture(t, f.store, f.options)
		v := f.onSale(t, 100)
		for round, change := range []func(*fixture, int, model.Tags) (model.Voucher, error){
			func(f *fixture, i int, seen model.Tags) (model.Voucher, error) {
				return f.vouchers.Patch(t.Context(), v.ID, model.VoucherPatch{Price: new(int64(1000 + i)), IfMatch: seen})
			},
			func(f *fixture, i int, seen model.Tags) (model.Voucher, error) {
				return f.vouchers.ChangeStock(t.Context(), v.ID, model.StockChange{Stock: new(int64(200 + i)), IfMatch: seen}, model.Idempotency{})
			},
		} {
			before := check.Value(f.vouchers.Get(t.Context(), v.ID))(t)
			var won atomic.Pointer[model.Voucher]
			check.Volley(10, func(i int) {
				changed, err := change([]*fixture{f, other}[i%2], i+1, model.Tags{"other", before.Tag()})
				switch {
				case err == nil:
					if !won.CompareAndSwap(nil, &changed) {
						t.Errorf("round %d: a second change was made", round)
					}
				case model.CodeOf(err) != model.CodePreconditionFailed:
					t.Errorf("round %d: %v", round, err)
				}
			})
			after := check.Value(f.vouchers.Get(t.Context(), v.ID))(t)
			if won.Load() == nil || after.Tag() != won.Load().Tag() || after.Version != before.Version+1 {
				t.Errorf("round %d: won %+v, read %+v", round, won.Load(), after)
			}
		}
		wantCode(t, check.ErrorOf(f.vouchers.Patch(t.Context(), "absent", model.VoucherPatch{IfMatch: model.Tags{"x"}})), model.CodeNotFound)
	})
}

// TestRepeatedCallIsNotRefusedByItsOwnChange: the tag is no part of what was asked.
func TestRepeatedCallIsNotRefusedByItsOwnChange(t *testing.T) {
	t.Parallel()
	overDialects(t, func(t *testing.T, f *fixture) {
		v := f.onSale(t, 5)
		once := model.Idempotency{Scope: "s", Key: "k", Fingerprint: "f"}
		stale := model.StockChange{Delta: new(int64(1)), IfMatch: model.Tags{"stale"}}
		_, err := f.vouchers.ChangeStock(t.Context(), v.ID, stale, once)
		wantCode(t, err, model.CodePreconditionFailed) // which is no answer to be repeated
		for range 2 {
			seen := model.StockChange{Delta: new(int64(1)), IfMatch: model.Tags{v.Tag()}}
			if changed, err := f.vouchers.ChangeStock(t.Context(), v.ID, seen, once); err != nil || changed.Stock != 6 {
				t.Errorf("%+v, %v", changed, err)
			}
		}
	})
}

// TestStaleTagLowersNothing: in async mode the hot copy is not lowered for a change that
// is going to be refused.
func TestStaleTagLowersNothing(t *testing.T) {
	t.Parallel()
	overAsyncDialects(t, func(t *testing.T, f *fixture) {
		v := f.onSale(t, 5)
		for i, tag := range []string{"stale", v.Tag()} {
			change := model.StockChange{Stock: new(int64(3)), IfMatch: model.Tags{tag}}
			_, needed, err := f.vouchers.IntendStock(t.Context(), v.ID, change, model.Idempotency{})
			if err != nil || needed != (tag != "stale") || f.intents(t) != i {
				t.Errorf("%s: needed %v, %d intents, %v", tag, needed, f.intents(t), err)
			}
			_, err = f.vouchers.ChangeStock(t.Context(), v.ID, change, model.Idempotency{})
			if tag == "stale" {
				wantCode(t, err, model.CodePreconditionFailed)
			} else {
				check.Must(t, err)
			}
		}
	})
}
