package producer

import (
	"fmt"
	"math"

	"github.com/cdc-relay/cdc-relay/sink/broker"
	"github.com/twmb/franz-go/pkg/kgo"
)

// MaxRequestBytes bounds what the client writes at once, and so what it keeps
// in memory beside the records: five such requests may be under way to a broker.
// Larger ones would not be faster.
const MaxRequestBytes = 1 << 20

// Options are those of every client that produces, except the partitioner. Each call makes hooks.
func (b *Brokers) Options() ([]kgo.Opt, error) {
	compression, err := b.cfg.compression()
	if err != nil {
		return nil, err
	}
	opts, err := b.cfg.ClientOptions()
	if err != nil {
		return nil, err
	}
	hooks := []kgo.Hook{&b.Reach}
	for _, hook := range b.hooks {
		hooks = append(hooks, hook())
	}
	return append(opts,
		kgo.SoftwareNameAndVersion("cdc-relay", "1"),
		kgo.WithLogger(newClientLog(b.log)),
		kgo.WithHooks(hooks...),
		kgo.Dialer(b.cfg.Dial),
		// A client that owes metrics would wait for a second before it closes its
		// connections, which is longer than a relay that lost the slot has.
		kgo.DisableClientMetrics(),
		kgo.RequiredAcks(kgo.AllISRAcks()),
		compression,
		kgo.ProducerLinger(b.cfg.Linger),
		kgo.UnknownTopicRetries(broker.UnknownTries),
		// RecordRetries and RecordDeliveryTimeout stay unlimited: a record that was
		// given up may be durable, and the next one would be out of order.

		// The client counts four bytes more for a batch than the broker does, and
		// broker.BatchSize has refused what is over the limit.
		kgo.ProducerBatchMaxBytes(int32(b.cfg.MaxMessageBytes+4)),
		kgo.BrokerMaxWriteBytes(int32(max(MaxRequestBytes, b.cfg.MaxMessageBytes+64<<10))),
		kgo.MaxBufferedRecords(math.MaxInt32), // whoever sends is the bound; bytes have none by default

		kgo.ProducerOnDataLossDetected(b.onDataLoss),
	), nil
}

func (c Config) compression() (kgo.Opt, error) {
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
