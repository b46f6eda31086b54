package sink

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"net"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

const (
	defaultMaxBufferedBytes = 64 << 20

	// maxRequestBytes bounds what the client writes at once, and so what it keeps
	// in memory beside the records: five such requests may be under way to a broker.
	// Larger ones would not be faster.
	maxRequestBytes = 1 << 20

	dialTimeout      = 10 * time.Second
	handshakeTimeout = 5 * time.Second

	// unknownTries is how often the client asks again for a topic that no broker
	// knows. Metadata lags behind a topic's creation by less than that.
	unknownTries = 4

	// The client reads metadata again after a failure, but not sooner than this
	// after the last time: it decides how fast a moved leader is found.
	metadataMinAge = time.Second
)

func (c KafkaConfig) withDefaults() (KafkaConfig, error) {
	if len(c.Brokers) == 0 {
		return c, errors.New("configure kafka: no brokers given")
	}
	if c.MaxMessageBytes == 0 {
		c.MaxMessageBytes = defaultMaxMessageBytes
	}
	if c.MaxMessageBytes < 1<<10 || c.MaxMessageBytes > math.MaxInt32/2 {
		return c, fmt.Errorf("configure kafka: max message size of %d bytes is not between 1 KiB and 1 GiB", c.MaxMessageBytes)
	}
	if c.MaxBufferedBytes == 0 {
		c.MaxBufferedBytes = defaultMaxBufferedBytes
	}
	if c.ClientID == "" {
		c.ClientID = "cdc-relay"
	}
	if c.Linger < 0 {
		return c, fmt.Errorf("configure kafka: linger of %s is negative", c.Linger)
	}
	if c.CreateTopics.ReplicationFactor == 0 {
		c.CreateTopics.ReplicationFactor = -1
	}
	if c.CreateTopics.Partitions == 0 {
		c.CreateTopics.Partitions = -1
	}
	return c, c.checkCleartext()
}

// checkCleartext refuses to hand a password or a token to a network in the clear.
func (c KafkaConfig) checkCleartext() error {
	if c.TLS != nil || c.Insecure || !c.SASL.sendsSecret() {
		return nil
	}
	for _, broker := range c.Brokers {
		if !Loopback(broker) {
			return fmt.Errorf("configure kafka: sasl mechanism %s without TLS would send its secret in the clear to %s; enable TLS, use a scram mechanism, or allow it with insecure", c.SASL.Mechanism, broker)
		}
	}
	return nil
}

// Loopback says whether host, with or without a port, is this machine by name or
// address. Names are not looked up: an answer could change.
func Loopback(host string) bool {
	if h, _, err := net.SplitHostPort(host); err == nil {
		host = h
	}
	if strings.EqualFold(host, "localhost") {
		return true
	}
	ip := net.ParseIP(host)
	return ip != nil && ip.IsLoopback()
}

// options are those of every client that produces, but for the partitioner.
func (k *Kafka) options() ([]kgo.Opt, error) {
	compression, err := k.cfg.compression()
	if err != nil {
		return nil, err
	}
	opts := []kgo.Opt{
		kgo.SeedBrokers(k.cfg.Brokers...),
		kgo.ClientID(k.cfg.ClientID),
		kgo.SoftwareNameAndVersion("cdc-relay", "1"),
		kgo.WithLogger(newClientLog(k.log)),
		kgo.WithHooks(append([]kgo.Hook{&k.reach}, k.hooks...)...),
		kgo.Dialer(k.dial),
		// A client that owes metrics would wait for a second before it closes its
		// connections, which is longer than a relay that lost the slot has.
		kgo.DisableClientMetrics(),
		kgo.RequiredAcks(kgo.AllISRAcks()),
		compression,
		kgo.ProducerLinger(cmp.Or(k.cfg.Linger, k.cfg.fill, fillTime)),
		kgo.UnknownTopicRetries(unknownTries),
		kgo.MetadataMinAge(metadataMinAge),
		// RecordRetries and RecordDeliveryTimeout stay unlimited: a record that was
		// given up may be durable, and the next one would be out of order.

		// The client counts four bytes more for a batch than the broker does, and
		// batchSize has refused what is over the limit.
		kgo.ProducerBatchMaxBytes(int32(k.cfg.MaxMessageBytes + 4)),
		kgo.BrokerMaxWriteBytes(int32(max(maxRequestBytes, k.cfg.MaxMessageBytes+64<<10))),
		kgo.MaxBufferedRecords(math.MaxInt32), // room is the bound

		// An EOF in a handshake may be wrong TLS settings, but also a broker that is
		// stopping; giving up records for it would halt the sink for nothing.
		kgo.AlwaysRetryEOF(),
		kgo.ProducerOnDataLossDetected(k.onDataLoss),
	}
	mechanism, err := k.cfg.mechanism()
	if err != nil {
		return nil, err
	}
	if mechanism != nil {
		opts = append(opts, kgo.SASL(mechanism))
	}
	return opts, nil
}

func (c KafkaConfig) compression() (kgo.Opt, error) {
	codec := kgo.NoCompression()
	switch c.Compression {
	case "none":
	case "gzip":
		codec = kgo.GzipCompression()
	case "", "snappy":
		codec = kgo.SnappyCompression()
	case "lz4":
		codec = kgo.Lz4Compression()
	case "zstd":
		codec = kgo.ZstdCompression()
	default:
		return nil, fmt.Errorf("configure kafka: compression %q is none of none, gzip, snappy, lz4, zstd", c.Compression)
	}
	return kgo.ProducerBatchCompression(codec, kgo.NoCompression()), nil
}

// dial opens one connection. TLS is configured anew each time, with the broker's
// own name.
//
// Closing it discards what the kernel has not delivered. Else that would be sent for
// minutes after, without anybody of ours who knows: records of a session that is over
// would land behind those of the next one, once the network is back. The same holds when
// the process is killed. Nothing is lost: who closes has the answers to all it wrote, or
// counts it as not delivered.
func (c KafkaConfig) dial(ctx context.Context, network, addr string) (net.Conn, error) {
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
	settings, err := c.TLS()
	if err != nil {
		tcp.Close()
		return nil, &tlsError{addr: addr, local: true, err: err}
	}
	secured, err := secure(ctx, tcp, addr, settings)
	if err != nil {
		tcp.Close()
		return nil, err
	}
	return secured, nil
}

// onDataLoss runs when a broker no longer has the producer's last records, or
// forgot the producer.
func (k *Kafka) onDataLoss(topic string, partition int32) {
	k.dataLoss.Add(1)
	k.log.Error().Str("topic", topic).Int32("partition", partition).
		Msg("broker lost or forgot acknowledged records; going on with the next one. Check for unclean leader elections and for min.insync.replicas of 1")
}
