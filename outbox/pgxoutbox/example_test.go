package pgxoutbox_test

import (
	"context"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/cdc-relay/cdc-relay/outbox"
	"github.com/cdc-relay/cdc-relay/outbox/pgxoutbox"
)

func ExampleTx() {
	_ = func(ctx context.Context, pool *pgxpool.Pool, writer *outbox.Writer, id string) error {
		return pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
			if _, err := tx.Exec(ctx, `INSERT INTO orders (id, total) VALUES ($1, $2)`, id, 12); err != nil {
				return err
			}
			_, err := writer.Write(ctx, pgxoutbox.Tx(tx), outbox.Event{
				AggregateType: "order", AggregateID: id, Type: "OrderPlaced",
				Payload: map[string]int{"total": 12},
			})
			return err
		})
	}
}

func ExampleCopy() {
	_ = func(ctx context.Context, pool *pgxpool.Pool, writer *outbox.Writer, events []outbox.Event) error {
		return pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
			_, err := pgxoutbox.Copy(ctx, writer, tx, func(yield func(outbox.Event, error) bool) {
				for _, e := range events {
					if !yield(e, nil) {
						return
					}
				}
			})
			return err
		})
	}
}
