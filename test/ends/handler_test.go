package ends

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/cdc-relay/cdc-relay/inbox/kafkainbox"
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

// A handler that ends the transaction by a statement takes the claims of the records behind it along.
// Run ends, at each start, until the handler is mended; then each of them has its effect.
func TestHandler_ThatEndsTheTransactionLosesNothing(t *testing.T) {
	t.Parallel()
	for _, way := range []string{"one at a time", "parallel", "offsets", "rounds"} {
		for _, statement := range []string{"COMMIT", "ROLLBACK"} {
			t.Run(way+" "+statement, func(t *testing.T) {
				t.Parallel()
				s := newShop(t, harness.Postgres(t), harness.Kfake(t, sandbox.KafkaOptions{}), 1)
				s.produce(t, 60, 3)
				bad := s.past[20]
				cfg := s.config()
				ways[way](&cfg)
				sound := cfg
				ends := func(ctx context.Context, tx pgx.Tx) error {
					if _, err := tx.Exec(ctx, statement); err != nil {
						t.Error(err)
					}
					return errPoison
				}
				if cfg.Handle != nil {
					cfg.Handle = func(ctx context.Context, tx pgx.Tx, r *kgo.Record) error {
						if r.Offset == bad.Offset {
							return ends(ctx, tx)
						}
						return journal(ctx, tx, r)
					}
				} else {
					cfg.HandleRound = func(ctx context.Context, tx pgx.Tx, records []*kgo.Record) error {
						for _, r := range records {
							if r.Offset == bad.Offset {
								return ends(ctx, tx)
							}
						}
						return sound.HandleRound(ctx, tx, records)
					}
				}
				for range 2 {
					e := stopsBy[*kafkainbox.TransactionError](t, s.start(t, cfg))
					if e.Err != nil || e.Offset > bad.Offset || e.Last < bad.Offset || cfg.Handle != nil && e.Offset != bad.Offset {
						t.Fatal(e)
					}
				}
				s.finish(t, s.start(t, sound))
			})
		}
	}
}
