package main

import (
	"context"
	"crypto/md5" //nolint:gosec // digits that do not repeat
	"encoding/hex"
	"errors"
	"fmt"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/cdc-relay/cdc-relay/migrations"
	"github.com/cdc-relay/cdc-relay/replication/wal"
)

// shape says what the rows of a backlog are like.
type shape struct {
	rows    int
	perTxn  int
	payload int // bytes of jsonb text
	topics  int
	wide    int // bytes of a further column that no mapping reads; 0: there is none
	events  int // event types, in turns; 0: one
}

// usual is the shape that the targets are about.
func usual(rows int) shape { return shape{rows: rows, perTxn: 10, payload: 285, topics: 4} }

func (s shape) String() string {
	text := fmt.Sprintf("%d rows of %d B, %d a transaction, %d topics", s.rows, s.payload, s.perTxn, s.topics)
	if s.wide > 0 {
		text += fmt.Sprintf(", and a column of %d B that the mapping does not read", s.wide)
	}
	return text
}

func (s shape) megabytes() float64 { return float64(s.rows) * float64(s.payload) / 1e6 }

func (s shape) topicNames() []string {
	names := make([]string, s.topics)
	for i := range names {
		names[i] = fmt.Sprintf("bench%d-events", i)
	}
	return names
}

// keys is how many there are: a multiple of every number of topics, so that a key
// lies in one topic.
const keys = 10_000

// workload is a backlog in a database of its own. Every contestant reads it from
// a copy of the one slot that was made before the first row, so all of them read
// the very same WAL.
type workload struct {
	shape
	b        *bench
	database string
	conn     *pgx.Conn
	end      wal.LSN // after the last row
	probes   int     // rows that were written one by one
}

const (
	baseSlot    = "bench_base"
	publication = "bench"
	listed      = "bench_listed" // with a column list
)

// widen adds a column that no mapping reads, and a publication of those that
// `setup --column-list` would name. The column lies in the row as it is, neither
// compressed nor moved out, so the WAL has all of it for either publication.
func widen(size int) string {
	return fmt.Sprintf(`
		ALTER TABLE outbox ADD COLUMN snapshot text DEFAULT '%s';
		ALTER TABLE outbox ALTER COLUMN snapshot SET STORAGE PLAIN;
		DO $$ BEGIN
			IF current_setting('server_version_num')::int >= 150000 THEN
				EXECUTE 'CREATE PUBLICATION %s FOR TABLE outbox (id, aggregate_type, aggregate_id, event_type, payload, idempotency_key) WITH (publish = ''insert'')';
			END IF;
		END $$`, strings.Repeat("0123456789abcdef", size/16), listed)
}

