package integration

import (
	"fmt"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/cdc-relay/cdc-relay/test/harness"
	"github.com/cdc-relay/cdc-relay/test/harness/relaytest"
)

// shape is a table that `preset: auto` must understand, and what one row of it
// becomes. `§` stands for a part of the topic that no other test has.
type shape struct {
	name    string
	columns string
	insert  string
	topic   string
	record  string
}

const uuidA = "6f1b1a52-0f0f-4a3d-9d0a-3b9f6c1d2e01"
const uuidB = "0b8c6c1e-7a55-4a3c-8f57-2f1f0a9b8c7d"

var shapes = []shape{
	{
		name: "with_idempotency_key",
		columns: `id uuid PRIMARY KEY, aggregate_type varchar(100), aggregate_id uuid, event_type varchar(100), payload jsonb,
			idempotency_key varchar(255) UNIQUE, created_at timestamptz DEFAULT now(), published_at timestamptz, retry_count int DEFAULT 0, last_error text`,
		insert: `(id, aggregate_type, aggregate_id, event_type, payload, idempotency_key)
			VALUES ('` + uuidA + `', '§', '` + uuidB + `', 'OrderPlaced', '{"b": 1, "a": "ü"}', 'once')`,
		topic:  "§-events",
		record: "key " + uuidB + "\nid " + uuidA + "\neventType OrderPlaced\nidempotency_key once\n" + `{"a": "ü", "b": 1}`,
	},
	{
		name: "by_event_type",
		columns: `id uuid PRIMARY KEY, event_type text, payload jsonb, aggregate_id text, created_at timestamptz DEFAULT now(),
			published_at timestamptz, publish_attempts int DEFAULT 0, error text`,
		insert: `(id, event_type, payload, aggregate_id) VALUES ('` + uuidA + `', '§', '{"n": 2}', 'order 7')`,
		topic:  "§",
		record: "key order 7\nid " + uuidA + "\neventType §\n" + `{"n": 2}`,
	},
	{
		name:    "without_key",
		columns: `id uuid PRIMARY KEY, aggregate text, event_type text, payload jsonb, created_at timestamptz DEFAULT now(), sent_at timestamptz`,
		insert:  `(id, aggregate, event_type, payload) VALUES ('` + uuidA + `', '§', 'Sent', '[]')`,
		topic:   "§-events",
		record:  "key " + uuidA + "\nid " + uuidA + "\neventType Sent\n[]",
	},
	{
		name:    "serial",
		columns: `id bigserial PRIMARY KEY, event_type text, payload jsonb, created_at timestamptz DEFAULT now(), published_at timestamptz, retry_count int DEFAULT 0`,
		insert:  `(id, event_type, payload) VALUES (4711, '§', '"text"')`,
		topic:   "§",
		record:  "key 4711\nid 4711\neventType §\n" + `"text"`,
	},
	{
		name:    "debezium",
		columns: `id uuid PRIMARY KEY, aggregatetype varchar(255), aggregateid varchar(255), type varchar(255), payload jsonb`,
		insert:  `(id, aggregatetype, aggregateid, type, payload) VALUES ('` + uuidA + `', '§', 'c-1', 'Created', NULL)`,
		topic:   "outbox.event.§",
		record:  "key c-1\nid " + uuidA + "\nnull",
	},
}

// Every shape is a table of its own schema behind one slot.
func TestShapes_AreUnderstoodWithoutFurtherKeys(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, db *harness.Database, brokers *harness.Brokers) {
		var tables []string
		for _, s := range shapes {
			db.Exec(t, fmt.Sprintf("CREATE SCHEMA %s; CREATE TABLE %s.outbox (%s)", s.name, s.name, s.columns))
			tables = append(tables, fmt.Sprintf("{table: %s.outbox, preset: auto}", s.name))
		}
		p := relaytest.New(t, db, brokers, tables)
		p.Setup(t)
		unique := map[string]string{}
		for _, s := range shapes {
			unique[s.name] = harness.Unique(t, s.name)
			brokers.CreateTopic(t, strings.ReplaceAll(s.topic, "§", unique[s.name]), 3)
			db.Exec(t, fmt.Sprintf("INSERT INTO %s.outbox %s", s.name, strings.ReplaceAll(s.insert, "§", unique[s.name])))
		}
		running := p.Exec(t, "run", "--set", "kafka.compression=snappy")
		p.AwaitCaughtUp(t)
		running.Terminate(t)
		if code := running.Wait(t); code != 0 {
			t.Errorf("exit code = %d", code)
		}
		for _, s := range shapes {
			records := brokers.Read(t, strings.ReplaceAll(s.topic, "§", unique[s.name]))
			if len(records) != 1 {
				t.Errorf("%s: records = %d, want 1", s.name, len(records))
				continue
			}
			if got, want := text(records[0]), strings.ReplaceAll(s.record, "§", unique[s.name]); got != want {
				t.Errorf("%s:\n%s\nwant:\n%s", s.name, got, want)
			}
		}
		for _, name := range []string{"without_key", "serial"} {
			if !strings.Contains(running.Output(), name+".outbox") {
				t.Errorf("no warning names %s.outbox, whose rows have no ordering key:\n%s", name, running.Output())
			}
		}
	})
}

// text is a record to read: key, headers in their order, value.
func text(record *kgo.Record) string {
	lines := []string{"key " + string(record.Key)}
	for _, header := range record.Headers {
		lines = append(lines, header.Key+" "+string(header.Value))
	}
	value := string(record.Value)
	if record.Value == nil {
		value = "null"
	}
	return strings.Join(append(lines, value), "\n")
}
