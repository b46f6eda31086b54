package producer

import (
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/cdc-relay/cdc-relay/sink/broker"
	"github.com/cdc-relay/cdc-relay/sink/topics"
)

// Config says how to reach the brokers and how to produce.
type Config struct {
	broker.Connection

	Compression     string        // none, gzip, snappy (default), lz4, zstd
	Linger          time.Duration // 0: none while the relay is caught up, up to 15 ms in a backlog
	MaxMessageBytes int           // largest record, as the broker counts it, and largest batch; default 1 MiB

	CreateTopics topics.Creation

	// DeadLetterTopic, when it is created, keeps every record.
	DeadLetterTopic string
}

// WithDefaults returns a copy with every zero field set, or what is wrong with the configuration.
func (c Config) WithDefaults() (Config, error) {
	if len(c.Brokers) == 0 {
		return c, errors.New("configure kafka: no brokers given")
	}
	if c.MaxMessageBytes == 0 {
		c.MaxMessageBytes = broker.DefaultMaxMessageBytes
	}
	if c.MaxMessageBytes < 1<<10 || c.MaxMessageBytes > math.MaxInt32/2 {
		return c, fmt.Errorf("configure kafka: max message size of %d bytes is not between 1 KiB and 1 GiB", c.MaxMessageBytes)
	}
	if c.Linger < 0 {
		return c, fmt.Errorf("configure kafka: linger of %s is negative", c.Linger)
	}
	c.CreateTopics = c.CreateTopics.WithDefaults()
	var err error
	c.Connection, err = c.Connection.WithDefaults()
	return c, err
}