// schema goes behind the table that the poller can use too: a publication, those of 2 and of 4 shards, and a procedure that writes rows. The
// payload is a small order, filled up to its size with hexadecimal digits that do
// not repeat.
const schema = `
CREATE PUBLICATION bench FOR TABLE outbox WITH (publish = 'insert');
DO $$ BEGIN
	IF current_setting('server_version_num')::int >= 150000 THEN
		FOR n IN 2..4 BY 2 LOOP FOR i IN 0..n - 1 LOOP
			EXECUTE format('CREATE PUBLICATION bench_%s_%s FOR TABLE outbox WHERE ((COALESCE(uuid_hash(aggregate_id), 0) & 2147483647) %% %s = %s) WITH (publish = ''insert'')', n, i, n, i);
		END LOOP; END LOOP;
	END IF;
END $$;
CREATE FUNCTION bench_digits(i bigint, size int) RETURNS text LANGUAGE sql AS $$
	SELECT left(string_agg(md5((i * 7919 + j)::text), ''), size) FROM generate_series(0, size / 32) j $$;
CREATE FUNCTION bench_payload(i bigint, size int) RETURNS jsonb LANGUAGE sql AS $$
	SELECT CASE WHEN size < 180 THEN jsonb_build_object('n', i, 'note', bench_digits(i, greatest(1, size - 25)))
	ELSE jsonb_build_object('n', i, 'state', 'placed', 'customer', 'c-' || i % 10000, 'currency', 'EUR', 'total', i * 37 % 100000,
		'lines', jsonb_build_array(jsonb_build_object('sku', 'sku-' || i * 7 % 5000, 'quantity', 1 + i % 9, 'price', i * 13 % 10000)),
		'note', bench_digits(i, size - 160)) END $$;
CREATE FUNCTION bench_rows(first bigint, last bigint, size int, topics int) RETURNS void LANGUAGE sql AS $$
	INSERT INTO outbox (id, aggregate_type, aggregate_id, event_type, payload)
	SELECT ('00000000-0000-7000-8000-' || lpad(to_hex(i), 12, '0'))::uuid,
	       'bench' || (i % topics),
	       ('00000000-0000-4000-8000-' || lpad(to_hex(i % 10000), 12, '0'))::uuid,
	       'Changed', bench_payload(i, size)
	FROM generate_series(first, last) i $$;
CREATE PROCEDURE bench_fill(total bigint, each bigint, size int, topics int) LANGUAGE plpgsql AS $$
BEGIN
	FOR at IN 1..total BY each LOOP
		PERFORM bench_rows(at, least(at + each - 1, total), size, topics);
		COMMIT;
	END LOOP;
END $$`

// functions is schema with the event types of the shape.
func (s shape) functions() string {
	if s.events == 0 {
		return schema
	}
	return strings.Replace(schema, "'Changed'", fmt.Sprintf("'Changed' || i %% %d", s.events), 1)
}

// fill makes a database, the slot and the rows.
func (b *bench) fill(ctx context.Context, name string, s shape) (*workload, error) {
	w := &workload{shape: s, b: b, database: name}
	if err := w.create(ctx); err != nil {
		return nil, err
	}
	began := time.Now()
	if _, err := w.conn.Exec(ctx, "SELECT pg_create_logical_replication_slot($1, 'pgoutput')", baseSlot+"_"+name); err != nil {
		return nil, err
	}
	// Only for the backlog: rows are sent once their WAL is flushed, which the
	// checkpoint sees to.
	for _, sql := range []string{
		"SET synchronous_commit = off",
		fmt.Sprintf("CALL bench_fill(%d, %d, %d, %d)", s.rows, s.perTxn, s.payload, s.topics),
		"SET synchronous_commit = on", "CHECKPOINT", "VACUUM ANALYZE outbox",
	} {
		if sql == "CHECKPOINT" { // whose records come after the last row's commit
			if err := w.mark(ctx); err != nil {
				return nil, err
			}
		}
		if _, err := w.conn.Exec(ctx, sql); err != nil {
			return nil, fmt.Errorf("%s: %w", sql, err)
		}
	}
	fmt.Printf("   wrote %s in %.0f s\n", s, time.Since(began).Seconds())
	return w, nil
}

func (w *workload) create(ctx context.Context) error {
	admin, err := pgx.Connect(ctx, w.b.pg.URL("postgres"))
	if err != nil {
		return err
	}
	defer admin.Close(ctx)
	if _, err := admin.Exec(ctx, "CREATE DATABASE "+pgx.Identifier{w.database}.Sanitize()); err != nil {
		return err
	}
	if w.conn, err = pgx.Connect(ctx, w.url()); err != nil {
		return err
	}
	ddl, err := migrations.Table(migrations.Polling, "public", "outbox") // a polling publisher takes part
	if err != nil {
		return err
	}
	if _, err = w.conn.Exec(ctx, ddl+";"+w.functions()); err != nil || w.wide == 0 {
		return err
	}
	_, err = w.conn.Exec(ctx, widen(w.wide))
	return err
}

