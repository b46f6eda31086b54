package ends

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/url"
	"testing"

	"entgo.io/ent/dialect"
	entsql "entgo.io/ent/dialect/sql"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jmoiron/sqlx"
	_ "github.com/lib/pq" // registers postgres
	"github.com/uptrace/bun"
	"github.com/uptrace/bun/dialect/pgdialect"
	gormpostgres "gorm.io/driver/postgres"
	"gorm.io/gorm"
	"gorm.io/gorm/logger"

	"github.com/cdc-relay/cdc-relay/outbox"
	"github.com/cdc-relay/cdc-relay/outbox/pgxoutbox"
	"github.com/cdc-relay/cdc-relay/test/harness"
)

var errRollback = errors.New("rolled back by the test")

// within runs f in a transaction of one library, which rolls back where f fails.
type within func(ctx context.Context, f func(tx outbox.Tx) error) error

// libraries are the ways to a transaction.
func libraries(t *testing.T, address string) map[string]within {
	t.Helper()
	all := map[string]within{}
	for name, mode := range map[string]pgx.QueryExecMode{
		"pgx": pgx.QueryExecModeCacheStatement, "pgx simple protocol": pgx.QueryExecModeSimpleProtocol, "pgx exec": pgx.QueryExecModeExec, "pgx describe": pgx.QueryExecModeDescribeExec,
	} {
		cfg, err := pgx.ParseConfig(address)
		if err != nil {
			t.Fatal(err)
		}
		cfg.DefaultQueryExecMode = mode
		conn, err := pgx.ConnectConfig(t.Context(), cfg)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { conn.Close(context.Background()) })
		all[name] = func(ctx context.Context, f func(outbox.Tx) error) error {
			return pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error { return f(pgxoutbox.Tx(tx)) })
		}
	}
	pool, err := pgxpool.New(t.Context(), address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	all["pgxpool, savepoint"] = func(ctx context.Context, f func(outbox.Tx) error) error {
		return pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
			return pgx.BeginFunc(ctx, tx, func(tx pgx.Tx) error { return f(pgxoutbox.Tx(tx)) })
		})
	}
	for _, driver := range []string{"pgx", "postgres"} {
		all["database/sql "+driver] = standard(open(t, driver, plain(t, address)))
	}
	all["sqlx"] = func(ctx context.Context, f func(outbox.Tx) error) error {
		tx, err := sqlx.NewDb(open(t, "pgx", address), "pgx").BeginTxx(ctx, nil)
		if err != nil {
			return err
		}
		return finish(tx, f(outbox.SQL(tx)))
	}
	all["bun"] = func(ctx context.Context, f func(outbox.Tx) error) error {
		return bun.NewDB(open(t, "pgx", address), pgdialect.New()).RunInTx(ctx, nil, func(_ context.Context, tx bun.Tx) error { return f(outbox.SQL(tx)) })
	}
	all["ent"] = func(ctx context.Context, f func(outbox.Tx) error) error {
		tx, err := entsql.OpenDB(dialect.Postgres, open(t, "pgx", address)).BeginTx(ctx, nil)
		if err != nil {
			return err
		}
		queryer, ok := tx.(outbox.Queryer)
		if !ok {
			return fmt.Errorf("%T has no QueryContext", tx)
		}
		return finish(tx, f(outbox.SQL(queryer)))
	}
	for _, prepare := range []bool{false, true} {
		g, err := gorm.Open(gormpostgres.New(gormpostgres.Config{Conn: open(t, "pgx", address)}), &gorm.Config{PrepareStmt: prepare, Logger: logger.Discard})
		if err != nil {
			t.Fatal(err)
		}
		all[fmt.Sprintf("GORM, prepared %t", prepare)] = func(ctx context.Context, f func(outbox.Tx) error) error {
			return g.WithContext(ctx).Transaction(func(g *gorm.DB) error { return f(outbox.SQL(g.Statement.ConnPool)) })
		}
	}
	return all
}

