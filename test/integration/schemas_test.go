package integration

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/twmb/avro"
	"github.com/twmb/franz-go/pkg/sr"
	"github.com/twmb/franz-go/pkg/sr/srfake"

	"github.com/cdc-relay/cdc-relay/fault"
	"github.com/cdc-relay/cdc-relay/relay"
	"github.com/cdc-relay/cdc-relay/relay/status"
	"github.com/cdc-relay/cdc-relay/test/harness"
	"github.com/cdc-relay/cdc-relay/test/harness/relaytest"
)

const (
	orderV1 = `{"type": "record", "name": "Order", "fields": [{"name": "n", "type": "int"}]}`
	orderV2 = `{"type": "record", "name": "Order", "fields": [{"name": "n", "type": "int"}, {"name": "note", "type": ["null", "string"], "default": null}]}`
)

// registry is one in the process of the test, which can be away.
type registry struct {
	*srfake.Registry
	away    atomic.Bool
	refused atomic.Int64 // requests while it was away
}

func newRegistry(t *testing.T) *registry {
	r := &registry{Registry: srfake.New()}
	t.Cleanup(r.Close)
	r.Intercept(func(w http.ResponseWriter, _ *http.Request) bool {
		if !r.away.Load() {
			return false
		}
		r.refused.Add(1)
		w.WriteHeader(http.StatusServiceUnavailable)
		return true
	})
	return r
}

func (r *registry) register(t *testing.T, subject, schema string) int {
	t.Helper()
	id, _, err := r.RegisterSchema(subject, sr.Schema{Schema: schema})
	if err != nil {
		t.Fatal(err)
	}
	return id
}

// decoded are the values of a topic with the ids of their schemas, as a consumer reads them.
func (r *registry) decoded(t *testing.T, brokers *harness.Brokers, topic string) (values []string) {
	t.Helper()
	client, err := sr.NewClient(sr.URLs(r.URL()))
	if err != nil {
		t.Fatal(err)
	}
	for _, rec := range brokers.Read(t, topic) {
		if len(rec.Value) < 5 || rec.Value[0] != 0 {
			t.Fatalf("value %x has no prefix", rec.Value)
		}
		id := binary.BigEndian.Uint32(rec.Value[1:])
		schema, err := client.SchemaByID(t.Context(), int(id))
		if err != nil {
			t.Fatal(err)
		}
		var v any
		rest, err := avro.MustParse(schema.Schema).Decode(rec.Value[5:], &v)
		if err != nil || len(rest) > 0 {
			t.Fatalf("value %x: %v, %d bytes left", rec.Value, err, len(rest))
		}
		plain, err := json.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		values = append(values, fmt.Sprintf("%d %s", id, plain))
	}
	return values
}

// schemaPipeline is one that encodes the outbox by a registry.
func schemaPipeline(t *testing.T, db *harness.Database, brokers *harness.Brokers, r *registry, table, more string) (p *relaytest.Pipeline, topic string, insert func(payload string)) {
	t.Helper()
	p = relaytest.New(t, db, brokers, []string{"{table: public.outbox, " + table + "}"}, "  registry: {url: ["+r.URL()+"], timeout: 30s, refresh: 1s}", more)
	p.Setup(t)
	aggregate := harness.Unique(t, "order")
	topic = aggregate + "-events"
	brokers.CreateTopic(t, topic, 1)
	return p, topic, func(payload string) {
		t.Helper()
		db.Exec(t, "INSERT INTO outbox (aggregate_type, aggregate_id, event_type, payload) VALUES ($1, gen_random_uuid(), 'x', $2)", aggregate, payload)
	}
}

// guarantees are the blocks of both.
func eachGuarantee(t *testing.T, test func(t *testing.T, more string)) {
	t.Run("at_least_once", func(t *testing.T) { test(t, "guarantee: at_least_once") })
	t.Run("exactly_once", func(t *testing.T) {
		test(t, "guarantee: exactly_once, checkpoint_topic: "+harness.Unique(t, "checkpoints"))
	})
}

