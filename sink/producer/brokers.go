package producer

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/cdc-relay/cdc-relay/fault"
	"github.com/cdc-relay/cdc-relay/router/record"
	"github.com/cdc-relay/cdc-relay/sink"
	"github.com/cdc-relay/cdc-relay/sink/broker"
	"github.com/cdc-relay/cdc-relay/sink/letters"
	"github.com/cdc-relay/cdc-relay/sink/topics"
	"github.com/rs/zerolog"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

// Brokers are the brokers as a sink sees them, through all of its clients. Any goroutine may use it.
type Brokers struct {
	Reach  broker.Reach    // whether they answer
	Topics *topics.Creator // makes missing ones

	cfg      Config
	log      zerolog.Logger
	hooks    []func() kgo.Hook  // each makes one for each client
	client   func() *kgo.Client // asks the brokers
	letters  *letters.Topic
	dataLoss atomic.Int64
}

// NewBrokers takes a configuration with its defaults. hooks make those of each client. client returns the
// one through which the brokers are asked.
func NewBrokers(cfg Config, log zerolog.Logger, hooks []func() kgo.Hook, client func() *kgo.Client) *Brokers {
	return &Brokers{
		cfg: cfg, log: log, hooks: hooks, client: client,
		Topics:  topics.NewCreator(cfg.CreateTopics, cfg.DeadLetterTopic, log),
		letters: letters.NewTopic(cfg.DeadLetterTopic, log),
	}
}

// Reachable reports why no broker can be reached at present. What only a person can
// correct, such as a certificate that is refused, is a *sink.Error and says how.
func (b *Brokers) Reachable() error {
	err := b.Reach.Err()
	if err == nil {
		return nil
	}
	if e := broker.Classify(err); e.Class == sink.Blocked && e.Reason != fault.ReasonKafkaError {
		return e
	}
	return err
}

// Ready asks a broker for metadata, which connects and authenticates, and looks at the
// dead-letter topic. The error is a *sink.Error.
func (b *Brokers) Ready(ctx context.Context) error {
	if err := b.Reach.Ready(ctx, b.client(), b.cfg.Brokers); err != nil {
		return err
	}
	return b.LettersKept(ctx)
}

// LettersKept asks the brokers whether the dead-letter topic keeps every record. The error is a
// *sink.Error.
func (b *Brokers) LettersKept(ctx context.Context) error {
	if b.cfg.DeadLetterTopic == "" {
		return nil
	}
	return b.letters.Kept(ctx, kadm.NewClient(b.client()), 0)
}

// letterAge is for how long an answer of the brokers about the dead-letter topic counts when a
// letter is written.
const letterAge = time.Second

// CheckNow is Config.Check of a record that is about to be written. A dead letter is also refused while its
// topic would not keep it; an answer about that which is younger than letterAge will do.
func (b *Brokers) CheckNow(ctx context.Context, r *record.Record) (size int, err error) {
	size, err = b.cfg.Check(r)
	if err == nil && b.cfg.DeadLetterTopic != "" && r.Topic == b.cfg.DeadLetterTopic {
		err = b.letters.Kept(ctx, kadm.NewClient(b.client()), letterAge)
	}
	return size, err
}

// Ping asks whether a broker is there, so that Reachable knows. Reachable takes brokers that were away for
// there once they have given metadata, so that is asked for when one answers again.
func (b *Brokers) Ping(ctx context.Context) {
	c := b.client()
	if err := c.Ping(ctx); err == nil && b.Reach.Err() != nil {
		c.ForceMetadataRefresh()
	}
}

// TopicsRecreated counts topics that were found deleted and recreated.
func (b *Brokers) TopicsRecreated() int64 { return b.Topics.Recreations() }

// DataLoss counts the times that a broker turned out to have lost or forgotten
// records which it had acknowledged.
func (b *Brokers) DataLoss() int64 { return b.dataLoss.Load() }

// onDataLoss runs when a broker no longer has the producer's last records, or
// forgot the producer.
func (b *Brokers) onDataLoss(topic string, partition int32) {
	b.dataLoss.Add(1)
	b.log.Error().Str("topic", topic).Int32("partition", partition).
		Msg("broker lost or forgot acknowledged records; continuing with the next one. Check for unclean leader elections and for min.insync.replicas of 1")
}
