package upkeep

import (
	"testing"

	"github.com/cdc-relay/cdc-relay/postgres"
	"github.com/cdc-relay/cdc-relay/relay"
	"github.com/cdc-relay/cdc-relay/replication/wal"
	"github.com/cdc-relay/cdc-relay/sandbox"
	"github.com/cdc-relay/cdc-relay/sink/broker"
	"github.com/cdc-relay/cdc-relay/test/harness"
	"github.com/rs/zerolog"
)

func TestMain(m *testing.M) { harness.Main(m) }

// Jobs of one process read the topics together, as long as one of them is at work.
func TestReaders_AreSharedUntilTheLastJobEnds(t *testing.T) {
	db, brokers := harness.Postgres(t), harness.Kfake(t, sandbox.KafkaOptions{})
	var cfg Config
	cfg.Relay.Replication = postgres.Config{URL: db.URL, Slot: "slot", Publication: "slot", Tables: []wal.Table{{Schema: "public", Name: "outbox"}}, Shard: postgres.Shard{Count: 1, Slot: "slot", Publication: "slot"}}
	cfg.Relay.Kafka.Connection = broker.Connection{Brokers: brokers.Addrs}
	cfg.Relay.Guarantee, cfg.Relay.DetectMovedSlot = relay.AtLeastOnce, true
	var readers Readers
	take := func() (any, func()) {
		t.Helper()
		reader, release, err := readers.take(t.Context(), &cfg, zerolog.Nop())
		if err != nil {
			t.Fatal(err)
		}
		return reader, release
	}
	first, releaseFirst := take()
	second, releaseSecond := take()
	if first != second {
		t.Error("two jobs have a reader each")
	}
	releaseFirst()
	third, releaseThird := take()
	if third != first {
		t.Error("a job that ended took the reader away from the other one")
	}
	releaseSecond()
	releaseThird()
	if readers.now != nil {
		t.Fatal("nobody reads, and the reader is open")
	}
	fourth, releaseFourth := take()
	if fourth == first {
		t.Error("a reader that was closed is given out")
	}
	releaseFourth()
}
