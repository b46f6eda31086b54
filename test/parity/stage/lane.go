// Package stage has the servers of golden cases, plays their scripts, and runs
// them through a real Debezium. It imports no testing, so that programs can use
// it too, and nothing of the relay.
package stage

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/cdc-relay/cdc-relay/sandbox"
	"github.com/cdc-relay/cdc-relay/test/parity/golden"
)

// Settings of the servers that cases run on.
var (
	// PostgresSettings are those beside the sandbox's own.
	PostgresSettings = map[string]string{"max_prepared_transactions": "10", "timezone": "UTC", "autovacuum": "off"}

	// KafkaSettings leave making topics to the clients, as the goldens' broker did.
	KafkaSettings = map[string]string{"auto.create.topics.enable": "true", "num.partitions": fmt.Sprint(DefaultPartitions)}
)

// DefaultPartitions is what a topic has that no case speaks of.
const DefaultPartitions = 4

// Password is what connectors are given; the servers ask for none.
const Password = "dbz"

// The database of every case, and whom the server lets in.
const (
	database = "app"
	user     = "postgres"
)

// Lane is a PostgreSQL server and a broker for one case after the other: every
// case has a database named app and topics that others have too.
type Lane struct {
	postgres *sandbox.Postgres
	brokers  []string
	client   *kgo.Client
	admin    *kadm.Client
}

// metadataAge is how old an answer may be: topics come and go.
const metadataAge = 10 * time.Millisecond

// NewLane takes servers that nobody else uses. The caller calls Close, and closes
// the servers.
func NewLane(postgres *sandbox.Postgres, brokers []string) (*Lane, error) {
	client, err := kgo.NewClient(kgo.SeedBrokers(brokers...), kgo.MetadataMinAge(metadataAge))
	if err != nil {
		return nil, err
	}
	return &Lane{postgres: postgres, brokers: brokers, client: client, admin: kadm.NewClient(client)}, nil
}

// Close leaves the servers as they are.
func (l *Lane) Close() { l.client.Close() }

// URL is the address of the case's database.
func (l *Lane) URL() string { return l.postgres.URL(database) }

// Brokers are the broker's addresses.
func (l *Lane) Brokers() []string { return l.brokers }

// connection are the keys of connector.json that say where the servers are.
func (l *Lane) connection() (map[string]string, error) {
	host, port, err := net.SplitHostPort(l.postgres.Addr())
	if err != nil {
		return nil, err
	}
	return map[string]string{
		"database.hostname": host, "database.port": port, "database.user": user, "database.password": Password, "database.dbname": database,
	}, nil
}

// Connector is a case's connector.json for this lane. A user that the case leaves
// out stays out.
func (l *Lane) Connector(c *golden.Case, name string) ([]byte, error) {
	config, err := c.Config()
	if err != nil {
		return nil, err
	}
	set, err := l.connection()
	if err != nil {
		return nil, err
	}
	if _, given := config["database.password"]; !given {
		delete(set, "database.password")
	}
	return c.ConnectorWith(name, set)
}

// Reset makes an empty database and the topics of a case, and nothing else of
// them is there.
func (l *Lane) Reset(ctx context.Context, topics map[string]golden.Topic) error {
	if err := l.resetDatabase(ctx); err != nil {
		return fmt.Errorf("reset database: %w", err)
	}
	if err := l.resetTopics(ctx, topics); err != nil {
		return fmt.Errorf("reset topics: %w", err)
	}
	return nil
}

func (l *Lane) resetDatabase(ctx context.Context) error {
	conn, err := pgx.Connect(ctx, l.postgres.URL("postgres"))
	if err != nil {
		return err
	}
	defer conn.Close(context.WithoutCancel(ctx))
	if err := dropSlots(ctx, conn); err != nil {
		return err
	}
	for _, sql := range []string{
		"DROP DATABASE IF EXISTS " + database + " WITH (FORCE)",
		"CREATE DATABASE " + database + " TEMPLATE template0 ENCODING 'UTF8' LOCALE 'C.UTF-8'",
	} {
		if _, err := conn.Exec(ctx, sql); err != nil {
			return fmt.Errorf("%s: %w", sql, err)
		}
	}
	return nil
}

// objectInUse is the server's code for a slot that somebody holds.
const objectInUse = "55006"

