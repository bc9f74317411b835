package repository_test

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"seckill/internal/workshop/check"
	"seckill/model"
	"seckill/repository"
)

func TestAccounts(t *testing.T) {
	t.Parallel()
	overDialects(t, func(t *testing.T, f *fixture) {
		alice := model.Account{ID: newID(t), Username: "Alice", Role: model.RoleAdmin, PasswordHash: "$argon2id$x"}
		check.Must(t, f.accounts.Create(t.Context(), alice))
		for _, name := range []string{"Alice", "alice", "ALICE"} {
			got := check.Value(f.accounts.ByUsername(t.Context(), name))(t)
			check.That(t, got.ID == alice.ID && got.Username == "Alice" && got.Role == model.RoleAdmin &&
				got.PasswordHash == alice.PasswordHash && aboutNow(got.CreatedAt), "%s: %+v", name, got)
			wantCode(t, f.accounts.Create(t.Context(),
				model.Account{ID: newID(t), Username: name, Role: model.RoleUser}), model.CodeConflict)
		}
		for _, name := range []string{"bob", "alice ", "Alicé", "al%", ""} {
			wantCode(t, check.ErrorOf(f.accounts.ByUsername(t.Context(), name)), model.CodeNotFound)
		}
		var made atomic.Int32
		check.Volley(8, func(i int) {
			err := f.accounts.Create(t.Context(),
				model.Account{ID: newID(t), Username: []string{"Carol", "carol"}[i%2], Role: model.RoleUser})
			if err == nil {
				made.Add(1)
			} else if model.CodeOf(err) != model.CodeConflict {
				t.Error(err)
			}
		})
		check.That(t, made.Load() == 1, "%d accounts of one name", made.Load())
	})
}

func TestAccountsAreChangedAlone(t *testing.T) {
	t.Parallel()
	overDialects(t, func(t *testing.T, f *fixture) {
		root := model.Account{ID: newID(t), Username: "Root", Role: model.RoleAdmin, PasswordHash: "$argon2id$x"}
		check.Must(t, f.accounts.Create(t.Context(), root))
		found := check.Value(f.accounts.ByID(t.Context(), root.ID))(t)
		check.That(t, found.Version == 1 && !found.Disabled && found.ChangedAt == nil, "a new account: %+v", found)
		const changes = 8
		check.Volley(changes, func(int) {
			_, err := f.accounts.Change(t.Context(), root.ID, "boss", func(a *model.Account) error {
				a.Version++
				a.Disabled = true
				a.PasswordHash = "$argon2id$y"
				a.Username, a.Role = "somebody", model.RoleUser // not to be stored
				return nil
			})
			check.That(t, err == nil, "%v", err)
		})
		refusal := model.Conflict("no")
		_, err := f.accounts.Change(t.Context(), root.ID, "boss", func(a *model.Account) error {
			a.Version = 1000
			return refusal
		})
		wantCode(t, err, model.CodeConflict)
		found, err = f.accounts.ByUsername(t.Context(), "root")
		check.Must(t, err)
		if found.Version != 1+changes || !found.Disabled || found.PasswordHash != "$argon2id$y" ||
			found.Username != "Root" || found.Role != model.RoleAdmin ||
			found.ChangedAt == nil || !aboutNow(*found.ChangedAt) {
			t.Errorf("after %d changes: %+v", changes, found)
		}
		for _, absent := range []string{newID(t), "", "Älice", "github:42"} {
			wantCode(t, check.ErrorOf(f.accounts.Change(t.Context(), absent, "boss",
				func(*model.Account) error { return nil })), model.CodeNotFound)
			wantCode(t, check.ErrorOf(f.accounts.ByID(t.Context(), absent)), model.CodeNotFound)
		}
	})
}

