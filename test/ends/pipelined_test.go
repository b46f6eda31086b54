package ends

import (
	"fmt"
	"strconv"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/cdc-relay/cdc-relay/inbox/kafkainbox"
	"github.com/cdc-relay/cdc-relay/sandbox"
	"github.com/cdc-relay/cdc-relay/test/harness"
)

// The statements of a round are sent at once. One that fails is its record's fault alone, and the
// effects of the others are there once and in order.
func TestPoison_OfAPipelinedRoundIsItsRecordAlone(t *testing.T) {
	t.Parallel()
	s := newShop(t, harness.Postgres(t), harness.Kfake(t, sandbox.KafkaOptions{}), 1)
	letters := s.topic + "-dead-letters"
	s.brokers.CreateTopic(t, letters, 1)
	cfg := s.config()
	cfg.DeadLetterTopic, cfg.Retry.Attempts = letters, 2
	cfg.Handle, cfg.HandleRound = nil, kafkainbox.Pipelined(func(batch *pgx.Batch, r *kgo.Record) error {
		event := string(r.Headers[0].Value)
		switch event {
		case "k1-3":
			return kafkainbox.Permanent(errPoison)
		case "k2-4":
			batch.Queue("SELECT 1 / 0")
		}
		batch.Queue("INSERT INTO journal (event, key, seq) VALUES ($1, $2, $3)", event, string(r.Key), number(r))
		return nil
	})
	for s.seqs["k1"] < 4 || s.seqs["k2"] < 5 {
		s.produce(t, 60, 4)
	}
	m := s.start(t, cfg)
	s.awaitCommitted(t)
	m.stop(t)
	s.verify(t, "k1-3", "k2-4")
	dead := map[string]bool{}
	for _, r := range s.brokers.Read(t, letters) {
		dead[header(r, "id")+" "+strconv.FormatInt(number(r), 10)] = true
	}
	if fmt.Sprint(dead) != "map[k1-3 3:true k2-4 4:true]" {
		t.Errorf("dead letters of %v", dead)
	}
}
