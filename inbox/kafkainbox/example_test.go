package kafkainbox_test

import (
	"context"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/cdc-relay/cdc-relay/inbox/kafkainbox"
)

func Example() {
	_ = func(ctx context.Context, pool *pgxpool.Pool) error {
		consumer, err := kafkainbox.New(kafkainbox.Config{
			Consumer: "billing", Brokers: []string{"b1:9092"}, Topics: []string{"order-events"}, DB: pool,
			Handle: func(ctx context.Context, tx pgx.Tx, record *kgo.Record) error {
				_, err := tx.Exec(ctx, `INSERT INTO invoices (order_id) VALUES ($1)`, string(record.Key))
				return err
			},
			DeadLetterTopic: "billing.dead-letters",
		})
		if err != nil {
			return err
		}
		return consumer.Run(ctx)
	}
}
