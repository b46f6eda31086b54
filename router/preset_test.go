package router

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/cdc-relay/cdc-relay/replication/wal"
	"github.com/cdc-relay/cdc-relay/router/column"
	"github.com/cdc-relay/cdc-relay/router/preset"

	"github.com/cdc-relay/cdc-relay/router/record/recordtest"
)

// presetCase is a table as the preset's framework makes it, with one row as the
// framework writes it. Each column is `name type=value`.
type presetCase struct {
	table   string // empty: outbox
	auto    string // what auto makes of the table; empty: the preset itself
	columns []string
	mapping Mapping
}

const (
	idA   = "406c07f3-26f0-4eea-a50c-109940064b8f"
	idB   = "7f3b0d5e-0000-4000-8000-000000000001"
	noon  = "2024-01-02 12:00:00+00"
	trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
)

var watermillEnvelope = `{"destination_topic":"orders","uuid":"` + idB + `","payload":"eyJuIjogMX0=","metadata":{"name":"OrderPlaced"}}`

var presetCases = map[string]presetCase{
	"debezium":          {columns: []string{"id uuid=" + idA, "aggregatetype varchar=order", "aggregateid varchar=o-1", "type varchar=OrderPlaced", `payload jsonb={"n": 1}`}},
	"outbox":            {columns: []string{"id uuid=" + idA, "aggregate_type varchar=order", "aggregate_id uuid=" + idB, "event_type varchar=OrderPlaced", `payload jsonb={"n": 1}`, "idempotency_key varchar=once", "created_at timestamptz=" + noon}},
	"generic-topic":     {columns: []string{"id uuid=" + idA, "topic text=orders", "key text=o-1", "event_type text=OrderPlaced", `payload jsonb={"n": 1}`, `headers jsonb={"tenant": "t1"}`, "created_at timestamptz=" + noon}},
	"generic-aggregate": {auto: "outbox", columns: []string{"id uuid=" + idA, "aggregate_type text=order", "aggregate_id text=o-1", "event_type text=OrderPlaced", `payload jsonb={"n": 1}`, "created_at timestamptz=" + noon}},
	"generic-event":     {columns: []string{"id uuid=" + idA, "event_type text=order.placed", `payload jsonb={"n": 1}`, "aggregate_id text=o-1", "created_at timestamptz=" + noon, "error text=" + null}},
	"generic":           {columns: []string{"id uuid=" + idA, `payload jsonb={"n": 1}`, "created_at timestamptz=" + noon}, mapping: Mapping{Topic: "events"}},

	"debezium-quarkus": {columns: []string{"id uuid=" + idA, "aggregatetype varchar=order", "aggregateid varchar=o-1", "type varchar=OrderPlaced", "timestamp timestamp=2024-01-02 12:00:00", `payload varchar={"n":1}`,
		"tracingspancontext varchar=#Tue Jan 02 12:00:00 UTC 2024\ntraceparent=" + trace + "\ntracestate=a\\=b,c\\:d\n"}},
	"eventuate-tram": {columns: []string{"id varchar=" + idA, "destination text=orders", `headers text={"ID":"` + idA + `","PARTITION_ID":"o-1","event-type":"OrderPlaced"}`, `payload text={"n":1}`, "published int2=0", "message_partition int2=" + null, "creation_time int8=1704196800000"}},
	"axon": {columns: []string{"global_index int8=1", "event_identifier varchar=" + idA, "meta_data bytea=\\x7b7d", "payload bytea=\\x7b226e223a317d", "payload_revision varchar=2", "payload_type varchar=OrderPlaced", "time_stamp varchar=2024-01-02T12:00:00Z",
		"aggregate_identifier varchar=o-1", "sequence_number int8=4", "type varchar=Order"}},
	"outbox-kafka": {columns: []string{"id int8=7", "created timestamp=2024-01-02 12:00:00", "processed timestamp=" + null, "topic varchar=orders", "key varchar=" + null, "value bytea=\\x0001ff", `headers jsonb={"x-sequence": "1"}`}},
	"namastack":    {table: "outbox_record", columns: []string{"id varchar=" + idA, "status varchar=NEW", "aggregate_id varchar=o-1", "event_type varchar=order.placed", `payload text={"n":1}`, "created_at timestamptz=" + noon, "completed_at timestamptz=" + null, "retry_count int4=0", "next_retry_at timestamptz=" + noon}},
	"brighter": {columns: []string{"id int8=7", "messageid varchar=" + idA, "topic varchar=orders", "messagetype varchar=MT_EVENT", "timestamp timestamptz=" + noon, "correlationid varchar=c-1", "replyto varchar=" + null, "contenttype varchar=application/json", "partitionkey varchar=o-1",
		"dispatched timestamptz=" + null, `headerbag text={"tenant":"t1"}`, `body text={"n":1}`, "source varchar=http://shop", "type varchar=" + null, "subject varchar=" + null, "traceparent varchar=" + trace, "tracestate varchar=a=b", "baggage text=" + null}},
	"eshop": {columns: []string{"EventId uuid=" + idA, "EventTypeName text=Shop.Events.OrderPlaced", "State int4=0", "TimesSent int4=0", "CreationTime timestamptz=" + noon, `Content text={"OrderId":5}`, "TransactionId uuid=" + idB}},
	"marten": {columns: []string{"seq_id int8=1", "id uuid=" + idA, "stream_id varchar=o-1", "version int8=3", `data jsonb={"n": 1}`, "type varchar=order_placed", "timestamp timestamptz=" + noon, "tenant_id varchar=*DEFAULT*", "mt_dotnet_type varchar=Shop.OrderPlaced", "correlation_id varchar=" + null,
		`headers jsonb={"user": "u1"}`, "is_archived bool=f"}},
	"watermill":           {table: "watermill_orders.placed", columns: []string{"offset int8=1", "uuid varchar=" + idA, "created_at timestamp=2024-01-02 12:00:00", `payload json={"n": 1}`, `metadata json={"name":"OrderPlaced"}`, "transaction_id xid8=700"}},
	"watermill-forwarder": {table: "watermill_forwarder_topic", columns: []string{"offset int8=1", "uuid varchar=" + idA, "created_at timestamp=2024-01-02 12:00:00", "payload json=" + watermillEnvelope, "metadata json={}", "transaction_id xid8=700"}},
	"goharvest":           {columns: []string{"id int8=7", "create_time timestamptz=" + noon, "kafka_topic varchar=orders", "kafka_key varchar=o-1", "kafka_value varchar=" + null, `kafka_header_keys _text={tenant,"a b"}`, `kafka_header_values _text={t1,"x\"y"}`, "leader_id uuid=" + null}},
	"pgx-outbox":          {columns: []string{"id int8=7", "broker text=kafka", "topic text=orders", `metadata jsonb={"key": "o-1"}`, `payload jsonb={"n": 1}`, "created_at timestamp=2024-01-02 12:00:00", "published_at timestamp=" + null}},
	"outboxd":             {auto: "ambiguous", columns: []string{"id int8=7", "topic text=orders", "payload bytea=\\x0001ff", "created_at timestamptz=" + noon, "aggregate_id text=o-1", "partition_key text=p-1"}},
	"open-outbox": {columns: []string{"event_id uuid=" + idA, "event_type text=order.placed", "occurred_at timestamptz=" + noon, "partition_key text=o-1", `payload jsonb={"n": 1}`, `headers jsonb={"tenant": "t1"}`, "status text=PENDING", "attempts int4=0", "available_at timestamptz=" + noon,
		"locked_by text=" + null, "locked_at timestamptz=" + null, "created_at timestamptz=" + noon}},
	"pg-transactional-outbox": {columns: []string{"id uuid=" + idA, "aggregate_type text=order", "aggregate_id text=o-1", "message_type text=placed", "segment text=" + null, "concurrency text=sequential", `payload jsonb={"n": 1}`, `metadata jsonb={"tenant": "t1"}`, "locked_until timestamptz=" + noon, "created_at timestamptz=" + noon, "processed_at timestamptz=" + null}},
	"sbmt":                    {columns: []string{"id int8=7", "uuid uuid=" + idA, "event_name varchar=order_placed", "event_key varchar=o-1", "bucket int8=3", "status int4=0", `options jsonb={"headers": {"tenant": "t1"}}`, "payload bytea=\\x0a0131", "errors_count int4=0"}},
	"rails-event-store":       {mapping: Mapping{Topic: "events"}, auto: "rails-event-store", columns: []string{"id int8=7", "event_id uuid=" + idA, "event_type varchar=Ordering::OrderPlaced", `metadata jsonb={"user": "u1"}`, `data jsonb={"n": 1}`, "created_at timestamp=2024-01-02 12:00:00", "valid_at timestamp=" + null}},
	"django-outbox-pattern":   {columns: []string{"id uuid=" + idA, "version varchar=v1", "destination varchar=/topic/orders.v1", `body jsonb={"n": 1}`, "added timestamptz=" + noon, "expires_at timestamptz=" + noon, "retry int4=0", "status int4=1", `headers jsonb={"correlation": "c-1"}`}},
	"laravel":                 {auto: "generic-topic", columns: []string{"id int8=7", "topic varchar=orders", "key varchar=o-1", "event_type varchar=OrderPlaced", `payload json={"n":1}`, `headers json={"tenant":"t1"}`, "status varchar=pending", "attempts int4=0"}},
	"prisma":                  {columns: []string{"id text=cuid1", "aggregateType text=order", "aggregateId text=o-1", "eventName text=OrderPlaced", `payload jsonb={"n": 1}`, `metadata jsonb={"tenant": "t1"}`, "status text=PENDING", "retryCount int4=0"}},
	"typeorm":                 {auto: "generic-event", columns: []string{"id uuid=" + idA, "type varchar=order.placed", "aggregate_id varchar=o-1", `payload jsonb={"n": 1}`, "created_at timestamp=2024-01-02 12:00:00"}},
	"mikroorm":                {auto: "generic-topic", columns: []string{"id text=01HX", "topic text=orders", `payload jsonb={"n": 1}`, "created_at timestamptz=" + noon}},
	"drizzle":                 {auto: "outbox", columns: []string{"id uuid=" + idA, "aggregate_type text=order", "aggregate_id text=o-1", "event_type text=OrderPlaced", `payload jsonb={"n": 1}`, "created_at timestamptz=" + noon}},
	"generic-simple":          {auto: "generic-event", columns: []string{"id int8=7", "event_type text=order.placed", `payload jsonb={"n": 1}`, "created_at timestamptz=" + noon}},
	"generic-aggregate-type":  {auto: "generic-aggregate", columns: []string{"id uuid=" + idA, "aggregate text=order", "event_type text=placed", `payload jsonb={"n": 1}`, "sent_at timestamptz=" + null}},
}

