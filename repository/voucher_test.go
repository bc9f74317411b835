package repository_test

import (
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"seckill/internal/workshop/check"
	"seckill/model"
	"seckill/repository"
)

func TestVoucherComesBackAsItWasMade(t *testing.T) {
	t.Parallel()
	overDialects(t, func(t *testing.T, f *fixture) {
		begin := time.Now().Add(time.Hour).In(time.FixedZone("CST", 8*3600))
		asked := model.VoucherFields{
			Title: "茶 & 🍵", Description: strings.Repeat("é", 4000), Price: model.MaxAmount, FaceValue: 0,
			Stock: model.MaxAmount, BeginAt: begin, EndAt: begin.Add(time.Microsecond),
		}
		id := newID(t)
		made := check.Value(f.vouchers.Create(t.Context(), id, asked, "", model.Idempotency{}))(t)
		read := check.Value(f.vouchers.Get(t.Context(), id))(t)
		check.That(t, made.Phase == model.PhaseUpcoming && !read.ServerTime.Before(made.ServerTime) &&
			aboutNow(read.ServerTime), "made %+v, read %+v", made, read)
		read.ServerTime = made.ServerTime
		if fmt.Sprint(read) != fmt.Sprint(made) || read.State != model.VoucherPublished ||
			read.Remaining != model.MaxAmount ||
			read.Currency != "CNY" || !read.BeginAt.Equal(begin.Truncate(time.Microsecond)) ||
			read.Description != asked.Description {
			t.Errorf("read %+v, want %+v", read, made)
		}
		many := check.Value(f.vouchers.GetMany(t.Context(), []string{id, "absent"}))(t)
		check.That(t, len(many) == 1 && many[id].Title == asked.Title, "many: %+v", many)
		for _, absent := range []string{"absent", id + " ", strings.ToUpper(id), ""} {
			wantCode(t, check.ErrorOf(f.vouchers.Get(t.Context(), absent)), model.CodeNotFound)
		}
		asked.EndAt = begin
		wantCode(t, check.ErrorOf(f.vouchers.Create(t.Context(), newID(t), asked, "", model.Idempotency{})),
			model.CodeValidation)
		all := check.Value(f.vouchers.IDs(t.Context()))(t)
		check.That(t, slices.Equal(all, []string{id}), "ids %v", all)
	})
}

// TestRulesOfAFairSale are stored as they are, and stay as they are once there is an order, whatever became of it.
func TestRulesOfAFairSale(t *testing.T) {
	t.Parallel()
	overDialects(t, func(t *testing.T, f *fixture) {
		v := f.onSale(t, 3)
		rules := model.Voucher{VoucherFields: model.VoucherFields{
			Groups:   model.Groups{"gold", "CN=金 \"1\""},
			Early:    model.Early{For: model.Groups{"gold"}, From: new(v.BeginAt.Add(-time.Minute))},
			Cooldown: model.Window(time.Minute),
		}}
		changes := model.VoucherPatch{Groups: &rules.Groups, Early: &rules.Early, Cooldown: &rules.Cooldown}
		check.Value(f.vouchers.Patch(t.Context(), v.ID, changes))(t)
		ann := order(t, v.ID, "ann")
		f.place(t, ann)
		f.cancels(t, "ann", ann.ID)
		title := "New"
		check.Value(f.vouchers.Patch(t.Context(), v.ID,
			model.VoucherPatch{Title: &title, Groups: &rules.Groups, Early: &rules.Early}))(t)
		for _, patch := range []model.VoucherPatch{{Groups: &model.Groups{}}, {Early: &model.Early{}}, {Cooldown: new(model.Window(0))}} {
			wantCode(t, check.ErrorOf(f.vouchers.Patch(t.Context(), v.ID, patch)), model.CodeConflict)
		}
		read := check.Value(f.vouchers.Get(t.Context(), v.ID))(t)
		check.That(t, read.SameRules(&rules.VoucherFields) && read.Title == title, "read %+v", read)
	})
}