// dropSlots ends whoever holds one. A backend that was ended takes a moment to
// let go, and a prepared transaction would keep the database.
func dropSlots(ctx context.Context, conn *pgx.Conn) error {
	for {
		_, err := conn.Exec(ctx, `SELECT pg_terminate_backend(active_pid) FROM pg_replication_slots WHERE active_pid IS NOT NULL`)
		if err == nil {
			_, err = conn.Exec(ctx, `SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots`)
		}
		var refused *pgconn.PgError
		if err == nil || !errors.As(err, &refused) || refused.Code != objectInUse {
			return err
		}
		if err := Wait(ctx, 20*time.Millisecond); err != nil {
			return err
		}
	}
}

func (l *Lane) resetTopics(ctx context.Context, topics map[string]golden.Topic) error {
	old, err := l.topics(ctx)
	if err != nil {
		return err
	}
	if len(old) > 0 {
		deleted, err := l.admin.DeleteTopics(ctx, old.Names()...)
		if err == nil {
			err = deleted.Error()
		}
		if err != nil && !errors.Is(err, kerr.UnknownTopicOrPartition) {
			return err
		}
	}
	for _, name := range slices.Sorted(maps.Keys(topics)) {
		if err := l.createTopic(ctx, name, topics[name]); err != nil {
			return fmt.Errorf("create topic %q: %w", name, err)
		}
	}
	return l.awaitLeaders(ctx, slices.Collect(maps.Keys(topics)))
}

// awaitLeaders returns when topics can be written to: the broker answers that it has made them
// before it knows of them itself, and a case is to find them there.
func (l *Lane) awaitLeaders(ctx context.Context, names []string) error {
	for len(names) > 0 {
		ends, err := l.admin.ListEndOffsets(ctx, names...)
		if err == nil {
			err = ends.Error()
		}
		if err == nil {
			return nil
		}
		if Wait(ctx, 20*time.Millisecond) != nil {
			return fmt.Errorf("wait for the leaders of topics: %w", err)
		}
	}
	return nil
}

func (l *Lane) createTopic(ctx context.Context, name string, topic golden.Topic) error {
	config := map[string]*string{}
	for key, value := range topic.Config {
		config[key] = &value
	}
	for { // one of that name may be on its way out
		answer, err := l.admin.CreateTopic(ctx, topic.Partitions, 1, config, name)
		if err == nil {
			err = answer.Err
		}
		if !errors.Is(err, kerr.TopicAlreadyExists) {
			return err
		}
		if err := Wait(ctx, 20*time.Millisecond); err != nil {
			return err
		}
	}
}

// topics are those of cases: the broker's own and the worker's are left out.
func (l *Lane) topics(ctx context.Context) (kadm.TopicDetails, error) {
	all, err := l.admin.ListTopics(ctx) // without the broker's internal ones
	if err != nil {
		return nil, err
	}
	maps.DeleteFunc(all, func(name string, _ kadm.TopicDetail) bool { return strings.HasPrefix(name, workerTopics) })
	return all, nil
}

// workerTopics begin like this.
const workerTopics = "parity-worker-"

// Records reads everything that is in the topics, in the order of a golden file.
func (l *Lane) Records(ctx context.Context) ([]golden.Record, error) {
	topics, err := l.topics(ctx)
	if err != nil {
		return nil, err
	}
	read, err := sandbox.ReadTopics(ctx, l.brokers, topics.Names())
	if err != nil {
		return nil, err
	}
	slices.SortStableFunc(read, func(a, b *kgo.Record) int { return int(a.Offset - b.Offset) })
	records := make([]golden.Record, len(read))
	for i, r := range read {
		records[i] = golden.FromKafka(r, len(topics[r.Topic].Partitions))
	}
	golden.Sort(records)
	return records, nil
}

// Count is how many records topics have had; one that does not exist has none.
func (l *Lane) Count(ctx context.Context, topics ...string) (int, error) {
	if len(topics) == 0 {
		return 0, nil
	}
	ends, err := l.admin.ListEndOffsets(ctx, topics...)
	var partly *kadm.ShardErrors
	if err != nil && !errors.As(err, &partly) { // a new topic has no leader for a moment
		return 0, err
	}
	sum := 0
	ends.Each(func(o kadm.ListedOffset) {
		if o.Err == nil {
			sum += int(o.Offset)
		}
	})
	return sum, nil
}

// Wait waits for d, or until ctx ends; that is an error.
func Wait(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
