package ends

import (
	"context"
	"slices"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/cdc-relay/cdc-relay/inbox/kafkainbox"
	"github.com/cdc-relay/cdc-relay/sandbox"
	"github.com/cdc-relay/cdc-relay/test/harness"
)

// Records of another producer have no key. With their place for one, each that is in the topic is
// handled, and none again when the group goes back.
func TestConsumer_RecordsWithoutAKeyAreHandledByTheirPlace(t *testing.T) {
	t.Parallel()
	s := newShop(t, harness.Postgres(t), harness.Kfake(t, sandbox.KafkaOptions{}), 1)
	cfg := s.config()
	cfg.Key = kafkainbox.KeyOrPlace
	var mu sync.Mutex
	var handled []string
	cfg.Handle = func(_ context.Context, _ pgx.Tx, r *kgo.Record) error {
		mu.Lock()
		defer mu.Unlock()
		handled = append(handled, string(r.Key))
		return nil
	}
	id := []kgo.RecordHeader{{Key: "id", Value: []byte("1")}}
	for _, r := range []kgo.Record{{Key: []byte("other's")}, {Key: []byte("ours"), Headers: id}, {Key: []byte("other's")}, {Key: []byte("ours"), Headers: id}} {
		s.send(t, []*kgo.Record{&r})
	}
	m := s.start(t, cfg)
	s.awaitCommitted(t)
	m.stop(t)
	s.rewind(t)
	s.db.Exec(t, "UPDATE inbox_progress SET next = 0")
	m = s.start(t, cfg)
	s.awaitCommitted(t)
	m.stop(t)
	if want := []string{"other's", "ours", "other's"}; !slices.Equal(handled, want) {
		t.Errorf("handled %q, want %q", handled, want)
	}
}
