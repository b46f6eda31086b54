package ends

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"text/tabwriter"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/cdc-relay/cdc-relay/outbox"
	"github.com/cdc-relay/cdc-relay/outbox/pgxoutbox"
	"github.com/cdc-relay/cdc-relay/test/harness"
)

const byHand = `INSERT INTO outbox (id, aggregate_type, aggregate_id, event_type, payload, headers, traceparent, idempotency_key) VALUES ($1, $2, $3, $4, $5, $6, $7, $8)`

// contestant writes events in a transaction that is given.
type contestant struct {
	name   string
	events int // a transaction
	write  func(ctx context.Context, tx pgx.Tx, events []outbox.Event) error
}

func contestants(b *testing.B) []contestant {
	keep, remove, message := writer(b, outbox.Config{}), writer(b, outbox.Config{Store: outbox.DeleteRow}), writer(b, outbox.Config{Store: outbox.Message})
	with := func(w *outbox.Writer) func(context.Context, pgx.Tx, []outbox.Event) error {
		return func(ctx context.Context, tx pgx.Tx, events []outbox.Event) error {
			_, err := w.Write(ctx, pgxoutbox.Tx(tx), events...)
			return err
		}
	}
	hand := func(ctx context.Context, tx pgx.Tx, events []outbox.Event) error {
		for i := range events {
			e := &events[i]
			if _, err := tx.Exec(ctx, byHand, outbox.NewUUID().String(), e.AggregateType, e.AggregateID, e.Type, e.Payload, nil, nil, nil); err != nil {
				return err
			}
		}
		return nil
	}
	batch := func(ctx context.Context, tx pgx.Tx, events []outbox.Event) error {
		queue := &pgx.Batch{}
		for i := range events {
			e := &events[i]
			queue.Queue(byHand, outbox.NewUUID().String(), e.AggregateType, e.AggregateID, e.Type, e.Payload, nil, nil, nil)
		}
		return tx.SendBatch(ctx, queue).Close()
	}
	unnest := func(ctx context.Context, tx pgx.Tx, events []outbox.Event) error {
		n := len(events)
		ids, kinds, keys, types, payloads := make([]string, n), make([]string, n), make([]string, n), make([]string, n), make([]string, n)
		for i := range events {
			e := &events[i]
			ids[i], kinds[i], keys[i], types[i], payloads[i] = outbox.NewUUID().String(), e.AggregateType, e.AggregateID, e.Type, string(e.Payload.([]byte))
		}
		_, err := tx.Exec(ctx, `INSERT INTO outbox (id, aggregate_type, aggregate_id, event_type, payload)
			SELECT * FROM unnest($1::uuid[], $2::text[], $3::text[], $4::text[], $5::jsonb[])`, ids, kinds, keys, types, payloads)
		return err
	}
	loaded := func(ctx context.Context, tx pgx.Tx, events []outbox.Event) error {
		_, err := pgxoutbox.Copy(ctx, keep, tx, func(yield func(outbox.Event, error) bool) {
			for _, e := range events {
				if !yield(e, nil) {
					return
				}
			}
		})
		return err
	}
	keyed := func(ctx context.Context, tx pgx.Tx, events []outbox.Event) error {
		for i := range events {
			events[i].IdempotencyKey = events[i].AggregateID
		}
		return with(keep)(ctx, tx, events)
	}
	return []contestant{
		{"INSERT by hand", 1, hand}, {"Write", 1, with(keep)}, {"Write, key", 1, keyed}, {"Write, DeleteRow", 1, with(remove)}, {"Write, Message", 1, with(message)},
		{"INSERTs by hand, pipelined", 100, batch}, {"unnest by hand", 100, unnest}, {"Write", 100, with(keep)}, {"Write, keys", 100, keyed}, {"Write, DeleteRow", 100, with(remove)}, {"Write, Message", 100, with(message)}, {"Copy", 100, loaded},
	}
}

// BenchmarkWriters prints all ways to write side by side. They take turns, transaction by
// transaction, so that whatever else the machine does meets all of them. The fastest tenth
// is what they take where nothing else is done.
func BenchmarkWriters(b *testing.B) {
	db := harness.Postgres(b)
	db.Exec(b, table(b))
	conn := db.Connect(b)
	all := contestants(b)
	times := make([][]time.Duration, len(all))
	serial := 0
	for round := 0; b.Loop(); round++ {
		for turn := range all {
			i := (turn + round) % len(all)
			c := all[i]
			events := make([]outbox.Event, c.events)
			for n := range events {
				serial++
				events[n] = outbox.Event{
					AggregateType: "order", AggregateID: fmt.Sprint("o-", serial), Type: "OrderPlaced",
					Payload: []byte(`{"order_id": "7f0c1c5e-0000-4000-8000-000000000001", "lines": [{"sku": "A-1", "n": 2}], "total": 28.75}`),
				}
			}
			began := time.Now()
			err := pgx.BeginFunc(b.Context(), conn, func(tx pgx.Tx) error { return c.write(b.Context(), tx, events) })
			times[i] = append(times[i], time.Since(began))
			if err != nil {
				b.Fatalf("%s: %v", c.name, err)
			}
		}
	}
	show(b, all, times)
}

func show(b *testing.B, all []contestant, times [][]time.Duration) {
	var text strings.Builder
	table := tabwriter.NewWriter(&text, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(table, "events a transaction\tway\tmedian\tbeside by hand\tfastest tenth\tbeside by hand\tevents/s\t")
	medians, tenths := map[int]time.Duration{}, map[int]time.Duration{}
	for i, c := range all {
		slices.Sort(times[i])
		median, tenth := times[i][len(times[i])/2], times[i][len(times[i])/10]
		if _, hand := medians[c.events]; !hand {
			medians[c.events], tenths[c.events] = median, tenth
		}
		fmt.Fprintf(table, "%d\t%s\t%s\t%+.1f %%\t%s\t%+.1f %%\t%.0f\t\n", c.events, c.name,
			median.Round(time.Microsecond), 100*(median.Seconds()/medians[c.events].Seconds()-1),
			tenth.Round(time.Microsecond), 100*(tenth.Seconds()/tenths[c.events].Seconds()-1), float64(c.events)/tenth.Seconds())
	}
	if err := table.Flush(); err != nil {
		b.Fatal(err)
	}
	if b.N > 1 {
		fmt.Fprintf(os.Stderr, "\n%s", &text)
	}
}
