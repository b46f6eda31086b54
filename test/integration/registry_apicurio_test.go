package integration

import (
	"encoding/binary"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/sr"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/descriptorpb"

	"github.com/cdc-relay/cdc-relay/fault"
	"github.com/cdc-relay/cdc-relay/test/harness"
	"github.com/cdc-relay/cdc-relay/test/harness/relaytest"
)

// registered puts a schema into a registry, and returns its number.
func registered(t *testing.T, url, subject string, schema sr.Schema) int {
	t.Helper()
	client, err := sr.NewClient(sr.URLs(url), sr.HTTPClient(&http.Client{Timeout: relaytest.Patience}))
	if err != nil {
		t.Fatal(err)
	}
	made, err := client.CreateSchema(t.Context(), subject, schema)
	if err != nil {
		t.Fatal(err)
	}
	return made.ID
}

// Apicurio gives Protobuf as text. The relay says what is needed, and with a descriptor set and the
// number that the registry gave, the rows go out. A new version takes a new file and number: with them
// the letter of a row that did not fit is re-driven.
func TestRegistry_ProtobufByADescriptorSet(t *testing.T) {
	t.Parallel()
	url := harness.Registry(t)
	eachGuarantee(t, func(t *testing.T, guarantee string) {
		brokers, aggregate, letters := harness.Kfake(t, kfakeDefault), harness.Unique(t, "order"), harness.Unique(t, "letters")
		topic := aggregate + "-events"
		asking, registry := "{table: public.outbox, value: protobuf}", "  registry: {url: ["+url+"], refresh: 1s}"
		p := relaytest.New(t, harness.Postgres(t), brokers, []string{asking}, registry, "relay: {on_reject: dead_letter, dead_letter_topic: "+letters+", "+guarantee+"}")
		p.Setup(t)
		createCheckpoints(t, p)
		for _, name := range []string{topic, letters} {
			brokers.CreateTopic(t, name, 1)
		}
		plain := p.YAML
		insert := func(payload string) {
			p.DB.Exec(t, "INSERT INTO outbox (aggregate_type, aggregate_id, event_type, payload) VALUES ($1, gen_random_uuid(), 'x', $2)", aggregate, payload)
		}
		evolve := func(schema string) int {
			id := registered(t, url, topic+"-value", sr.Schema{Type: sr.TypeProtobuf, Schema: schema})
			given := fmt.Sprintf("{table: public.outbox, value: protobuf, schema: {file: %q, id: %d, message: shop.Order}}", descriptorSet(t, schema), id)
			p.Reconfigure(t, strings.Replace(strings.Replace(plain, asking, given, 1), registry, "", 1))
			if strings.Contains(p.YAML, url) || !strings.Contains(p.YAML, given) {
				t.Fatalf("the configuration is still\n%s", p.YAML)
			}
			return id
		}
		registered(t, url, topic+"-value", sr.Schema{Type: sr.TypeProtobuf, Schema: noteV1})
		run := p.Start(t)
		run.AwaitStreaming(t)
		insert(`{"n": 1}`)
		if s := run.AwaitBlocked(t, fault.ReasonSchemaUnusable); !strings.Contains(fmt.Sprintf("%+v", s), "set schema.file to a descriptor set") {
			t.Errorf("a registry that gives text: %+v", s)
		}
		run.Stop(t)

		first := evolve(noteV1)
		run = p.Start(t)
		run.AwaitStreaming(t)
		insert(`{"n": 2, "note": "early"}`)
		insert(`{"n": 3}`)
		p.AwaitCaughtUp(t)
		run.Stop(t)
		if said := letterMessages(t, brokers, letters); len(said) != 1 || !strings.Contains(said[0], "$.note") || strings.Contains(said[0], "early") {
			t.Errorf("letters: %q", said)
		}

		second := evolve(noteV2)
		run = p.Start(t)
		run.AwaitStreaming(t)
		insert(`{"n": 4, "note": "new"}`)
		p.AwaitCaughtUp(t)
		run.Stop(t)
		if redriven := p.Exec(t, "deadletter", "redrive", "--all", "--yes"); redriven.Wait(t) != 0 {
			t.Fatal(redriven.Output())
		}
		texts, got := map[int]string{first: noteV1, second: noteV2}, []string{}
		for _, rec := range readCommitted(t, p, topic) {
			if len(rec.Value) < 5 || rec.Value[0] != 0 {
				t.Fatalf("value %x has no prefix", rec.Value)
			}
			id := int(binary.BigEndian.Uint32(rec.Value[1:]))
			got = append(got, fmt.Sprintf("%d %s", id, strings.ReplaceAll(fmt.Sprintf("%s", readProtobuf(t, texts[id], rec.Value[5:])), " ", "")))
		}
		want := fmt.Sprintf(`[%d {"n":1} %d {"n":3} %d {"n":4,"note":"new"} %d {"n":2,"note":"early"}]`, first, first, second, second)
		if fmt.Sprint(firstOf(got)) != want {
			t.Errorf("got %v, want %s", got, want)
		}
	})
}

