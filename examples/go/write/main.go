// Write places orders and takes payments. Each change and its event are one transaction.
package main

import (
	"context"
	"log"
	"os"
	"strconv"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/cdc-relay/cdc-relay/outbox"
	"github.com/cdc-relay/cdc-relay/outbox/pgxoutbox"
)

type shop struct {
	db     *pgxpool.Pool
	events *outbox.Writer
}

type amount struct {
	Amount int `json:"amount"`
}

func (s *shop) placeOrder(ctx context.Context, order string, total int) error {
	return pgx.BeginFunc(ctx, s.db, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, `INSERT INTO orders (id, total) VALUES ($1, $2)`, order, total); err != nil {
			return err
		}
		_, err := s.events.Write(ctx, pgxoutbox.Tx(tx), outbox.Event{
			AggregateType: "order", AggregateID: order, Type: "OrderPlaced", Payload: amount{total},
			IdempotencyKey: outbox.Key("order", order, "placed"),
		})
		return err
	})
}

func (s *shop) payOrder(ctx context.Context, order string) error {
	return pgx.BeginFunc(ctx, s.db, func(tx pgx.Tx) error {
		var total int
		if err := tx.QueryRow(ctx, `UPDATE orders SET paid = true WHERE id = $1 RETURNING total`, order).Scan(&total); err != nil {
			return err
		}
		_, err := s.events.Write(ctx, pgxoutbox.Tx(tx), outbox.Event{
			AggregateType: "order", AggregateID: order, Type: "OrderPaid", Payload: amount{-total},
			IdempotencyKey: outbox.Key("order", order, "paid"),
		})
		return err
	})
}

func main() {
	ctx := context.Background()
	n := 1
	if len(os.Args) > 1 {
		n, _ = strconv.Atoi(os.Args[1])
	}
	db, err := pgxpool.New(ctx, os.Getenv("DATABASE_URL"))
	if err != nil {
		log.Fatal(err)
	}
	defer db.Close()
	events, err := outbox.New(outbox.Config{})
	if err != nil {
		log.Fatal(err)
	}
	s := &shop{db, events}
	for i := range n {
		order := uuid.NewString()
		if err := s.placeOrder(ctx, order, 1+i%100); err != nil {
			log.Fatal(err)
		}
		if err := s.payOrder(ctx, order); err != nil {
			log.Fatal(err)
		}
	}
}
