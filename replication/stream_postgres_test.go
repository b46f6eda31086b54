package replication

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"github.com/cdc-relay/cdc-relay/fault"
	"github.com/cdc-relay/cdc-relay/postgres"
	"github.com/cdc-relay/cdc-relay/replication/pgoutput"
	"github.com/cdc-relay/cdc-relay/replication/wal"
	"github.com/cdc-relay/cdc-relay/sandbox"
	"github.com/cdc-relay/cdc-relay/test/harness"
)

// orders makes a table, a publication and a slot in db.
func orders(t testing.TB, db *harness.Database) postgres.Config {
	t.Helper()
	db.Exec(t, `CREATE TABLE outbox (id bigserial PRIMARY KEY, aggregate_type text NOT NULL DEFAULT 'orders',
		aggregate_id text, event_type text NOT NULL DEFAULT 'OrderPlaced', payload jsonb, created_at timestamptz NOT NULL DEFAULT now())`)
	return publish(t, db, wal.Table{Schema: "public", Name: "outbox"})
}

func publish(t testing.TB, db *harness.Database, tables ...wal.Table) postgres.Config {
	t.Helper()
	var names []string
	for _, table := range tables {
		names = append(names, wal.QuoteIdentifier(table.Schema)+"."+wal.QuoteIdentifier(table.Name))
	}
	cfg := postgres.Config{URL: db.URL, Slot: harness.Unique(t, "slot"), Publication: "Pub " + db.Name, Tables: tables}
	db.Exec(t, "CREATE PUBLICATION "+wal.QuoteIdentifier(cfg.Publication)+" FOR TABLE "+strings.Join(names, ", ")+
		" WITH (publish = 'insert', publish_via_partition_root = true)")
	db.Exec(t, "SELECT pg_create_logical_replication_slot($1, 'pgoutput')", cfg.Slot)
	return cfg
}

// reader runs a stream and confirms what it takes.
type reader struct {
	t         testing.TB
	stream    *Stream
	out       chan *wal.Batch
	ended     chan error
	stop      context.CancelFunc
	confirmed atomic.Uint64
}

