package service_test

import (
	"testing"
	"testing/synctest"
	"time"

	"seckill/internal/token"
	"seckill/internal/workshop/check"
	"seckill/model"
	"seckill/service"
)

// An administrator's session goes on while it is used, for eight hours at most; a token that tells no sign-in does not.
func TestASessionSlides(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		tokens := check.Value(token.New([]token.Key{{ID: "1", Secret: "a secret of the tests, 32 bytes or more"}},
			"seckill", "seckill"))(t)
		accounts := &service.Accounts{AccountDeps: service.AccountDeps{Tokens: tokens}}
		claims := token.Claims{
			Subject: "ada", Role: model.RoleAdmin, Level: model.LevelViewer, Version: 3,
			SignedInAt: time.Now(),
		}
		began := time.Now()
		signed := check.Value(tokens.Issue(claims, 30*time.Minute))(t)
		for {
			time.Sleep(20 * time.Minute) // of the bubble
			read, err := tokens.Verify(t.Context(), signed)
			if err != nil {
				break
			}
			check.Need(t, read.Level == model.LevelViewer && read.Version == 3, "it became another's: %+v", read)
			session, later, err := accounts.Renew(read)
			check.Must(t, err)
			if later {
				signed = session.AccessToken
			}
		}
		if lasted := time.Since(began); lasted < 8*time.Hour || lasted > 8*time.Hour+20*time.Minute {
			t.Errorf("a session that is used every 20 minutes has lasted %s", lasted)
		}
		if _, later, err := accounts.Renew(token.Claims{Subject: "ada", Role: model.RoleAdmin, Version: 1}); later ||
			err != nil {
			t.Errorf("a token that tells no sign-in is prolonged: %v", err)
		}
	})
}