func TestChangedAccountsAndAdministratorsAreListed(t *testing.T) {
	t.Parallel()
	overDialects(t, func(t *testing.T, f *fixture) {
		ids := map[string]string{}
		for name, role := range map[string]model.Role{"zoe": model.RoleAdmin, "Adam": model.RoleAdmin, "buyer": model.RoleUser} {
			ids[name] = newID(t)
			check.Must(t, f.accounts.Create(t.Context(),
				model.Account{ID: ids[name], Username: name, Role: role, PasswordHash: "$x"}))
		}
		admins := check.Value(f.accounts.Administrators(t.Context()))(t)
		check.That(t, len(admins) == 2 && admins[0].Username == "Adam" && admins[1].Username == "zoe" &&
			admins[0].PasswordHash == "", "administrators: %+v", admins)
		began := time.Now().Add(-time.Minute)
		changed := check.Value(f.accounts.Changed(t.Context(), began, 10))(t)
		check.That(t, len(changed) == 0, "before a change: %+v", changed)
		for _, name := range []string{"buyer", "zoe", "Adam"} {
			check.Must(t, check.ErrorOf(f.accounts.Change(t.Context(), ids[name], "boss", func(a *model.Account) error {
				a.Version = 7
				a.Disabled = name == "zoe"
				return nil
			})))
		}
		// SQLite's clock has milliseconds: changes that follow each other may be of one.
		for n, name := range []string{"buyer", "zoe", "Adam"} {
			f.exec(t, "UPDATE accounts SET changed_at = ? WHERE id = ?",
				began.Add(time.Duration(n)*time.Second).UTC().Truncate(time.Millisecond), ids[name])
		}
		began = began.Add(-time.Second)
		changed = check.Value(f.accounts.Changed(t.Context(), began, 2))(t)
		check.That(t, len(changed) == 2 && changed[0].ID == ids["Adam"] && changed[1].ID == ids["zoe"] &&
			!changed[0].Disabled && changed[1].Disabled && changed[0].Version == 7 && changed[1].PasswordHash == "",
			"the latest two: %+v", changed)
		// Of one instant they come by id, so that a bounded list is always the same.
		f.exec(t, "UPDATE accounts SET changed_at = ?", began.Add(time.Second).UTC().Truncate(time.Millisecond))
		changed = check.Value(f.accounts.Changed(t.Context(), began, 2))(t)
		byID := slices.Sorted(maps.Values(ids))
		check.That(t, len(changed) == 2 && changed[0].ID == byID[2] && changed[1].ID == byID[1],
			"of one instant: %+v, want the last of %v", changed, byID)
		later := check.Value(f.accounts.Changed(t.Context(), time.Now().Add(time.Hour), 10))(t)
		check.That(t, len(later) == 0, "since the future: %+v", later)
	})
}

func TestAccountsOfAnOlderInstance(t *testing.T) {
	t.Parallel()
	overDialects(t, func(t *testing.T, f *fixture) {
		id := newID(t)
		f.exec(t, "INSERT INTO accounts (id, username, username_key, role, password_hash, created_at) VALUES (?, 'Old', 'old', 'admin', '$x', ?)",
			id, time.Now().UTC())
		got := check.Value(f.accounts.ByUsername(t.Context(), "old"))(t)
		check.That(t, got.ID == id && got.Version == 1 && !got.Disabled && got.ChangedAt == nil &&
			got.Grade() == model.LevelAdmin, "%+v", got)
	})
}

// Making an administrator, and what becomes of that account, is logged; a session's end and what buyers do is not.
func TestChangesOfAdministratorsAreLogged(t *testing.T) {
	t.Parallel()
	overDialects(t, func(t *testing.T, f *fixture) {
		till := model.Account{
			ID: newID(t), Username: "Till", Role: model.RoleAdmin, Level: model.LevelCashier,
			PasswordHash: "$x",
		}
		buyer := model.Account{ID: newID(t), Username: "buyer", Role: model.RoleUser, PasswordHash: "$x"}
		check.Must(t, f.accounts.Create(t.Context(), till))
		check.Must(t, f.accounts.Create(t.Context(), buyer))
		change := func(id, by string, change func(a *model.Account)) {
			t.Helper()
			_, err := f.accounts.Change(t.Context(), id, by, func(a *model.Account) error { change(a); return nil })
			check.Must(t, err)
		}
		change(till.ID, till.ID, func(a *model.Account) { a.Version++ })
		change(buyer.ID, buyer.ID, func(a *model.Account) { a.PasswordHash = "$y" })
		change(till.ID, model.BySystem, func(a *model.Account) { a.Level = model.LevelOperator })
		change(till.ID, till.ID, func(a *model.Account) { a.PasswordHash = "$y" })
		change(till.ID, model.BySystem, func(a *model.Account) { a.Disabled = true })
		check.Equal(t, "the level", check.Value(f.accounts.ByID(t.Context(), till.ID))(t).Grade(), model.LevelOperator)
		var got []string
		for _, entry := range check.Value((&repository.AdminLog{DB: f.db}).List(t.Context(), model.AdminLogQuery{}))(t).Items {
			check.Equal(t, "the subject", entry.Subject, till.ID)
			got = append(got, entry.Actor+" "+entry.Action+" "+string(entry.After))
		}
		check.Equal(t, "the log", strings.Join(got, "\n"), strings.Join([]string{
			`system admin.change {"username":"Till","level":"operator","disabled":true}`,
			till.ID + ` admin.change {"username":"Till","level":"operator","disabled":false,"new_password":true}`,
			`system admin.change {"username":"Till","level":"operator","disabled":false}`,
			`system admin.create {"username":"Till","level":"cashier","disabled":false}`,
		}, "\n"))
	})
}

