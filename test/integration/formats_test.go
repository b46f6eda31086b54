package integration

import (
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/sr"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/encoding/prototext"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/types/descriptorpb"
	"google.golang.org/protobuf/types/dynamicpb"

	"github.com/cdc-relay/cdc-relay/fault"
	"github.com/cdc-relay/cdc-relay/test/harness"
)

const orderProto = `name: "order.proto" package: "shop" syntax: "proto3" message_type { name: "Order"
	field { name: "n" number: 1 label: LABEL_OPTIONAL type: TYPE_INT32 } field { name: "at" number: 2 label: LABEL_OPTIONAL type: TYPE_INT64 } }`

// serializing has a registry give descriptors, as Confluent's does with format=serialized.
func (r *registry) serializing(t *testing.T, file *descriptorpb.FileDescriptorProto) {
	t.Helper()
	b, err := proto.Marshal(file)
	if err != nil {
		t.Fatal(err)
	}
	r.Intercept(func(w http.ResponseWriter, req *http.Request) bool {
		if req.URL.Query().Get("format") != "serialized" {
			return false
		}
		w.Header().Set("Content-Type", "application/vnd.schemaregistry.v1+json")
		_, _ = fmt.Fprintf(w, `{"subject": "s", "version": 1, "id": 1, "schemaType": "PROTOBUF", "schema": %q}`, base64.StdEncoding.EncodeToString(b))
		return true
	})
}

// letterMessages are what dead letters say of their rows.
func letterMessages(t *testing.T, brokers *harness.Brokers, topic string) (all []string) {
	t.Helper()
	for _, rec := range brokers.Read(t, topic) {
		for _, h := range rec.Headers {
			if h.Key == "cdc-relay-error-message" {
				all = append(all, string(h.Value))
			}
		}
	}
	return all
}

// A consumer reads what the library of Protobuf makes of the payload; a row that does not fit is a
// dead letter, and check and explain know the format.
func TestSchemas_EncodesProtobuf(t *testing.T) {
	t.Parallel()
	onEachGuarantee(t, func(t *testing.T, db *harness.Database, guarantee string) {
		brokers, r := harness.Kfake(t, kfakeDefault), newRegistry(t)
		letters := harness.Unique(t, "letters")
		p, topic, insert := schemaPipeline(t, db, brokers, r, "value: protobuf", "relay: {on_reject: dead_letter, dead_letter_topic: "+letters+", "+guarantee+"}")
		createCheckpoints(t, p)
		brokers.CreateTopic(t, letters, 1)
		file := &descriptorpb.FileDescriptorProto{}
		if err := prototext.Unmarshal([]byte(orderProto), file); err != nil {
			t.Fatal(err)
		}
		if _, _, err := r.RegisterSchema(topic+"-value", sr.Schema{Type: sr.TypeProtobuf, Schema: "message Order {}"}); err != nil {
			t.Fatal(err)
		}
		run := p.Start(t)
		run.AwaitStreaming(t)
		insert(`{"n": 1}`)
		if s := run.AwaitBlocked(t, fault.ReasonSchemaUnusable); !strings.Contains(fmt.Sprintf("%+v", s), "set schema.file to a descriptor set") {
			t.Errorf("a registry that gives text: %+v", s)
		}
		r.serializing(t, file)
		insert(`{"n": "two"}`)
		insert(`{"n": 3, "at": "9007199254740993"}`)
		p.AwaitCaughtUp(t)
		for _, verb := range [][]string{{"check"}, {"explain"}} {
			said := p.Exec(t, verb...)
			said.Wait(t)
			if out := said.Output(); !strings.Contains(out, "subject "+topic+"-value, version 1, id 1") {
				t.Errorf("%v does not name the schema:\n%s", verb, out)
			}
		}
		run.Stop(t)
		made, err := protodesc.NewFile(file, nil)
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, rec := range brokers.Read(t, topic) {
			m := dynamicpb.NewMessage(made.Messages().Get(0))
			if len(rec.Value) < 6 || binary.BigEndian.Uint32(rec.Value[1:]) != 1 || rec.Value[5] != 0 {
				t.Fatalf("value %x has no prefix", rec.Value)
			}
			if err := proto.Unmarshal(rec.Value[6:], m); err != nil {
				t.Fatal(err)
			}
			text, err := protojson.Marshal(m)
			if err != nil {
				t.Fatal(err)
			}
			got = append(got, strings.ReplaceAll(string(text), " ", ""))
		}
		if want := `[{"n":1} {"n":3,"at":"9007199254740993"}]`; fmt.Sprint(got) != want {
			t.Errorf("got %v, want %s", got, want)
		}
		if said := letterMessages(t, brokers, letters); len(said) != 1 || !strings.Contains(said[0], "$.n: the schema wants int32, the payload has a string that is no number (subject "+topic+"-value, version 1, id 1)") || strings.Contains(said[0], "two") {
			t.Errorf("letters: %q", said)
		}
	})
}

func TestSchemas_SendsAndValidatesJSONSchema(t *testing.T) {
	t.Parallel()
	harness.EachPostgres(t, func(t *testing.T, db *harness.Database) {
		for _, validate := range []bool{false, true} {
			brokers, r := harness.Kfake(t, kfakeDefault), newRegistry(t)
			letters := harness.Unique(t, "letters")
			p, topic, insert := schemaPipeline(t, another(t, db), brokers, r, fmt.Sprintf("value: json_schema, schema: {validate: %t}", validate), "relay: {on_reject: dead_letter, dead_letter_topic: "+letters+"}")
			brokers.CreateTopic(t, letters, 1)
			id, _, err := r.RegisterSchema(topic+"-value", sr.Schema{Type: sr.TypeJSON, Schema: `{"type": "object", "properties": {"n": {"type": "integer"}}}`})
			if err != nil {
				t.Fatal(err)
			}
			run := p.Start(t)
			run.AwaitStreaming(t)
			insert(`{"n": 1, "more": {}}`)
			insert(`{"n": "two"}`)
			insert(`{"n": 3}`)
			p.AwaitCaughtUp(t)
			run.Stop(t)
			prefix := string(binary.BigEndian.AppendUint32([]byte{0}, uint32(id)))
			want := []string{prefix + `{"n": 1, "more": {}}`, prefix + `{"n": "two"}`, prefix + `{"n": 3}`}
			said := letterMessages(t, brokers, letters)
			if validate {
				want = append(want[:1], want[2])
				if len(said) != 1 || !strings.Contains(said[0], "$.n: the schema wants integer, the payload has a string") || strings.Contains(said[0], "two") {
					t.Errorf("letters: %q", said)
				}
			} else if len(said) > 0 {
				t.Errorf("letters without validation: %q", said)
			}
			var got []string
			for _, rec := range brokers.Read(t, topic) {
				got = append(got, string(rec.Value))
			}
			if fmt.Sprintf("%q", got) != fmt.Sprintf("%q", want) {
				t.Errorf("got %q, want %q", got, want)
			}
		}
	})
}
