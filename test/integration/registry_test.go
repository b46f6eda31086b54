package integration

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/twmb/avro"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/sr"

	"github.com/cdc-relay/cdc-relay/fault"
	"github.com/cdc-relay/cdc-relay/relay"
	"github.com/cdc-relay/cdc-relay/sandbox"
	"github.com/cdc-relay/cdc-relay/test/harness"
	"github.com/cdc-relay/cdc-relay/test/harness/relaytest"
)

// encoding is a format of values with a schema, as the tests with a real registry need it.
type encoding struct {
	value  string // outbox[].value
	kind   sr.SchemaType
	v1, v2 string // v2 has the member note too
	more   string // further keys of outbox[].schema
	misfit string // what is said of a note by v1; a name that a JSON Schema does not have is data
	none   string // what a consumer reads by v2 where the payload has no note
	read   func(t *testing.T, schema string, body []byte) any
}

// encodings are those whose schemas any registry gives. Apicurio gives no compiled Protobuf: see
// TestRegistry_ProtobufByADescriptorSet.
var encodings = []encoding{
	{value: "avro", kind: sr.TypeAvro, v1: orderV1, v2: orderV2, misfit: "$.note", none: `,"note":null`, read: readAvro},
	{value: "json_schema", kind: sr.TypeJSON, more: ", validate: true", misfit: "$: does not fit additionalProperties", read: readJSON,
		v1: `{"type": "object", "properties": {"n": {"type": "integer"}}, "additionalProperties": false}`,
		v2: `{"type": "object", "properties": {"n": {"type": "integer"}, "note": {"type": "string"}}, "additionalProperties": false}`},
}

// readJSON validates by the schema as the consumers' deserializers do.
func readJSON(t *testing.T, schema string, body []byte) any {
	t.Helper()
	document, err := jsonschema.UnmarshalJSON(strings.NewReader(schema))
	if err != nil {
		t.Fatal(err)
	}
	compiler := jsonschema.NewCompiler()
	if err := compiler.AddResource("order.json", document); err != nil {
		t.Fatal(err)
	}
	v, err := jsonschema.UnmarshalJSON(bytes.NewReader(body))
	if err == nil {
		err = compiler.MustCompile("order.json").Validate(v)
	}
	if err != nil {
		t.Fatalf("body %q: %v", body, err)
	}
	return v
}

func readAvro(t *testing.T, schema string, body []byte) any {
	t.Helper()
	parsed, err := avro.Parse(schema)
	if err != nil {
		t.Fatal(err)
	}
	var v any
	rest, err := parsed.Decode(body, &v)
	if err != nil || len(rest) > 0 {
		t.Fatalf("body %x: %v, %d bytes left", body, err, len(rest))
	}
	return v
}

// encodedPipeline is one with a real registry, or one of its own.
type encodedPipeline struct {
	*relaytest.Pipeline
	encoding
	url, aggregate, topic, letters string
}

// newEncoded sets one up. postgres are further keys of that section.
func newEncoded(t *testing.T, db *harness.Database, brokers *harness.Brokers, e encoding, url string, guarantee relay.Guarantee, postgres ...string) *encodedPipeline {
	t.Helper()
	p := &encodedPipeline{encoding: e, url: url, aggregate: harness.Unique(t, "order"), letters: harness.Unique(t, "letters")}
	p.topic = p.aggregate + "-events"
	settings := "relay: {on_reject: dead_letter, dead_letter_topic: " + p.letters + ", guarantee: " + string(guarantee)
	if guarantee == relay.ExactlyOnce {
		checkpoints := harness.Unique(t, "checkpoints")
		settings += ", checkpoint_topic: " + checkpoints
		brokers.CreateTopic(t, checkpoints, 1, "cleanup.policy", "compact")
	}
	p.Pipeline = relaytest.New(t, db, brokers, []string{"{table: public.outbox, value: " + e.value + ", schema: {subject: '${topic}-${event_type}'" + e.more + "}}"},
		"  registry: {url: ["+url+"], timeout: 30s, refresh: 1s}", settings+"}")
	p.YAML = strings.Replace(p.YAML, "postgres: {", "postgres: {"+strings.Join(postgres, ""), 1)
	setup := p.Exec(t, "setup", "--create-table")
	if code := setup.Wait(t); code != 0 {
		t.Fatalf("setup ended with %d:\n%s", code, setup.Output())
	}
	brokers.CreateTopic(t, p.topic, 3)
	return p
}

