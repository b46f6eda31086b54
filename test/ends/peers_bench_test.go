package ends

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	watersql "github.com/ThreeDotsLabs/watermill-sql/v4/pkg/sql"
	"github.com/ThreeDotsLabs/watermill/message"
)

// watermill is its SQL subscriber, which hands each message and its transaction on. Its messages are
// in a table of the same database, without Kafka.
func (s *shop) watermill(b *testing.B, n int) time.Duration {
	b.Helper()
	db := watersql.BeginnerFromPgx(s.pool)
	schema := watersql.DefaultPostgreSQLSchema{SubscribeBatchSize: 500}
	publisher, err := watersql.NewPublisher(db, watersql.PublisherConfig{SchemaAdapter: schema, AutoInitializeSchema: true}, watermill.NopLogger{})
	if err != nil {
		b.Fatal(err)
	}
	defer publisher.Close()
	var messages []*message.Message
	for _, r := range s.past[:n] {
		m := message.NewMessage(header(r, "id"), r.Value)
		m.Metadata.Set("key", string(r.Key))
		messages = append(messages, m)
	}
	for from := 0; from < n; from += 500 {
		if err := publisher.Publish("orders", messages[from:min(from+500, n)]...); err != nil {
			b.Fatal(err)
		}
	}
	subscriber, err := watersql.NewSubscriber(db, watersql.SubscriberConfig{ConsumerGroup: "billing", SchemaAdapter: schema, OffsetsAdapter: watersql.DefaultPostgreSQLOffsetsAdapter{}, InitializeSchema: true, PollInterval: 10 * time.Millisecond}, watermill.NopLogger{})
	if err != nil {
		b.Fatal(err)
	}
	defer subscriber.Close()
	incoming, err := subscriber.Subscribe(b.Context(), "orders")
	if err != nil {
		b.Fatal(err)
	}
	var began time.Time
	for ; n > 0; n-- {
		m := <-incoming
		if began.IsZero() {
			began = time.Now()
		}
		tx, ok := watersql.TxFromContext(m.Context())
		if !ok {
			b.Fatal("no transaction")
		}
		last, _ := strconv.Atoi(string(m.Payload))
		if _, err := tx.ExecContext(b.Context(), effect, m.Metadata.Get("key"), last); err != nil {
			b.Fatal(err)
		}
		m.Ack()
	}
	return time.Since(began)
}

// copied is testdata/copied.py. It reports false where there is no Python or no Redis.
func (s *shop) copied(b *testing.B, n int) (time.Duration, bool) {
	b.Helper()
	if _, err := exec.LookPath("python3"); err != nil {
		return 0, false
	}
	dir := b.TempDir()
	run := func(name string, args ...string) string {
		cmd := exec.CommandContext(b.Context(), name, args...) //nolint:gosec // of this file
		cmd.Env = append(os.Environ(), "DATABASE_URL="+s.db.URL, "KAFKA_BROKERS="+strings.Join(s.brokers.Addrs, ","), "TOPIC="+s.topic, "REDIS="+startedRedis(b), fmt.Sprint("EVENTS=", n))
		cmd.Stderr = os.Stderr
		out, err := cmd.Output()
		if err != nil {
			b.Fatalf("%s: %v", name, err)
		}
		return strings.TrimSpace(string(out))
	}
	python := filepath.Join(dir, "venv", "bin", "python")
	run("python3", "-m", "venv", filepath.Join(dir, "venv"))
	run(python, "-m", "pip", "install", "-q", "-r", "../../examples/python/requirements.txt", "redis==8.1.0")
	seconds, err := strconv.ParseFloat(run(python, "testdata/copied.py"), 64)
	if err != nil {
		b.Fatal(err)
	}
	return time.Duration(seconds * float64(time.Second)), true
}

var benchRedis string

func startedRedis(b *testing.B) string {
	if benchRedis == "" {
		benchRedis = "127.0.0.1:" + startRedis(b).port
	}
	return benchRedis
}
