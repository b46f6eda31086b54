package ends

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/cdc-relay/cdc-relay/migrations"
	"github.com/cdc-relay/cdc-relay/outbox"
	"github.com/cdc-relay/cdc-relay/outbox/pgxoutbox"
	"github.com/cdc-relay/cdc-relay/sandbox"
	"github.com/cdc-relay/cdc-relay/test/harness"
	"github.com/cdc-relay/cdc-relay/test/harness/relaytest"
)

// shapes are those of the module by the name of their migration.
var shapes = map[string]outbox.Shape{
	"outbox": outbox.Outbox(), "polling": outbox.Polling(), "debezium": outbox.Debezium(), "debezium-quarkus": outbox.DebeziumQuarkus(), "drizzle": outbox.Drizzle(),
	"prisma": outbox.Prisma(), "open-outbox": outbox.OpenOutbox(), "typeorm": outbox.Typeorm(), "mikroorm": outbox.Mikroorm(), "outbox-kafka": outbox.OutboxKafka(),
	"generic": outbox.Generic(), "generic-topic": outbox.GenericTopic(), "generic-event": outbox.GenericEvent(), "generic-simple": outbox.GenericSimple(),
	"generic-aggregate": outbox.GenericAggregate(), "generic-aggregate-type": outbox.GenericAggregateType(),
}

const aKey = "0191e4a0-0000-7000-8000-000000000001"

// full has all that the shape has columns for.
func full(name string, s outbox.Shape) outbox.Event {
	e := outbox.Event{Payload: []byte(`{"n": 1}`)}
	if !s.ID.Generated {
		e.ID = outbox.NewUUID()
	}
	set := func(c outbox.Column, field *string, value string) {
		if c != (outbox.Column{}) {
			*field = value
		}
	}
	set(s.Key, &e.AggregateID, aKey)
	set(s.Route, &e.AggregateType, name)
	set(s.Topic, &e.Topic, name)
	set(s.Type, &e.Type, name+".Placed")
	set(s.IdempotencyKey, &e.IdempotencyKey, "once")
	if s.Headers != (outbox.Column{}) {
		e.Headers = map[string]string{"tenant": "acme"}
	}
	return e
}

// topic is where the relay's documentation says that the event goes.
func topic(name string, s outbox.Shape, e outbox.Event) string {
	t := strings.NewReplacer("${"+s.Route.Name+"}", e.AggregateType, "${"+s.Topic.Name+"}", e.Topic, "${"+s.Type.Name+"}", e.Type).Replace(s.TopicTemplate)
	if t == "" {
		return name
	}
	return t
}

// Each shape, as SQL for its table makes it, written one by one and several at once, arrives
// as the relay's preset reads it.
func TestWrite_EveryShapeArrives(t *testing.T) {
	t.Parallel()
	if len(shapes) != len(outbox.Shapes()) {
		t.Fatalf("%d shapes are tried, of %d", len(shapes), len(outbox.Shapes()))
	}
	db, brokers := harness.Postgres(t), harness.Kfake(t, sandbox.KafkaOptions{})
	var tables []string
	for name, shape := range shapes {
		up, err := migrations.Table(name, name, "outbox")
		if err != nil {
			t.Fatal(err)
		}
		db.Exec(t, `CREATE SCHEMA "`+name+`"`)
		db.Exec(t, up)
		entry := fmt.Sprintf(`{table: '"%s".outbox', preset: %s`, name, shape.Preset)
		if shape.TopicTemplate == "" {
			entry += ", topic: " + name
		}
		tables = append(tables, entry+"}")
		brokers.CreateTopic(t, topic(name, shape, full(name, shape)), 1)
	}
	p := relaytest.New(t, db, brokers, tables)
	p.Setup(t)
	conn := db.Connect(t)
	written := map[string][]outbox.Event{}
	for name, shape := range shapes {
		w := writer(t, outbox.Config{Table: `"` + name + `".outbox`, Shape: shape})
		events := []outbox.Event{full(name, shape), full(name, shape), full(name, shape)}
		events[1].IdempotencyKey, events[2].IdempotencyKey = "", ""
		written[name] = events
		err := pgx.BeginFunc(t.Context(), conn, func(tx pgx.Tx) error {
			if _, err := w.Write(context.Background(), pgxoutbox.Tx(tx), events[0]); err != nil {
				return err
			}
			_, err := w.Write(context.Background(), pgxoutbox.Tx(tx), events[1:]...)
			return err
		})
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	running := p.Start(t)
	running.AwaitStreaming(t)
	p.AwaitCaughtUp(t)
	running.Stop(t)
	for name, shape := range shapes {
		records := brokers.Read(t, topic(name, shape, written[name][0]))
		if len(records) != 3 {
			t.Errorf("%s: %d records", name, len(records))
			continue
		}
		for i, r := range records {
			compare(t, name, shape, written[name][i], text(r))
		}
	}
}

func compare(t *testing.T, name string, s outbox.Shape, e outbox.Event, got string) {
	t.Helper()
	var want []string
	if s.Key != (outbox.Column{}) {
		want = append(want, "key "+aKey)
	}
	if !s.ID.Generated {
		want = append(want, "id "+e.ID.String())
	}
	if e.IdempotencyKey != "" {
		want = append(want, "idempotency_key once")
	}
	if e.Headers != nil {
		want = append(want, "tenant acme")
	}
	for _, line := range append(want, `{"n": 1}`) {
		if !strings.Contains("\n"+got+"\n", "\n"+line+"\n") {
			t.Errorf("%s: no line %q in\n%s", name, line, got)
		}
	}
	if e.IdempotencyKey == "" && strings.Contains(got, "idempotency_key") {
		t.Errorf("%s: an idempotency key that nobody gave:\n%s", name, got)
	}
}

// The module finds in the catalog what the tables of the migrations are for, with pgx and with
// database/sql, and writes a row that the table takes.
func TestDetect_KnowsTheTableOfEveryShape(t *testing.T) {
	t.Parallel()
	db := harness.Postgres(t)
	conn := db.Connect(t)
	standard := open(t, "pgx", db.URL)
	for name, want := range shapes {
		up, err := migrations.Table(name, name, "outbox")
		if err != nil {
			t.Fatal(err)
		}
		db.Exec(t, `CREATE SCHEMA "`+name+`"`)
		db.Exec(t, up)
		cfg := outbox.Config{Table: `"` + name + `".outbox`}
		var w *outbox.Writer
		err = pgx.BeginFunc(t.Context(), conn, func(tx pgx.Tx) (err error) {
			w, err = outbox.Detect(t.Context(), pgxoutbox.Tx(tx), cfg)
			return err
		})
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		tx, err := standard.BeginTx(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		again, err := outbox.Detect(t.Context(), outbox.SQL(tx), cfg)
		if err != nil || fmt.Sprint(again.Shape()) != fmt.Sprint(w.Shape()) {
			t.Errorf("%s: another shape with database/sql (%v)", name, err)
		}
		if got := columnNames(w.Shape()); got != columnNames(want) {
			t.Errorf("%s: %s, want %s", name, got, columnNames(want))
		}
		if _, err := w.Write(t.Context(), outbox.SQL(tx), full(name, w.Shape())); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if err := tx.Commit(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func columnNames(s outbox.Shape) string {
	return fmt.Sprint(s.ID.Name, s.ID.Generated, " ", s.Route.Name, " ", s.Key.Name, " ", s.Topic.Name, " ", s.Type.Name, " ", s.Payload.Name, " ", s.Headers.Name, " ", s.Trace.Name, " ", s.IdempotencyKey.Name, s.Now)
}
