package kafkainbox

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/cdc-relay/cdc-relay/inbox"
)

// Config is what a Consumer is made of. Zero fields have the default that is named.
type Config struct {
	// Consumer names the handler in the database, see inbox.Config. Two services with one name share the
	// events of a topic, in different groups too: each event is handled by one of them alone. On different
	// topics the shorter Keep of the two decides.
	Consumer string

	// Brokers are addresses of the cluster, Topics what is read, Group the consumer group (default:
	// Consumer).
	Brokers []string
	Topics  []string
	Group   string

	// DB is where the effects go and the keys are. It should have Connections connections and two more.
	// With fewer than Connections rounds wait for each other, and the consumer logs a warning.
	DB *pgxpool.Pool

	// Schema has the tables of `cdc-relay sql --inbox` (default: public).
	Schema string

	// Handle does the work of a record, in the transaction. An error, a panic, a statement that
	// failed and rows that are left open roll it back. The transaction is neither committed nor
	// rolled back by the handler; savepoints (tx.Begin) are the handler's own. So are the fields of the
	// record; the bytes that they point to stay as they are. The transaction is the handler's until it
	// returns, for one statement at a time.
	Handle func(ctx context.Context, tx pgx.Tx, record *kgo.Record) error

	// HandleRound is Handle for all records of a round at once, for statements in bulk; see
	// Pipelined. They are in the order of the partition. One of Handle and HandleRound is set.
	HandleRound func(ctx context.Context, tx pgx.Tx, records []*kgo.Record) error

	// Key names the event of a record. Default: the last header idempotency_key, else the last
	// header id, within the topic (see KeyOf). An error, and a zero key, reject the record. With
	// KeyOrPlace a record that has neither is handled.
	Key func(record *kgo.Record) (inbox.Key, error)

	// Parallel is how many transactions a partition may have at a time (default: 1). Records of one
	// key stay in order; records without a key are one after another.
	Parallel int

	// Connections is how many transactions all partitions have at a time (default: 4).
	Connections int

	// RoundEvents and RoundBytes bound what one transaction takes (defaults: 500, 1 MiB). A round
	// waits for nothing: it takes what is there.
	RoundEvents int
	RoundBytes  int

	// Offsets keeps no keys: a round moves the partition's offset in inbox_progress in its
	// transaction, which is faster, and the group's offset in Kafka decides nothing. It drops what
	// the consumer's side would repeat, and nothing that is in the topic twice. Use it where nothing
	// is, with `relay.guarantee: exactly_once` for instance. Parallel stays 1.
	Offsets bool

	// Hints, see inbox.Config. They spare claims where most records are duplicates.
	Hints inbox.Hints

	Retry Retry

	// DeadLetterTopic gets a record that failed Retry.Attempts times, or with a Permanent error.
	// Empty: the partition waits at the record and tries it again, so that a cured cause lets it go
	// on; other partitions go on meanwhile.
	DeadLetterTopic string

	// Keep is how long keys are kept, by the clock of the partitions (default: 15 days). A record
	// that comes again within it is dropped. Let it be longer than records stay in the topics
	// (retention.ms plus segment.ms), or a rewind beyond it is refused.
	Keep time.Duration

	// AllowRewind has records that are older than the keys handled again.
	AllowRewind bool

	// Kafka are further options of the client, such as TLS, SASL, hooks or kgo.ServerSideBalancer().
	Kafka []kgo.Opt

	// Logger gets what a person has to know (default: none). It never gets keys or values.
	Logger *slog.Logger

	Events Events
}

// Retry is how a record that failed is tried again.
type Retry struct {
	Attempts int           // of a record, before it is a dead letter or blocks (default: 5)
	First    time.Duration // longest wait after the first failure; each further one doubles it (default: 100 ms)
	Max      time.Duration // longest wait of all (default: 30 s)
}

// Events are calls for metrics. Each may be nil; none may block, or wait for the end of Run. Several
// goroutines call them. A panic of one ends the process.
type Events struct {
	// Round was committed.
	Round func(Round)

	// Failed is an attempt at a record, which is tried again.
	Failed func(*RecordError)

	// Blocked is a partition that begins to wait at a record, Unblocked one that continues.
	Blocked   func(*RecordError)
	Unblocked func(topic string, partition int32)

	// DeadLetter is a record that became a dead letter.
	DeadLetter func(*RecordError)

	// Trouble is what is tried again without end: the database or the brokers do not answer, or
	// another transaction was in the way. A WaitError is a partition that waits for an answer; Waited
	// is called when it goes on, with the time that it waited.
	Trouble func(error)
	Waited  func(topic string, partition int32, took time.Duration)
}