// The history and the log have the administrator once. A buyer's or a refused cancellation is not logged.
func TestAnAdministratorCancels(t *testing.T) {
	t.Parallel()
	overModes(t, func(t *testing.T, l life, _ model.OrderMode) {
		v := l.onSale(t, 3)
		alices, bobs, eves := l.bought(t, v.ID, "alice"), l.bought(t, v.ID, "bob"), l.bought(t, v.ID, "boss")
		asked := []model.Cancellation{
			{OrderID: alices.ID, UserID: "alice", By: "boss"},
			{OrderID: bobs.ID, UserID: "bob"},
			{OrderID: eves.ID, UserID: "boss", By: "boss"}, // an administrator's own order, in the console
			{OrderID: alices.ID, UserID: "bob", By: "boss"},
		}
		for range 2 { // repeated, nothing changes
			for i, answer := range check.Value(l.orders.Cancel(t.Context(), asked))(t) {
				if i == 3 {
					wantCode(t, answer.Err, model.CodeNotFound)
				} else if answer.Err != nil || answer.Order.Status != model.OrderCanceled {
					t.Errorf("%d: %+v", i, answer)
				}
			}
		}
		l.balanced(t, v.ID, 0)
		for order, by := range map[string]string{alices.ID: "boss", bobs.ID: "bob"} {
			history := l.steps(t, order)
			check.Equal(t, "the last step of "+order, history[len(history)-1], "canceled by "+by)
		}
		logged := check.Value(l.log.List(t.Context(), model.AdminLogQuery{}))(t).Items
		logged = slices.DeleteFunc(logged,
			func(entry model.AdminChange) bool { return entry.Action == model.ActionVoucherCreate })
		check.Need(t, len(logged) == 2, "the log has %+v", logged)
		for subject, want := range map[string]int{alices.ID: 1, bobs.ID: 0, "no id/": 0} {
			check.Equal(t, "entries of "+subject,
				len(check.Value(l.log.List(t.Context(), model.AdminLogQuery{Subject: subject}))(t).Items), want)
		}
		for i, id := range []string{eves.ID, alices.ID} {
			var before, after model.Order
			check.Must(t, json.Unmarshal(logged[i].Before, &before))
			check.Must(t, json.Unmarshal(logged[i].After, &after))
			if logged[i].Actor != "boss" || logged[i].Action != model.ActionOrderCancel || logged[i].Subject != id ||
				!logged[i].At.Equal(*after.ClosedAt) ||
				before.Status != model.OrderUnpaid || after.Status != model.OrderCanceled {
				t.Errorf("%d: %+v", i, logged[i])
			}
		}
	})
}

func TestRecord(t *testing.T) {
	t.Parallel()
	overModes(t, func(t *testing.T, l life, _ model.OrderMode) {
		asked := model.AdminChange{
			Actor: "boss", Action: model.ActionRepair, Subject: "v1", Before: json.RawMessage(`{"found":1}`),
			At: time.Unix(0, 0),
		}
		check.Must(t, l.log.Record(t.Context(), asked))
		check.Must(t, l.log.Record(t.Context(),
			model.AdminChange{Actor: "boss", Action: model.ActionLetterDrop, Subject: "17"}))
		found := check.Value(l.log.List(t.Context(), model.AdminLogQuery{Actor: "boss"}))(t).Items
		check.Need(t, len(found) == 2 && found[0].Subject == "17" && found[0].Before == nil && found[0].After == nil,
			"%+v", found)
		if got := found[1]; got.Action != model.ActionRepair || string(got.Before) != string(asked.Before) ||
			!aboutNow(got.At) {
			t.Errorf("%+v", got)
		}
	})
}

func TestMoneyOfAnOrder(t *testing.T) {
	t.Parallel()
	overModes(t, func(t *testing.T, l life, _ model.OrderMode) {
		v := l.onSale(t, 2)
		alices, _ := l.paid(t, v.ID, "alice")
		bobs, _ := l.paid(t, v.ID, "bob")
		refund := l.refunded(t, alices.ID)
		payments := check.Value(l.payments.OfOrder(t.Context(), alices.ID))(t)
		check.That(t, len(payments) == 1 && payments[0].ID == refund.PaymentID &&
			payments[0].Status == model.PaymentSucceeded, "payments %+v", payments)
		of := func(id string) []model.Refund {
			return check.Value(l.refunds.List(t.Context(), model.RefundQuery{OrderID: id}))(t).Items
		}
		got := of(alices.ID)
		check.That(t, len(got) == 1 && got[0].ID == refund.ID, "refunds %+v", got)
		for _, id := range []string{bobs.ID, "no id!"} {
			check.Equal(t, "refunds of "+id, len(of(id)), 0)
		}
		check.Equal(t, "payments of no order", len(check.Value(l.payments.OfOrder(t.Context(), "no id!"))(t)), 0)
	})
}
