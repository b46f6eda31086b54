package ends

import (
	"context"
	"database/sql"
	"errors"
	"iter"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"
	gormpostgres "gorm.io/driver/postgres"
	"gorm.io/gorm"

	"github.com/cdc-relay/cdc-relay/outbox"
	"github.com/cdc-relay/cdc-relay/outbox/pgxoutbox"
	"github.com/cdc-relay/cdc-relay/test/harness"
)

// OrderPlaced is the payload that the pages show.
type OrderPlaced struct {
	Total int `json:"total"`
}

var event = outbox.Event{AggregateType: "order", AggregateID: "o-1", Type: "OrderPlaced", Payload: OrderPlaced{Total: 12}}

func TestDocs_SnippetsAreRun(t *testing.T) {
	t.Parallel()
	shown := ""
	for _, file := range []string{"docs_test.go", "docs_consume_test.go", "redis_test.go", "metrics_test.go", "../../examples/dapr/main.go", "../../examples/dapr/cdc-relay.yaml", "../../examples/dapr/components/pubsub.yaml", "../../examples/dapr/components/subscription.yaml", "../../examples/dapr/raw/subscription.yaml", "../../examples/typescript/kafkajs.ts", "../../examples/python/consume_async.py"} {
		source, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		shown += squeeze(string(source))
	}
	count := 0
	for _, page := range []string{"../../docs/writing.md", "../../outbox/README.md", "../../docs/consuming.md", "../../docs/dapr.md", "../../inbox/README.md"} {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		for _, block := range regexp.MustCompile("(?ms)^```(?:go|ts|yaml|python)\n(.*?)^```$").FindAllStringSubmatch(string(text), -1) {
			count++
			if !strings.Contains(shown, squeeze(block[1])) {
				t.Errorf("%s shows what no test runs:\n%s", page, block[1])
			}
		}
	}
	if count < 10 {
		t.Errorf("found %d snippets only", count)
	}
}

// squeeze is the text without indents and blank lines.
func squeeze(text string) string {
	var b strings.Builder
	for line := range strings.Lines(text) {
		if line = strings.TrimSpace(line); line != "" {
			b.WriteString(line + "\n")
		}
	}
	return b.String()
}

type setter func(key, value string)

func (s setter) Set(key, value string) { s(key, value) }
func (s setter) Get(string) string     { return "" }
func (s setter) Keys() []string        { return nil }

// readme leaves errors out, as its page does.
//
//nolint:ineffassign,staticcheck,wastedassign // as the page has it
func readme(ctx context.Context, pool *pgxpool.Pool, id string) error {
	writer, err := outbox.New(outbox.Config{}) // our own table, public.outbox

	tx, err := pool.Begin(ctx) // pgx
	defer tx.Rollback(ctx)
	_, err = tx.Exec(ctx, `INSERT INTO orders (id, total) VALUES ($1, $2)`, id, 12)
	_, err = writer.Write(ctx, pgxoutbox.Tx(tx), outbox.Event{
		AggregateType: "order", AggregateID: id, Type: "OrderPlaced",
		Payload:        OrderPlaced{Total: 12},
		IdempotencyKey: outbox.Key("order", id, "placed"),
	})
	err = tx.Commit(ctx)
	return err
}

func withPgx(ctx context.Context, writer *outbox.Writer, pool *pgxpool.Pool, id string) error {
	tx, err := pool.Begin(ctx)
	if err != nil {
		return err
	}
	defer tx.Rollback(ctx)
	if _, err := tx.Exec(ctx, `INSERT INTO orders (id, total) VALUES ($1, $2)`, id, 12); err != nil {
		return err
	}
	_, err = writer.Write(ctx, pgxoutbox.Tx(tx), outbox.Event{
		AggregateType: "order", AggregateID: id, Type: "OrderPlaced",
		Payload:        OrderPlaced{Total: 12},
		IdempotencyKey: outbox.Key("order", id, "placed"),
	})
	if err != nil {
		return err
	}
	return tx.Commit(ctx)
}