func TestPatch(t *testing.T) {
	t.Parallel()
	overDialects(t, func(t *testing.T, f *fixture) {
		v := f.onSale(t, 3)
		title, description, price, value := "New", "D", int64(1), int64(2)
		begin, end, paused := v.BeginAt.Add(time.Minute), v.EndAt.Add(time.Minute), model.VoucherPaused
		patched := check.Value(f.vouchers.Patch(t.Context(), v.ID, model.VoucherPatch{
			Title: &title, Description: &description, Price: &price, FaceValue: &value, BeginAt: &begin, EndAt: &end,
			State: &paused,
		}))(t)
		read := check.Value(f.vouchers.Get(t.Context(), v.ID))(t)
		read.ServerTime = patched.ServerTime
		if fmt.Sprint(read) != fmt.Sprint(patched) || read.Version != v.Version+1 || read.Title != title ||
			read.Price != price ||
			!read.BeginAt.Equal(begin) || !read.EndAt.Equal(end) || read.Phase != model.PhasePaused ||
			read.Remaining != 3 || !read.CreatedAt.Equal(v.CreatedAt) {
			t.Errorf("read %+v, patched %+v", read, patched)
		}
		// The window is judged as it would be.
		for _, patch := range []model.VoucherPatch{{BeginAt: &end}, {EndAt: &begin}} {
			wantCode(t, check.ErrorOf(f.vouchers.Patch(t.Context(), v.ID, patch)), model.CodeValidation)
		}
		wantCode(t, check.ErrorOf(f.vouchers.Patch(t.Context(), "absent", model.VoucherPatch{})), model.CodeNotFound)
		wantCode(t, check.ErrorOf(f.vouchers.Patch(t.Context(), v.ID,
			model.VoucherPatch{Early: &model.Early{For: model.Groups{"gold"}, From: &begin}})), model.CodeValidation)
		same, err := f.vouchers.Get(t.Context(), v.ID)
		check.That(t, err == nil && same.Version == read.Version, "refused patches left %+v, %v", same, err)
	})
}

func TestChangeStock(t *testing.T) {
	t.Parallel()
	overDialects(t, func(t *testing.T, f *fixture) {
		v := f.onSale(t, 5)
		for i := range 3 {
			check.Must(t, f.place(t, order(t, v.ID, user(i))).Err)
		}
		for _, test := range []struct {
			delta, stock   *int64
			want           model.Code
			total, remains int64
		}{
			{delta: new(int64(5)), total: 10, remains: 7},
			{stock: new(int64(4)), total: 4, remains: 1},
			{stock: new(int64(2)), want: model.CodeConflict},
			{delta: new(int64(-2)), want: model.CodeConflict},
			{delta: new(int64(-100)), want: model.CodeConflict},
			{stock: new(int64(-1)), want: model.CodeValidation},
			{stock: new(int64(model.MaxAmount + 1)), want: model.CodeValidation},
			{delta: new(int64(model.MaxAmount)), want: model.CodeValidation},
			{delta: new(int64(-1 << 63)), want: model.CodeValidation},
			{delta: new(int64(1<<63 - 1)), want: model.CodeValidation},
			{delta: new(int64(1)), stock: new(int64(1)), want: model.CodeValidation},
			{want: model.CodeValidation},
			{delta: new(int64(-1)), total: 3, remains: 0},
			{stock: new(int64(model.MaxAmount)), total: model.MaxAmount, remains: model.MaxAmount - 3},
		} {
			before := check.Value(f.vouchers.Get(t.Context(), v.ID))(t)
			got, err := f.vouchers.ChangeStock(t.Context(), v.ID,
				model.StockChange{Delta: test.delta, Stock: test.stock}, model.Idempotency{})
			after, err2 := f.vouchers.Get(t.Context(), v.ID)
			check.Must(t, err2)
			if test.want != "" {
				wantCode(t, err, test.want)
				check.That(t, after.Version == before.Version && after.Stock == before.Stock &&
					after.Remaining == before.Remaining, "a refused change left %+v", after)
				continue
			}
			check.Must(t, err)
			if got.Stock != test.total || got.Remaining != test.remains || after.Stock != test.total ||
				after.Remaining != test.remains || after.Version != before.Version+1 {
				t.Errorf("got %+v, read %+v, want %d of %d", got, after, test.remains, test.total)
			}
			f.balanced(t, v.ID, 3)
		}
		wantCode(t, check.ErrorOf(f.vouchers.ChangeStock(t.Context(), "absent", model.StockChange{Stock: new(int64(1))},
			model.Idempotency{})), model.CodeNotFound)
	})
}