// descriptorSet is the file that protoc makes of a schema.
func descriptorSet(t *testing.T, schema string) string {
	t.Helper()
	set, err := proto.Marshal(&descriptorpb.FileDescriptorSet{File: []*descriptorpb.FileDescriptorProto{noteFile(t, schema)}})
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "order.desc")
	if err := os.WriteFile(path, set, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// schema.check knows the numbers of a real registry, and of Protobuf also wants the message.
func TestRegistry_ChecksWhatTheApplicationFramed(t *testing.T) {
	t.Parallel()
	url := harness.Registry(t)
	db, brokers, topic, letters := harness.Postgres(t), harness.Kfake(t, kfakeDefault), harness.Unique(t, "order"), harness.Unique(t, "letters")
	db.Exec(t, "CREATE TABLE framed (id uuid PRIMARY KEY DEFAULT gen_random_uuid(), aggregate_type text, aggregate_id text, event_type text, payload bytea)")
	p := relaytest.New(t, db, brokers, []string{"{table: public.framed, schema: {check: confluent}}"}, "  registry: {url: ["+url+"]}", "relay: {on_reject: dead_letter, dead_letter_topic: "+letters+"}")
	p.Setup(t)
	for _, name := range []string{topic + "-events", letters} {
		brokers.CreateTopic(t, name, 1)
	}
	framed := func(id int, body ...byte) []byte {
		return append(binary.BigEndian.AppendUint32([]byte{0}, uint32(id)), body...)
	}
	plain := registered(t, url, topic+"-avro", sr.Schema{Schema: orderV1})
	message := registered(t, url, topic+"-protobuf", sr.Schema{Type: sr.TypeProtobuf, Schema: noteV1})
	right := [][]byte{framed(plain, 2), framed(message, 0, 8, 1)}
	wrong := [][]byte{[]byte(`{"n": 1}`), framed(1<<30, 2), framed(plain)[:4], framed(message)}
	run := p.Start(t)
	run.AwaitStreaming(t)
	for _, payload := range append(wrong, right...) {
		db.Exec(t, "INSERT INTO framed (aggregate_type, aggregate_id, event_type, payload) VALUES ($1, 'k', 'x', $2)", topic, payload)
	}
	p.AwaitCaughtUp(t)
	run.Stop(t)
	values := func(topic string) (all [][]byte) {
		for _, rec := range brokers.Read(t, topic) {
			all = append(all, rec.Value)
		}
		return all
	}
	if got := values(topic + "-events"); fmt.Sprintf("%x", got) != fmt.Sprintf("%x", right) {
		t.Errorf("sent %x, want %x", got, right)
	}
	if got := values(letters); fmt.Sprintf("%x", got) != fmt.Sprintf("%x", wrong) {
		t.Errorf("letters %x, want %x", got, wrong)
	}
}