func withSQL(ctx context.Context, writer *outbox.Writer, db *sql.DB, id string) error {
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer tx.Rollback()
	if _, err := tx.ExecContext(ctx, `INSERT INTO orders (id, total) VALUES ($1, $2)`, id, 12); err != nil {
		return err
	}
	if _, err := writer.Write(ctx, outbox.SQL(tx), event); err != nil {
		return err
	}
	return tx.Commit()
}

// Order is a model of GORM.
type Order struct {
	ID    string
	Total int
}

func withGORM(ctx context.Context, writer *outbox.Writer, db *gorm.DB, order Order) error {
	return db.Transaction(func(db *gorm.DB) error {
		if err := db.Create(&order).Error; err != nil {
			return err
		}
		_, err := writer.Write(ctx, outbox.SQL(db.Statement.ConnPool), event)
		return err
	})
}

func several(ctx context.Context, writer *outbox.Writer, tx outbox.Tx, reserved, packed, shipped outbox.Event) error {
	_, err := writer.Write(ctx, tx, reserved, packed, shipped)
	return err
}

func otherTable() (*outbox.Writer, error) {
	shape := outbox.Debezium()
	shape.Payload.Type = "json"
	shape.Headers = outbox.Column{Name: "headers", Type: "jsonb", Nullable: true}
	writer, err := outbox.New(outbox.Config{Table: `sales."OutboxEvent"`, Shape: shape})
	return writer, err
}

func detected(ctx context.Context, pool *pgxpool.Pool) (writer *outbox.Writer, _ error) {
	err := pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) (err error) {
		writer, err = outbox.Detect(ctx, pgxoutbox.Tx(tx), outbox.Config{Table: "sales.outbox"})
		return err
	})
	return writer, err
}

func messages() (*outbox.Writer, error) {
	writer, err := outbox.New(outbox.Config{Store: outbox.Message, MessagePrefix: "shop"})
	return writer, err
}

func traced() (*outbox.Writer, error) {
	writer, err := outbox.New(outbox.Config{Trace: func(ctx context.Context, set func(key, value string)) {
		otel.GetTextMapPropagator().Inject(ctx, setter(set))
	}})
	return writer, err
}

var errDoneBefore = errors.New("done before")

func command(ctx context.Context, writer *outbox.Writer, tx outbox.Tx, event outbox.Event) error {
	_, err := writer.Write(ctx, tx, event)
	var duplicate *outbox.DuplicateError
	if errors.As(err, &duplicate) {
		return errDoneBefore // roll back: this command was done
	}
	return err
}

func keys(id, commandID string) (string, string, error) {
	key := outbox.Key("order", id, "placed", commandID)
	ours := key
	{
		key, err := outbox.PythonKey(id, "OrderCreated", []byte(`{"total": 12.0}`))
		return ours, key, err
	}
}

func load(ctx context.Context, writer *outbox.Writer, tx pgx.Tx, events iter.Seq2[outbox.Event, error]) (int64, error) {
	n, err := pgxoutbox.Copy(ctx, writer, tx, events) // iter.Seq2[outbox.Event, error]
	return n, err
}

