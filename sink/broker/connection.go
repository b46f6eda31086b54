package broker

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/cdc-relay/cdc-relay/sink/auth"
	"github.com/twmb/franz-go/pkg/kgo"
)

// Connection says which brokers there are and how to connect to them.
type Connection struct {
	Brokers []string

	// TLS is nil for plain connections. It is asked again for every connection,
	// so renewed certificates apply without a restart.
	TLS func() (*tls.Config, error)

	SASL auth.SASL

	// Insecure permits secrets without TLS to a host that is not loopback: those of SASL
	// to a broker, and the client's to the token endpoint.
	Insecure bool

	ClientID string // default "cdc-relay"
}

const (
	dialTimeout = 10 * time.Second

	// UnknownTries is how often a client asks again for a topic that no broker
	// knows. Metadata lags behind a topic's creation by less than that.
	UnknownTries = 4

	// A client reads metadata again after a failure, but not sooner than this
	// after the last time: it decides how fast a moved leader is found.
	MetadataMinAge = time.Second
)

// WithDefaults returns a copy with every zero field set, or what is wrong with the configuration.
func (c Connection) WithDefaults() (Connection, error) {
	if len(c.Brokers) == 0 {
		return c, errors.New("configure kafka: no brokers given")
	}
	if c.ClientID == "" {
		c.ClientID = "cdc-relay"
	}
	return c, c.checkCleartext()
}

// checkCleartext refuses to hand a password or a token to a network in the clear.
func (c Connection) checkCleartext() error {
	if c.TLS != nil || c.Insecure || !c.SASL.SendsSecret() {
		return nil
	}
	for _, broker := range c.Brokers {
		if !auth.Loopback(broker) {
			return fmt.Errorf("configure kafka: sasl mechanism %s without TLS would send its secret in the clear to %s; enable TLS, use a scram mechanism, or allow it with insecure", c.SASL.Mechanism, broker)
		}
	}
	return nil
}

// ClientOptions are those of every client.
func (c Connection) ClientOptions() ([]kgo.Opt, error) {
	opts := []kgo.Opt{
		kgo.SeedBrokers(c.Brokers...),
		kgo.ClientID(c.ClientID),
		kgo.Dialer(c.Dial),
		kgo.MetadataMinAge(MetadataMinAge),

		// An EOF in a handshake may be wrong TLS settings, but also a broker that is
		// stopping; giving up records for it would halt the sink for nothing.
		kgo.AlwaysRetryEOF(),
	}
	mechanism, err := auth.NewMechanism(c.SASL, c.TLS != nil, c.Insecure)
	if err != nil {
		return nil, err
	}
	if mechanism != nil {
		opts = append(opts, kgo.SASL(mechanism))
	}
	return opts, nil
}

// Consumer is a client that reads what is committed. Control records count as
// offsets: without them the end of a partition that was written in transactions
// would never be seen.
func (c Connection) Consumer(more ...kgo.Opt) (*kgo.Client, error) {
	c, err := c.WithDefaults()
	if err != nil {
		return nil, err
	}
	opts, err := c.ClientOptions()
	if err != nil {
		return nil, err
	}
	opts = append(opts,
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.FetchIsolationLevel(kgo.ReadCommitted()), kgo.KeepControlRecords(),
		kgo.FetchMaxBytes(8<<20), kgo.FetchMaxPartitionBytes(2<<20), kgo.MaxConcurrentFetches(1))
	client, err := kgo.NewClient(append(opts, more...)...)
	if err != nil {
		return nil, fmt.Errorf("configure kafka client: %w", err)
	}
	return client, nil
}

// Dial opens one connection. TLS is configured again each time, with the broker's
// own name.
//
// Closing it discards what the kernel has not delivered. Else that would be sent for
// minutes after, without anybody of ours who knows: records of a session that is over
// would land after those of the next one, once the network is back. The same holds when
// the process is killed. Nothing is lost: who closes has the answers to all it wrote, or
// counts it as not delivered.
func (c Connection) Dial(ctx context.Context, network, addr string) (net.Conn, error) {
	tcp, err := (&net.Dialer{Timeout: dialTimeout}).DialContext(ctx, network, addr)
	if err != nil {
		return nil, err
	}
	if err := tcp.(*net.TCPConn).SetLinger(0); err != nil {
		tcp.Close()
		return nil, err
	}
	if c.TLS == nil {
		return tcp, nil
	}
	secured, err := auth.Secure(ctx, tcp, addr, c.TLS)
	if err != nil {
		tcp.Close()
		return nil, err
	}
	return secured, nil
}
