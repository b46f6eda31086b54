package ends

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/cdc-relay/cdc-relay/inbox/kafkainbox"
	"github.com/cdc-relay/cdc-relay/sandbox"
	"github.com/cdc-relay/cdc-relay/test/harness"
	"github.com/cdc-relay/cdc-relay/test/harness/relaytest"
)

const (
	endsItsConnection = "SELECT pg_terminate_backend(pg_backend_pid())"
	crashesItsWorker  = "SELECT crashes()"                           // see below
	crashesItsServer  = "COPY (SELECT 1) TO PROGRAM 'kill -9 $PPID'" // the shell's parent is the server's process
)

// A record whose statement ends its connection to the database each time is found among others that
// were on their way, and becomes a dead letter.
func TestPoison_ThatEndsItsConnectionIsFound(t *testing.T) {
	for name, c := range map[string]struct{ way, statement, atCommit, want string }{
		"one at a time": {way: "one at a time", statement: endsItsConnection, want: "another one stays: SQLSTATE 57P01"},
		"parallel":      {way: "parallel", statement: endsItsConnection, want: "another one stays: SQLSTATE 57P01"},
		"offsets":       {way: "offsets", statement: endsItsConnection, want: "another one stays: SQLSTATE 57P01"},
		"at its commit": {way: "one at a time", atCommit: endsItsConnection, want: "another one stays: SQLSTATE 57P01"},
		"time limit":    {way: "one at a time", statement: "SELECT pg_sleep(60)", want: "another one stays: SQLSTATE 25P04"}, // since PostgreSQL 17
		"crash":         {way: "one at a time", statement: crashesItsServer, want: "the database server crashes whenever"},
		"worker":        {way: "one at a time", statement: crashesItsWorker, want: "the database server crashes whenever"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db := harness.Postgres(t, "18")
			if name == "crash" || name == "worker" {
				db = harness.OwnPostgres(t, sandbox.PostgresOptions{})
			}
			s := newShop(t, db, harness.Kfake(t, sandbox.KafkaOptions{}), 2)
			letters := s.topic + "-dead-letters"
			s.brokers.CreateTopic(t, letters, 1)
			s.produce(t, 60, 5)
			killer := header(s.past[25], "id")
			if name == "worker" { // whose crash leaves the notice that the process of another client does
				db.Exec(t, "CREATE FUNCTION crashes() RETURNS int LANGUAGE plpgsql PARALLEL SAFE AS $f$BEGIN "+crashesItsServer+"; RETURN 1; END$f$")
				db.Exec(t, "ALTER DATABASE "+pgx.Identifier{harness.Query[string](t, db, "SELECT current_database()")}.Sanitize()+" SET "+harness.Query[string](t, db, "SELECT name FROM pg_settings WHERE name IN ('debug_parallel_query', 'force_parallel_mode')")+" = on")
			}
			if c.atCommit != "" {
				db.Exec(t, "CREATE FUNCTION ends() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN PERFORM pg_terminate_backend(pg_backend_pid()); RETURN NULL; END'")
				db.Exec(t, "CREATE CONSTRAINT TRIGGER ends AFTER INSERT ON journal DEFERRABLE INITIALLY DEFERRED FOR EACH ROW WHEN (NEW.event = '"+killer+"') EXECUTE FUNCTION ends()")
			}
			cfg := s.config()
			if name == "time limit" {
				pool := s.pool.Config()
				pool.ConnConfig.RuntimeParams["transaction_timeout"] = "1s"
				var err error
				if cfg.DB, err = pgxpool.NewWithConfig(t.Context(), pool); err != nil {
					t.Fatal(err)
				}
				t.Cleanup(cfg.DB.Close)
			}
			ways[c.way](&cfg)
			s.unique = cfg.Offsets
			cfg.DeadLetterTopic = letters
			cfg.Handle = func(ctx context.Context, tx pgx.Tx, r *kgo.Record) error {
				if err := journal(ctx, tx, r); err != nil || c.statement == "" || header(r, "id") != killer {
					return err
				}
				_, err := tx.Exec(ctx, c.statement)
				return err
			}
			m := s.start(t, cfg)
			s.awaitCommitted(t)
			m.stop(t)
			s.verify(t, killer)
			dead := s.brokers.Read(t, letters)
			if len(dead) != 1 {
				t.Fatalf("%d dead letters", len(dead))
			}
			if header(dead[0], "id") != killer || !strings.Contains(header(dead[0], "cdc-relay-error-message"), c.want) {
				t.Error(text(dead[0]))
			}
			if n := harness.Query[int](t, db, "SELECT count(*)::int FROM inbox_attempts"); n != 0 {
				t.Errorf("%d rows of attempts are left", n)
			}
		})
	}
}

