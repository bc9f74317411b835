package repository_test

import (
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"

	"seckill/internal/workshop/check"
	"seckill/internal/workshop/testserver"
	"seckill/model"
	"seckill/repository"
	"seckill/repository/sqldb"
)

// TestExclusive: one holds, the other hears of it, and takes over.
func TestExclusive(t *testing.T) {
	t.Parallel()
	overDialects(t, func(t *testing.T, f *fixture) {
		other := openFixture(t, f.store, f.options)
		first := f.db.Exclusive("embedded")
		held, err := first.Held(t.Context())
		if err != nil || !held {
			t.Fatalf("held %v, %v", held, err)
		}
		second := other.db.Exclusive("embedded")
		defer func() { check.Must(t, second.Close()) }()
		if held, err := second.Held(t.Context()); err != nil || held {
			t.Errorf("a second holds: %v, %v", held, err)
		}
		third := other.db.Exclusive("something else")
		if held, err := third.Held(t.Context()); err != nil || !held {
			t.Errorf("another name: %v, %v", held, err)
		}
		check.Must(t, third.Close())
		elsewhere := newFixture(t, f.store).db.Exclusive("embedded") // named locks are the server's, the claim is the schema's
		if held, err := elsewhere.Held(t.Context()); err != nil || !held {
			t.Errorf("another schema: %v, %v", held, err)
		}
		check.Must(t, elsewhere.Close())
		check.Must(t, first.Close())
		check.Eventually(t, "the second holds", func() bool {
			held, err := second.Held(t.Context())
			return held && err == nil
		})
	})
}

// TestExclusiveIsTakenAgain after its connection was killed.
func TestExclusiveIsTakenAgain(t *testing.T) {
	t.Parallel()
	f := newFixture(t, stores()[0])
	claim := f.db.Exclusive("embedded")
	defer func() { check.Must(t, claim.Close()) }()
	held, err := claim.Held(t.Context())
	if err != nil || !held {
		t.Fatalf("held %v, %v", held, err)
	}
	var schema string
	check.Must(t, f.db.SQL().QueryRowContext(t.Context(), "SELECT DATABASE()").Scan(&schema))
	holder := func() (id int64) {
		_ = f.db.SQL().QueryRowContext(t.Context(), "SELECT COALESCE(IS_USED_LOCK(?), 0)", "seckill."+schema+".embedded").Scan(&id)
		return id
	}
	before := holder()
	f.exec(t, "KILL ?", before)
	check.Eventually(t, "another connection holds it", func() bool {
		now := holder()
		return now != 0 && now != before
	})
	if held, err := claim.Held(t.Context()); err != nil || !held {
		t.Errorf("held %v, %v", held, err)
	}
}

// TestExclusiveWithoutAServer reports that nothing is known.
func TestExclusiveWithoutAServer(t *testing.T) {
	t.Parallel()
	cfg := check.Value(mysql.ParseDSN(testserver.Schema(t)))(t)
	proxy := testserver.NewProxy(t, cfg.Addr, nil)
	cfg.Addr = proxy.Addr()
	f := openFixture(t, stores()[0], sqldb.Options{DSN: cfg.FormatDSN(), Slack: check.Deadline})
	claim := f.db.Exclusive("embedded")
	if held, err := claim.Held(t.Context()); err != nil || !held {
		t.Fatalf("held %v, %v", held, err)
	}
	proxy.Close() // connections are refused from here on
	if held, err := claim.Held(t.Context()); err == nil || held {
		t.Errorf("held %v, %v", held, err)
	}
	check.Must(t, claim.Close())
}

// Of many who take the place of the same claim one does, and the claim is renewed only by who has read it.
func TestRedisClaim(t *testing.T) {
	t.Parallel()
	f := newFixture(t, store{dialect: "mysql"})
	claims := repository.NewRedisClaims(f.db)
	first, _, err := claims.Read(t.Context())
	if check.Must(t, err); first.Identity != "" {
		t.Fatalf("%+v", first)
	}
	var won atomic.Int32
	check.Volley(8, func(i int) {
		taken, err := claims.Take(t.Context(), user(i), first)
		if check.Must(t, err); taken {
			won.Add(1)
		}
	})
	now, age, err := claims.Read(t.Context())
	if check.Must(t, err); won.Load() != 1 || now.Identity == "" || age < 0 || age > time.Minute {
		t.Errorf("%d took it, %+v, %v old", won.Load(), now, age)
	}
	if taken, err := claims.Take(t.Context(), now.Identity, now); err != nil || !taken {
		t.Errorf("renewed: %v, %v", taken, err)
	}
	if taken, err := claims.Take(t.Context(), "another", now); err != nil || taken {
		t.Errorf("although it was renewed: %v, %v", taken, err)
	}
}

// A version goes on with a schema to which a later one has added: it asks for its own migrations, and undoes none.
func TestANewerSchemaIsTaken(t *testing.T) {
	t.Parallel()
	for _, s := range dialects() {
		t.Run(s.String(), func(t *testing.T) {
			t.Parallel()
			f := freshFixture(t, s)
			f.exec(t, "ALTER TABLE vouchers ADD COLUMN later INT NOT NULL DEFAULT 7")
			f.exec(t, "INSERT INTO schema_versions (version_id, is_applied) VALUES (99999, 1)")
			check.Must(t, f.db.Migrate(t.Context()))
			for _, migration := range check.Value(f.db.MigrationStatus(t.Context()))(t) {
				if !migration.Applied {
					t.Errorf("%s counts as missing", migration.Name)
				}
			}
			f.onSale(t, 3)
			var kept int
			check.Must(t, f.db.SQL().QueryRowContext(t.Context(), "SELECT COUNT(*) FROM vouchers WHERE later = 7").Scan(&kept))
			check.Equal(t, "vouchers with the later column", kept, 1)
		})
	}
}

// A database from before the first version is refused with a sentence, and left as it is.
func TestADatabaseOfBeforeIsRefused(t *testing.T) {
	t.Parallel()
	for _, s := range dialects() {
		t.Run(s.String(), func(t *testing.T) {
			t.Parallel()
			f := openFixture(t, s, emptyDatabase(t, s))
			f.exec(t, "CREATE TABLE schema_migrations (version_id BIGINT NOT NULL)")
			f.exec(t, "INSERT INTO schema_migrations (version_id) VALUES (31)")
			err := f.db.Migrate(t.Context())
			wantCode(t, err, model.CodeUnavailable)
			check.That(t, err != nil && strings.Contains(err.Error(), "before version 1.0.0"), "%v", err)
			wantCode(t, f.db.SchemaProbe()(t.Context()), model.CodeUnavailable)
			if f.db.SQL().QueryRowContext(t.Context(), "SELECT 1 FROM vouchers").Scan(new(int)) == nil {
				t.Error("a table was made in it")
			}
		})
	}
}
