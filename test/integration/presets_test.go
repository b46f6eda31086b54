package integration

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/cdc-relay/cdc-relay/migrations"
	"github.com/cdc-relay/cdc-relay/router/preset"
	"github.com/cdc-relay/cdc-relay/test/harness"
	"github.com/cdc-relay/cdc-relay/test/harness/relaytest"
)

// presetShape is a row as the framework of a preset writes it, and the record it
// becomes. § stands for the preset's name, which keeps the topics apart.
type presetShape struct {
	table   string // default: outbox
	insert  string // columns and values
	topic   string
	record  string
	setting string // beyond the table's name; the preset must then be named
	preset  string // default: the name of the shape
}

const traceA = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"

var presetShapes = map[string]presetShape{
	"outbox": {
		insert: `(id, aggregate_type, aggregate_id, event_type, payload, headers, traceparent, idempotency_key)
			VALUES ('` + uuidA + `', '§', 'order 7', 'Placed', '{"n": 1}', '{"tenant": "acme"}', '` + traceA + `', 'once')`,
		topic: "§-events", record: "key order 7\nid " + uuidA + "\neventType Placed\nidempotency_key once\ntenant acme\ntraceparent " + traceA + "\n" + `{"n": 1}`,
	},
	"polling": {
		insert: `(id, aggregate_type, aggregate_id, event_type, payload, idempotency_key) VALUES ('` + uuidA + `', '§', '` + uuidB + `', 'Placed', '{"n": 1}', 'once')`,
		topic:  "§-events", record: "key " + uuidB + "\nid " + uuidA + "\neventType Placed\nidempotency_key once\n" + `{"n": 1}`,
		preset: "outbox",
	},
	"debezium": {
		insert: `(id, aggregatetype, aggregateid, type, payload) VALUES ('` + uuidA + `', '§', 'o-1', 'Placed', '{"n": 1}')`,
		topic:  "outbox.event.§", record: "key o-1\nid " + uuidA + "\n" + `{"n": 1}`,
	},
	"debezium-quarkus": {
		table: `"OutboxEvent"`,
		insert: `(id, aggregatetype, aggregateid, type, timestamp, payload, tracingspancontext) VALUES ('` + uuidA + `', '§', 'o-1', 'Placed', now(), '{"n":1}',
			E'#Tue Jan 02 12:00:00 UTC 2024\ntraceparent=` + traceA + `\ntracestate=a\\=b\n')`,
		topic: "outbox.event.§", record: "key o-1\nid " + uuidA + "\ntraceparent " + traceA + "\ntracestate a=b\n" + `{"n":1}`,
	},
	"eventuate-tram": {
		table: "message",
		insert: `(id, destination, headers, payload, published, creation_time) VALUES ('` + uuidA + `', '§',
			'{"ID":"` + uuidA + `","PARTITION_ID":"o-1","event-type":"Placed"}', '{"n":1}', 0, 1704196800000)`,
		topic: "§", record: "key o-1\nid " + uuidA + "\neventType Placed\nID " + uuidA + "\nPARTITION_ID o-1\nevent-type Placed\n" +
			`{"payload":"{\"n\":1}","headers":{"ID":"` + uuidA + `","PARTITION_ID":"o-1","event-type":"Placed"}}`,
	},
	"axon": {
		table: "domain_event_entry",
		insert: `(event_identifier, meta_data, payload, payload_revision, payload_type, time_stamp, aggregate_identifier, sequence_number, type)
			VALUES ('` + uuidA + `', '{}', '{"n":1}', '2', 'Placed', '2024-01-02T12:00:00Z', 'o-1', 4, '§')`,
		topic: "§-events", record: "key o-1\nid " + uuidA + "\neventType Placed\nsequence_number 4\npayload_revision 2\n" + `{"n":1}`,
	},
	"outbox-kafka": {
		table:  "outbox_kafka",
		insert: `(id, created, topic, key, value, headers) VALUES (7, now(), '§', 'o-1', '\x6e31', '{"x-sequence": "1"}')`,
		topic:  "§", record: "key o-1\nid 7\nx-sequence 1\nn1",
	},
	"namastack": {
		table: "outbox_record",
		insert: `(id, status, aggregate_id, event_type, payload, created_at, retry_count, next_retry_at)
			VALUES ('` + uuidA + `', 'NEW', 'o-1', '§', '{"n":1}', now(), 0, now())`,
		topic: "§", record: "key o-1\nid " + uuidA + "\neventType §\n" + `{"n":1}`,
	},
	"brighter": {
		insert: `(messageid, topic, messagetype, timestamp, contenttype, partitionkey, headerbag, body, type, traceparent, tracestate)
			VALUES ('` + uuidA + `', '§', 'MT_EVENT', now(), 'application/json', 'o-1', '{"tenant":"t1"}', '{"n":1}', NULL, '` + traceA + `', 'a=b')`,
		topic: "§", record: "key o-1\nid " + uuidA + "\neventType MT_EVENT\ncontent-type application/json\ntracestate a=b\ntenant t1\ntraceparent " + traceA + "\n" + `{"n":1}`,
	},
	"eshop": {
		table: `"IntegrationEventLog"`,
		insert: `("EventId", "EventTypeName", "State", "TimesSent", "CreationTime", "Content", "TransactionId")
			VALUES ('` + uuidA + `', 'Shop.§', 0, 0, now(), '{"OrderId":5}', '` + uuidB + `')`,
		topic: "Shop.§", record: "key " + uuidA + "\nid " + uuidA + "\neventType Shop.§\ntransactionId " + uuidB + "\n" + `{"OrderId":5}`,
	},
	"marten": {
		table: "mt_events",
		insert: `(seq_id, id, stream_id, version, data, type, mt_dotnet_type, headers)
			VALUES (1, '` + uuidA + `', 'o-1', 3, '{"n": 1}', '§', 'Shop.Placed', '{"user": "u1"}')`,
		topic: "§", record: "key o-1\nid " + uuidA + "\neventType §\nversion 3\ntenant_id *DEFAULT*\nuser u1\n" + `{"n": 1}`,
	},
	"watermill": {
		table:  "watermill_§",
		insert: `(uuid, payload, metadata, transaction_id) VALUES ('` + uuidA + `', '{"n":1}', '{"name":"Placed"}', pg_current_xact_id())`,
		topic:  "§", record: "key " + uuidA + "\nid " + uuidA + "\nname Placed\n" + `{"n":1}`,
	},
	"watermill-forwarder": {
		table: "watermill_forwarder_topic",
		insert: `(uuid, payload, metadata, transaction_id) VALUES ('` + uuidA + `',
			'{"destination_topic":"§","uuid":"` + uuidB + `","payload":"eyJuIjogMX0=","metadata":{"name":"Placed"}}', '{}', pg_current_xact_id())`,
		topic: "§", record: "key " + uuidB + "\nid " + uuidB + "\nname Placed\n" + `{"n": 1}`,
	},
	"goharvest": {
		insert: `(create_time, kafka_topic, kafka_key, kafka_value, kafka_header_keys, kafka_header_values)
			VALUES (now(), '§', 'o-1', NULL, ARRAY['tenant', 'a b'], ARRAY['t1', 'x"y'])`,
		topic: "§", record: "key o-1\nid 1\ntenant t1\na b x\"y\nnull",
	},
	"pgx-outbox": {
		table:  "outbox_messages",
		insert: `(broker, topic, metadata, payload) VALUES ('kafka', '§', '{"tenant": "t1"}', '{"n": 1}')`,
		topic:  "§", record: "key 1\nid 1\ntenant t1\n" + `{"n": 1}`,
	},
	"outboxd": {
		insert: `(topic, payload, aggregate_id) VALUES ('§', 'bytes', 'o-1')`, setting: "preset: outboxd",
		topic: "§", record: "key o-1\nid 1\nbytes",
	},
	"open-outbox": {
		table:  "openoutbox_events",
		insert: `(event_id, event_type, partition_key, payload, headers) VALUES ('` + uuidA + `', '§', 'o-1', '{"n": 1}', '{"tenant": "t1"}')`,
		topic:  "§", record: "key o-1\nid " + uuidA + "\neventType §\ntenant t1\n" + `{"n": 1}`,
	},
	"pg-transactional-outbox": {
		insert: `(id, aggregate_type, aggregate_id, message_type, payload, metadata) VALUES ('` + uuidA + `', '§', 'o-1', 'placed', '{"n": 1}', '{"tenant": "t1"}')`,
		topic:  "§-events", record: "key o-1\nid " + uuidA + "\neventType placed\ntenant t1\n" + `{"n": 1}`,
	},
	"sbmt": {
		insert: `(uuid, event_name, event_key, bucket, options, payload) VALUES ('` + uuidA + `', '§', 'o-1', 3, '{"headers": {"tenant": "t1"}}', 'proto')`,
		topic:  "§", record: "key o-1\nid " + uuidA + "\neventType §\ntenant t1\nproto",
	},
	"rails-event-store": {
		table:  "event_store_events",
		insert: `(event_id, event_type, metadata, data, created_at) VALUES ('` + uuidA + `', 'Ordering::Placed', '{"user": "u1"}', '{"n": 1}', now())`, setting: "topic: rails-event-store",
		topic: "§", record: "key " + uuidA + "\nid " + uuidA + "\neventType Ordering::Placed\nuser u1\n" + `{"n": 1}`,
	},
	"django-outbox-pattern": {
		table:  "published",
		insert: `(id, version, destination, body, added, headers) VALUES ('` + uuidA + `', 'v1', '/topic/§.v1', '{"n": 1}', now(), '{"tenant": "t1"}')`,
		topic:  "§.v1", record: "key " + uuidA + "\nid " + uuidA + "\ntenant t1\n" + `{"n": 1}`,
	},
	"laravel": {
		insert: `(topic, key, event_type, payload, headers) VALUES ('§', 'o-1', 'Placed', '{"n":1}', '{"tenant":"t1"}')`,
		topic:  "§", record: "key o-1\nid 1\neventType Placed\ntenant t1\n" + `{"n":1}`,
	},
	"prisma": {
		table:  `"OutboxEvent"`,
		insert: `(id, "aggregateType", "aggregateId", "eventName", payload, metadata) VALUES ('cuid1', '§', 'o-1', 'Placed', '{"n": 1}', '{"tenant": "t1"}')`,
		topic:  "§-events", record: "key o-1\nid cuid1\neventType Placed\ntenant t1\n" + `{"n": 1}`,
	},
	"typeorm": {
		table:  "outbox_messages",
		insert: `(id, type, aggregate_id, payload) VALUES ('` + uuidA + `', '§', 'o-1', '{"n": 1}')`,
		topic:  "§", record: "key o-1\nid " + uuidA + "\neventType §\n" + `{"n": 1}`,
	},
	"mikroorm": {
		insert: `(id, topic, payload) VALUES ('01HX', '§', '{"n": 1}')`,
		topic:  "§", record: "key 01HX\nid 01HX\n" + `{"n": 1}`,
	},
	"drizzle": {
		table:  "outbox_events",
		insert: `(id, aggregate_type, aggregate_id, event_type, payload) VALUES ('` + uuidA + `', '§', 'o-1', 'Placed', '{"n": 1}')`,
		topic:  "§-events", record: "key o-1\nid " + uuidA + "\neventType Placed\n" + `{"n": 1}`,
	},
	"generic-topic": {
		insert: `(id, topic, key, event_type, payload, headers) VALUES ('` + uuidA + `', '§', 'o-1', 'Placed', '{"n": 1}', '{"tenant": "t1"}')`,
		topic:  "§", record: "key o-1\nid " + uuidA + "\neventType Placed\ntenant t1\n" + `{"n": 1}`,
	},
	"generic-aggregate": {
		insert: `(id, aggregate_type, aggregate_id, event_type, payload) VALUES ('` + uuidA + `', '§', 'o-1', 'Placed', '{"n": 1}')`,
		topic:  "§-events", record: "key o-1\nid " + uuidA + "\neventType Placed\n" + `{"n": 1}`,
	},
	"generic-event": {
		insert: `(id, event_type, aggregate_id, payload) VALUES ('` + uuidA + `', '§', 'o-1', '{"n": 1}')`,
		topic:  "§", record: "key o-1\nid " + uuidA + "\neventType §\n" + `{"n": 1}`,
	},
	"generic-simple": {
		insert: `(event_type, payload) VALUES ('§', '{"n": 1}')`,
		topic:  "§", record: "key 1\nid 1\neventType §\n" + `{"n": 1}`,
	},
	"generic-aggregate-type": {
		insert: `(id, aggregate, event_type, payload) VALUES ('` + uuidA + `', '§', 'placed', '{"n": 1}')`,
		topic:  "§-events", record: "key " + uuidA + "\nid " + uuidA + "\neventType placed\n" + `{"n": 1}`,
	},
	"generic": {
		insert: `(id, payload) VALUES ('` + uuidA + `', '{"n": 1}')`, setting: "topic: generic",
		topic: "§", record: "key " + uuidA + "\nid " + uuidA + "\n" + `{"n": 1}`,
	},
}