// opened is a stream from a slot that somebody else may have had a moment ago: a
// walsender says its last word before it lets go.
func opened(t testing.TB, cfg postgres.Config, opt Options) *Stream {
	t.Helper()
	s, err := Open(t.Context(), cfg, opt, zerolog.Nop())
	for began := time.Now(); err != nil && postgres.KindOf(err) == fault.KindBusy && time.Since(began) < time.Minute; {
		<-time.After(20 * time.Millisecond)
		s, err = Open(t.Context(), cfg, opt, zerolog.Nop())
	}
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func read(t testing.TB, cfg postgres.Config) *reader {
	t.Helper()
	return readWith(t, cfg, Options{})
}

func readWith(t testing.TB, cfg postgres.Config, opt Options) *reader {
	t.Helper()
	s := opened(t, cfg, opt)
	intake, stop := context.WithCancel(t.Context())
	r := &reader{t: t, stream: s, out: make(chan *wal.Batch), ended: make(chan error, 1), stop: stop}
	r.confirmed.Store(uint64(s.StartLSN()))
	over := make(chan struct{})
	go func() {
		defer close(over)
		r.ended <- s.Run(intake, r.out, r.position)
	}()
	t.Cleanup(func() {
		stop()
		s.Abort()
		<-over
		_ = s.Close(context.Background(), r.position())
	})
	return r
}

func (r *reader) position() wal.LSN { return wal.LSN(r.confirmed.Load()) }

// next takes a batch; nil when the stream ended, whose error goes to fail.
func (r *reader) next() (*wal.Batch, error) {
	select {
	case b := <-r.out:
		return b, nil
	case err := <-r.ended:
		return nil, err
	case <-time.After(time.Minute):
		r.t.Fatal("nothing came for a minute")
		return nil, nil
	}
}

// texts takes n rows and gives one column of each as text, confirming as it goes.
func (r *reader) texts(n int, column string) []string {
	r.t.Helper()
	var got []string
	for len(got) < n {
		b, err := r.next()
		if b == nil {
			r.t.Fatalf("after %d rows: %v", len(got), err)
		}
		for i := range b.Rows {
			got = append(got, columnOf(&b.Rows[i], column))
		}
		r.settle(b)
	}
	return got
}

func (r *reader) settle(b *wal.Batch) {
	if b.Through != 0 {
		r.confirmed.Store(uint64(b.Through))
	}
	b.Release()
}

// failure drains the stream to its error.
func (r *reader) failure() error {
	r.t.Helper()
	for {
		b, err := r.next()
		if b == nil {
			return err
		}
		r.settle(b)
	}
}

func columnOf(row *wal.Row, name string) string {
	for i, c := range row.Relation.Columns {
		if c.Name == name {
			if row.Values[i].Kind == wal.Null {
				return "NULL"
			}
			return string(row.Values[i].Data)
		}
	}
	return "no column " + name
}

func same(t *testing.T, got []string, want ...string) {
	t.Helper()
	if strings.Join(got, "|") != strings.Join(want, "|") {
		t.Errorf("got  %q\nwant %q", got, want)
	}
}

func TestPostgresRowsComeInCommitOrder(t *testing.T) {
	harness.EachPostgres(t, func(t *testing.T, db *harness.Database) {
		t.Parallel()
		cfg := orders(t, db)
		slow, err := db.Connect(t).Begin(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		run := func(sql string) {
			t.Helper()
			if _, err := slow.Exec(t.Context(), sql); err != nil {
				t.Fatal(err)
			}
		}
		run("INSERT INTO outbox (aggregate_id) VALUES ('slow 1')")
		db.Exec(t, "INSERT INTO outbox (aggregate_id) VALUES ('fast 1'), ('fast 2')")
		run("SAVEPOINT a; INSERT INTO outbox (aggregate_id) VALUES ('kept'); RELEASE a")
		run("SAVEPOINT b; INSERT INTO outbox (aggregate_id) VALUES ('rolled back'); ROLLBACK TO b")
		db.Exec(t, "BEGIN; INSERT INTO outbox (aggregate_id) VALUES ('never'); ROLLBACK")
		db.Exec(t, "DELETE FROM outbox")
		run("INSERT INTO outbox (aggregate_id) VALUES ('slow 2')")
		if err := slow.Commit(t.Context()); err != nil {
			t.Fatal(err)
		}
		if _, err := db.Connect(t).PgConn().CopyFrom(t.Context(), strings.NewReader("copy 1\ncopy 2\ncopy 3\n"), "COPY outbox (aggregate_id) FROM STDIN"); err != nil {
			t.Fatal(err)
		}
		r := read(t, cfg)
		same(t, r.texts(8, "aggregate_id"), "fast 1", "fast 2", "slow 1", "kept", "slow 2", "copy 1", "copy 2", "copy 3")
	})
}

func TestPostgresLargeTransactionsAndValuesStayBounded(t *testing.T) {
	db := harness.Postgres(t)
	cfg := orders(t, db)
	db.Exec(t, "ALTER TABLE outbox ALTER payload SET STORAGE EXTERNAL")
	db.Exec(t, `INSERT INTO outbox (aggregate_id, payload) SELECT 'toast', to_jsonb(repeat('toast', 1000000)) FROM generate_series(1, 3)`)
	db.Exec(t, `INSERT INTO outbox (aggregate_id, payload) SELECT n, to_jsonb(repeat('x', 100)) FROM generate_series(1, 300000) n`)
	r := read(t, cfg)
	rows, largest, batches := 0, 0, 0
	for rows < 300_003 {
		b, err := r.next()
		if b == nil {
			t.Fatal(err)
		}
		if batches++; len(b.Rows) > pgoutput.DefaultMaxRows {
			t.Fatalf("batch of %d rows", len(b.Rows))
		}
		for i := range b.Rows {
			row := &b.Rows[i]
			if rows++; rows > 3 && columnOf(row, "aggregate_id") != fmt.Sprint(rows-3) || rows > 3 && row.Ordinal != uint64(rows-3) {
				t.Fatalf("row %d is %s, ordinal %d", rows, columnOf(row, "aggregate_id"), row.Ordinal)
			}
			largest = max(largest, len(columnOf(row, "payload")))
		}
		if rows > 3 && rows < 300_003 && b.Through > r.stream.StartLSN() && !b.Rows[0].Txn.Time.Equal(b.ThroughTime) && b.Rows[len(b.Rows)-1].Ordinal != 3 {
			t.Fatalf("through %s inside the transaction", b.Through)
		}
		r.settle(b)
	}
	if largest != 5_000_002 || batches < 300 {
		t.Errorf("largest payload %d bytes, %d batches", largest, batches)
	}
	r.stop()
	if err := r.failure(); err != nil { // Run has returned: its buffer may be looked at
		t.Fatal(err)
	}
	if got := len(r.stream.frames.buf); got > 32<<20 {
		t.Errorf("read buffer of %d bytes", got)
	}
}

func TestPostgresOddNamesPartitionsAndForeignTables(t *testing.T) {
	harness.EachPostgres(t, func(t *testing.T, db *harness.Database) {
		t.Parallel()
		db.Exec(t, `CREATE SCHEMA "Odd ""Schema"`)
		db.Exec(t, `CREATE TABLE "Odd ""Schema"."Out.Box" ("Key" text, mood text)`)
		db.Exec(t, `CREATE TABLE parts (id int, day date) PARTITION BY RANGE (day);
			CREATE TABLE parts_25 PARTITION OF parts FOR VALUES FROM ('2025-01-01') TO ('2026-01-01');
			CREATE TABLE parts_26 PARTITION OF parts FOR VALUES FROM ('2026-01-01') TO ('2027-01-01');
			CREATE TABLE other (id int)`)
		cfg := publish(t, db, wal.Table{Schema: `Odd "Schema`, Name: "Out.Box"}, wal.Table{Schema: "public", Name: "parts"}, wal.Table{Schema: "public", Name: "other"})
		cfg.Tables = cfg.Tables[:2]
		db.Exec(t, `BEGIN; INSERT INTO "Odd ""Schema"."Out.Box" VALUES ('a', NULL); INSERT INTO other VALUES (1);
			INSERT INTO parts VALUES (1, '2025-06-01'), (2, '2026-06-01'); COMMIT`)
		r := read(t, cfg)
		var got []string
		foreign := 0
		for len(got) < 3 {
			b, err := r.next()
			if b == nil {
				t.Fatal(err)
			}
			foreign += b.Foreign
			for i := range b.Rows {
				row := &b.Rows[i]
				got = append(got, fmt.Sprintf("%d#%d %s", row.Relation.Table, row.Ordinal, row.Values[0].Data))
			}
			r.settle(b)
		}
		same(t, got, "0#1 a", "1#3 1", "1#4 2")
		if foreign != 1 {
			t.Errorf("%d foreign rows", foreign)
		}
	})
}

func TestPostgresShapeChangesInMidStream(t *testing.T) {
	db := harness.Postgres(t)
	cfg := orders(t, db)
	r := read(t, cfg)
	db.Exec(t, "INSERT INTO outbox (aggregate_id) VALUES ('1')")
	db.Exec(t, "ALTER TABLE outbox ADD extra text DEFAULT 'e'")
	db.Exec(t, "INSERT INTO outbox (aggregate_id) VALUES ('2')")
	db.Exec(t, "ALTER TABLE outbox RENAME aggregate_id TO agg")
	db.Exec(t, "INSERT INTO outbox (agg) VALUES ('3')")
	db.Exec(t, "ALTER TABLE outbox DROP extra")
	db.Exec(t, "INSERT INTO outbox (agg) VALUES ('4')")
	var got []string
	relations := map[*wal.Relation]bool{}
	for len(got) < 4 {
		b, err := r.next()
		if b == nil {
			t.Fatal(err)
		}
		for i := range b.Rows {
			row := &b.Rows[i]
			relations[row.Relation] = true
			got = append(got, fmt.Sprint(columnOf(row, "aggregate_id"), "/", columnOf(row, "agg"), "/", columnOf(row, "extra")))
		}
		r.settle(b)
	}
	same(t, got, "1/no column agg/no column extra", "2/no column agg/e", "no column aggregate_id/3/e", "no column aggregate_id/4/no column extra")
	if len(relations) != 4 {
		t.Errorf("%d shapes", len(relations))
	}
	db.Exec(t, "ALTER TABLE outbox RENAME TO attic")
	db.Exec(t, "INSERT INTO attic (agg) VALUES ('5')")
	err := r.failure()
	if postgres.KindOf(err) != fault.KindDrift || !strings.Contains(err.Error(), `"attic"`) || !strings.Contains(err.Error(), "public.outbox") {
		t.Errorf("got %v", err)
	}
}

func TestPostgresReplacedTableIsDrift(t *testing.T) {
	db := harness.Postgres(t)
	cfg := orders(t, db)
	db.Exec(t, "INSERT INTO outbox (aggregate_id) VALUES ('of the first')")
	db.Exec(t, "DROP TABLE outbox; CREATE TABLE outbox (id int, aggregate_id text)")
	db.Exec(t, "ALTER PUBLICATION "+wal.QuoteIdentifier(cfg.Publication)+" ADD TABLE outbox")
	if err := read(t, cfg).failure(); postgres.KindOf(err) != fault.KindDrift || !strings.Contains(err.Error(), "OID") {
		t.Errorf("got %v", err)
	}
}

func TestPostgresCloseLeavesTheSlotAtTheConfirmedPosition(t *testing.T) {
	harness.EachPostgres(t, func(t *testing.T, db *harness.Database) {
		t.Parallel()
		cfg := orders(t, db)
		r := read(t, cfg)
		db.Exec(t, "INSERT INTO outbox (aggregate_id) SELECT n FROM generate_series(1, 100) n")
		r.texts(100, "aggregate_id")
		r.stop()
		if err := r.failure(); err != nil {
			t.Fatal(err)
		}
		if err := r.stream.Close(t.Context(), r.position()); err != nil {
			t.Fatal(err)
		}
		slot := harness.Query[string](t, db, "SELECT confirmed_flush_lsn::text FROM pg_replication_slots WHERE slot_name = $1", cfg.Slot)
		if slot != r.position().String() {
			t.Errorf("slot at %s, confirmed %s", slot, r.position())
		}
		db.Exec(t, "INSERT INTO outbox (aggregate_id) VALUES ('next')")
		same(t, read(t, cfg).texts(1, "aggregate_id"), "next")
	})
}

func TestPostgresIdleSlotFollowsTheTip(t *testing.T) {
	harness.EachPostgres(t, func(t *testing.T, db *harness.Database) {
		t.Parallel()
		cfg := orders(t, db)
		db.Exec(t, "CREATE TABLE noise (t text)")
		r := read(t, cfg)
		db.Exec(t, "INSERT INTO noise SELECT repeat('n', 1000) FROM generate_series(1, 20000)")
		tip, err := wal.ParseLSN(harness.Query[string](t, db, "SELECT pg_current_wal_flush_lsn()::text"))
		if err != nil {
			t.Fatal(err)
		}
		for r.position() < tip {
			b, err := r.next()
			if b == nil {
				t.Fatal(err)
			}
			r.settle(b)
		}
	})
}

func TestPostgresFastStopIsNotHeldUp(t *testing.T) {
	t.Parallel()
	for name, confirm := range map[string]bool{"everything confirmed": true, "Kafka is unreachable": false} {
		t.Run(name, func(t *testing.T) {
			db := harness.OwnPostgres(t, sandbox.PostgresOptions{})
			cfg := orders(t, db)
			cfg.WalSenderTimeout = 2 * time.Minute // which is not to end it
			r := readWith(t, cfg, Options{ShutdownGrace: 2 * time.Second})
			db.Exec(t, "INSERT INTO outbox (aggregate_id) VALUES ('1')")
			ended := make(chan error, 1)
			go func() {
				for {
					b, err := r.next()
					if b == nil {
						ended <- err
						return
					}
					if confirm {
						r.settle(b)
					}
				}
			}()
			began := time.Now()
			if err := db.Server.Stop(t.Context(), sandbox.Fast); err != nil {
				t.Fatal(err)
			}
			took := time.Since(began)
			t.Logf("the stop took %s", took)
			const limit = 50 * time.Second // a server that waits for the relay gives it up after 60; most of this is for a checkpoint on a busy machine
			if took >= limit {
				t.Errorf("it took %s, want less than %s", took, limit)
			}
			if err := <-ended; postgres.KindOf(err) != fault.KindRetry || postgres.Reason(err) != fault.ReasonServerShutdown {
				t.Errorf("got %v", err)
			}
		})
	}
}

func TestPostgresSlowConsumerKeepsItsConnection(t *testing.T) {
	t.Parallel()
	db := harness.Postgres(t)
	cfg := orders(t, db)
	cfg.WalSenderTimeout = 7 * time.Second // a busy machine keeps either from the other for some seconds
	db.Exec(t, "INSERT INTO outbox (aggregate_id, payload) SELECT n, to_jsonb(repeat('x', 500)) FROM generate_series(1, 60000) n")
	r := read(t, cfg)
	r.texts(1, "aggregate_id")
	<-time.After(9 * time.Second) // more than the server's patience
	if got := r.texts(50_000, "aggregate_id"); len(got) < 50_000 {
		t.Errorf("%d rows", len(got))
	}
}

func TestPostgresMissingPublicationIsNeverPassed(t *testing.T) {
	harness.EachPostgres(t, func(t *testing.T, db *harness.Database) {
		t.Parallel()
		cfg := orders(t, db)
		name := wal.QuoteIdentifier(cfg.Publication)
		db.Exec(t, "DROP PUBLICATION "+name)
		db.Exec(t, "INSERT INTO outbox (aggregate_id) VALUES ('in between')")
		db.Exec(t, "CREATE PUBLICATION "+name+" FOR TABLE outbox WITH (publish = 'insert')")
		db.Exec(t, "INSERT INTO outbox (aggregate_id) VALUES ('after')")
		r := read(t, cfg)
		err := r.failure()
		if postgres.Reason(err) != fault.ReasonPublicationMissing {
			t.Fatalf("got %v", err)
		}
		first := harness.Query[string](t, db, "SELECT confirmed_flush_lsn::text FROM pg_replication_slots WHERE slot_name = $1", cfg.Slot)
		if first != r.stream.StartLSN().String() {
			t.Errorf("slot moved from %s to %s", r.stream.StartLSN(), first)
		}
	})
}

func TestPostgresBusySlotIsBusy(t *testing.T) {
	db := harness.Postgres(t)
	cfg := orders(t, db)
	read(t, cfg)
	_, err := Open(t.Context(), cfg, Options{}, zerolog.Nop())
	var e *fault.Error
	if !errors.As(err, &e) || e.Kind != fault.KindBusy {
		t.Errorf("got %v", err)
	}
}
