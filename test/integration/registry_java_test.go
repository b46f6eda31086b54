package integration

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"os/exec"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/sr"

	"github.com/cdc-relay/cdc-relay/relay"
	"github.com/cdc-relay/cdc-relay/test/harness"
)

// everyType has the types of Avro that have a plain JSON.
const everyType = `{"type": "record", "name": "All", "namespace": "shop", "fields": [
	{"name": "yes", "type": "boolean"}, {"name": "n", "type": "int"}, {"name": "large", "type": "long"},
	{"name": "part", "type": "double"}, {"name": "text", "type": "string"},
	{"name": "kind", "type": {"type": "enum", "name": "Kind", "symbols": ["NEW", "OLD"]}},
	{"name": "maybe", "type": ["null", "string"], "default": null},
	{"name": "absent", "type": "int", "default": 7},
	{"name": "list", "type": {"type": "array", "items": {"type": "record", "name": "Line", "fields": [{"name": "qty", "type": "int"}, {"name": "next", "type": ["null", "Line"], "default": null}]}}},
	{"name": "counts", "type": {"type": "map", "values": "long"}}]}`

// Apache Avro's own classes read what the relay encoded, by the schema that the registry has below the
// number in the prefix.
func TestRegistry_JavaReadsWhatTheRelayEncodes(t *testing.T) {
	t.Parallel()
	url := harness.Registry(t)
	java, jars := harness.Java(t, "avro-1.12.0", filepath.Join("avro", "pom.xml"))
	p := newEncoded(t, harness.Postgres(t), harness.Kfake(t, kfakeDefault), encoding{value: "avro", kind: sr.TypeAvro}, url, relay.AtLeastOnce)
	p.register(t, "all", everyType)
	run := p.Start(t)
	run.AwaitStreaming(t)
	payloads := []string{
		`{"yes": true, "n": -2147483648, "large": 9223372036854775807, "part": 0.1, "text": "häß €😀", "kind": "OLD", "maybe": "x", "absent": 7, "list": [{"qty": 1, "next": {"qty": 2, "next": null}}], "counts": {"a": 1, "b": -1}}`,
		`{"yes": false, "n": 2147483647, "large": -9223372036854775808, "part": -1.5e300, "text": "", "kind": "NEW", "maybe": null, "absent": 0, "list": [], "counts": {}}`,
	}
	for _, payload := range payloads {
		p.insert(t, "a", "all", payload)
	}
	p.AwaitCaughtUp(t)
	run.Stop(t)
	var lines strings.Builder
	for _, rec := range p.Brokers.Read(t, p.topic) {
		lines.WriteString(hex.EncodeToString(rec.Value) + "\n")
	}
	cmd := exec.CommandContext(t.Context(), java, "-Dfile.encoding=UTF-8", "-Dstdout.encoding=UTF-8", "-cp", filepath.Join(jars, "*"), filepath.Join("avro", "Read.java"), url)
	cmd.Stdin = strings.NewReader(lines.String())
	var complaint bytes.Buffer
	cmd.Stderr = &complaint
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v\n%s", err, complaint.String())
	}
	read := strings.Split(strings.TrimSpace(string(out)), "\n")
	if len(read) != len(payloads) {
		t.Fatalf("Java read %d values, want %d:\n%s", len(read), len(payloads), out)
	}
	for i, payload := range payloads {
		if got, want := exact(t, read[i]), exact(t, payload); !reflect.DeepEqual(got, want) {
			t.Errorf("Java read\n%v\nwant\n%v", got, want)
		}
	}
}

// exact is a JSON value whose integers are not rounded. A float is compared by its value.
func exact(t *testing.T, text string) any {
	t.Helper()
	decoder := json.NewDecoder(strings.NewReader(text))
	decoder.UseNumber()
	var v map[string]any
	if err := decoder.Decode(&v); err != nil {
		t.Fatalf("%v: %s", err, text)
	}
	part, err := v["part"].(json.Number).Float64()
	if err != nil {
		t.Fatal(err)
	}
	v["part"] = part
	return v
}
