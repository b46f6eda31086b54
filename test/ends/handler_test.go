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

// A handler may end the transaction and begin another one by the same statement, such as COMMIT AND CHAIN. The
// server's status is the same as before then, whatever the handler does next. Run ends; no claim stays without
// its work, and no work without its claim.
func TestHandler_ThatBeginsAnotherTransactionLosesNothing(t *testing.T) {
	t.Parallel()
	nexts := map[string]func(context.Context, pgx.Tx) error{
		"returns nil": func(context.Context, pgx.Tx) error { return nil },
		"fails":       func(context.Context, pgx.Tx) error { return errPoison },
		"aborts": func(ctx context.Context, tx pgx.Tx) error {
			_, err := tx.Exec(ctx, "SELECT 1/0")
			return err
		},
		"hides an error": func(ctx context.Context, tx pgx.Tx) error {
			_, _ = tx.Exec(ctx, "SELECT 1/0") // what is tried here
			return nil
		},
	}
	for _, way := range []string{"one at a time", "parallel", "offsets", "rounds"} {
		for _, statement := range []string{"COMMIT AND CHAIN", "ROLLBACK AND CHAIN", "COMMIT; BEGIN"} {
			for next, then := range nexts {
				t.Run(way+" "+statement+" "+next, func(t *testing.T) {
					t.Parallel()
					s := newShop(t, harness.Postgres(t), harness.Kfake(t, sandbox.KafkaOptions{}), 1)
					s.produce(t, 60, 3)
					bad := s.past[20]
					cfg := s.config()
					ways[way](&cfg)
					// What was committed with the claims that are taken back is there when its record comes again.
					once := func(ctx context.Context, tx pgx.Tx, r *kgo.Record) error {
						_, err := tx.Exec(ctx, "INSERT INTO journal (event, key, seq) SELECT $1::text, $2, $3 WHERE NOT EXISTS (SELECT FROM journal WHERE event = $1::text)", header(r, "id"), string(r.Key), number(r))
						return err
					}
					rounds := func(handle func(context.Context, pgx.Tx, *kgo.Record) error) {
						if cfg.HandleRound == nil {
							cfg.Handle = handle
							return
						}
						cfg.HandleRound = func(ctx context.Context, tx pgx.Tx, records []*kgo.Record) error {
							for _, r := range records {
								if err := handle(ctx, tx, r); err != nil {
									return err
								}
							}
							return nil
						}
					}
					rounds(func(ctx context.Context, tx pgx.Tx, r *kgo.Record) error {
						if r.Offset != bad.Offset {
							return once(ctx, tx, r)
						}
						if _, err := tx.Exec(ctx, statement); err != nil {
							t.Error(err)
						}
						if err := once(ctx, tx, r); err != nil {
							t.Error(err)
						}
						return then(ctx, tx)
					})
					for range 2 {
						e := stopsBy[*kafkainbox.TransactionError](t, s.start(t, cfg))
						if e.Err != nil || !e.Another || e.Offset > bad.Offset || e.Last < bad.Offset {
							t.Fatal(e)
						}
					}
					rounds(once)
					s.finish(t, s.start(t, cfg))
				})
			}
		}
	}
}
