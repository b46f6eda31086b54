package ends

import (
	"context"
	"database/sql"
	"encoding/json"
	"log/slog"
	"os"
	"regexp"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/cdc-relay/cdc-relay/inbox"
	"github.com/cdc-relay/cdc-relay/inbox/kafkainbox"
	"github.com/cdc-relay/cdc-relay/inbox/pgxinbox"
	"github.com/cdc-relay/cdc-relay/outbox"
	"github.com/cdc-relay/cdc-relay/outbox/pgxoutbox"
	"github.com/cdc-relay/cdc-relay/sandbox"
	"github.com/cdc-relay/cdc-relay/test/harness"
	"github.com/cdc-relay/cdc-relay/test/harness/relaytest"
)

func consumeGroup(ctx context.Context, brokers []string, pool *pgxpool.Pool) error {
	consumer, err := kafkainbox.New(kafkainbox.Config{
		Consumer: "billing", // in the table; no other handler has this name
		Brokers:  brokers,
		Topics:   []string{"order-events"},
		DB:       pool,
		Handle: func(ctx context.Context, tx pgx.Tx, record *kgo.Record) error {
			var placed OrderPlaced
			if err := json.Unmarshal(record.Value, &placed); err != nil {
				return kafkainbox.Permanent(err)
			}
			_, err := tx.Exec(ctx, `INSERT INTO invoices (order_id, total) VALUES ($1, $2)`, string(record.Key), placed.Total)
			return err
		},
		DeadLetterTopic: "billing.dead-letters",
		Logger:          slog.Default(),
	})
	if err != nil {
		return err
	}
	return consumer.Run(ctx)
}

func consumePipelined(ctx context.Context, brokers []string, pool *pgxpool.Pool) error {
	consumer, err := kafkainbox.New(kafkainbox.Config{
		Consumer: "billing", Brokers: brokers, Topics: []string{"order-events"}, DB: pool, Group: "pipelined",
		HandleRound: kafkainbox.Pipelined(func(batch *pgx.Batch, record *kgo.Record) error {
			var placed OrderPlaced
			if err := json.Unmarshal(record.Value, &placed); err != nil {
				return kafkainbox.Permanent(err)
			}
			batch.Queue(`INSERT INTO invoices (order_id, total) VALUES ($1, $2)`, string(record.Key), placed.Total)
			return nil
		}),
	})
	if err != nil {
		return err
	}
	return consumer.Run(ctx)
}

// consumeReadme leaves errors out, as its page does.
//
//nolint:ineffassign,staticcheck,wastedassign // as the page has it
func consumeReadme(ctx context.Context, brokers []string, pool *pgxpool.Pool) error {
	consumer, err := kafkainbox.New(kafkainbox.Config{
		Consumer: "billing", Brokers: brokers, Topics: []string{"order-events"}, DB: pool, // a pgxpool.Pool
		Handle: func(ctx context.Context, tx pgx.Tx, record *kgo.Record) error {
			_, err := tx.Exec(ctx, `INSERT INTO invoices (order_id, total) VALUES ($1, $2)`, string(record.Key), 12)
			return err
		},
	})
	err = consumer.Run(ctx)
	return err
}

func consumeOne(ctx context.Context, db *sql.DB, id, order string, seen func(inbox.Outcome)) error {
	box, err := inbox.New(inbox.Config{Consumer: "billing"})
	if err != nil {
		return err
	}
	outcome, err := box.OnceIn(ctx, db, inbox.ByID("order-events", id), func(ctx context.Context, tx *sql.Tx) error {
		_, err := tx.ExecContext(ctx, `INSERT INTO invoices (order_id, total) VALUES ($1, $2)`, order, 12)
		return err
	})
	seen(outcome)
	return err
}

func consumePgx(ctx context.Context, pool *pgxpool.Pool, box *inbox.Inbox, key, order string) error {
	err := pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
		_, err := box.Once(ctx, pgxinbox.Tx(tx), inbox.ByIdempotencyKey("order-events", key), func(ctx context.Context) error {
			_, err := tx.Exec(ctx, `INSERT INTO invoices (order_id, total) VALUES ($1, $2)`, order, 12)
			return err
		})
		return err
	})
	return err
}

func consumeAndWrite(ctx context.Context, tx pgx.Tx, writer *outbox.Writer, order, eventID string, invoice any) error {
	_, err := writer.Write(ctx, pgxoutbox.Tx(tx), outbox.Event{
		AggregateType: "invoice", AggregateID: order, Type: "InvoiceMade",
		Payload:        invoice,
		IdempotencyKey: outbox.Key("invoice", order, eventID),
	})
	return err
}