// onEachGuarantee runs a test on every server version under both guarantees, in the short form under one of them.
func onEachGuarantee(t *testing.T, test func(t *testing.T, db *harness.Database, more string)) {
	t.Helper()
	for i, version := range harness.Versions() {
		for j, guarantee := range []relay.Guarantee{relay.AtLeastOnce, relay.ExactlyOnce} {
			if harness.Left(i, j) {
				continue
			}
			t.Run("postgres"+version+"/"+string(guarantee), func(t *testing.T) {
				more := "guarantee: " + string(guarantee)
				if guarantee == relay.ExactlyOnce {
					more += ", checkpoint_topic: " + harness.Unique(t, "checkpoints")
				}
				test(t, harness.Postgres(t, version), more)
			})
		}
	}
}

// A row waits for its schema: for a subject that nobody registered, and while the registry is away.
// It heals by itself, in order, and what lies before it is delivered.
func TestSchemas_ARowWaitsForItsSchema(t *testing.T) {
	t.Parallel()
	onEachGuarantee(t, func(t *testing.T, db *harness.Database, guarantee string) {
		brokers, r := harness.Kfake(t, kfakeDefault), newRegistry(t)
		p, topic, insert := schemaPipeline(t, db, brokers, r, "value: avro, schema: {subject: '${event_type}-${topic}'}", "relay: {"+guarantee+"}")
		createCheckpoints(t, p)
		asked := new(atomic.Int64)
		run := p.StartWith(t, p.Settings(), relay.Events{SchemaAsked: func(string) { asked.Add(1) }})
		run.AwaitStreaming(t)
		insert(`{"n": 1}`)
		s := run.AwaitBlocked(t, fault.ReasonUnknownSubject)
		if !strings.Contains(fmt.Sprintf("%+v", s), "x-"+topic) {
			t.Errorf("the status does not name the subject: %+v", s)
		}
		id := r.register(t, "x-"+topic, orderV1)
		p.AwaitCaughtUp(t)
		r.away.Store(true)
		insert(`{"n": 2}`) // its schema is known
		p.AwaitCaughtUp(t)
		run.Await(t, "it streams", func(s status.Status) bool { return s.State == status.Streaming })

		p.DB.Exec(t, "BEGIN; INSERT INTO outbox (aggregate_type, aggregate_id, event_type, payload) SELECT aggregate_type, aggregate_id, 'x', '{\"n\": 3}' FROM outbox LIMIT 1; COMMIT")
		p.DB.Exec(t, "INSERT INTO outbox (aggregate_type, aggregate_id, event_type, payload) SELECT aggregate_type, aggregate_id, 'y', '{\"n\": 4}' FROM outbox LIMIT 1")
		insert(`{"n": 5}`)
		run.AwaitBlocked(t, fault.ReasonRegistryUnreachable)
		if got := len(r.decodedAway(t, brokers, topic)); got != 3 {
			t.Errorf("%d records are there while the registry is away, want 3", got)
		}
		other := r.register(t, "y-"+topic, orderV1)
		r.away.Store(false)
		p.AwaitCaughtUp(t)
		run.Stop(t)
		want := []string{fmt.Sprintf(`%d {"n":1}`, id), fmt.Sprintf(`%d {"n":2}`, id), fmt.Sprintf(`%d {"n":3}`, id), fmt.Sprintf(`%d {"n":4}`, other), fmt.Sprintf(`%d {"n":5}`, id)}
		if got := r.decoded(t, brokers, topic); strings.Join(got, "\n") != strings.Join(want, "\n") {
			t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
		}
		if asked.Load() < 3 {
			t.Errorf("%d look-ups were counted", asked.Load())
		}
	})
}

// decodedAway reads a topic while the registry is away, for the consumer alone it is there.
func (r *registry) decodedAway(t *testing.T, brokers *harness.Brokers, topic string) []string {
	t.Helper()
	r.away.Store(false)
	defer r.away.Store(true)
	return r.decoded(t, brokers, topic)
}

// createCheckpoints makes the topic of positions.
func createCheckpoints(t *testing.T, p *relaytest.Pipeline) {
	t.Helper()
	if s := p.Settings(); s.Guarantee == relay.ExactlyOnce {
		p.Brokers.CreateTopic(t, s.CheckpointTopic, 1, "cleanup.policy", "compact")
	}
}

