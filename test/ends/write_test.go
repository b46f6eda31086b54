package ends

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"

	"github.com/cdc-relay/cdc-relay/outbox"
	"github.com/cdc-relay/cdc-relay/outbox/pgxoutbox"
	"github.com/cdc-relay/cdc-relay/test/harness"
)

func TestWrite_CommitsWithTheRowOrNotAtAll(t *testing.T) {
	t.Parallel()
	e, w := start(t), writer(t, outbox.Config{})
	harness.Query[int](t, e.DB, "SELECT 1")
	e.DB.Exec(t, "CREATE TABLE orders (id text PRIMARY KEY)")
	for _, id := range []string{"rolled back", "committed"} {
		tx, err := e.conn.Begin(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if _, err := tx.Exec(t.Context(), "INSERT INTO orders VALUES ($1)", id); err != nil {
			t.Fatal(err)
		}
		event := e.placed(id, map[string]any{"n": 1, "quote": `"'\é😀{},`})
		event.Headers = map[string]string{"tenant": `a"b`}
		event.IdempotencyKey = outbox.Key(id)
		if _, err := w.Write(t.Context(), pgxoutbox.Tx(tx), event); err != nil {
			t.Fatal(err)
		}
		if id == "committed" {
			err = tx.Commit(t.Context())
		} else {
			err = tx.Rollback(t.Context())
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	records := e.relayed(t)
	if len(records) != 1 {
		t.Fatalf("%d records", len(records))
	}
	id := harness.Query[string](t, e.DB, "SELECT id::text FROM outbox")
	want := "key committed\nid " + id + "\neventType OrderPlaced\nidempotency_key " + outbox.Key("committed") + "\ntenant a\"b\n" + `{"n": 1, "quote": "\"'\\é😀{},"}`
	if got := text(records[0]); got != want {
		t.Errorf("%s\nwant\n%s", got, want)
	}
}

func TestWrite_KeepsOrderOfAKeyWithinATransaction(t *testing.T) {
	t.Parallel()
	e, w := start(t), writer(t, outbox.Config{})
	var events []outbox.Event
	for i := range 2500 {
		events = append(events, e.placed(fmt.Sprint("o-", i%3), []byte(fmt.Sprint(i))))
	}
	e.write(t, w, events...)
	last := map[string]int{}
	records := e.relayed(t)
	for _, r := range records {
		var n int
		if _, err := fmt.Sscan(string(r.Value), &n); err != nil {
			t.Fatal(err)
		}
		if before, seen := last[string(r.Key)]; seen && n != before+3 {
			t.Fatalf("key %s: %d behind %d", r.Key, n, before)
		}
		last[string(r.Key)] = n
	}
	if len(records) != len(events) {
		t.Errorf("%d records of %d", len(records), len(events))
	}
}

func TestWrite_DuplicateLeavesTheTransactionUsable(t *testing.T) {
	t.Parallel()
	e, w := start(t), writer(t, outbox.Config{})
	event := func(key string) outbox.Event {
		event := e.placed("o-1", 1)
		event.IdempotencyKey = key
		return event
	}
	e.write(t, w, event("first"))
	e.inTx(t, func(ctx context.Context, tx pgx.Tx) error {
		_, err := w.Write(ctx, pgxoutbox.Tx(tx), event("second"), event("first"), event(""), event("second"))
		var duplicate *outbox.DuplicateError
		if !errors.As(err, &duplicate) || fmt.Sprint(duplicate.Indexes) != "[1 3]" {
			t.Errorf("%v", err)
		}
		_, err = w.Write(ctx, pgxoutbox.Tx(tx), event("first"))
		if !errors.As(err, &duplicate) || fmt.Sprint(duplicate.Indexes) != "[0]" {
			t.Errorf("%v", err)
		}
		_, err = tx.Exec(ctx, "SELECT 1")
		return err
	})
	if n := harness.Query[int](t, e.DB, "SELECT count(*)::int FROM outbox"); n != 3 {
		t.Errorf("%d rows", n)
	}
}

func TestWrite_DuplicatesWhereTheDatabaseMakesTheIDs(t *testing.T) {
	t.Parallel()
	e := start(t)
	e.DB.Exec(t, "CREATE TABLE numbered (id bigserial PRIMARY KEY, event_type text NOT NULL, payload jsonb NOT NULL, idempotency_key text UNIQUE)")
	shape := outbox.GenericSimple()
	shape.IdempotencyKey = outbox.Column{Name: "idempotency_key", Type: "text", Nullable: true}
	w := writer(t, outbox.Config{Table: "numbered", Shape: shape, SkipDuplicates: true})
	event := func(key string) outbox.Event {
		return outbox.Event{Type: "T", Payload: 1, IdempotencyKey: key}
	}
	e.write(t, w, event("a"))
	if written := e.write(t, w, event(""), event("a"), event("b"), event("")); fmt.Sprint(written.Duplicates) != "[1]" || written.IDs != nil {
		t.Errorf("%+v", written)
	}
}

func TestWrite_ConcurrentWritersOfAKeyWriteOne(t *testing.T) {
	t.Parallel()
	e, w := start(t), writer(t, outbox.Config{})
	pool, err := pgxpool.New(t.Context(), e.DB.URL)
	if err != nil {
		t.Fatal(err)
	}
	defer pool.Close()
	for _, level := range []pgx.TxIsoLevel{pgx.ReadCommitted, pgx.RepeatableRead, pgx.Serializable} {
		var wait sync.WaitGroup
		var mu sync.Mutex
		outcomes := map[string]int{}
		key := outbox.Key(string(level))
		for range 50 {
			wait.Go(func() {
				event := e.placed("o-1", 1)
				event.IdempotencyKey = key
				outcome := "written"
				err := pgx.BeginTxFunc(t.Context(), pool, pgx.TxOptions{IsoLevel: level}, func(tx pgx.Tx) error {
					_, err := w.Write(t.Context(), pgxoutbox.Tx(tx), event)
					return err
				})
				var duplicate *outbox.DuplicateError
				switch {
				case errors.As(err, &duplicate):
					outcome = "duplicate"
				case outbox.Retryable(err):
					outcome = "again"
				case err != nil:
					outcome = err.Error()
				}
				mu.Lock()
				defer mu.Unlock()
				outcomes[outcome]++
			})
		}
		wait.Wait()
		if outcomes["written"] != 1 || outcomes["duplicate"]+outcomes["again"] != 49 || level == pgx.ReadCommitted && outcomes["again"] > 0 {
			t.Errorf("%s: %v", level, outcomes)
		}
	}
}

func TestWrite_DeleteRowIsSentAndLeavesNothing(t *testing.T) {
	t.Parallel()
	e, w := start(t), writer(t, outbox.Config{Store: outbox.DeleteRow})
	kept := writer(t, outbox.Config{})
	e.write(t, kept, e.placed("o-1", "kept"))
	e.write(t, w, e.placed("o-1", "a"))
	e.write(t, w, e.placed("o-1", "b"), e.placed("o-1", "c"))
	db := open(t, "pgx", e.DB.URL)
	tx, err := db.BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.Write(t.Context(), outbox.SQL(tx), e.placed("o-1", "d"), e.placed("o-1", "e")); err != nil {
		t.Fatal(err)
	}
	if err := tx.Commit(); err != nil {
		t.Fatal(err)
	}
	if n := harness.Query[int](t, e.DB, "SELECT count(*)::int FROM outbox"); n != 1 {
		t.Errorf("%d rows", n)
	}
	var values []string
	for _, r := range e.relayed(t) {
		values = append(values, string(r.Value))
	}
	if got := strings.Join(values, " "); got != `"kept" "a" "b" "c" "d" "e"` {
		t.Error(got)
	}
}

func TestWrite_MessageIsSentOnlyIfCommitted(t *testing.T) {
	t.Parallel()
	e := startWith(t, "{message_prefix: shop}")
	w := writer(t, outbox.Config{Store: outbox.Message, MessagePrefix: "shop"})
	tx, err := e.conn.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.Write(t.Context(), pgxoutbox.Tx(tx), e.placed("o-1", "rolled back")); err != nil {
		t.Fatal(err)
	}
	if err := tx.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	event := e.placed(`o "1"`, map[string]any{"<&>": `\"é😀`})
	event.Headers, event.IdempotencyKey = map[string]string{"tenant": "<acme>"}, "k-1"
	first := e.write(t, w, event)
	second := e.write(t, w, e.placed("o-1", 1), e.placed("o-1", 2), e.placed("o-1", nil))
	records := e.relayed(t)
	if len(records) != 4 {
		t.Fatalf("%d records", len(records))
	}
	got := map[string]string{}
	for _, r := range records {
		got[string(r.Headers[0].Value)] = text(r)
	}
	for id, want := range map[outbox.UUID]string{
		first.IDs[0]:  "key o \"1\"\nid " + first.IDs[0].String() + "\neventType OrderPlaced\nidempotency_key k-1\ntenant <acme>\n" + `{"\u003c\u0026\u003e":"\\\"é😀"}`,
		second.IDs[0]: "key o-1\nid " + second.IDs[0].String() + "\neventType OrderPlaced\n1",
		second.IDs[1]: "key o-1\nid " + second.IDs[1].String() + "\neventType OrderPlaced\n2",
		second.IDs[2]: "key o-1\nid " + second.IDs[2].String() + "\neventType OrderPlaced\nnull",
	} {
		if got[id.String()] != want {
			t.Errorf("%s\nwant\n%s", got[id.String()], want)
		}
	}
}

// carrier is how a propagator of OpenTelemetry writes into an event.
type carrier func(key, value string)

func (c carrier) Set(key, value string) { c(key, value) }
func (c carrier) Get(string) string     { return "" }
func (c carrier) Keys() []string        { return nil }

func TestWrite_TraceReachesTheRecord(t *testing.T) {
	t.Parallel()
	e := start(t)
	w := writer(t, outbox.Config{Trace: func(ctx context.Context, set func(key, value string)) {
		propagation.TraceContext{}.Inject(ctx, carrier(set))
	}})
	state, err := trace.ParseTraceState("vendor=a")
	if err != nil {
		t.Fatal(err)
	}
	span := trace.NewSpanContext(trace.SpanContextConfig{TraceID: trace.TraceID{1}, SpanID: trace.SpanID{2}, TraceFlags: trace.FlagsSampled})
	e.inTx(t, func(ctx context.Context, tx pgx.Tx) error {
		_, err := w.Write(ctx, pgxoutbox.Tx(tx), e.placed("o-1", 1))
		if err == nil {
			_, err = w.Write(trace.ContextWithSpanContext(ctx, span), pgxoutbox.Tx(tx), e.placed("o-1", 2))
		}
		if err == nil {
			_, err = w.Write(trace.ContextWithSpanContext(ctx, span.WithTraceState(state)), pgxoutbox.Tx(tx), e.placed("o-1", 3))
		}
		return err
	})
	const parent = "\ntraceparent 00-01000000000000000000000000000000-0200000000000000-01"
	records := e.relayed(t)
	for i, want := range []string{"\neventType OrderPlaced\n1", parent + "\n2", parent + "\ntracestate vendor=a\n3"} {
		if i >= len(records) || !strings.HasSuffix(text(records[i]), want) {
			t.Fatalf("%d records; the record at %d does not end with %s", len(records), i, want)
		}
	}
}

// What the writer refuses stops a relay when it is written by hand, and what it allows does not.
func TestWrite_RefusesWhatWouldBlockTheRelay(t *testing.T) {
	t.Parallel()
	const most = 4096
	e := start(t, "relay: {on_reject: skip, accept_loss: true}")
	e.Pipeline = e.rewritten(t, "  compression: none", fmt.Sprintf("  compression: none\n  max_message_bytes: %dKiB", most>>10))
	w := writer(t, outbox.Config{MaxBytes: most})
	byHand := func(event outbox.Event, payload string) {
		e.DB.Exec(t, "INSERT INTO outbox (aggregate_type, aggregate_id, event_type, payload) VALUES ($1, $2, $3, $4)", event.AggregateType, event.AggregateID, event.Type, payload)
	}
	refused := 0
	for _, kind := range []string{"", "an order", "é", strings.Repeat("a", 243), e.kind + "\n"} {
		event := e.placed("o-1", 1)
		event.AggregateType = kind
		if err := e.try(t, w, event); err == nil {
			t.Errorf("%q is allowed", kind)
		}
		byHand(event, "1")
		refused++
	}
	large := "[" + strings.Repeat("1,", most/2) + "1]"
	if err := e.try(t, w, e.placed("o-1", []byte(large))); err == nil {
		t.Error("a large record is allowed")
	}
	byHand(e.placed("o-1", nil), large)
	refused++

	allowed := 0
	for n := most - 400; n < most; n++ {
		payloads := []string{`"` + strings.Repeat("x", n) + `"`, "[" + strings.Repeat("1,", n/3) + "1]", fmt.Sprintf("[1e%d]", n)}
		if err := e.try(t, w, e.placed("o-1", []byte(payloads[n%3]))); err == nil {
			allowed++
		}
	}
	if allowed < 50 || allowed == 400 {
		t.Fatalf("%d of 400 are allowed: the test looks at the wrong sizes", allowed)
	}
	running := e.Start(t)
	running.AwaitStreaming(t)
	e.AwaitCaughtUp(t)
	st := running.Status()
	running.Stop(t)
	if records := e.Brokers.Read(t, e.topic); len(records) != allowed || int(st.EventsRejected) != refused {
		t.Errorf("%d records, want %d; %d rejected, want %d", len(records), allowed, st.EventsRejected, refused)
	}
}

// try writes in a transaction of its own, and fails the test where the server has to refuse.
func (e *end) try(t *testing.T, w *outbox.Writer, event outbox.Event) error {
	t.Helper()
	err := pgx.BeginFunc(t.Context(), e.conn, func(tx pgx.Tx) error {
		_, err := w.Write(t.Context(), pgxoutbox.Tx(tx), event)
		return err
	})
	var refused *outbox.EventError
	if err != nil && !errors.As(err, &refused) {
		t.Fatal(err)
	}
	return err
}

func TestCopy_LoadsEvents(t *testing.T) {
	t.Parallel()
	shape := outbox.Outbox()
	shape.Now = []string{"created_at"}
	e, w := start(t), writer(t, outbox.Config{Shape: shape})
	load := func(n int, fault error) (int64, error) {
		var copied int64
		err := pgx.BeginFunc(t.Context(), e.conn, func(tx pgx.Tx) (err error) {
			copied, err = pgxoutbox.Copy(t.Context(), w, tx, func(yield func(outbox.Event, error) bool) {
				for i := range n {
					event := e.placed(fmt.Sprint("o-", i), map[string]int{"n": i})
					event.IdempotencyKey = fmt.Sprint("k-", i)
					if i == 3 && fault != nil {
						event.AggregateType = "no topic"
					}
					if !yield(event, nil) {
						return
					}
				}
			})
			if err != nil {
				return err
			}
			var others int // with another time than that of Write, which is the server's
			if err := tx.QueryRow(t.Context(), "SELECT count(*) FROM outbox WHERE created_at <> now()").Scan(&others); err != nil || others > 0 {
				t.Errorf("%d rows have a time of their own; %v", others, err)
			}
			return nil
		})
		return copied, err
	}
	var refused *outbox.EventError
	if n, err := load(10, errors.New("a bad event")); !errors.As(err, &refused) || refused.Index != 3 || n != 0 {
		t.Errorf("%d, %v", n, err)
	}
	if n, err := load(3000, nil); err != nil || n != 3000 {
		t.Fatalf("%d, %v", n, err)
	}
	var table *outbox.TableError
	if _, err := load(1, nil); !errors.As(err, &table) || table.Code != "23505" || strings.Contains(err.Error(), "k-0") {
		t.Errorf("a key that is there: %v", err)
	}
	if records := e.relayed(t); len(records) != 3000 {
		t.Errorf("%d records", len(records))
	}
	deleting := writer(t, outbox.Config{Store: outbox.DeleteRow})
	if _, err := pgxoutbox.Copy(t.Context(), deleting, nil, nil); err == nil || errors.Is(err, outbox.ErrNoTransaction) {
		t.Errorf("a COPY that deletes is allowed: %v", err)
	}
	if _, err := pgxoutbox.Copy(t.Context(), writer(t, outbox.Config{}), nil, nil); !errors.Is(err, outbox.ErrNoTransaction) {
		t.Errorf("without a transaction: %v", err)
	}
}

func TestWrite_SaysWhatTheTableLacks(t *testing.T) {
	t.Parallel()
	e := start(t)
	for code, cfg := range map[string]outbox.Config{"42P01": {Table: "public.nothing"}, "42703": {Shape: outbox.Debezium()}} {
		err := pgx.BeginFunc(t.Context(), e.conn, func(tx pgx.Tx) error {
			_, err := writer(t, cfg).Write(t.Context(), pgxoutbox.Tx(tx), e.placed("o-1", 1))
			return err
		})
		var table *outbox.TableError
		if !errors.As(err, &table) || table.Code != code || !strings.Contains(err.Error(), "Config.") {
			t.Errorf("%s: %v", code, err)
		}
	}
}

// A key that no index takes is refused by the server alone; an index takes more of a text that it can compress.
func TestWrite_SaysThatAKeyIsTooLong(t *testing.T) {
	t.Parallel()
	e := start(t)
	long := make([]byte, 4000)
	for i := range long {
		long[i] = byte('!' + rand.IntN(90)) // cannot be compressed
	}
	event := e.placed("o-1", 1)
	event.IdempotencyKey = string(long)
	err := pgx.BeginFunc(t.Context(), e.conn, func(tx pgx.Tx) error {
		_, err := writer(t, outbox.Config{}).Write(t.Context(), pgxoutbox.Tx(tx), event)
		return err
	})
	var table *outbox.TableError
	if !errors.As(err, &table) || table.Code != "54000" || !strings.Contains(err.Error(), "outbox.Key") || strings.Contains(err.Error(), string(long[:20])) {
		t.Error(err)
	}
}

// A statement in a transaction that has ended would commit by itself, the event without what it announces.
func TestWrite_RefusesATransactionThatIsOver(t *testing.T) {
	t.Parallel()
	db := harness.Postgres(t)
	db.Exec(t, table(t))
	w, conn := writer(t, outbox.Config{}), db.Connect(t)
	event := outbox.Event{AggregateType: "order", AggregateID: "o-1", Type: "OrderPlaced", Payload: 1}
	for name, end := range overs {
		tx, err := conn.Begin(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if err := end(t.Context(), tx); err != nil {
			t.Fatal(err)
		}
		_, one := w.Write(t.Context(), pgxoutbox.Tx(tx), event)
		_, many := w.Write(t.Context(), pgxoutbox.Tx(tx), event, event)
		_, copied := pgxoutbox.Copy(t.Context(), w, tx, func(yield func(outbox.Event, error) bool) { yield(event, nil) })
		for _, err := range []error{one, many, copied} {
			if !errors.Is(err, outbox.ErrNoTransaction) {
				t.Errorf("%s: %v", name, err)
			}
		}
	}
	if n := harness.Query[int](t, db, "SELECT count(*)::int FROM outbox"); n != 0 {
		t.Errorf("%d events were written", n)
	}
}

// overs end a transaction of pgx.
var overs = map[string]func(context.Context, pgx.Tx) error{
	"committed":   func(ctx context.Context, tx pgx.Tx) error { return tx.Commit(ctx) },
	"rolled back": func(ctx context.Context, tx pgx.Tx) error { return tx.Rollback(ctx) },
	"ended by a statement": func(ctx context.Context, tx pgx.Tx) error {
		_, err := tx.Exec(ctx, "COMMIT")
		return err
	},
}
