package relay

import (
	"time"

	"github.com/cdc-relay/cdc-relay/postgres"
	"github.com/cdc-relay/cdc-relay/relay/delivery"
	"github.com/cdc-relay/cdc-relay/relay/resume"
	"github.com/cdc-relay/cdc-relay/replication"
	"github.com/cdc-relay/cdc-relay/replication/pgoutput"
	"github.com/cdc-relay/cdc-relay/replication/wal"
	"github.com/cdc-relay/cdc-relay/router"
	"github.com/cdc-relay/cdc-relay/sink/producer"
)

// OnBlocked is what a blocked relay does.
type OnBlocked string

const (
	WaitWhenBlocked OnBlocked = "wait" // stay up, try again with back-off
	ExitWhenBlocked OnBlocked = "exit" // return a *BlockedError: exit code 4
)

// Guarantee and OnReject are those of package delivery.
type (
	Guarantee = delivery.Guarantee
	OnReject  = delivery.OnReject
)

// Their values.
const (
	AtLeastOnce = delivery.AtLeastOnce
	ExactlyOnce = delivery.ExactlyOnce

	StopOnReject       = delivery.StopOnReject
	DeadLetterOnReject = delivery.DeadLetterOnReject
	SkipOnReject       = delivery.SkipOnReject
)

// Config holds the configurations of the stages, and the settings that belong to more than one of
// them.
type Config struct {
	Replication postgres.Config
	Stream      replication.Options
	Router      router.Config
	Kafka       producer.Config

	Guarantee Guarantee // defaults to AtLeastOnce

	// CommitInterval, with ExactlyOnce: how long a record waits at most for the commit of its Kafka
	// transaction. Defaults to 100ms.
	CommitInterval time.Duration

	// CheckpointTopic is the compacted topic that keeps positions, with ExactlyOnce or
	// DetectMovedSlot. Defaults to "__cdc_relay_checkpoints".
	CheckpointTopic string

	// DetectMovedSlot, with AtLeastOnce: write to CheckpointTopic how far the slot may be confirmed,
	// before it is confirmed. A start then sees whether somebody moved the slot.
	DetectMovedSlot bool

	OnBlocked OnBlocked // defaults to WaitWhenBlocked

	OnReject OnReject // defaults to StopOnReject

	// DeadLetterTopic takes rejected rows with DeadLetterOnReject. With ParkKey later
	// rows of the same topic and key follow them there until they are re-driven.
	DeadLetterTopic string // defaults to "cdc-relay.dead-letters"
	ParkKey         bool

	// MaxInFlightBytes bounds the bytes that rows hold from when the window takes them until
	// they are acknowledged: the row, its record with headers, and the client's record. The
	// process grows by two to three times as much in a backlog: chunks that are partly
	// used, requests that the client writes, and garbage. A row larger than all of it is
	// admitted alone. Defaults to 8 MiB.
	MaxInFlightBytes int

	// DrainTimeout is counted from the stop signal. Defaults to 30s.
	DrainTimeout time.Duration

	// RetryMin and RetryMax bound the back-off between sessions and between tries
	// while blocked. Default 200ms and 30s.
	RetryMin, RetryMax time.Duration

	// ProbeInterval is how often slot and publication are looked at. Defaults to 5s.
	ProbeInterval time.Duration

	// AlreadySent, when set, reports whether a row is known to be in Kafka already: then it is
	// confirmed without being sent. It is asked in the order of the stream by one
	// goroutine, and again for rows that a later session shows again.
	//
	// AlreadySentIn is the history that AlreadySent knows. It is not asked about rows after a fork
	// that this history lacks: their positions may be those of other rows.
	AlreadySent   func(*wal.Row) bool
	AlreadySentIn wal.Origin

	SchemaRefresh time.Duration // between two looks at the latest version of a schema; zero: that of relay/schemas

	Pipeline string // defaults to "default"
	Version  string
}

// KeepsPositions reports whether CheckpointTopic is used.
func (c *Config) KeepsPositions() bool { return c.Guarantee == ExactlyOnce || c.DetectMovedSlot }

// WithDefaults returns a copy with every zero field set.
func (c Config) WithDefaults() Config {
	setDefault(&c.Guarantee, AtLeastOnce)
	setDefault(&c.CommitInterval, 100*time.Millisecond)
	setDefault(&c.CheckpointTopic, "__cdc_relay_checkpoints")
	setDefault(&c.OnBlocked, WaitWhenBlocked)
	setDefault(&c.OnReject, StopOnReject)
	setDefault(&c.DeadLetterTopic, "cdc-relay.dead-letters")
	setDefault(&c.MaxInFlightBytes, 8<<20)
	setDefault(&c.DrainTimeout, 30*time.Second)
	setDefault(&c.RetryMin, 200*time.Millisecond)
	setDefault(&c.RetryMax, 30*time.Second)
	setDefault(&c.ProbeInterval, 5*time.Second)
	setDefault(&c.Pipeline, "default")
	setDefault(&c.Stream.ShutdownGrace, replication.DefaultShutdownGrace)
	return c
}

// Resume is what a start compares a checkpoint with.
func (c *Config) Resume() *resume.Config {
	cfg := c.WithDefaults()
	p := &cfg.Replication
	return &resume.Config{
		Slot: p.Slot, Publication: p.Publication, CheckpointTopic: cfg.CheckpointTopic, InTransactions: cfg.Guarantee == ExactlyOnce, Version: cfg.Version,
		Shape: resume.ShapeOf(p.Publication, p.Tables, p.Wants, p.Messages, pgoutput.NumberingRules),
	}
}

// OfShard is the configuration of the i-th of `running` shards that share a process:
// the limits of the process are divided among them.
func (c Config) OfShard(i, running int) Config {
	c = c.WithDefaults()
	c.Replication = c.Replication.OfShard(i)
	c.MaxInFlightBytes = max(1, c.MaxInFlightBytes/max(1, running))
	return c
}

// deliveryConfig is the part of the configuration that delivery uses.
func (c *Config) deliveryConfig() delivery.Config {
	return delivery.Config{
		Guarantee: c.Guarantee, OnReject: c.OnReject, DeadLetterTopic: c.DeadLetterTopic,
		CreateTopics: c.Kafka.CreateTopics.Enabled, KeepsPositions: c.KeepsPositions(),
		RetryMin: c.RetryMin, RetryMax: c.RetryMax, Handover: c.handover(), Resume: c.Resume(),
	}
}

// handover is how long a session that ends with its connection intact waits for its
// acknowledgements before it gives the sink up. It stays below wal_sender_timeout, after which another
// relay may hold the slot.
func (c *Config) handover() time.Duration {
	limit := 10 * time.Second
	if t := c.Replication.WalSenderTimeout; t > 0 {
		limit = min(limit, t/2)
	}
	return limit
}

func setDefault[T comparable](field *T, value T) {
	var zero T
	if *field == zero {
		*field = value
	}
}