func TestStatsAndAudit(t *testing.T) {
	t.Parallel()
	overDialects(t, func(t *testing.T, f *fixture) {
		v := f.onSale(t, 10)
		f.onSale(t, 99) // another voucher must not count
		for i, status := range []model.OrderStatus{model.OrderUnpaid, model.OrderUnpaid, model.OrderPaid, model.OrderCanceled, model.OrderExpired} {
			o := f.place(t, order(t, v.ID, user(i))).Order
			f.exec(t, "UPDATE orders SET status = ? WHERE id = ?", status, o.ID)
		}
		f.exec(t, "UPDATE vouchers SET remaining = 7 WHERE id = ?", v.ID)
		stats := check.Value(f.vouchers.Stats(t.Context(), v.ID))(t)
		if stats.Stock != 10 || stats.Remaining != 7 || stats.Sold != 3 || stats.Reserved != 0 ||
			len(stats.OrdersByStatus) != len(model.OrderStatuses()) ||
			stats.OrdersByStatus[model.OrderUnpaid] != 2 || stats.OrdersByStatus[model.OrderPaid] != 1 ||
			stats.OrdersByStatus[model.OrderCanceled] != 1 {
			t.Errorf("%+v", stats)
		}
		takings := check.Value(f.vouchers.Takings(t.Context(), v.ID))(t)
		if unpaid := takings.ByStatus[model.OrderUnpaid]; len(takings.ByStatus) != 4 || unpaid.Orders != 2 ||
			unpaid.Amount != 2*v.Price || v.Price == 0 || takings.Adrift != 0 {
			t.Errorf("%+v", takings)
		}
		f.balanced(t, v.ID, 3)
		f.exec(t, "UPDATE vouchers SET remaining = 6 WHERE id = ?", v.ID)
		check.Equal(t, "units that no order holds", check.Value(f.vouchers.Takings(t.Context(), v.ID))(t).Adrift, 1)
		audit := check.Value(f.vouchers.Audit(t.Context(), v.ID))(t)
		check.That(t, !audit.Balanced && audit.Redis == nil && audit.Queue == nil && audit.Drift != nil &&
			audit.Mode == model.ModeSync && audit.VoucherID == v.ID, "%+v", audit)
		for _, ask := range []func() error{
			func() error { _, err := f.vouchers.Stats(t.Context(), "absent"); return err },
			func() error { return check.ErrorOf(f.vouchers.Takings(t.Context(), "absent")) },
			func() error { _, err := f.vouchers.Audit(t.Context(), "absent"); return err },
		} {
			wantCode(t, ask(), model.CodeNotFound)
		}
		empty := f.onSale(t, 1)
		f.balanced(t, empty.ID, 0)
	})
}