func TestDocs_SnippetsDoWhatTheirPageSays(t *testing.T) {
	t.Parallel()
	e := start(t)
	ctx := t.Context()
	e.DB.Exec(t, `CREATE TABLE orders (id text PRIMARY KEY, total int)`)
	e.DB.Exec(t, `CREATE SCHEMA sales`)
	e.DB.Exec(t, `CREATE TABLE sales."OutboxEvent" (id uuid PRIMARY KEY, aggregatetype varchar(255) NOT NULL, aggregateid varchar(255) NOT NULL, type varchar(255) NOT NULL, payload json, headers jsonb)`)
	e.DB.Exec(t, `CREATE TABLE sales.outbox (id text PRIMARY KEY, aggregate_type text NOT NULL, aggregate_id text NOT NULL, event_type text NOT NULL, payload json NOT NULL)`)
	pool, err := pgxpool.New(ctx, e.DB.URL)
	if err != nil {
		t.Fatal(err)
	}
	defer pool.Close()
	db := open(t, "pgx", e.DB.URL)
	g, err := gorm.Open(gormpostgres.New(gormpostgres.Config{Conn: db}))
	if err != nil {
		t.Fatal(err)
	}
	w := writer(t, outbox.Config{})
	inTx := func(f func(tx pgx.Tx) error) error { return pgx.BeginFunc(ctx, pool, f) }
	keyed := event
	keyed.IdempotencyKey = "once"
	for name, run := range map[string]func() error{
		"readme": func() error { return readme(ctx, pool, "readme") },
		"pgx":    func() error { return withPgx(ctx, w, pool, "pgx") },
		"sql":    func() error { return withSQL(ctx, w, db, "sql") },
		"gorm":   func() error { return withGORM(ctx, w, g, Order{"gorm", 12}) },
		"several": func() error {
			return inTx(func(tx pgx.Tx) error { return several(ctx, w, pgxoutbox.Tx(tx), event, event, event) })
		},
		"command": func() error { return inTx(func(tx pgx.Tx) error { return command(ctx, w, pgxoutbox.Tx(tx), keyed) }) },
		"load": func() error {
			return inTx(func(tx pgx.Tx) error { n, err := load(ctx, w, tx, two); return expect(n == 2, err) })
		},
		"messages": func() error { w, err := messages(); return errors.Join(err, inTx(writes(ctx, w))) },
		"detected": func() error {
			w, err := detected(ctx, pool)
			return errors.Join(err, inTx(writes(ctx, w)))
		},
		"other": func() error {
			w, err := otherTable()
			return errors.Join(err, inTx(writes(ctx, w)))
		},
	} {
		if err := run(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := inTx(func(tx pgx.Tx) error { return command(ctx, w, pgxoutbox.Tx(tx), keyed) }); !errors.Is(err, errDoneBefore) {
		t.Errorf("the command again: %v", err)
	}
	if orders, rows := harness.Query[int](t, e.DB, "SELECT count(*)::int FROM orders"), harness.Query[int](t, e.DB, "SELECT count(*)::int FROM outbox"); orders != 4 || rows != 10 {
		t.Errorf("%d orders, %d events", orders, rows)
	}
	if n := harness.Query[int](t, e.DB, `SELECT count(*)::int FROM sales."OutboxEvent"`); n != 1 {
		t.Errorf("%d rows in the other table", n)
	}
	if n := harness.Query[int](t, e.DB, "SELECT count(*)::int FROM sales.outbox"); n != 1 {
		t.Errorf("%d rows in the table whose shape was found", n)
	}
	if ours, pythons, err := keys("o-1", "c-1"); ours != outbox.Key("order", "o-1", "placed", "c-1") || pythons == ours || err != nil {
		t.Error(ours, pythons, err)
	}
	otel.SetTextMapPropagator(propagation.TraceContext{})
	tracing, err := traced()
	if err != nil {
		t.Fatal(err)
	}
	span := trace.NewSpanContext(trace.SpanContextConfig{TraceID: trace.TraceID{1}, SpanID: trace.SpanID{2}})
	if err := inTx(writes(trace.ContextWithSpanContext(ctx, span), tracing)); err != nil {
		t.Fatal(err)
	}
	if n := harness.Query[int](t, e.DB, "SELECT count(*)::int FROM outbox WHERE traceparent LIKE '00-01%'"); n != 1 {
		t.Errorf("%d rows have the trace", n)
	}
}

func expect(holds bool, err error) error {
	if err == nil && !holds {
		return errors.New("it did something else")
	}
	return err
}

func writes(ctx context.Context, w *outbox.Writer) func(tx pgx.Tx) error {
	return func(tx pgx.Tx) error {
		_, err := w.Write(ctx, pgxoutbox.Tx(tx), event)
		return err
	}
}

func two(yield func(outbox.Event, error) bool) {
	for range 2 {
		if !yield(event, nil) {
			return
		}
	}
}