func TestPresets_EachHasSQLAndARow(t *testing.T) {
	names := slices.Sorted(slices.Values(append(preset.Names()[1:], migrations.Polling)))
	if presets := migrations.Presets(); !slices.Equal(presets, names) {
		t.Errorf("there is SQL for %q\nand presets are %q", presets, names)
	}
	for _, name := range names {
		if _, there := presetShapes[name]; !there {
			t.Errorf("no row of %s", name)
		}
	}
}

// The tables of all presets, as their SQL makes them, behind one slot. Where
// there is no setting, the table's name is the whole configuration.
func TestPresets_TablesOfFrameworksAreRelayed(t *testing.T) {
	t.Parallel()
	harness.EachPostgres(t, func(t *testing.T, db *harness.Database) {
		relayed(t, db, func(shape presetShape, name string) string { return shape.setting })
	})
}

// The same with the preset named, which is all that a table without a signature
// needs to be told.
func TestPresets_NamedTablesAreRelayed(t *testing.T) {
	t.Parallel()
	relayed(t, harness.Postgres(t), func(shape presetShape, name string) string {
		if strings.HasPrefix(shape.setting, "preset:") {
			return shape.setting
		}
		return strings.Trim("preset: "+cmp.Or(shape.preset, name)+", "+shape.setting, ", ")
	})
}