// mark notes the end of the last row's commit. A reader that had to get past it would wait for
// a message behind it, and so for all that others have written meanwhile.
func (w *workload) mark(ctx context.Context) error {
	var text string
	if err := w.conn.QueryRow(ctx, "SELECT pg_current_wal_insert_lsn()::text").Scan(&text); err != nil {
		return err
	}
	var err error
	w.end, err = wal.ParseLSN(text)
	return err
}

// url is in clear text: the server has a certificate, and a client would take TLS if it may.
func (w *workload) url() string {
	address := w.b.pg.URL(w.database)
	at, err := url.Parse(address)
	if err != nil {
		return address // whoever connects says so
	}
	at.RawQuery = url.Values{"sslmode": {"disable"}}.Encode()
	return at.String()
}

// newName is that of a slot that the run has not had: databases are made anew, and what
// brokers remember of a slot would be of another one.
func (w *workload) newName() string {
	w.b.slots++
	return fmt.Sprintf("%s_%s_%d", publication, w.database, w.b.slots)
}

// slot gives a copy of the slot as it stood before the first row.
func (w *workload) slot(ctx context.Context) (string, error) {
	name := w.newName()
	_, err := w.conn.Exec(ctx, "SELECT pg_copy_logical_replication_slot($1, $2)", baseSlot+"_"+w.database, name)
	return name, err
}

// freshSlot gives one that stands at the end.
func (w *workload) freshSlot(ctx context.Context) (string, error) {
	name := w.newName()
	_, err := w.conn.Exec(ctx, "SELECT pg_create_logical_replication_slot($1, 'pgoutput')", name)
	return name, err
}

// drop removes a slot once its reader let go of it.
func (w *workload) drop(ctx context.Context, slot string) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 30*time.Second)
	defer cancel()
	for {
		_, err := w.conn.Exec(ctx, "SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots WHERE slot_name = $1", slot)
		if err == nil || !strings.Contains(err.Error(), "is active") {
			return err
		}
		_, _ = w.conn.Exec(ctx, "SELECT pg_terminate_backend(active_pid) FROM pg_replication_slots WHERE slot_name = $1 AND active_pid IS NOT NULL", slot)
		if !pause(ctx, 20*time.Millisecond) {
			return err
		}
	}
}

// close removes the database, so that the next backlog has the disk and the WAL.
func (w *workload) close(ctx context.Context) error {
	ctx = context.WithoutCancel(ctx)
	err := w.drop(ctx, baseSlot+"_"+w.database)
	w.conn.Close(ctx)
	admin, connectErr := pgx.Connect(ctx, w.b.pg.URL("postgres"))
	if connectErr != nil {
		return errors.Join(err, connectErr)
	}
	defer admin.Close(ctx)
	_, dropErr := admin.Exec(ctx, "DROP DATABASE "+pgx.Identifier{w.database}.Sanitize()+" WITH (FORCE)")
	return errors.Join(err, dropErr)
}

func pause(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// order is a payload like those of bench_payload, made by the writer as an application
// does it: to have the server make it would cost more than to insert it.
func order(n int64) string {
	head := fmt.Sprintf(`{"n": %d, "state": "placed", "customer": "c-%d", "currency": "EUR", "total": %d, `+
		`"lines": [{"sku": "sku-%d", "quantity": %d, "price": %d}], "note": "`, n, n%10000, n*37%100000, n*7%5000, 1+n%9, n*13%10000)
	digits := make([]byte, 0, 128)
	for i := n * 7919; len(digits) < 125; i++ {
		sum := md5.Sum(strconv.AppendInt(nil, i, 10)) //nolint:gosec // digits that do not repeat
		digits = hex.AppendEncode(digits, sum[:])
	}
	return head + string(digits[:125]) + `"}`
}

// aggregate is one of ten thousand keys.
func aggregate(n int64) string { return fmt.Sprintf("00000000-0000-4000-8000-%012x", n%10000) }