func TestDocs_ConsumersDoWhatTheirPageSays(t *testing.T) {
	t.Parallel()
	db, brokers := harness.Postgres(t), harness.Kfake(t, sandbox.KafkaOptions{})
	createInbox(t, db)
	db.Exec(t, "CREATE TABLE invoices (order_id text PRIMARY KEY, total int)")
	db.Exec(t, table(t))
	brokers.CreateTopic(t, "order-events", 2)
	brokers.CreateTopic(t, "billing.dead-letters", 1)
	client, err := kgo.NewClient(kgo.SeedBrokers(brokers.Addrs...), kgo.DefaultProduceTopic("order-events"))
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	send := func(id, order, value string) {
		if err := client.ProduceSync(t.Context(), &kgo.Record{Key: []byte(order), Value: []byte(value), Headers: []kgo.RecordHeader{{Key: "id", Value: []byte(id)}}}).FirstErr(); err != nil {
			t.Fatal(err)
		}
	}
	pool := newPool(t, db.URL, 6)
	for _, run := range []func(context.Context, []string, *pgxpool.Pool) error{consumePipelined, consumeGroup, consumeReadme} {
		for range 2 {
			send("1", "o-1", `{"total": 12}`)
			send("2", "o-2", `{"total": 13}`)
		}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- run(ctx, brokers.Addrs, pool) }()
		relaytest.Eventually(t, "two invoices", func() (bool, string) {
			return harness.Query[int](t, db, "SELECT count(*)::int FROM invoices") == 2, ""
		})
		<-time.After(100 * time.Millisecond)
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
	if total := harness.Query[int](t, db, "SELECT sum(total)::int FROM invoices"); total != 25 {
		t.Errorf("total %d", total)
	}
	send("3", "o-3", `no JSON`)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { done <- consumeGroup(ctx, brokers.Addrs, pool) }()
	relaytest.Eventually(t, "a dead letter", func() (bool, string) { return len(brokers.Read(t, "billing.dead-letters")) == 1, "" })
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}

	for _, want := range []inbox.Outcome{inbox.Handled, inbox.Duplicate} {
		err := consumeOne(t.Context(), open(t, "pgx", db.URL), "4", "o-4", func(got inbox.Outcome) {
			if got != want {
				t.Errorf("%v, want %v", got, want)
			}
		})
		if err != nil {
			t.Error(err)
		}
		if err := consumePgx(t.Context(), pool, newInbox(t, "billing"), "5", "o-5"); err != nil {
			t.Error(err)
		}
	}
	copiedKeys(t, db)
	send = func(id, order, value string) {
		record := &kgo.Record{Key: []byte(order), Value: []byte(value), Headers: []kgo.RecordHeader{{Key: "id", Value: []byte(id)}, {Key: "idempotency_key", Value: []byte("021bf1d1861a1a39e64c53fe459f5370")}}}
		if key, err := kafkainbox.KeyOf(&kgo.Record{Topic: "order-events", Headers: record.Headers}); err != nil || harness.Query[int](t, db, "SELECT count(*)::int FROM inbox WHERE consumer = 'billing' AND key = $1", key.String()) != 1 {
			t.Errorf("the copied key is not that of the record (%v)", err)
		}
	}
	send("6", "o-6", `{"total": 1}`)
	w := writer(t, outbox.Config{})
	if err := pgx.BeginFunc(t.Context(), pool, func(tx pgx.Tx) error { return consumeAndWrite(t.Context(), tx, w, "o-5", "5", 1) }); err != nil {
		t.Error(err)
	}
	if n := harness.Query[int](t, db, "SELECT (SELECT count(*) FROM invoices)::int + (SELECT count(*) FROM outbox)::int * 10"); n != 14 {
		t.Error(n)
	}
}

// copiedKeys runs the page's statements for keys of the consumer that is widely copied.
func copiedKeys(t *testing.T, db *harness.Database) {
	t.Helper()
	page, err := os.ReadFile("../../docs/consuming.md")
	if err != nil {
		t.Fatal(err)
	}
	blocks := regexp.MustCompile("(?ms)^```sql\n(.*?)^```$").FindAllStringSubmatch(string(page), -1)
	if len(blocks) != 5 {
		t.Fatalf("%d statements on the page", len(blocks))
	}
	blocks = blocks[2:] // the first are for newTopic and beginAt
	db.Exec(t, "INSERT INTO inbox (consumer, key, at) VALUES ('billing', 'old', now() - interval '16 days'), ('billing', 'young', now() - interval '14 days'), ('shipping', 'old', now() - interval '16 days')")
	db.Exec(t, blocks[0][1]) // deletes what is old
	if left := harness.Query[string](t, db, "SELECT string_agg(consumer || ' ' || key, ', ' ORDER BY consumer) FROM inbox WHERE key IN ('old', 'young')"); left != "billing young, shipping old" {
		t.Errorf("left of old keys: %s", left)
	}
	blocks = blocks[1:]
	db.Exec(t, blocks[0][1])
	db.Exec(t, "INSERT INTO processed_events VALUES ('021bf1d1861a1a39e64c53fe459f5370', now())")
	db.Exec(t, blocks[1][1])
}