// impatient has a registry that hangs be given up soon.
func (p *encodedPipeline) impatient(t *testing.T) {
	t.Helper()
	p.Reconfigure(t, strings.Replace(p.YAML, "timeout: 30s", "timeout: 2s", 1))
}

// register puts a schema below the subject of an event type.
func (p *encodedPipeline) register(t *testing.T, event, schema string) int {
	t.Helper()
	client, err := sr.NewClient(sr.URLs(p.url), sr.HTTPClient(&http.Client{Timeout: relaytest.Patience}))
	if err != nil {
		t.Fatal(err)
	}
	made, err := client.CreateSchema(t.Context(), p.topic+"-"+event, sr.Schema{Schema: schema, Type: p.kind})
	if err != nil {
		t.Fatal(err)
	}
	return made.ID
}

func (p *encodedPipeline) insert(t *testing.T, key, event, payload string) {
	t.Helper()
	p.DB.Exec(t, "INSERT INTO outbox (aggregate_type, aggregate_id, event_type, payload) VALUES ($1, md5($2)::uuid, $3, $4)", p.aggregate, key, event, payload)
}

// values are what a consumer that reads committed records decodes below each key, in order. It asks
// the registry by the number in the prefix.
func (p *encodedPipeline) values(t *testing.T) map[string][]string {
	t.Helper()
	client, err := sr.NewClient(sr.URLs(p.url), sr.HTTPClient(&http.Client{Timeout: relaytest.Patience}))
	if err != nil {
		t.Fatal(err)
	}
	found, schemas := map[string][]string{}, map[uint32]string{}
	for _, rec := range readCommitted(t, p.Pipeline, p.topic) {
		if len(rec.Value) < 5 || rec.Value[0] != 0 {
			t.Fatalf("value %x has no prefix", rec.Value)
		}
		id := binary.BigEndian.Uint32(rec.Value[1:])
		if schemas[id] == "" {
			schema, err := client.SchemaByID(t.Context(), int(id))
			if err != nil {
				t.Fatal(err)
			}
			schemas[id] = schema.Schema
		}
		plain, err := json.Marshal(p.read(t, schemas[id], rec.Value[5:]))
		if err != nil {
			t.Fatal(err)
		}
		found[string(rec.Key)] = append(found[string(rec.Key)], fmt.Sprintf("%d %s", id, plain))
	}
	return found
}

// eachEncoding runs a test with each format under both guarantees, in the short form under one of them.
func eachEncoding(t *testing.T, test func(t *testing.T, e encoding, guarantee relay.Guarantee)) {
	for i, e := range encodings {
		for j, guarantee := range []relay.Guarantee{relay.AtLeastOnce, relay.ExactlyOnce} {
			if harness.Left(i, j) {
				continue
			}
			t.Run(e.value+"/"+string(guarantee), func(t *testing.T) { test(t, e, guarantee) })
		}
	}
}