// plain is the address for lib/pq, which asks for TLS by default.
func plain(t *testing.T, address string) string {
	t.Helper()
	u, err := url.Parse(address)
	if err != nil {
		t.Fatal(err)
	}
	query := u.Query()
	query.Set("sslmode", "disable")
	u.RawQuery = query.Encode()
	return u.String()
}

func standard(db *sql.DB) within {
	return func(ctx context.Context, f func(outbox.Tx) error) error {
		tx, err := db.BeginTx(ctx, nil)
		if err != nil {
			return err
		}
		return finish(tx, f(outbox.SQL(tx)))
	}
}

// finish ends a transaction as its function did.
func finish(tx interface {
	Commit() error
	Rollback() error
}, err error) error {
	if err != nil {
		return errors.Join(err, tx.Rollback())
	}
	return tx.Commit()
}

func TestWrite_InTheTransactionsOfEveryLibrary(t *testing.T) {
	t.Parallel()
	e, w := start(t), writer(t, outbox.Config{})
	deleting := writer(t, outbox.Config{Store: outbox.DeleteRow})
	all := libraries(t, e.DB.URL)
	for name, run := range all {
		event := func(n int) outbox.Event {
			event := e.placed(name, map[string]any{"n": n, "text": `"'\é{},NULL`})
			event.Headers = map[string]string{"h": `"\`}
			return event
		}
		err := run(t.Context(), func(tx outbox.Tx) error {
			if _, err := w.Write(t.Context(), tx, event(0)); err != nil {
				return err
			}
			again := event(0)
			again.IdempotencyKey = "k " + name
			if _, err := w.Write(t.Context(), tx, event(1), again); err != nil {
				return err
			}
			_, err := w.Write(t.Context(), tx, again, event(3))
			var duplicate *outbox.DuplicateError
			if !errors.As(err, &duplicate) || len(duplicate.Indexes) != 1 || duplicate.Indexes[0] != 0 {
				return fmt.Errorf("a duplicate gives %w", err)
			}
			_, err = deleting.Write(t.Context(), tx, event(4), event(5))
			return err
		})
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		err = run(t.Context(), func(tx outbox.Tx) error {
			if _, err := w.Write(t.Context(), tx, event(9)); err != nil {
				return err
			}
			return errRollback
		})
		if !errors.Is(err, errRollback) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if n := harness.Query[int](t, e.DB, "SELECT count(*)::int FROM outbox"); n != 4*len(all) {
		t.Errorf("%d rows, want %d", n, 4*len(all))
	}
	got := map[string]string{}
	for _, r := range e.relayed(t) {
		got[string(r.Key)] += string(r.Value[6:7])
		if want := `, "text": "\"'\\é{},NULL"}`; string(r.Value[7:]) != want {
			t.Errorf("%s: %s", r.Key, r.Value)
		}
	}
	for name := range all {
		if got[name] != "010345" {
			t.Errorf("%s: the records are %s", name, got[name])
		}
	}
}

func TestWrite_RefusesWhatIsNoTransaction(t *testing.T) {
	t.Parallel()
	e, w := start(t), writer(t, outbox.Config{})
	db := open(t, "pgx", e.DB.URL)
	g, err := gorm.Open(gormpostgres.New(gormpostgres.Config{Conn: db}), &gorm.Config{PrepareStmt: true, Logger: logger.Discard})
	if err != nil {
		t.Fatal(err)
	}
	conn, err := db.Conn(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	for name, queryer := range map[string]outbox.Queryer{
		"a pool": db, "a connection": conn, "sqlx": sqlx.NewDb(db, "pgx"), "bun": bun.NewDB(db, pgdialect.New()), "GORM": g.Statement.ConnPool,
	} {
		if _, err := w.Write(t.Context(), outbox.SQL(queryer), e.placed("o-1", 1)); !errors.Is(err, outbox.ErrNoTransaction) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if n := harness.Query[int](t, e.DB, "SELECT count(*)::int FROM outbox"); n != 0 {
		t.Errorf("%d rows", n)
	}
}
