package ends

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/cdc-relay/cdc-relay/inbox/kafkainbox"
	"github.com/cdc-relay/cdc-relay/sandbox"
	"github.com/cdc-relay/cdc-relay/test/harness"
	"github.com/cdc-relay/cdc-relay/test/harness/relaytest"
)

// troubles gives a test the troubles of a consumer.
func troubles(cfg *kafkainbox.Config) <-chan error {
	reported := make(chan error, 1000)
	cfg.Events.Trouble = func(err error) {
		select {
		case reported <- err:
		default: // it goes on, whoever looks
		}
	}
	return reported
}

// await returns the first trouble that is as it should be.
func await(t *testing.T, reported <-chan error, what string, is func(error) bool) error {
	t.Helper()
	patience := time.After(relaytest.Patience)
	last := errors.New("none")
	for {
		select {
		case err := <-reported:
			if is(err) {
				return err
			}
			last = err
		case <-patience:
			t.Fatalf("no trouble that reports %s; the last: %v", what, last)
		}
	}
}

// The client leaves a partition out for good if its committed offset cannot be fetched. The consumer
// reports it again and again, goes on with the others, and reads the partition when the cause is gone.
func TestConsumer_ReadsAPartitionWhoseOffsetWasRefused(t *testing.T) {
	t.Parallel()
	for _, way := range []string{"one at a time", "offsets", "server-side balancer"} {
		for _, refused := range []*kerr.Error{kerr.TopicAuthorizationFailed, kerr.UnknownServerError} {
			t.Run(way+" "+refused.Message, func(t *testing.T) {
				t.Parallel()
				s := newShop(t, harness.Postgres(t), harness.Kfake(t, sandbox.KafkaOptions{}), 2)
				cfg := s.config()
				ways[way](&cfg)
				s.unique = cfg.Offsets
				s.produce(t, 40, 20)
				others := 0
				for _, r := range s.past {
					if r.Partition == 0 {
						others++
					}
				}
				fault := s.brokers.Fake.Cluster().Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.OffsetFetch}, Topic: s.topic, Partitions: []int32{1}, Err: refused, Count: -1})
				reported := troubles(&cfg)
				m := s.start(t, cfg)
				for range 2 {
					await(t, reported, "the partition", func(err error) bool {
						return errors.Is(err, refused) && strings.Contains(err.Error(), "topic "+s.topic+", partition 1: it is not read")
					})
				}
				s.awaitEffects(t, others)
				if n := s.effects(t); n != others {
					t.Errorf("%d effects, and %d events in the other partition", n, others)
				}
				fault.Remove()
				s.finish(t, m)
			})
		}
	}
}

// The consumer reports what the client waits for in silence, and goes on when the cause is gone.
func TestConsumer_ReportsAPartitionThatStandsStill(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		fault kfake.Fault
		want  string
	}{
		"an offset that a transaction holds back": {kfake.Fault{Keys: []kmsg.Key{kmsg.OffsetFetch}, Err: kerr.UnstableOffsetCommit}, "it is not read, because its committed offset has not been known for"},
		"fetches that fail":                       {kfake.Fault{Keys: []kmsg.Key{kmsg.Fetch}, Err: kerr.KafkaStorageError}, "the brokers have sent nothing"},
		"offsets that are not there":              {kfake.Fault{Keys: []kmsg.Key{kmsg.ListOffsets}, Err: kerr.LeaderNotAvailable}, "look at its offsets: LEADER_NOT_AVAILABLE"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newShop(t, harness.Postgres(t), harness.Kfake(t, sandbox.KafkaOptions{}), 1)
			s.produce(t, 20, 3)
			c.fault.Topic, c.fault.Partitions, c.fault.Count = s.topic, []int32{0}, -1
			fault := s.brokers.Fake.Cluster().Fault(c.fault)
			cfg := s.config()
			reported := troubles(&cfg)
			m := s.start(t, cfg)
			await(t, reported, name, func(err error) bool {
				return strings.Contains(err.Error(), "topic "+s.topic+", partition 0: ") && strings.Contains(err.Error(), c.want)
			})
			fault.Remove()
			s.finish(t, m)
		})
	}
}

// The client stops at a batch that is too large when it is decompressed, and reports that once. Run ends
// with it, and the next start reads the batch where it may be so large.
func TestConsumer_EndsAtABatchThatIsTooLarge(t *testing.T) {
	t.Parallel()
	s := newShop(t, harness.Postgres(t), harness.Kfake(t, sandbox.KafkaOptions{}), 1)
	s.produce(t, 200, 3)
	cfg := s.config()
	small := cfg
	small.Kafka = append(cfg.Kafka[:len(cfg.Kafka):len(cfg.Kafka)], kgo.MaxDecompressBatchBytes(100))
	m := s.start(t, small)
	select {
	case err := <-m.done:
		var large *kgo.ErrDecompressTooLarge
		if !errors.As(err, &large) || !strings.Contains(err.Error(), "topic "+s.topic+", partition 0: ") || !strings.Contains(err.Error(), "MaxDecompressBatchBytes in Config.Kafka") {
			t.Error(err)
		}
	case <-time.After(relaytest.Patience):
		t.Fatal("it does not end")
	}
	s.finish(t, s.start(t, cfg))
}
