package ends

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	_ "github.com/lib/pq"

	"github.com/cdc-relay/cdc-relay/inbox"
	"github.com/cdc-relay/cdc-relay/inbox/pgxinbox"
	"github.com/cdc-relay/cdc-relay/migrations"
	"github.com/cdc-relay/cdc-relay/test/harness"
	"github.com/cdc-relay/cdc-relay/test/harness/relaytest"
)

// createInbox makes the tables of a consumer, and a journal of effects that nothing keeps from
// holding an event twice.
func createInbox(t testing.TB, db *harness.Database) {
	t.Helper()
	parts, err := migrations.Inbox("public", "")
	if err != nil {
		t.Fatal(err)
	}
	for range 2 { // it may run again
		db.Exec(t, parts[0].Up)
	}
	db.Exec(t, "CREATE TABLE journal (n bigserial PRIMARY KEY, event text NOT NULL, key text, seq bigint)")
}

func newInbox(t testing.TB, consumer string) *inbox.Inbox {
	t.Helper()
	b, err := inbox.New(inbox.Config{Consumer: consumer})
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func newPool(t testing.TB, url string, connections int32, tracer ...pgx.QueryTracer) *pgxpool.Pool {
	t.Helper()
	cfg, err := pgxpool.ParseConfig(url)
	if err != nil {
		t.Fatal(err)
	}
	cfg.MaxConns = connections
	for _, one := range tracer {
		cfg.ConnConfig.Tracer = one
	}
	pool, err := pgxpool.NewWithConfig(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	return pool
}

// counted compares the journal's rows of an event, and the keys of a consumer, with what they should be.
func counted(t *testing.T, db *harness.Database, event string, effects, keys int) {
	t.Helper()
	if n := harness.Query[int](t, db, "SELECT count(*)::int FROM journal WHERE event = $1", event); n != effects {
		t.Errorf("%s: %d effects, want %d", event, n, effects)
	}
	if n := harness.Query[int](t, db, "SELECT count(*)::int FROM inbox WHERE right(key, length($1::text) + 1) = '/' || $1::text", event); n != keys {
		t.Errorf("%s: %d keys, want %d", event, n, keys)
	}
}

func TestOnce_CommitsWithTheEffectOrNotAtAll(t *testing.T) {
	t.Parallel()
	harness.EachPostgres(t, func(t *testing.T, db *harness.Database) {
		createInbox(t, db)
		b := newInbox(t, "billing")
		fault := errors.New("no stock")
		ctx := t.Context()
		for _, driver := range []string{"pgx", "postgres"} {
			pool := open(t, driver, db.URLWith(t, url.Values{"sslmode": {"disable"}}))
			effect := func(ctx context.Context, tx *sql.Tx, event string) error {
				_, err := tx.ExecContext(ctx, "INSERT INTO journal (event) VALUES ($1)", event)
				return err
			}
			id := driver + ` "\,{}'%`
			for _, want := range []inbox.Outcome{0, inbox.Handled, inbox.Duplicate, inbox.Duplicate} {
				got, err := b.OnceIn(ctx, pool, inbox.ByID("t", id), func(ctx context.Context, tx *sql.Tx) error {
					if err := effect(ctx, tx, id); err != nil || want != 0 {
						return err
					}
					return fault
				})
				if got != want || want == 0 != errors.Is(err, fault) {
					t.Errorf("%s: %v, %v; want %v", driver, got, err, want)
				}
			}
			counted(t, db, id, 1, 1)

			// A caller who commits in spite of the error loses nothing.
			tx, err := pool.BeginTx(ctx, nil)
			if err != nil {
				t.Fatal(err)
			}
			id = driver + " committed anyway"
			_, err = b.Once(ctx, inbox.SQL(tx), inbox.ByID("t", id), func(ctx context.Context) error {
				return errors.Join(effect(ctx, tx, id), fault)
			})
			if !errors.Is(err, fault) {
				t.Error(err)
			}
			_ = tx.Commit()
			counted(t, db, id, 0, 0)

			for _, none := range []inbox.Queryer{pool, (*sql.Tx)(nil)} {
				if _, err := b.Once(ctx, inbox.SQL(none), inbox.ByID("t", "1"), func(context.Context) error { return nil }); !errors.Is(err, inbox.ErrNoTransaction) {
					t.Errorf("%T: %v", none, err)
				}
			}
		}
		conn := db.Connect(t)
		for i, want := range []inbox.Outcome{inbox.Handled, inbox.Duplicate} {
			err := pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error {
				got, err := b.Once(ctx, pgxinbox.Tx(tx), inbox.ByID("t", "native"), func(ctx context.Context) error {
					_, err := tx.Exec(ctx, "INSERT INTO journal (event) VALUES ('native')")
					return err
				})
				if got != want {
					t.Errorf("delivery %d: %v", i+1, got)
				}
				return err
			})
			if err != nil {
				t.Fatal(err)
			}
		}
		counted(t, db, "native", 1, 1)
	})
}

// Another consumer handles the event too.
func TestOnce_ConsumersDoNotShareKeys(t *testing.T) {
	t.Parallel()
	db := harness.Postgres(t)
	createInbox(t, db)
	pool := open(t, "pgx", db.URL)
	for _, consumer := range []string{"billing", "shipping"} {
		got, err := newInbox(t, consumer).OnceIn(t.Context(), pool, inbox.ByID("t", "1"), func(context.Context, *sql.Tx) error { return nil })
		if got != inbox.Handled || err != nil {
			t.Errorf("%s: %v, %v", consumer, got, err)
		}
	}
}

func TestOnce_ManyAtATimeHaveOneEffect(t *testing.T) {
	t.Parallel()
	harness.EachPostgres(t, func(t *testing.T, db *harness.Database) {
		createInbox(t, db)
		b := newInbox(t, "billing")
		pool := newPool(t, db.URL, 32)
		for _, level := range []pgx.TxIsoLevel{pgx.ReadCommitted, pgx.RepeatableRead, pgx.Serializable} {
			var wait sync.WaitGroup
			var mu sync.Mutex
			outcomes := map[string]int{}
			for i := range 64 {
				wait.Go(func() {
					var got inbox.Outcome
					for {
						err := pgx.BeginTxFunc(t.Context(), pool, pgx.TxOptions{IsoLevel: level}, func(tx pgx.Tx) (err error) {
							got, err = b.Once(t.Context(), pgxinbox.Tx(tx), inbox.ByID("t", string(level)), func(ctx context.Context) error {
								if _, err := tx.Exec(ctx, "INSERT INTO journal (event) VALUES ($1)", string(level)); err != nil {
									return err
								}
								if i%4 == 0 {
									return errors.New("it fails each fourth time")
								}
								return nil
							})
							return err
						})
						if inbox.Retryable(err) {
							continue
						}
						mu.Lock()
						defer mu.Unlock()
						if err != nil {
							outcomes["failed"]++
						} else {
							outcomes[got.String()]++
						}
						return
					}
				})
			}
			wait.Wait()
			if outcomes["handled"] != 1 || outcomes["duplicate"]+outcomes["failed"] != 63 {
				t.Errorf("%s: %v", level, outcomes)
			}
			counted(t, db, string(level), 1, 1)
		}
	})
}

// Transactions that claim the same keys in other orders wait for each other, and do not deadlock.
func TestClaim_KeysInOppositeOrdersDoNotDeadlock(t *testing.T) {
	t.Parallel()
	db := harness.Postgres(t)
	createInbox(t, db)
	b := newInbox(t, "billing")
	pool := newPool(t, db.URL, 4)
	key := func(name string) inbox.Key { return inbox.ByID("t", name) }
	// Whoever comes to the middle key waits for this one.
	holder, err := pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := b.Claim(t.Context(), pgxinbox.Tx(holder), []inbox.Key{key("m")}); err != nil {
		t.Fatal(err)
	}
	var wait sync.WaitGroup
	for _, keys := range [][]inbox.Key{{key("a"), key("m"), key("z")}, {key("z"), key("m"), key("a")}} {
		wait.Go(func() {
			err := pgx.BeginFunc(t.Context(), pool, func(tx pgx.Tx) error {
				_, err := b.Claim(t.Context(), pgxinbox.Tx(tx), keys)
				return err
			})
			if err != nil {
				t.Error(err)
			}
		})
	}
	relaytest.Eventually(t, "both wait", func() (bool, string) {
		n := harness.Query[int](t, db, "SELECT count(*)::int FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'")
		return n == 2, fmt.Sprint(n)
	})
	if err := holder.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	wait.Wait()
}

func TestClaim_CrossingTransactionsDoNotDeadlock(t *testing.T) {
	t.Parallel()
	db := harness.Postgres(t)
	createInbox(t, db)
	b := newInbox(t, "billing")
	pool := newPool(t, db.URL, 16)
	var wait sync.WaitGroup
	var mu sync.Mutex
	handled := map[string]int{}
	for worker := range 16 {
		wait.Go(func() {
			random := rand.New(rand.NewPCG(7, uint64(worker)))
			for round := range 20 {
				keys := make([]inbox.Key, 200)
				for i, n := range random.Perm(len(keys)) {
					keys[i] = inbox.ByID("t", fmt.Sprint(round, "-", n))
				}
				var fresh []bool
				err := pgx.BeginFunc(t.Context(), pool, func(tx pgx.Tx) (err error) {
					fresh, err = b.Claim(t.Context(), pgxinbox.Tx(tx), keys)
					return err
				})
				if err != nil {
					t.Error(err)
					return
				}
				mu.Lock()
				for i, is := range fresh {
					if is {
						handled[keys[i].String()]++
					}
				}
				mu.Unlock()
			}
		})
	}
	wait.Wait()
	if len(handled) != 4000 {
		t.Errorf("%d keys were fresh", len(handled))
	}
	for key, n := range handled {
		if n != 1 {
			t.Errorf("%s was fresh %d times", key, n)
		}
	}
}

func TestPrune_DeletesWhatIsOlder(t *testing.T) {
	t.Parallel()
	db := harness.Postgres(t)
	createInbox(t, db)
	conn := db.Connect(t)
	now := time.Date(2026, 1, 31, 0, 0, 0, 0, time.UTC)
	inTx := func(f func(tx inbox.Tx) error) {
		t.Helper()
		if err := pgx.BeginFunc(t.Context(), conn, func(tx pgx.Tx) error { return f(pgxinbox.Tx(tx)) }); err != nil {
			t.Fatal(err)
		}
	}
	b, other := newInbox(t, "billing"), newInbox(t, "shipping")
	inTx(func(tx inbox.Tx) error {
		var keys []inbox.Key
		for day := range 30 {
			keys = append(keys, inbox.ByID("t", fmt.Sprint(day)).At(now.AddDate(0, 0, -day)))
		}
		_, err := b.Claim(t.Context(), tx, keys)
		if err == nil {
			_, err = other.Claim(t.Context(), tx, keys)
		}
		return err
	})
	var deleted []int
	for range 5 {
		inTx(func(tx inbox.Tx) error {
			n, err := b.Prune(t.Context(), tx, now.AddDate(0, 0, -15), 6)
			deleted = append(deleted, n)
			return err
		})
	}
	if !slices.Equal(deleted, []int{6, 6, 2, 0, 0}) {
		t.Errorf("deleted %v", deleted)
	}
	if left := harness.Query[string](t, db, "SELECT string_agg(consumer || ' ' || n || ' ' || oldest, ', ' ORDER BY consumer) FROM (SELECT consumer, count(*) AS n, min(at)::date AS oldest FROM inbox GROUP BY 1) AS c"); left != "billing 16 2026-01-16, shipping 30 2026-01-02" {
		t.Error(left)
	}
}

// A dead key that is claimed again while it is to be deleted stays: the record that was handled with
// it can come again.
func TestPrune_LeavesADeadKeyThatIsClaimedMeanwhile(t *testing.T) {
	t.Parallel()
	db := harness.Postgres(t)
	createInbox(t, db)
	b, pool := newInbox(t, "billing"), newPool(t, db.URL, 4)
	now, key := time.Now(), inbox.ByID("orders", "1")
	err := pgx.BeginFunc(t.Context(), pool, func(tx pgx.Tx) error { return b.Bury(t.Context(), pgxinbox.Tx(tx), key.At(now.Add(-10*time.Hour))) })
	if err != nil {
		t.Fatal(err)
	}
	claiming, err := pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if fresh, err := b.Claim(t.Context(), pgxinbox.Tx(claiming), []inbox.Key{key.At(now)}); err != nil || !fresh[0] {
		t.Fatal(fresh, err)
	}
	var deleted int
	var wait sync.WaitGroup
	wait.Go(func() {
		err := pgx.BeginFunc(t.Context(), pool, func(tx pgx.Tx) (err error) {
			deleted, err = b.Prune(t.Context(), pgxinbox.Tx(tx), now.Add(-time.Hour), 10)
			return err
		})
		if err != nil {
			t.Error(err)
		}
	})
	relaytest.Eventually(t, "it waits for the claim", func() (bool, string) {
		n := harness.Query[int](t, db, "SELECT count(*)::int FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'")
		return n == 1, fmt.Sprint(n)
	})
	if err := claiming.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	wait.Wait()
	if n := harness.Query[int](t, db, "SELECT count(*)::int FROM inbox WHERE NOT dead"); n != 1 || deleted != 0 {
		t.Errorf("%d keys, %d deleted", n, deleted)
	}
}

// The grants that are printed are enough, and none is too many.
func TestInbox_RoleNeedsWhatIsGranted(t *testing.T) {
	t.Parallel()
	harness.EachPostgres(t, func(t *testing.T, db *harness.Database) {
		createInbox(t, db)
		role := harness.Unique(t, "billing")
		db.Exec(t, "CREATE ROLE "+role)
		defer func() {
			db.Exec(t, "DROP OWNED BY "+role)
			db.Exec(t, "DROP ROLE "+role)
		}()
		parts, err := migrations.Inbox("public", role)
		if err != nil {
			t.Fatal(err)
		}
		db.Exec(t, parts[1].Up)
		db.Exec(t, parts[1].Up)
		b := newInbox(t, "billing")
		conn := db.Connect(t)
		all := func() error {
			return pgx.BeginFunc(t.Context(), conn, func(tx pgx.Tx) error {
				if _, err := tx.Exec(t.Context(), "SET LOCAL ROLE "+role); err != nil {
					return err
				}
				of := pgxinbox.Tx(tx)
				if err := b.Bury(t.Context(), of, inbox.ByID("t", "1")); err != nil {
					return err
				}
				if _, err := b.Claim(t.Context(), of, []inbox.Key{inbox.ByID("t", "1"), inbox.ByID("t", "2")}); err != nil {
					return err
				}
				_, err := b.Prune(t.Context(), of, time.Now().Add(time.Hour), 10)
				return err
			})
		}
		if err := all(); err != nil {
			t.Fatal(err)
		}
		for _, right := range []string{"SELECT", "INSERT", "UPDATE (dead)", "UPDATE (at)", "DELETE"} {
			db.Exec(t, "REVOKE "+right+" ON inbox FROM "+role)
			if err := all(); err == nil || !strings.Contains(err.Error(), "SQLSTATE 42501") || !strings.Contains(err.Error(), "--role") {
				t.Errorf("without %s: %v", right, err)
			}
			db.Exec(t, "GRANT "+right+" ON inbox TO "+role)
		}
		db.Exec(t, parts[1].Down)
		db.Exec(t, parts[0].Down)
		db.Exec(t, parts[0].Down)
		var refused *inbox.TableError
		if err := all(); !errors.As(err, &refused) || refused.Code != "42P01" || !strings.Contains(err.Error(), "sql --inbox") {
			t.Errorf("without the tables: %v", err)
		}
	})
}

// The record of a dead key that was sent again may come again, as any other: its key is kept from
// then on, and not from when it became a dead letter.
func TestClaim_OfADeadKeyIsKeptFromThenOn(t *testing.T) {
	t.Parallel()
	db := harness.Postgres(t)
	createInbox(t, db)
	b, pool := newInbox(t, "billing"), newPool(t, db.URL, 1)
	now := time.Now()
	key := inbox.ByID("orders", "1")
	inTx := func(f func(tx inbox.Tx) error) {
		t.Helper()
		if err := pgx.BeginFunc(t.Context(), pool, func(tx pgx.Tx) error { return f(pgxinbox.Tx(tx)) }); err != nil {
			t.Fatal(err)
		}
	}
	inTx(func(tx inbox.Tx) error { return b.Bury(t.Context(), tx, key.At(now.Add(-10*time.Hour))) })
	claimed := 0
	claim := func(tx inbox.Tx) error {
		fresh, err := b.Claim(t.Context(), tx, []inbox.Key{key.At(now), inbox.ByID("orders", "2").At(now)})
		if err == nil && fresh[0] {
			claimed++
		}
		return err
	}
	inTx(claim)
	inTx(func(tx inbox.Tx) error {
		n, err := b.Prune(t.Context(), tx, now.Add(-time.Hour), 10)
		if n != 0 {
			t.Errorf("%d keys are pruned", n)
		}
		return err
	})
	inTx(claim)
	if claimed != 1 {
		t.Errorf("claimed %d times", claimed)
	}
}

// A claim in a transaction that has ended would commit by itself, without the work.
func TestOnce_RefusesATransactionThatIsOver(t *testing.T) {
	t.Parallel()
	db := harness.Postgres(t)
	createInbox(t, db)
	b, conn := newInbox(t, "billing"), db.Connect(t)
	for name, end := range overs {
		tx, err := conn.Begin(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if err := end(t.Context(), tx); err != nil {
			t.Fatal(err)
		}
		_, err = b.Once(t.Context(), pgxinbox.Tx(tx), inbox.ByID("t", name), func(context.Context) error {
			t.Error("the handler was called")
			return nil
		})
		if !errors.Is(err, inbox.ErrNoTransaction) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if n := harness.Query[int](t, db, "SELECT count(*)::int FROM inbox"); n != 0 {
		t.Errorf("%d keys were claimed", n)
	}
}
