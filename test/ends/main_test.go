package ends

import (
	"context"
	"database/sql"
	"os"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	_ "github.com/jackc/pgx/v5/stdlib" // registers pgx
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/cdc-relay/cdc-relay/config"
	"github.com/cdc-relay/cdc-relay/migrations"
	"github.com/cdc-relay/cdc-relay/outbox"
	"github.com/cdc-relay/cdc-relay/outbox/pgxoutbox"
	"github.com/cdc-relay/cdc-relay/sandbox"
	"github.com/cdc-relay/cdc-relay/test/harness"
	"github.com/cdc-relay/cdc-relay/test/harness/relaytest"
)

// lanes is how many tests run at a time: they mostly wait, and each has a database and topics of
// its own. What has to be done within a time is not parallel and runs alone, before the others.
const lanes = "4"

func TestMain(m *testing.M) {
	if os.Getenv(childVariable) != "" {
		runChild()
	}
	harness.Parallel(lanes)
	harness.Main(m)
}

// left is harness.Left with the brokers as one more choice.
func left(brokers *harness.Brokers, numbers ...int) bool {
	if brokers.Fake == nil {
		numbers = append(numbers, 1)
	}
	return harness.Left(numbers...)
}

// end is a database with our own table, brokers, and a relay that is set up between them.
type end struct {
	*relaytest.Pipeline
	conn  *pgx.Conn
	kind  string // aggregate type that no other test has
	topic string
}

func start(t *testing.T, more ...string) *end {
	t.Helper()
	return startWith(t, "{table: public.outbox}", more...)
}

func startWith(t *testing.T, table string, more ...string) *end {
	t.Helper()
	e := &end{kind: harness.Unique(t, "order")}
	e.topic = e.kind + "-events"
	db, brokers := harness.Postgres(t), harness.Kfake(t, sandbox.KafkaOptions{})
	e.Pipeline = relaytest.New(t, db, brokers, []string{table}, more...)
	e.Setup(t)
	brokers.CreateTopic(t, e.topic, 3)
	e.conn = db.Connect(t)
	return e
}

// placed is an event of the test's own kind.
func (e *end) placed(id string, payload any) outbox.Event {
	return outbox.Event{AggregateType: e.kind, AggregateID: id, Type: "OrderPlaced", Payload: payload}
}

// relayed are the records of everything that is committed now.
func (e *end) relayed(t *testing.T) []*kgo.Record {
	t.Helper()
	running := e.Start(t)
	running.AwaitStreaming(t)
	e.AwaitCaughtUp(t)
	running.Stop(t)
	return e.Brokers.Read(t, e.topic)
}

// inTx runs f in a transaction of pgx and commits.
func (e *end) inTx(t *testing.T, f func(ctx context.Context, tx pgx.Tx) error) {
	t.Helper()
	if err := pgx.BeginFunc(t.Context(), e.conn, func(tx pgx.Tx) error { return f(t.Context(), tx) }); err != nil {
		t.Fatal(err)
	}
}

func (e *end) write(t *testing.T, w *outbox.Writer, events ...outbox.Event) outbox.Written {
	t.Helper()
	var written outbox.Written
	e.inTx(t, func(ctx context.Context, tx pgx.Tx) (err error) {
		written, err = w.Write(ctx, pgxoutbox.Tx(tx), events...)
		return err
	})
	return written
}

func writer(t testing.TB, cfg outbox.Config) *outbox.Writer {
	t.Helper()
	w, err := outbox.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return w
}

func open(t testing.TB, driver, url string) *sql.DB {
	t.Helper()
	db, err := sql.Open(driver, url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	return db
}

// text is a record, a line for each part of it.
func text(record *kgo.Record) string {
	lines := []string{"key " + string(record.Key)}
	if record.Key == nil {
		lines[0] = "no key"
	}
	for _, header := range record.Headers {
		lines = append(lines, header.Key+" "+string(header.Value))
	}
	value := string(record.Value)
	if record.Value == nil {
		value = "null"
	}
	return strings.Join(append(lines, value), "\n")
}

// rewritten is the pipeline with a line of its configuration changed.
func (e *end) rewritten(t *testing.T, old, replacement string) *relaytest.Pipeline {
	t.Helper()
	if !strings.Contains(e.YAML, old) {
		t.Fatalf("no line %q in\n%s", old, e.YAML)
	}
	e.YAML = strings.Replace(e.YAML, old, replacement, 1)
	cfg, err := config.Load(config.Options{Path: "test.yaml", Environ: []string{}, ReadFile: func(string) ([]byte, error) { return []byte(e.YAML), nil }})
	if err != nil {
		t.Fatal(err)
	}
	e.Config = cfg
	return e.Pipeline
}

// table is the SQL of our own.
func table(t testing.TB) string {
	t.Helper()
	up, err := migrations.Table("outbox", "public", "outbox")
	if err != nil {
		t.Fatal(err)
	}
	return up
}