// The schema evolves while the relay runs: a row of the new version is not rejected, though the
// relay has not looked since, and looked a moment before for a row that fits no version.
func TestSchemas_EvolveWhileTheRelayRuns(t *testing.T) {
	t.Parallel()
	onEachGuarantee(t, func(t *testing.T, db *harness.Database, guarantee string) {
		brokers, r := harness.Kfake(t, kfakeDefault), newRegistry(t)
		letters := harness.Unique(t, "letters")
		p, topic, insert := schemaPipeline(t, db, brokers, r, "value: avro", "relay: {on_reject: dead_letter, dead_letter_topic: "+letters+", "+guarantee+"}")
		createCheckpoints(t, p)
		brokers.CreateTopic(t, letters, 1)
		first := r.register(t, topic+"-value", orderV1)
		run := p.Start(t)
		run.AwaitStreaming(t)
		insert(`{"n": 1}`)
		insert(`{"n": 3}`)
		insert(`{"n": "two"}`) // fits no version
		p.AwaitCaughtUp(t)
		second := r.register(t, topic+"-value", orderV2)
		insert(`{"n": 5, "note": "new"}`)
		p.AwaitCaughtUp(t)
		run.Stop(t)
		got := r.decoded(t, brokers, topic)
		if got[0] != fmt.Sprintf(`%d {"n":1}`, first) || got[1] != fmt.Sprintf(`%d {"n":3}`, first) || got[len(got)-1] != fmt.Sprintf(`%d {"n":5,"note":"new"}`, second) {
			t.Errorf("got %q", got)
		}
		records := brokers.Read(t, letters)
		if len(records) != 1 || string(records[0].Value) != `{"n": "two"}` {
			t.Fatalf("%d dead letters", len(records))
		}
		for _, h := range records[0].Headers {
			if h.Key == "cdc-relay-error-message" && (!strings.Contains(string(h.Value), "$.n: the schema wants int, the payload has a string") || strings.Contains(string(h.Value), "two")) {
				t.Errorf("the letter says %s", h.Value)
			}
		}

		// The row is corrected in the table, and the letter restored from there.
		p.DB.Exec(t, `UPDATE outbox SET payload = '{"n": 2}' WHERE payload = '{"n": "two"}'`)
		redriven := p.Exec(t, "deadletter", "redrive", "--all", "--yes")
		if code := redriven.Wait(t); code != 0 {
			t.Fatalf("redrive ends with %d:\n%s", code, redriven.Output())
		}
		got = r.decoded(t, brokers, topic)
		if got[len(got)-1] != fmt.Sprintf(`%d {"n":2,"note":null}`, second) {
			t.Errorf("after the redrive: %q", got)
		}
	})
}

// A row that does not fit blocks the relay, and goes out once a version that it fits is registered,
// without a restart and without waiting for the next look at all subjects. Nothing overtakes it.
func TestSchemas_ABlockedRowGoesOnOnceItsSchemaIsFixed(t *testing.T) {
	t.Parallel()
	onEachGuarantee(t, func(t *testing.T, db *harness.Database, guarantee string) {
		brokers, r := harness.Kfake(t, kfakeDefault), newRegistry(t)
		p, topic, insert := schemaPipeline(t, db, brokers, r, "value: avro", "relay: {"+guarantee+"}")
		p.Reconfigure(t, strings.Replace(p.YAML, "refresh: 1s", "refresh: 1h", 1))
		createCheckpoints(t, p)
		first := r.register(t, topic+"-value", orderV1)
		run := p.Start(t)
		run.AwaitStreaming(t)
		insert(`{"n": 1}`)
		insert(`{"n": 2, "note": "early"}`)
		insert(`{"n": 3}`)
		if s := fmt.Sprintf("%+v", run.AwaitBlocked(t, fault.ReasonEncode)); !strings.Contains(s, "$.note: is not in the schema") || strings.Contains(s, "early") {
			t.Errorf("the status says %s", s)
		}
		second := r.register(t, topic+"-value", orderV2)
		p.AwaitCaughtUp(t)
		run.Stop(t)
		want := fmt.Sprintf(`[%d {"n":1} %d {"n":2,"note":"early"} %d {"n":3,"note":null}]`, first, second, second)
		if got := fmt.Sprint(r.decoded(t, brokers, topic)); got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	})
}

