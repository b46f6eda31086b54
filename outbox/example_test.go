package outbox_test

import (
	"context"
	"database/sql"
	"fmt"

	"github.com/cdc-relay/cdc-relay/outbox"
)

func ExampleWriter_Write() {
	writer, err := outbox.New(outbox.Config{}) // our own table, public.outbox
	if err != nil {
		fmt.Println(err)
		return
	}
	_ = func(ctx context.Context, db *sql.DB, id string) error {
		tx, err := db.BeginTx(ctx, nil)
		if err != nil {
			return err
		}
		defer tx.Rollback()
		if _, err := tx.ExecContext(ctx, `INSERT INTO orders (id, total) VALUES ($1, $2)`, id, 12); err != nil {
			return err
		}
		_, err = writer.Write(ctx, outbox.SQL(tx), outbox.Event{
			AggregateType: "order", AggregateID: id, Type: "OrderPlaced",
			Payload: map[string]int{"total": 12},
		})
		if err != nil {
			return err
		}
		return tx.Commit()
	}
}

func ExampleNew() {
	shape := outbox.Debezium()
	shape.Payload.Type = "json"
	_, err := outbox.New(outbox.Config{Table: `sales."OutboxEvent"`, Shape: shape})
	fmt.Println(err)

	shape.Payload.Type = "point"
	_, err = outbox.New(outbox.Config{Table: `sales."OutboxEvent"`, Shape: shape})
	fmt.Println(err)
	// Output:
	// <nil>
	// make writer: shape debezium: column for the payload: type "point" is none that a writer fills; allowed: uuid, text, varchar(n), smallint, integer, bigint, json, jsonb, bytea
}

func ExampleEventError() {
	writer, err := outbox.New(outbox.Config{})
	if err != nil {
		fmt.Println(err)
		return
	}
	tx := outbox.SQL(new(sql.Tx)) // no statement is sent
	_, err = writer.Write(context.Background(), tx, outbox.Event{AggregateType: "an order", AggregateID: "7", Type: "Placed", Payload: 1})
	fmt.Println(err)
	// Output: write event 1: aggregate type: gives a topic that Kafka does not allow: a name has only letters and digits of ASCII, dot, underscore and hyphen
}

func ExampleParseUUID() {
	id, err := outbox.ParseUUID("0191E4A0-0000-7000-8000-000000000001")
	fmt.Println(id, err)
	// Output: 0191e4a0-0000-7000-8000-000000000001 <nil>
}
