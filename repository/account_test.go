package repository_test

import (
	"sync/atomic"
	"testing"
	"time"

	"seckill/internal/testserver"
	"seckill/model"
)

func TestAccounts(t *testing.T) {
	t.Parallel()
	overDialects(t, func(t *testing.T, f *fixture) {
		alice := model.Account{ID: newID(t), Username: "Alice", Role: model.RoleAdmin, PasswordHash: "$argon2id$x"}
		must(t, f.accounts.Create(t.Context(), alice))
		for _, name := range []string{"Alice", "alice", "ALICE"} {
			got, err := f.accounts.ByUsername(t.Context(), name)
			must(t, err)
			if got.ID != alice.ID || got.Username != "Alice" || got.Role != model.RoleAdmin || got.PasswordHash != alice.PasswordHash ||
				time.Since(got.CreatedAt).Abs() > time.Minute {
				t.Errorf("%s: %+v", name, got)
			}
			wantCode(t, f.accounts.Create(t.Context(), model.Account{ID: newID(t), Username: name, Role: model.RoleUser}), model.CodeConflict)
		}
		for _, name := range []string{"bob", "alice ", "Alicé", "al%", ""} {
			_, err := f.accounts.ByUsername(t.Context(), name)
			wantCode(t, err, model.CodeNotFound)
		}
		var made atomic.Int32
		testserver.Volley(8, func(i int) {
			err := f.accounts.Create(t.Context(), model.Account{ID: newID(t), Username: []string{"Carol", "carol"}[i%2], Role: model.RoleUser})
			if err == nil {
				made.Add(1)
			} else if model.CodeOf(err) != model.CodeConflict {
				t.Error(err)
			}
		})
		if made.Load() != 1 {
			t.Errorf("%d accounts of one name", made.Load())
		}
	})
}