// TestPhases: the SQL of the list and model.PhaseAt agree, in every state.
func TestPhases(t *testing.T) {
	t.Parallel()
	overDialects(t, func(t *testing.T, f *fixture) {
		if empty := check.Value(f.vouchers.List(t.Context(),
			model.VoucherQuery{Phase: model.PhaseEnded}))(t); empty.Items == nil || len(empty.Items) != 0 {
			t.Errorf("an empty list is %+v", empty)
		}
		now := time.Now()
		want := map[model.Phase][]string{}
		everything := 0
		for _, state := range model.VoucherStates() {
			for _, begin := range []time.Duration{-2 * time.Hour, -time.Hour, time.Hour} {
				for stock := range int64(2) {
					v := f.voucher(t, model.VoucherFields{
						Stock: stock, State: state, BeginAt: now.Add(begin),
						EndAt: now.Add(begin + 90*time.Minute),
					})
					everything++
					if v.Buyable() {
						want[v.Phase] = append(want[v.Phase], v.ID)
					}
				}
			}
		}
		for _, phase := range model.Phases() {
			page := check.Value(f.vouchers.List(t.Context(), model.VoucherQuery{Phase: phase, Limit: 100}))(t)
			var got []string
			for _, v := range page.Items {
				got = append(got, v.ID)
				check.That(t, v.Phase == phase, "%s is listed as %s", v.Phase, phase)
			}
			slices.Sort(got)
			slices.Sort(want[phase])
			check.That(t, slices.Equal(got, want[phase]) && len(got) != 0,
				"%s: %d listed, want %d", phase, len(got), len(want[phase]))
		}
		page := check.Value(f.vouchers.List(t.Context(), model.VoucherQuery{OnSale: true, Limit: 100}))(t)
		on := len(want[model.PhaseLive]) + len(want[model.PhaseSoldOut])
		check.That(t, len(page.Items) == on, "%d on sale, want %d", len(page.Items), on)
		page = check.Value(f.vouchers.List(t.Context(), model.VoucherQuery{All: true, Limit: 100}))(t)
		check.That(t, len(page.Items) == everything, "%d listed, want %d", len(page.Items), everything)
		wantCode(t, check.ErrorOf(f.vouchers.List(t.Context(), model.VoucherQuery{Phase: "soon"})),
			model.CodeValidation)
	})
}

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
		f.Beacon = []string{"Lottery", ""}[i] // draws alone have one
		f.ValidFrom, f.ValidUntil = new(begin.Add(time.Duration(i)*time.Minute)), new(begin.Add(time.Duration(1+i)*time.Hour))
		f.Early = model.Early{For: model.Groups{"early"}, From: new(begin.Add(time.Duration(i-2) * time.Minute))}
	}
	return one, other
}

// Each field is stored as made and patched, is logged and moves the tag. A list has the reasons for fields of no patch.
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
		check.That(t, reflect.DeepEqual(made.VoucherFields, one) && reflect.DeepEqual(read().VoucherFields, one),
			"made as %+v: %+v, read %+v", one, made, read())
		for n, field := range reflect.VisibleFields(reflect.TypeFor[model.VoucherFields]()) {
			before := read()
			patched := check.Value(f.vouchers.Patch(t.Context(), id,
				other.Patch(func(name string) bool { return name == field.Name })))(t)
			want := before.VoucherFields
			if unpatched[field.Name] == "" {
				reflect.ValueOf(&want).Elem().Field(n).Set(reflect.ValueOf(other).Field(n))
				check.That(t, patched.Tag() != before.Tag(), "another %s has the tag of before", field.Name)
			}
			check.That(t, reflect.DeepEqual(patched.VoucherFields, want) &&
				reflect.DeepEqual(read().VoucherFields, want) && read().Tag() == patched.Tag(),
				"another %s: %+v, read %+v", field.Name, patched, read())
			entry := check.Value((&repository.AdminLog{DB: f.db}).List(t.Context(),
				model.AdminLogQuery{Subject: id, Limit: 1}))(t).Items[0]
			var was, became map[string]any
			check.Must(t, json.Unmarshal(entry.Before, &was))
			check.Must(t, json.Unmarshal(entry.After, &became))
			name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
			check.Equal(t, "the log has another "+name, !reflect.DeepEqual(was[name], became[name]),
				unpatched[field.Name] == "")
		}
	})
}

