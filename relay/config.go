package relay

import (
	"time"

	"github.com/cdc-relay/cdc-relay/postgres"
	"github.com/cdc-relay/cdc-relay/replication"
	"github.com/cdc-relay/cdc-relay/replication/wal"
	"github.com/cdc-relay/cdc-relay/router"
	"github.com/cdc-relay/cdc-relay/sink/kafka"
)

// OnBlocked says what a blocked relay does.
type OnBlocked string

const (
	WaitWhenBlocked OnBlocked = "wait" // stay up, try again with back-off
	ExitWhenBlocked OnBlocked = "exit" // return a *BlockedError: exit code 4
)

// Guarantee says what consumers may rely on.
type Guarantee string

const (
	AtLeastOnce Guarantee = "at_least_once"
	ExactlyOnce Guarantee = "exactly_once" // for those who read what is committed
)

// OnReject says what becomes of a row that can never be delivered.
type OnReject string

const (
	StopOnReject       OnReject = "stop"        // block, and confirm nothing past it
	DeadLetterOnReject OnReject = "dead_letter" // into the dead-letter topic
	SkipOnReject       OnReject = "skip"        // count it, log it, lose it
)

// Config is the rooms' configurations and what needs two of them.
type Config struct {
	Replication postgres.Config
	Stream      replication.Options
	Router      router.Config
	Kafka       kafka.Config

	Guarantee Guarantee // defaults to AtLeastOnce

	// With ExactlyOnce: how long a record waits for its Kafka transaction at most.
	// Defaults to 100ms.
	CommitInterval time.Duration

	// CheckpointTopic is the compacted topic that keeps positions, with ExactlyOnce or
	// DetectMovedSlot. Defaults to "__cdc_relay_checkpoints".
	CheckpointTopic string

	// With AtLeastOnce: write how far the slot may be confirmed before it is, so that a
	// start sees that it was moved.
	DetectMovedSlot bool

	OnBlocked OnBlocked // defaults to WaitWhenBlocked

	OnReject OnReject // defaults to StopOnReject

	// DeadLetterTopic takes rejected rows with DeadLetterOnReject. With ParkKey later
	// rows of the same topic and key follow them there until they are re-driven.
	DeadLetterTopic string // defaults to "cdc-relay.dead-letters"
	ParkKey         bool

	// PositionHeaders has each record say where its row comes from. The rows of a
	// transaction then wait until its commit was read.
	PositionHeaders bool

	// MaxInFlightBytes bounds the bytes that rows hold between the socket and their
	// acknowledgement: the row, its record with headers, and the client's record. The
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

	// Delivered, when set, tells that a row is known to be in Kafka already: it is
	// confirmed without being sent. It is asked in the order of the stream by one
	// goroutine, and again for rows that a later session shows again.
	//
	// DeliveredIn is the history that it speaks of. It is not asked about rows behind a fork
	// that this history does not have: they may have the positions of others.
	Delivered   func(*wal.Row) bool
	DeliveredIn wal.Origin

	Pipeline string // defaults to "default"
	Version  string
}

// KeepsPositions says that CheckpointTopic is used.
func (c *Config) KeepsPositions() bool { return c.Guarantee == ExactlyOnce || c.DetectMovedSlot }

// WithDefaults returns a copy with every zero field set.
func (c Config) WithDefaults() Config {
	def(&c.Guarantee, AtLeastOnce)
	def(&c.CommitInterval, 100*time.Millisecond)
	def(&c.CheckpointTopic, "__cdc_relay_checkpoints")
	def(&c.OnBlocked, WaitWhenBlocked)
	def(&c.OnReject, StopOnReject)
	def(&c.DeadLetterTopic, "cdc-relay.dead-letters")
	def(&c.MaxInFlightBytes, 8<<20)
	def(&c.DrainTimeout, 30*time.Second)
	def(&c.RetryMin, 200*time.Millisecond)
	def(&c.RetryMax, 30*time.Second)
	def(&c.ProbeInterval, 5*time.Second)
	def(&c.Pipeline, "default")
	def(&c.Stream.ShutdownGrace, 5*time.Second)
	return c
}

func def[T comparable](field *T, value T) {
	var zero T
	if *field == zero {
		*field = value
	}
}
