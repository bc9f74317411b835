package repository_test

import (
	"sync/atomic"
	"testing"
	"time"

	"seckill/repository"
)

// Of many who take the place of the same claim one does, and the claim is renewed
// only by who has read it.
func TestRedisClaim(t *testing.T) {
	t.Parallel()
	f := newFixture(t, store{dialect: "mysql"})
	claims := repository.NewRedisClaims(f.db)
	first, _, err := claims.Read(t.Context())
	if must(t, err); first.Identity != "" {
		t.Fatalf("%+v", first)
	}
	var won atomic.Int32
	volley(8, func(i int) {
		taken, err := claims.Take(t.Context(), user(i), first)
		if must(t, err); taken {
			won.Add(1)
		}
	})
	now, age, err := claims.Read(t.Context())
	if must(t, err); won.Load() != 1 || now.Identity == "" || age < 0 || age > time.Minute {
		t.Errorf("%d took it, %+v, %v old", won.Load(), now, age)
	}
	if taken, err := claims.Take(t.Context(), now.Identity, now); err != nil || !taken {
		t.Errorf("renewed: %v, %v", taken, err)
	}
	if taken, err := claims.Take(t.Context(), "another", now); err != nil || taken {
		t.Errorf("although it was renewed: %v, %v", taken, err)
	}
}