// TestTagIsOfWhatAdministratorsChange, and of nothing else: a sale and a rebuild leave it as it is.
func TestTagIsOfWhatAdministratorsChange(t *testing.T) {
	t.Parallel()
	overDialects(t, func(t *testing.T, f *fixture) {
		v := f.onSale(t, 5)
		check.Must(t, f.place(t, order(t, v.ID, user(1))).Err)
		// A rebuild raises the revision.
		f.exec(t, "UPDATE vouchers SET revision = revision + 1, version = version + 1 WHERE id = ?", v.ID)
		now := check.Value(f.vouchers.Get(t.Context(), v.ID))(t)
		check.That(t, now.Tag() == v.Tag() && now.Version != v.Version, "a sale and a rebuild moved the tag of %+v",
			now)
		changed := check.Value(f.vouchers.ChangeStock(t.Context(), v.ID, model.StockChange{Delta: new(int64(1))},
			model.Idempotency{}))(t)
		now = check.Value(f.vouchers.Get(t.Context(), v.ID))(t)
		check.That(t, changed.Tag() != v.Tag() && changed.Tag() == now.Tag(), "another stock left the tag %s, read %s",
			changed.Tag(), now.Tag())
	})
}

// Of those who have seen one voucher, one changes it, in the same instant on two instances too.
func TestUnseenChangeIsNotOverwritten(t *testing.T) {
	t.Parallel()
	overDialects(t, func(t *testing.T, f *fixture) {
		other := openFixture(t, f.store, f.options)
		v := f.onSale(t, 100)
		for round, change := range []func(*fixture, int, model.Tags) (model.Voucher, error){
			func(f *fixture, i int, seen model.Tags) (model.Voucher, error) {
				return f.vouchers.Patch(t.Context(), v.ID,
					model.VoucherPatch{Price: new(int64(1000 + i)), IfMatch: seen})
			},
			func(f *fixture, i int, seen model.Tags) (model.Voucher, error) {
				return f.vouchers.ChangeStock(t.Context(), v.ID,
					model.StockChange{Stock: new(int64(200 + i)), IfMatch: seen}, model.Idempotency{})
			},
		} {
			before := check.Value(f.vouchers.Get(t.Context(), v.ID))(t)
			var won atomic.Pointer[model.Voucher]
			check.Volley(10, func(i int) {
				changed, err := change([]*fixture{f, other}[i%2], i+1, model.Tags{"other", before.Tag()})
				switch {
				case err == nil:
					check.That(t, won.CompareAndSwap(nil, &changed), "round %d: a second change was made", round)
				case model.CodeOf(err) != model.CodePreconditionFailed:
					t.Errorf("round %d: %v", round, err)
				}
			})
			after := check.Value(f.vouchers.Get(t.Context(), v.ID))(t)
			check.That(t, won.Load() != nil && after.Tag() == won.Load().Tag() && after.Version == before.Version+1,
				"round %d: won %+v, read %+v", round, won.Load(), after)
		}
		wantCode(t, check.ErrorOf(f.vouchers.Patch(t.Context(), "absent",
			model.VoucherPatch{IfMatch: model.Tags{"x"}})), model.CodeNotFound)
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

// TestStaleTagLowersNothing: in async mode the hot copy is not lowered for a change that is going to be refused.
func TestStaleTagLowersNothing(t *testing.T) {
	t.Parallel()
	overAsyncDialects(t, func(t *testing.T, f *fixture) {
		v := f.onSale(t, 5)
		for i, tag := range []string{"stale", v.Tag()} {
			change := model.StockChange{Stock: new(int64(3)), IfMatch: model.Tags{tag}}
			_, needed, err := f.vouchers.IntendStock(t.Context(), v.ID, change, model.Idempotency{})
			check.That(t, err == nil && needed == (tag != "stale") && f.intents(t) == i,
				"%s: needed %v, %d intents, %v", tag, needed, f.intents(t), err)
			_, err = f.vouchers.ChangeStock(t.Context(), v.ID, change, model.Idempotency{})
			if tag == "stale" {
				wantCode(t, err, model.CodePreconditionFailed)
			} else {
				check.Must(t, err)
			}
		}
	})
}
