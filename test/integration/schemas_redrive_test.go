package integration

import (
	"encoding/base64"
	"encoding/json"
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

	"github.com/cdc-relay/cdc-relay/relay"
	"github.com/cdc-relay/cdc-relay/test/harness"
	"github.com/cdc-relay/cdc-relay/test/harness/relaytest"
)

// What order.proto is in two versions, and what protoc makes of each.
const (
	noteV1 = `syntax = "proto3"; package shop; message Order { int32 n = 1; }`
	noteV2 = `syntax = "proto3"; package shop; message Order { int32 n = 1; string note = 2; }`
)

var noteProtos = map[string]string{
	noteV1: `name: "order.proto" package: "shop" syntax: "proto3" message_type { name: "Order"
		field { name: "n" number: 1 label: LABEL_OPTIONAL type: TYPE_INT32 } }`,
	noteV2: `name: "order.proto" package: "shop" syntax: "proto3" message_type { name: "Order"
		field { name: "n" number: 1 label: LABEL_OPTIONAL type: TYPE_INT32 } field { name: "note" number: 2 label: LABEL_OPTIONAL type: TYPE_STRING } }`,
}

// protobufEncoding needs a registry that gives what protoc has compiled: see compiles.
var protobufEncoding = encoding{value: "protobuf", kind: sr.TypeProtobuf, v1: noteV1, v2: noteV2, misfit: "$.note", read: readProtobuf}

func noteFile(t *testing.T, text string) *descriptorpb.FileDescriptorProto {
	t.Helper()
	file := &descriptorpb.FileDescriptorProto{}
	if err := prototext.Unmarshal([]byte(noteProtos[text]), file); err != nil || noteProtos[text] == "" {
		t.Errorf("the schema is %q: %v", text, err)
	}
	return file
}

func readProtobuf(t *testing.T, schema string, body []byte) any {
	t.Helper()
	made, err := protodesc.NewFile(noteFile(t, schema), nil)
	if err != nil {
		t.Fatal(err)
	}
	m := dynamicpb.NewMessage(made.Messages().Get(0))
	if len(body) == 0 || body[0] != 0 { // the first message of the file
		t.Fatalf("body %x has no list of messages", body)
	}
	if err := proto.Unmarshal(body[1:], m); err != nil {
		t.Fatal(err)
	}
	text, err := protojson.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	return json.RawMessage(text)
}

// compiles has a registry give descriptors of noteProtos where it is asked for them, as Confluent's.
func (r *registry) compiles(t *testing.T) {
	t.Helper()
	client, err := sr.NewClient(sr.URLs(r.URL()))
	if err != nil {
		t.Fatal(err)
	}
	r.Intercept(func(w http.ResponseWriter, req *http.Request) bool {
		subject, ok := strings.CutPrefix(req.URL.Path, "/subjects/")
		subject, version, _ := strings.Cut(subject, "/versions/")
		if !ok || req.URL.Query().Get("format") != "serialized" {
			return false
		}
		number := -1
		if version != "latest" {
			if _, err := fmt.Sscan(version, &number); err != nil {
				t.Errorf("asked for %s", req.URL)
			}
		}
		found, err := client.SchemaByVersion(req.Context(), subject, number)
		if err != nil || found.Type != sr.TypeProtobuf {
			return false // the registry says so itself
		}
		compiled, err := proto.Marshal(noteFile(t, found.Schema.Schema))
		if err != nil {
			t.Error(err)
		}
		w.Header().Set("Content-Type", "application/vnd.schemaregistry.v1+json")
		_, _ = fmt.Fprintf(w, `{"subject": %q, "version": %d, "id": %d, "schemaType": "PROTOBUF", "schema": %q}`,
			found.Subject, found.Version, found.ID, base64.StdEncoding.EncodeToString(compiled))
		return true
	})
}

// In each format, with shards too: rows that do not fit become dead letters, the registry is away while
// other rows wait for it and the relay is killed, and once the schema is corrected the letters are
// re-driven by it. Nothing is lost, and the other rows keep their order.
func TestSchemas_LettersAreRedrivenOnceTheSchemaIsFixed(t *testing.T) {
	t.Parallel()
	avro, jsonSchema := encodings[0], encodings[1]
	for _, c := range []struct {
		e         encoding
		guarantee relay.Guarantee
		shards    int
	}{
		{protobufEncoding, relay.AtLeastOnce, 1},
		{protobufEncoding, relay.AtLeastOnce, 2},
		{protobufEncoding, relay.ExactlyOnce, 1},
		{protobufEncoding, relay.ExactlyOnce, 2},
		{jsonSchema, relay.ExactlyOnce, 2},
		{avro, relay.ExactlyOnce, 2},
	} {
		t.Run(fmt.Sprintf("%s/%s/%d", c.e.value, c.guarantee, c.shards), func(t *testing.T) {
			r := newRegistry(t)
			r.compiles(t)
			lettersOfAFixedSchema(t, r, newEncoded(t, harness.Postgres(t), harness.Kfake(t, kfakeDefault), c.e, r.URL(), c.guarantee, fmt.Sprintf("shards: %d, ", c.shards)))
		})
	}
}

func lettersOfAFixedSchema(t *testing.T, r *registry, p *encodedPipeline) {
	const keys = 6 // some are of each shard
	s := &sharded{Pipeline: p.Pipeline}
	insert := func(event, payload string) {
		for key := range keys {
			p.insert(t, fmt.Sprint(key), event, payload)
		}
	}
	register := func(event, schema string) int {
		id, _, err := r.RegisterSchema(p.topic+"-"+event, sr.Schema{Schema: schema, Type: p.kind})
		if err != nil {
			t.Fatal(err)
		}
		return id
	}
	first := register("placed", p.v1)
	running := p.Exec(t, "run")
	insert("placed", `{"n": 1}`)
	insert("placed", `{"n": 2, "note": "early"}`)
	insert("placed", `{"n": 3}`)
	s.awaitCaughtUp(t)
	letters := readCommitted(t, p.Pipeline, p.letters)
	for _, letter := range letters {
		if said := errorOf(letter); !strings.Contains(said, p.misfit) || strings.Contains(said, "early") {
			t.Errorf("a letter says %q", said)
		}
	}
	if len(letters) != keys {
		t.Fatalf("%d letters, want %d", len(letters), keys)
	}

	r.away.Store(true)
	insert("later", `{"n": 4}`)
	insert("placed", `{"n": 5}`)
	relaytest.Eventually(t, "the relay asks a registry that is away", func() (bool, string) { return r.refused.Load() > 0, "it did not" })
	running.Kill()
	running = p.Exec(t, "run")
	second, later := register("placed", p.v2), register("later", p.v2)
	r.away.Store(false)
	s.awaitCaughtUp(t)
	s.stop(t, running)
	if redriven := p.Exec(t, "deadletter", "redrive", "--all", "--yes"); redriven.Wait(t) != 0 {
		t.Fatal(redriven.Output())
	}
	for key := range keys {
		p.expect(t, fmt.Sprint(key), fmt.Sprintf(`%d {"n":1}`, first), fmt.Sprintf(`%d {"n":3}`, first),
			fmt.Sprintf(`%d {"n":4%s}`, later, p.none), fmt.Sprintf(`%d {"n":5%s}`, second, p.none), fmt.Sprintf(`%d {"n":2,"note":"early"}`, second))
	}
}