// Payloads that the application framed are sent as they are, and what is none of them is not.
func TestSchemas_ChecksWhatTheApplicationFramed(t *testing.T) {
	t.Parallel()
	harness.EachPostgres(t, func(t *testing.T, db *harness.Database) {
		brokers, r := harness.Kfake(t, kfakeDefault), newRegistry(t)
		letters := harness.Unique(t, "letters")
		db.Exec(t, "CREATE TABLE framed (id uuid PRIMARY KEY DEFAULT gen_random_uuid(), aggregate_type text, aggregate_id text, event_type text, payload bytea)")
		p := relaytest.New(t, db, brokers, []string{"{table: public.framed, schema: {check: confluent}}"}, "  registry: {url: ["+r.URL()+"]}", "relay: {on_reject: dead_letter, dead_letter_topic: "+letters+"}")
		p.Setup(t)
		topic := harness.Unique(t, "order")
		for _, name := range []string{topic + "-events", letters} {
			brokers.CreateTopic(t, name, 1)
		}
		id := r.register(t, "any", orderV1)
		run := p.Start(t)
		run.AwaitStreaming(t)
		for _, payload := range [][]byte{binary.BigEndian.AppendUint32([]byte{0}, uint32(id)), []byte(`{"n": 1}`), {0, 0, 0, 0, 99, 2}, {0, 1}, append(binary.BigEndian.AppendUint32([]byte{0}, uint32(id)), 2)} {
			db.Exec(t, "INSERT INTO framed (aggregate_type, aggregate_id, event_type, payload) VALUES ($1, 'k', 'x', $2)", topic, payload)
		}
		p.AwaitCaughtUp(t)
		run.Stop(t)
		if got := brokers.Read(t, topic+"-events"); len(got) != 2 || len(got[1].Value) != 6 {
			t.Errorf("%d records", len(got))
		}
		if got := brokers.Read(t, letters); len(got) != 3 {
			t.Errorf("%d letters", len(got))
		}
	})
}

// A transaction of many batches, whose last row waits for the registry, is not held open in Kafka: what
// lies before the row is committed, a stop is clean, and the next start goes on behind it.
func TestSchemas_ALargeTransactionWaitsForTheRegistry(t *testing.T) {
	t.Parallel()
	const rows = 20_000 // some batches
	for _, stops := range []bool{false, true} {
		t.Run(fmt.Sprintf("stops_%t", stops), func(t *testing.T) {
			brokers, r := harness.Kfake(t, kfakeDefault), newRegistry(t)
			p, topic, insert := schemaPipeline(t, harness.Postgres(t), brokers, r, "value: avro, schema: {subject: '${event_type}-${topic}'}",
				"relay: {guarantee: exactly_once, checkpoint_topic: "+harness.Unique(t, "checkpoints")+"}")
			createCheckpoints(t, p)
			r.register(t, "x-"+topic, orderV1)
			settings := p.Settings()
			run := p.StartWith(t, settings, relay.Events{})
			run.AwaitStreaming(t)
			insert(`{"n": 0}`)
			p.AwaitCaughtUp(t)
			r.away.Store(true)
			p.DB.Exec(t, `INSERT INTO outbox (aggregate_type, aggregate_id, event_type, payload)
				SELECT $1, gen_random_uuid(), CASE i WHEN $2 THEN 'y' ELSE 'x' END, jsonb_build_object('n', i) FROM generate_series(1, $2::int) AS i`, strings.TrimSuffix(topic, "-events"), rows)
			insert(fmt.Sprintf(`{"n": %d}`, rows+1))
			run.AwaitBlocked(t, fault.ReasonRegistryUnreachable)
			if got := len(readCommitted(t, p, topic)); got < rows/2 || got > rows {
				t.Errorf("%d of %d records before the row are committed", got, rows)
			}
			if stops {
				run.Stop(t)
				run = p.StartWith(t, settings, relay.Events{})
				run.AwaitBlocked(t, fault.ReasonRegistryUnreachable)
			}
			r.register(t, "y-"+topic, orderV1)
			r.away.Store(false)
			p.AwaitCaughtUp(t)
			run.Stop(t)
			records := readCommitted(t, p, topic)
			schema := avro.MustParse(orderV1)
			for i, rec := range records {
				var order struct {
					N int `avro:"n"`
				}
				if _, err := schema.Decode(rec.Value[5:], &order); err != nil || order.N != i {
					t.Fatalf("record %d has %+v, %v", i, order, err)
				}
			}
			if len(records) != rows+2 {
				t.Errorf("%d records, want %d", len(records), rows+2)
			}
		})
	}
}
