package ends

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/cdc-relay/cdc-relay/sandbox"
	"github.com/cdc-relay/cdc-relay/test/harness"
)

// A handler may put another value into its record, or drop it to free memory: the next attempt has the
// record as it was read, and the consumer goes on.
func TestHandler_MayChangeItsRecord(t *testing.T) {
	t.Parallel()
	s := newShop(t, harness.Postgres(t), harness.Kfake(t, sandbox.KafkaOptions{}), 1)
	s.produce(t, 1000, 3)
	cfg := s.config()
	cfg.RoundBytes = 20
	var failures atomic.Int32
	cfg.Handle = func(ctx context.Context, tx pgx.Tx, r *kgo.Record) error {
		err := journal(ctx, tx, r)
		r.Headers[0] = kgo.RecordHeader{}
		r.Topic, r.Partition, r.Offset, r.Key, r.Value, r.Headers = "", 7, 0, nil, nil, nil
		if failures.Add(1)%10 == 0 {
			return errors.New("at times")
		}
		return err
	}
	s.finish(t, s.start(t, cfg))
}
