package relay

import (
	"time"

	"github.com/cdc-relay/cdc-relay/replication"
	"github.com/cdc-relay/cdc-relay/router"
	"github.com/cdc-relay/cdc-relay/sink"
)

// OnBlocked says what a blocked relay does.
type OnBlocked string

const (
	WaitWhenBlocked OnBlocked = "wait" // stay up, try again with back-off
	ExitWhenBlocked OnBlocked = "exit" // return a *BlockedError: exit code 4
)

// Config is the rooms' configurations and what needs two of them.
type Config struct {
	Replication replication.Config
	Router      router.Config
	Kafka       sink.KafkaConfig

	OnBlocked OnBlocked // defaults to WaitWhenBlocked

	// MaxInFlightBytes bounds everything that rows hold between the socket and
	// their acknowledgement. A row larger than all of it is admitted alone.
	// Defaults to 32 MiB.
	MaxInFlightBytes int

	// DrainTimeout is counted from the stop signal. Defaults to 30s.
	DrainTimeout time.Duration

	// RetryMin and RetryMax bound the back-off between sessions and between tries
	// while blocked. Default 200ms and 30s.
	RetryMin, RetryMax time.Duration

	// ProbeInterval is how often slot and publication are looked at. Defaults to 5s.
	ProbeInterval time.Duration

	Pipeline string // defaults to "default"
	Version  string
}

// WithDefaults returns a copy with every zero field set.
func (c Config) WithDefaults() Config {
	def(&c.OnBlocked, WaitWhenBlocked)
	def(&c.MaxInFlightBytes, 32<<20)
	def(&c.DrainTimeout, 30*time.Second)
	def(&c.RetryMin, 200*time.Millisecond)
	def(&c.RetryMax, 30*time.Second)
	def(&c.ProbeInterval, 5*time.Second)
	def(&c.Pipeline, "default")
	def(&c.Replication.ShutdownGrace, 20*time.Second)
	return c
}

func def[T comparable](field *T, value T) {
	var zero T
	if *field == zero {
		*field = value
	}
}
