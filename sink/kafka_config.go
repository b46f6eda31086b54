package sink

import (
	"context"
	"crypto/tls"
	"time"
)

// KafkaConfig says how to reach the brokers and how to produce.
type KafkaConfig struct {
	Brokers []string

	// TLS is nil for plain connections. It is asked again for every connection,
	// so renewed certificates apply without a restart.
	TLS func() (*tls.Config, error)

	SASL SASL

	// Insecure permits secrets without TLS to a host that is not loopback: those of SASL
	// to a broker, and the client's to the token endpoint.
	Insecure bool

	fill time.Duration // how long a batch waits in a backlog; fillTime but for tests

	Compression     string        // none, gzip, snappy (default), lz4, zstd
	Linger          time.Duration // 0: hardly any at the tip, and batches fill in a backlog
	MaxMessageBytes int           // largest record, as the broker counts it, and largest batch; default 1 MiB

	// MaxBufferedBytes is at least the relay's window, so that the window is the
	// only valve.
	MaxBufferedBytes int

	CreateTopics CreateTopics

	// DeadLetterTopic, when it is created, keeps every record.
	DeadLetterTopic string

	ClientID string // default "cdc-relay"
}

// CreateTopics makes missing topics at their first record.
type CreateTopics struct {
	Enabled           bool
	Partitions        int32
	ReplicationFactor int16 // -1: the broker's default
	Config            map[string]string
}

// SASL mechanisms.
const (
	SASLPlain       = "plain"
	SASLScramSHA256 = "scram-sha-256"
	SASLScramSHA512 = "scram-sha-512"
	SASLOAuth       = "oauthbearer"
	SASLAWSMSKIAM   = "aws-msk-iam"
)

// SASL says how to authenticate. Secrets are functions: they are asked at every
// authentication, so a rotated secret applies at the next connection.
type SASL struct {
	Mechanism string // empty: none
	Username  string
	Password  func(context.Context) (string, error)
	OAuth     OAuth
	Region    string // aws-msk-iam; empty takes the environment's
}

// OAuth is the client-credentials grant of OAUTHBEARER.
type OAuth struct {
	TokenEndpoint string
	ClientID      string
	ClientSecret  func(context.Context) (string, error)
	Scope         string
	Extensions    map[string]string
}