// Without DeadLetterTopic such a record blocks its partition alone, and heals. Here each connection
// gets its user when it is made, as with passwords that expire.
func TestPoison_ThatEndsItsConnectionBlocksAndHeals(t *testing.T) {
	t.Parallel()
	s := newShop(t, harness.Postgres(t), harness.Kfake(t, sandbox.KafkaOptions{}), 2)
	s.produce(t, 60, 5)
	killer := s.past[25]
	var cured atomic.Bool
	blocked := make(chan *kafkainbox.RecordError, 100)
	pool := s.pool.Config()
	user := pool.ConnConfig.User
	pool.ConnConfig.User = "nobody"
	pool.BeforeConnect = func(_ context.Context, one *pgx.ConnConfig) error { one.User = user; return nil }
	cfg := s.config()
	var err error
	if cfg.DB, err = pgxpool.NewWithConfig(t.Context(), pool); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(cfg.DB.Close)
	cfg.Events.Blocked = func(e *kafkainbox.RecordError) { blocked <- e }
	cfg.Handle = func(ctx context.Context, tx pgx.Tx, r *kgo.Record) error {
		if header(r, "id") == header(killer, "id") && !cured.Load() {
			_, err := tx.Exec(ctx, endsItsConnection)
			return err
		}
		return journal(ctx, tx, r)
	}
	m := s.start(t, cfg)
	select {
	case e := <-blocked:
		var ended *kafkainbox.ConnectionError
		if !errors.As(e, &ended) || ended.Crashed || e.Partition != killer.Partition || e.Offset != killer.Offset || e.Attempts != 5 {
			t.Errorf("%v", e)
		}
	case <-time.After(relaytest.Patience):
		t.Fatal("it does not block")
	}
	before := 0
	for _, r := range s.past {
		if r.Partition != killer.Partition || r.Offset < killer.Offset {
			before++
		}
	}
	s.awaitEffects(t, before)
	cured.Store(true)
	s.finish(t, m)
}

// A record during which the database or the network goes down, again and again, is not at fault, also
// where the database goes down because the process of another client crashes.
func TestPoison_IsNotARecordDuringWhichTheDatabaseGoesDown(t *testing.T) {
	const times = 10 // three until it is alone, one that begins to be watched, five attempts, and one
	for _, what := range []string{"database", "network", "another client"} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			db := harness.OwnPostgres(t, sandbox.PostgresOptions{})
			s := newShop(t, db, harness.Kfake(t, sandbox.KafkaOptions{}), 1)
			letters := s.topic + "-dead-letters"
			s.brokers.CreateTopic(t, letters, 1)
			proxy, err := sandbox.NewProxy(db.Server.Addr())
			if err != nil {
				t.Fatal(err)
			}
			defer proxy.Close()
			s.produce(t, 10, 3)
			innocent := header(s.past[5], "id")
			cfg := s.config()
			cfg.DB, cfg.DeadLetterTopic = newPool(t, through(t, db.URL, proxy), 8), letters
			cfg.Events.Failed = func(e *kafkainbox.RecordError) { t.Error(e) }
			downs := 0
			cfg.Handle = func(ctx context.Context, tx pgx.Tx, r *kgo.Record) error { // one partition, one goroutine
				if header(r, "id") == innocent && downs < times {
					downs++
					if err := goDown(ctx, db, proxy, tx, what, downs); err != nil {
						t.Error(err)
					}
				}
				return journal(ctx, tx, r)
			}
			m := s.start(t, cfg)
			s.awaitCommitted(t) // the database is there again then
			m.stop(t)
			s.verify(t)
			if dead := s.brokers.Read(t, letters); len(dead) > 0 || downs != times {
				t.Errorf("%d records paid for it, which was down %d times", len(dead), downs)
			}
		})
	}
}

func goDown(ctx context.Context, db *harness.Database, proxy *sandbox.Proxy, tx pgx.Tx, what string, n int) error {
	switch {
	case what == "another client":
		other, err := pgx.Connect(ctx, db.URL)
		if err != nil {
			return err
		}
		defer other.Close(ctx)
		_, _ = other.Exec(ctx, crashesItsServer)
		_, _ = tx.Exec(ctx, "SELECT pg_sleep(60)") // until the server has ended this one, too
		return nil
	case what == "network":
		proxy.Cut()
		return nil
	case n%3 == 0:
		return db.Server.Restart(ctx, sandbox.Fast)
	case n%3 == 1:
		return db.Server.Restart(ctx, sandbox.Immediate)
	}
	if err := db.Server.Kill(); err != nil {
		return err
	}
	return db.Server.Start(ctx)
}