// expect fails the test unless the records of a key are these, in order. Repeats of at-least-once
// are left out.
func (p *encodedPipeline) expect(t *testing.T, key string, want ...string) {
	t.Helper()
	got := p.values(t)[harness.Query[string](t, p.DB, "SELECT md5('"+key+"')::uuid::text")]
	if p.Settings().Guarantee != relay.ExactlyOnce {
		got = firstOf(got)
	}
	if strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("key %s has\n%s\nwant\n%s", key, strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// firstOf keeps the first of equal values.
func firstOf(values []string) (first []string) {
	for _, v := range values {
		if !slices.Contains(first, v) {
			first = append(first, v)
		}
	}
	return first
}

// With a real registry: a payload that does not fit becomes a dead letter, the schema evolves while
// the relay runs, and the letter is re-driven by the new version.
func TestRegistry_RedrivesOnceTheSchemaIsFixed(t *testing.T) {
	t.Parallel()
	url := harness.Registry(t)
	eachEncoding(t, func(t *testing.T, e encoding, guarantee relay.Guarantee) {
		redrivenByTheNewVersion(t, newEncoded(t, harness.Postgres(t), harness.Kfake(t, kfakeDefault), e, url, guarantee))
	})
}

// The same for Protobuf, by a registry that gives it compiled.
func TestSchemas_ProtobufIsRedrivenOnceTheSchemaIsFixed(t *testing.T) {
	t.Parallel()
	for _, guarantee := range []relay.Guarantee{relay.AtLeastOnce, relay.ExactlyOnce} {
		t.Run(string(guarantee), func(t *testing.T) {
			r := newRegistry(t)
			r.compiles(t)
			redrivenByTheNewVersion(t, newEncoded(t, harness.Postgres(t), harness.Kfake(t, kfakeDefault), protobufEncoding, r.URL(), guarantee))
		})
	}
}

func redrivenByTheNewVersion(t *testing.T, p *encodedPipeline) {
	first := p.register(t, "placed", p.v1)
	run := p.Start(t)
	run.AwaitStreaming(t)
	p.insert(t, "a", "placed", `{"n": 1}`)
	p.insert(t, "a", "placed", `{"n": 2, "note": "early"}`)
	p.insert(t, "b", "placed", `{"n": 3}`)
	p.AwaitCaughtUp(t)
	letters := readCommitted(t, p.Pipeline, p.letters)
	if len(letters) != 1 || !strings.Contains(errorOf(letters[0]), p.misfit) || strings.Contains(errorOf(letters[0]), "early") {
		t.Fatalf("%d letters: %v", len(letters), letters)
	}
	second := p.register(t, "placed", p.v2)
	relaytest.Eventually(t, "the new version is in use", func() (bool, string) {
		p.insert(t, "probe", "placed", `{"n": 4}`)
		p.AwaitCaughtUp(t)
		got := p.values(t)
		return strings.Contains(fmt.Sprint(got), fmt.Sprintf(`%d {"n":4%s}`, second, p.none)), fmt.Sprint(got)
	})
	p.insert(t, "b", "placed", `{"n": 5, "note": "new"}`)
	p.AwaitCaughtUp(t)
	run.Stop(t)
	redriven := p.Exec(t, "deadletter", "redrive", "--all", "--yes")
	if code := redriven.Wait(t); code != 0 {
		t.Fatalf("redrive ends with %d:\n%s", code, redriven.Output())
	}
	p.expect(t, "a", fmt.Sprintf(`%d {"n":1}`, first), fmt.Sprintf(`%d {"n":2,"note":"early"}`, second))
	p.expect(t, "b", fmt.Sprintf(`%d {"n":3}`, first), fmt.Sprintf(`%d {"n":5,"note":"new"}`, second))
}

func errorOf(rec *kgo.Record) string {
	for _, h := range rec.Headers {
		if h.Key == "cdc-relay-error-message" {
			return string(h.Value)
		}
	}
	return ""
}

// The registry hangs when the relay starts, and is killed while rows come, and while the relay stops.
func TestRegistry_ComesAndGoes(t *testing.T) {
	t.Parallel()
	registry := harness.OwnRegistry(t)
	eachEncoding(t, func(t *testing.T, e encoding, guarantee relay.Guarantee) {
		t.Run("one_relay", func(t *testing.T) { oneRelayWaits(t, registry, e, guarantee) })
		t.Run("shards", func(t *testing.T) { shardsWait(t, registry, e, guarantee) })
	})
}

func again(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// oneRelayWaits: rows of known subjects go on, the others wait, and in the end nothing is lost and the
// key is in order.
func oneRelayWaits(t *testing.T, registry *sandbox.Registry, e encoding, guarantee relay.Guarantee) {
	p := newEncoded(t, harness.Postgres(t), harness.Kfake(t, kfakeDefault), e, registry.URL(), guarantee)
	p.impatient(t)
	known := p.register(t, "known", e.v1)
	again(t, registry.Pause())
	run := p.Start(t)
	run.AwaitStreaming(t)
	p.insert(t, "a", "known", `{"n": 1}`)
	run.AwaitBlocked(t, fault.ReasonRegistryUnreachable)
	again(t, registry.Continue())
	p.AwaitCaughtUp(t)

	registry.Kill()
	p.insert(t, "a", "known", `{"n": 2}`)
	p.AwaitCaughtUp(t)
	p.DB.Exec(t, `INSERT INTO outbox (aggregate_type, aggregate_id, event_type, payload)
		SELECT $1, md5('a')::uuid, CASE i WHEN 5 THEN 'later' ELSE 'known' END, jsonb_build_object('n', i) FROM generate_series(3, 6) AS i`, p.aggregate)
	run.AwaitBlocked(t, fault.ReasonRegistryUnreachable)
	p.insert(t, "a", "known", `{"n": 7}`)
	run.Stop(t) // no row is in flight: nothing keeps it from a clean end
	run = p.Start(t)
	run.AwaitBlocked(t, fault.ReasonRegistryUnreachable)
	again(t, registry.Start(t.Context()))
	run.AwaitBlocked(t, fault.ReasonUnknownSubject)
	later := p.register(t, "later", e.v2)
	p.AwaitCaughtUp(t)
	run.Stop(t)
	want := make([]string, 7)
	for i := range want {
		want[i] = fmt.Sprintf(`%d {"n":%d}`, known, i+1)
	}
	want[4] = fmt.Sprintf(`%d {"n":5%s}`, later, e.none)
	p.expect(t, "a", want...)
}

// shardsWait: each shard asks for itself. The process is killed while they wait.
func shardsWait(t *testing.T, registry *sandbox.Registry, e encoding, guarantee relay.Guarantee) {
	p := newEncoded(t, harness.Postgres(t), harness.Kfake(t, kfakeDefault), e, registry.URL(), guarantee, "shards: 2, ")
	p.impatient(t)
	ids := map[string]int{"known": p.register(t, "known", e.v1)}
	const keys = 6
	var events []string // of each key
	insert := func(event string) {
		for key := range keys {
			p.insert(t, fmt.Sprint(key), event, fmt.Sprintf(`{"n": %d}`, len(events)))
		}
		events = append(events, event)
	}
	s := &sharded{Pipeline: p.Pipeline}
	insert("known")
	running := p.Exec(t, "run")
	s.awaitCaughtUp(t)
	again(t, registry.Pause())
	for _, event := range []string{"known", "later", "known", "later", "known"} {
		insert(event)
	}
	relaytest.Eventually(t, "the rows of the known subject are delivered", func() (bool, string) {
		got := len(readCommitted(t, p.Pipeline, p.topic))
		return got >= 2*keys, fmt.Sprint(got)
	})
	running.Kill()
	running = p.Exec(t, "run")
	again(t, registry.Continue())
	ids["later"] = p.register(t, "later", e.v1)
	s.awaitCaughtUp(t)
	s.stop(t, running)
	want := make([]string, len(events))
	for i, event := range events {
		want[i] = fmt.Sprintf(`%d {"n":%d}`, ids[event], i)
	}
	for key := range keys {
		p.expect(t, fmt.Sprint(key), want...)
	}
}