func (c presetCase) row(t testing.TB) *wal.Row {
	var columns, values []string
	for _, text := range c.columns {
		column, value, _ := strings.Cut(text, "=")
		columns, values = append(columns, column), append(values, value)
	}
	rel := table(t, columns...)
	if c.table != "" {
		rel.Name = c.table
	}
	return textRow(rel, values...)
}

// TestPresets renders what each preset makes of its framework's table: the
// review copy of what users get.
func TestPresets(t *testing.T) {
	for _, name := range preset.Names()[1:] {
		t.Run(name, func(t *testing.T) {
			c, ok := presetCases[name]
			if !ok {
				t.Fatal("preset without a case in this test")
			}
			row := c.row(t)
			m := c.mapping
			m.Preset = name
			e, err := mustNew(t, m).Pin(row.Relation)
			if err != nil {
				t.Fatal(err)
			}
			rec, err := routeOne(t, m, row)
			if err != nil {
				t.Fatal(err)
			}
			golden(t, "presets/"+name, showExplanation(e)+"\n"+recordtest.Show(rec))
			if fromBinary, err := routeOne(t, m, binaryRow(t, row)); err != nil || recordtest.Show(fromBinary) != recordtest.Show(rec) {
				t.Errorf("binary gives %v\n%s, text\n%s", err, recordtest.Show(fromBinary), recordtest.Show(rec))
			}
		})
	}
}