func relayed(t *testing.T, db *harness.Database, setting func(shape presetShape, name string) string) {
	brokers := harness.Kfake(t, kfakeDefault)
	var tables []string
	for name, shape := range presetShapes {
		schema, table := `"`+name+`"`, shape.place(name)
		up, err := migrations.Table(name, name, strings.Trim(table, `"`))
		if err != nil {
			t.Fatal(err)
		}
		db.Exec(t, "CREATE SCHEMA "+schema)
		db.Exec(t, up)
		entry := fmt.Sprintf("{table: '%s.%s', %s", schema, table, setting(shape, name))
		tables = append(tables, strings.TrimRight(entry, ", ")+"}")
		brokers.CreateTopic(t, strings.ReplaceAll(shape.topic, "§", name), 3)
	}
	p := relaytest.New(t, db, brokers, tables)
	p.Setup(t)
	for name, shape := range presetShapes {
		db.Exec(t, fmt.Sprintf(`INSERT INTO "%s".%s %s`, name, shape.place(name), strings.ReplaceAll(shape.insert, "§", name)))
	}
	running := p.Start(t)
	running.AwaitStreaming(t)
	p.AwaitCaughtUp(t)
	running.Stop(t)
	for name, shape := range presetShapes {
		records := brokers.Read(t, strings.ReplaceAll(shape.topic, "§", name))
		if len(records) != 1 {
			t.Errorf("%s: records = %d, want 1", name, len(records))
			continue
		}
		if got, want := text(records[0]), strings.ReplaceAll(shape.record, "§", name); got != want {
			t.Errorf("%s:\n%s\nwant:\n%s", name, got, want)
		}
	}
}

