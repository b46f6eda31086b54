// Consume keeps a ledger of orders: one line for each event, whatever is delivered twice.
package main

import (
	"cmp"
	"context"
	"encoding/json"
	"log"
	"log/slog"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/cdc-relay/cdc-relay/inbox/kafkainbox"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx); err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context) error {
	db, err := pgxpool.New(ctx, os.Getenv("DATABASE_URL"))
	if err != nil {
		return err
	}
	defer db.Close()
	consumer, err := kafkainbox.New(kafkainbox.Config{
		Consumer: "billing", // in the table; no other handler has this name
		Group:    cmp.Or(os.Getenv("GROUP"), "billing"),
		Brokers:  strings.Split(cmp.Or(os.Getenv("KAFKA_BROKERS"), "localhost:9092"), ","),
		Topics:   []string{cmp.Or(os.Getenv("TOPIC"), "order-events")},
		DB:       db,
		Handle:   handle,
		Logger:   slog.Default(),
	})
	if err != nil {
		return err
	}
	return consumer.Run(ctx)
}

func handle(ctx context.Context, tx pgx.Tx, record *kgo.Record) error {
	var payload struct {
		Amount int `json:"amount"`
	}
	if err := json.Unmarshal(record.Value, &payload); err != nil {
		return kafkainbox.Permanent(err) // no further attempt can cure it
	}
	_, err := tx.Exec(ctx, `INSERT INTO ledger (order_id, event, amount) VALUES ($1, $2, $3)`, string(record.Key), header(record, "eventType"), payload.Amount)
	return err
}

func header(record *kgo.Record, name string) string {
	for _, h := range record.Headers {
		if h.Key == name {
			return string(h.Value)
		}
	}
	return ""
}