func TestPresets_AutoTakesThoseWithASignature(t *testing.T) {
	for name, c := range presetCases {
		t.Run(name, func(t *testing.T) {
			want := c.auto
			if want == "" {
				want = name
			}
			row := c.row(t)
			e, err := mustNew(t, c.mapping).Pin(row.Relation)
			if want == "ambiguous" {
				if err == nil || !strings.Contains(err.Error(), "ambiguous") || !strings.Contains(err.Error(), "outbox:\n") {
					t.Errorf("%v", err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if e.Preset != want {
				t.Errorf("auto takes %s, want %s", e.Preset, want)
			}
		})
	}
}

func TestPresets_TwoSignaturesAreAnError(t *testing.T) {
	var columns []string
	for _, name := range []string{"goharvest", "pgx-outbox"} {
		for _, text := range presetCases[name].columns {
			column, _, _ := strings.Cut(text, "=")
			if !slices.Contains(columns, column) {
				columns = append(columns, column)
			}
		}
	}
	_, err := mustNew(t, Mapping{}).Pin(table(t, columns...))
	if err == nil || !strings.Contains(err.Error(), "goharvest and of pgx-outbox") || !strings.HasPrefix(err.Error(), "outbox[0].preset: ") {
		t.Errorf("%v", err)
	}
}

func TestPresets_ConditionsAreChecked(t *testing.T) {
	for _, c := range []struct{ preset, from, to, table, want string }{
		{preset: "axon", from: "payload bytea", to: "payload oid", want: "large object"},
		{preset: "rails-event-store", from: "data jsonb", to: "data bytea", want: "--data-type"},
		{preset: "rails-event-store", from: "data jsonb", to: "data text", want: "--data-type"},
		{preset: "watermill", table: "orders", want: "begins with watermill_"},
		{preset: "watermill", table: "watermill_", want: "Kafka does not allow"},
		{preset: "watermill", table: "watermill_a b", want: "Kafka does not allow"},
	} {
		pc := presetCases[c.preset]
		var columns []string
		for _, text := range pc.columns {
			column, _, _ := strings.Cut(text, "=")
			if column == c.from {
				column = c.to
			}
			columns = append(columns, column)
		}
		rel := table(t, columns...)
		rel.Name = "outbox"
		if c.table != "" {
			rel.Name = c.table
		}
		m := pc.mapping
		m.Preset = c.preset
		if _, err := mustNew(t, m).Pin(rel); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v does not say %q", c.preset, err, c.want)
		}
	}
}

func TestPresets_WithoutTopicGiveABlock(t *testing.T) {
	_, err := mustNew(t, Mapping{Table: "shop.events"}).Pin(presetCases["rails-event-store"].row(t).Relation)
	want := "outbox:\n  - table: shop.events\n    preset: rails-event-store\n    topic: events"
	if err == nil || !strings.HasSuffix(err.Error(), want) {
		t.Errorf("%v", err)
	}
}

func TestPresets_RowsFallBackToTheOtherColumn(t *testing.T) {
	for _, c := range []struct{ preset, column, value, key string }{
		{"pg-transactional-outbox", "segment", "s-9", "s-9"},
		{"pg-transactional-outbox", "segment", "", "o-1"},
		{"eventuate-tram", "headers", `{}`, idA},
		{"eventuate-tram", "headers", `{"PARTITION_ID":null}`, idA},
	} {
		row := presetCases[c.preset].row(t)
		row.Values[column.Index(row.Relation, c.column)] = wal.Value{Kind: wal.Text, Data: []byte(c.value)}
		rec, err := routeOne(t, Mapping{}, row)
		if err != nil || string(rec.Key) != c.key {
			t.Errorf("%s with %s %q: key %q, %v", c.preset, c.column, c.value, rec.Key, err)
		}
	}
	row := presetCases["pg-transactional-outbox"].row(t)
	rec, err := routeOne(t, Mapping{Columns: Columns{Key: "segment"}}, row)
	if err != nil || rec.Key != nil {
		t.Errorf("a configured key column falls back: %q, %v", rec.Key, err)
	}
}

func TestPresets_MalformedRowsAreRejected(t *testing.T) {
	for _, c := range []struct{ preset, column, value, want string }{
		{"watermill-forwarder", "payload", strings.Replace(watermillEnvelope, "eyJuIjogMX0=", "%%", 1), "base64"},
		{"watermill-forwarder", "payload", `{"uuid":"u","destination_topic":""}`, "topic"},
		{"watermill-forwarder", "payload", `{"destination_topic":"orders"}`, "event id"},
		{"goharvest", "kafka_header_keys", `{a,b,c}`, "different lengths"},
		{"goharvest", "kafka_header_keys", `{a}`, "different lengths"},
		{"goharvest", "kafka_header_keys", `{NULL,b}`, "NULL"},
		{"goharvest", "kafka_header_values", `oops`, "array"},
		{"eventuate-tram", "headers", `[1]`, "JSON object"},
		{"eventuate-tram", "headers", `{"a":`, "JSON"},
	} {
		row := presetCases[c.preset].row(t)
		row.Values[column.Index(row.Relation, c.column)] = wal.Value{Kind: wal.Text, Data: []byte(c.value)}
		rec, err := routeOne(t, Mapping{}, row)
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s with %s %q: %v does not say %q\n%s", c.preset, c.column, c.value, err, c.want, recordtest.Show(rec))
		} else if !wayOut.MatchString(err.Error()) {
			t.Errorf("%v: and what is to be done?", err)
		}
	}
}

func TestPresets_GoharvestArrays(t *testing.T) {
	row := presetCases["goharvest"].row(t)
	set := func(name string, v wal.Value) { row.Values[column.Index(row.Relation, name)] = v }
	set("kafka_header_keys", wal.Value{Kind: wal.Text, Data: []byte(`{a,id,b}`)})
	set("kafka_header_values", wal.Value{Kind: wal.Text, Data: []byte(`{NULL,fake,""}`)})
	rec, err := routeOne(t, Mapping{}, row)
	if err != nil || len(rec.Headers) != 3 || rec.Headers[1].Key != "a" || rec.Headers[1].Value != nil || rec.Headers[2].Key != "b" || len(rec.Headers[2].Value) != 0 {
		t.Errorf("%v\n%s", err, recordtest.Show(rec))
	}
	set("kafka_header_keys", wal.Value{Kind: wal.Text, Data: []byte(`{}`)})
	set("kafka_header_values", wal.Value{Kind: wal.Null})
	if rec, err = routeOne(t, Mapping{}, row); err != nil || len(rec.Headers) != 1 {
		t.Errorf("%v\n%s", err, recordtest.Show(rec))
	}
}

func TestRefused_NamesTheFrameworkAndTheWayOut(t *testing.T) {
	var out strings.Builder
	for _, c := range []struct {
		name    string
		columns []string
	}{
		{"spring-modulith", []string{"id uuid", "listener_id text", "event_type text", "serialized_event text", "publication_date timestamptz", "completion_date timestamptz", "status text"}},
		{"masstransit", []string{"SequenceNumber int8", "EnqueueTime timestamptz", "SentTime timestamptz", "Headers text", "Properties text", "InboxMessageId uuid", "OutboxId uuid", "MessageId uuid", "ContentType varchar", "MessageType text", "Body text", "DestinationAddress varchar"}},
		{"masstransit", []string{"sequence_number int8", "enqueue_time timestamptz", "sent_time timestamptz", "message_id uuid", "content_type varchar", "message_type text", "body text", "destination_address varchar"}},
		{"masstransit", []string{"OutboxId uuid", "LockId uuid", "RowVersion bytea", "Created timestamptz", "Delivered timestamptz", "LastSequenceNumber int8"}},
		{"nservicebus", []string{"MessageId varchar", "Dispatched bool", "DispatchedAt timestamp", "PersistenceVersion varchar", "Operations jsonb"}},
		{"cap", []string{"Id int8", "Version varchar", "Name varchar", "Content text", "Retries int4", "Added timestamp", "ExpiresAt timestamp", "StatusName varchar"}},
		{"wolverine", []string{"id uuid", "owner_id int4", "destination varchar", "deliver_by timestamptz", "body bytea", "attempts int4", "message_type varchar"}},
		{"outboxer", []string{"id int8", "status varchar", "messageable_type varchar", "messageable_id varchar", "queued_at timestamp"}},
		{"symfony-messenger", []string{"id int8", "body text", "headers text", "queue_name varchar", "created_at timestamp", "available_at timestamp", "delivered_at timestamp"}},
		{"gruelbox", []string{"id varchar", "invocation text", "nextattempttime timestamp", "attempts int4", "blocked bool", "version int4", "uniquerequestid varchar", "processed bool", "topic varchar", "seq int8"}},
	} {
		rel := table(t, c.columns...)
		_, err := mustNew(t, Mapping{}).Pin(rel)
		if err == nil {
			t.Errorf("%s: accepted", c.name)
			continue
		}
		out.WriteString(err.Error() + "\n\n")
		if _, err := New(Config{Mappings: []Mapping{{Preset: c.name}}}); err == nil || !strings.Contains(err.Error(), "there is no preset for") {
			t.Errorf("preset: %s: %v", c.name, err)
		}
	}
	golden(t, "refused", out.String())
	// Whoever names a preset has decided.
	rel := table(t, "Id int8", "Version varchar", "Name varchar", "Content text", "Retries int4", "Added timestamp", "ExpiresAt timestamp", "StatusName varchar")
	if _, err := mustNew(t, Mapping{Preset: "generic-event"}).Pin(rel); err != nil {
		t.Error(err)
	}
}

func TestTables_AreDocumented(t *testing.T) {
	text, err := os.ReadFile("../docs/tables.md")
	if err != nil {
		t.Fatal(err)
	}
	lines := regexp.MustCompile("(?m)^\\| `([a-z-]+)` \\|").FindAllStringSubmatch(string(text), -1)
	var documented []string
	for _, l := range lines {
		documented = append(documented, l[1])
	}
	names := slices.Clone(preset.Names()[1:])
	slices.Sort(names)
	slices.Sort(documented)
	if !slices.Equal(names, documented) {
		t.Errorf("docs/tables.md has lines for %q, want %q", documented, names)
	}
}