// place is the table's name as SQL has it.
func (s presetShape) place(preset string) string {
	switch {
	case s.table == "":
		return "outbox"
	case strings.Contains(s.table, "§"):
		return `"` + strings.ReplaceAll(s.table, "§", preset) + `"`
	}
	return s.table
}

// A framework whose table is no outbox is told so before anything is sent.
func TestPresets_RefusedTablesNameTheFramework(t *testing.T) {
	t.Parallel()
	db := harness.Postgres(t)
	db.Exec(t, `CREATE TABLE event_publication (id uuid PRIMARY KEY, listener_id text NOT NULL, event_type text NOT NULL,
		serialized_event text NOT NULL, publication_date timestamptz NOT NULL, completion_date timestamptz)`)
	p := relaytest.New(t, db, harness.Kfake(t, kfakeDefault), []string{"{table: public.event_publication}"})
	p.Setup(t)
	err := p.Start(t).Wait(t)
	if err == nil || !strings.Contains(err.Error(), "Spring Modulith") || !strings.Contains(err.Error(), "externalisation") {
		t.Errorf("%v", err)
	}
}

// Payloads come out the same whatever type of column holds them.
func TestPresets_PayloadColumnsOfEveryType(t *testing.T) {
	t.Parallel()
	db, brokers := harness.Postgres(t), harness.Kfake(t, kfakeDefault)
	var tables []string
	types := []string{"json", "text", "bytea", "varchar(500)"}
	for i, typ := range types {
		db.Exec(t, fmt.Sprintf(`CREATE SCHEMA s%d; CREATE TABLE s%d.outbox (id uuid, aggregatetype varchar, aggregateid varchar, type varchar, payload %s)`, i, i, typ))
		tables = append(tables, fmt.Sprintf("{table: s%d.outbox, value: cloudevents_binary}", i))
		brokers.CreateTopic(t, fmt.Sprintf("outbox.event.s%d", i), 1)
	}
	p := relaytest.New(t, db, brokers, tables)
	p.Setup(t)
	for i := range types {
		db.Exec(t, fmt.Sprintf(`INSERT INTO s%d.outbox VALUES ('%s', 's%d', 'o-1', 'Placed', '{"n":1, "a":"%d"}')`, i, uuidA, i, i))
	}
	running := p.Start(t)
	running.AwaitStreaming(t)
	p.AwaitCaughtUp(t)
	running.Stop(t)
	for i, typ := range types {
		records := brokers.Read(t, fmt.Sprintf("outbox.event.s%d", i))
		if len(records) != 1 || string(records[0].Value) != fmt.Sprintf(`{"n":1, "a":"%d"}`, i) {
			t.Errorf("%s: %d records", typ, len(records))
			continue
		}
		headers := text(records[0])
		for _, want := range []string{"ce_specversion 1.0", "ce_id " + uuidA, "ce_type Placed", "ce_subject o-1", "ce_time 20", fmt.Sprintf("ce_source /cdc-relay/s%d.outbox", i), "content-type application/json"} {
			if !strings.Contains(headers, "\n"+want) {
				t.Errorf("%s: no %s in\n%s", typ, want, headers)
			}
		}
	}
}