// Round is one committed transaction.
type Round struct {
	Topic         string
	Partition     int32
	Handled       int
	Duplicates    int
	LastTimestamp time.Time // timestamp of its last record
	Took          time.Duration
}

func (c *Config) check() error {
	switch {
	case len(c.Brokers) == 0:
		return errors.New("no address in Brokers")
	case len(c.Topics) == 0:
		return errors.New("no name in Topics")
	case c.DB == nil:
		return errors.New("no pool in DB")
	case (c.Handle == nil) == (c.HandleRound == nil):
		return errors.New("set one of Handle and HandleRound")
	case c.Parallel < 0 || c.Connections < 0 || c.RoundEvents < 0 || c.RoundBytes < 0 || c.Retry.Attempts < 0 || c.Retry.First < 0 || c.Retry.Max < 0 || c.Keep < 0:
		return errors.New("a number is negative; leave it out for its default")
	case c.Offsets && c.Parallel > 1:
		return errors.New("with Offsets a partition has one transaction at a time: leave Parallel out")
	case c.Offsets && (c.Key != nil || c.Hints != nil || c.AllowRewind || c.Keep != 0):
		return errors.New("with Offsets there are no keys: leave Key, Hints, Keep and AllowRewind out")
	}
	for _, topic := range c.Topics {
		if topic == c.DeadLetterTopic {
			return fmt.Errorf("topic %s is read, and gets the dead letters", topic)
		}
	}
	return nil
}

// withDefaults is a copy.
func (c Config) withDefaults() Config {
	c.Group = cmp.Or(c.Group, c.Consumer)
	c.Parallel = cmp.Or(c.Parallel, 1)
	c.Connections = cmp.Or(c.Connections, 4)
	c.RoundEvents = cmp.Or(c.RoundEvents, 500)
	c.RoundBytes = cmp.Or(c.RoundBytes, 1<<20)
	c.Retry.Attempts = cmp.Or(c.Retry.Attempts, 5)
	c.Retry.First = cmp.Or(c.Retry.First, 100*time.Millisecond)
	c.Retry.Max = cmp.Or(c.Retry.Max, 30*time.Second)
	c.Keep = cmp.Or(c.Keep, 15*24*time.Hour)
	if c.Key == nil {
		c.Key = KeyOf
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	return c
}

// Pipelined makes a HandleRound of a function that queues the statements of one record. Those of
// a round are sent at once, where Handle waits for the answer to each. A statement that fails is
// the fault of its record alone, as with Handle.
func Pipelined(queue func(batch *pgx.Batch, record *kgo.Record) error) func(context.Context, pgx.Tx, []*kgo.Record) error {
	return func(ctx context.Context, tx pgx.Tx, records []*kgo.Record) error {
		batch := &pgx.Batch{}
		for _, record := range records {
			if err := queue(batch, record); err != nil {
				return err
			}
		}
		return tx.SendBatch(ctx, batch).Close()
	}
}

// KeyOf is the key that a record of cdc-relay has: its last header idempotency_key, else its last
// header id, unique within the topic. Empty headers count as none.
func KeyOf(record *kgo.Record) (inbox.Key, error) {
	key := inbox.ByIdempotencyKey(record.Topic, header(record, "idempotency_key"))
	if key.IsZero() {
		key = inbox.ByID(record.Topic, header(record, "id"))
	}
	if key.IsZero() {
		return key, inbox.ErrNoKey
	}
	return key, nil
}

// KeyOrPlace is KeyOf, and for a record without these headers its place in the topic, for topics
// that others write too. Such a record is handled once for each time that it is in the topic.
func KeyOrPlace(record *kgo.Record) (inbox.Key, error) {
	if key, err := KeyOf(record); err == nil {
		return key, nil
	}
	return inbox.ByPlace(record.Topic, record.Partition, record.Offset, record.Timestamp), nil
}

// header is the value of the last header of a name; empty where there is none.
func header(record *kgo.Record, name string) string {
	for i := len(record.Headers) - 1; i >= 0; i-- {
		if record.Headers[i].Key == name {
			return string(record.Headers[i].Value)
		}
	}
	return ""
}
