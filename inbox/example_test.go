package inbox_test

import (
	"context"
	"database/sql"

	"github.com/cdc-relay/cdc-relay/inbox"
)

func ExampleInbox_OnceIn() {
	box, err := inbox.New(inbox.Config{Consumer: "billing"})
	if err != nil {
		panic(err)
	}
	_ = func(ctx context.Context, db *sql.DB, id string) error {
		_, err := box.OnceIn(ctx, db, inbox.ByID("order-events", id), func(ctx context.Context, tx *sql.Tx) error {
			_, err := tx.ExecContext(ctx, `INSERT INTO invoices (order_id) VALUES ($1)`, id)
			return err
		})
		return err
	}
}
