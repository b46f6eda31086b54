package pgxinbox_test

import (
	"context"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/cdc-relay/cdc-relay/inbox"
	"github.com/cdc-relay/cdc-relay/inbox/pgxinbox"
)

func ExampleTx() {
	_ = func(ctx context.Context, pool *pgxpool.Pool, box *inbox.Inbox, id, order string) error {
		return pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
			_, err := box.Once(ctx, pgxinbox.Tx(tx), inbox.ByID("order-events", id), func(ctx context.Context) error {
				_, err := tx.Exec(ctx, `INSERT INTO invoices (order_id) VALUES ($1)`, order)
				return err
			})
			return err
		})
	}
}
