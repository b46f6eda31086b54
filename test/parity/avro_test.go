package parity

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/twmb/avro"

	"github.com/cdc-relay/cdc-relay/debezium/importer"
	"github.com/cdc-relay/cdc-relay/router/encode"
	"github.com/cdc-relay/cdc-relay/test/parity/golden"
)

// What a real Debezium wrote with Apicurio's Avro converter, of which `make parity-capture` with
// CAPTURE_ARGS="-cases test/parity/avro" makes a new record. The relay makes no such records: import
// offers value: avro, and says what differs. These are what it says.
var framings = map[string]struct {
	prefix int    // bytes of the number behind the zero byte; 0: it is in a header
	says   string // of import about it
}{
	"defaults":          {0, "The connector has them in a header, also with as-confluent"},
	"confluent-headers": {0, "The connector has them in a header, also with as-confluent"},
	"prefix":            {8, "The connector's have eight"},
	"confluent":         {4, "as the connector's are: consumers read both"},
	"text":              {4, "as the connector's are, but those of contents"},
	"keys":              {4, "as the connector's are, but those of contents"},
}

// The payloads of the cases, as they are in dml.sql. Debezium leaves an empty array out of the schema.
var converted = []string{
	`{"n":1,"state":"placed","total":4.9,"paid":true,"lines":[{"sku":"A","qty":1},{"sku":"B","qty":2}],"large":3000000000}`,
	`{"n":2,"state":"paid","total":5.1,"paid":false,"lines":[{"sku":"C","qty":3}],"large":3000000001}`,
	`{"n":3,"state":"placed","total":1.5,"paid":true,"large":3000000002,"note":"later"}`,
}

func TestAvroConverter_WritesWhatImportSays(t *testing.T) {
	cases, err := golden.LoadAll("avro")
	if err != nil {
		t.Fatal(err)
	}
	if len(cases) != len(framings) {
		t.Errorf("%d cases, and %d framings", len(cases), len(framings))
	}
	for _, c := range cases {
		t.Run(c.Name, func(t *testing.T) {
			imported, err := importer.Convert(c.Connector, importer.Options{})
			if err != nil {
				t.Fatal(err)
			}
			said := strings.Join(strings.FieldsFunc(string(imported.YAML), func(r rune) bool { return strings.ContainsRune(" \n#|", r) }), " ")
			for _, want := range []string{framings[c.Name].says, "schemas have the names that you give them, not Connect's", "value: avro"} {
				if !strings.Contains(said, want) {
					t.Errorf("import does not say %q:\n%s", want, imported.YAML)
				}
			}
			if text := strings.Contains(said, "values were payloads as text, by the schema of a string"); text != (c.Name == "text") {
				t.Errorf("import says that values were text: %t", text)
			}
			schemas := registeredBy(t, c)
			if c.Name == "text" && !strings.Contains(string(schemas[1].Text), `["null",{"type":"string",`) {
				t.Errorf("the schema is %s", schemas[1].Text)
			}
			for i, r := range c.Records {
				if r.Value.Null {
					continue
				}
				id, body := unframed(t, r, framings[c.Name].prefix)
				s, ok := schemas[id]
				if !ok {
					t.Fatalf("record %d has number %d, which nobody registered", i, id)
				}
				if c.Name != "text" && !strings.Contains(string(s.Text), `"connect.name":"payload"`) {
					t.Errorf("the schema is %s", s.Text)
				}
				holds(t, s, body, i)
				if key := fmt.Sprintf("o-%d", i+1); c.Name == "keys" {
					if want := append([]byte{0, 0, 0, 0, 1, byte(2 * len(key))}, key...); !bytes.Equal(r.Key.Raw, want) {
						t.Errorf("record %d has key %x, want %x", i, r.Key.Raw, want)
					}
				} else if string(r.Key.Raw) != key {
					t.Errorf("record %d has key %q", i, r.Key.Raw)
				}
				if !slices.ContainsFunc(r.Headers, func(h golden.Header) bool { return h.Name == "__debezium.context.connectorName" }) {
					t.Errorf("record %d has headers %v", i, r.Headers)
				}
			}
		})
	}
}

func registeredBy(t *testing.T, c *golden.Case) map[int]golden.Registered {
	t.Helper()
	schemas := map[int]golden.Registered{}
	for line := range bytes.Lines(c.Schemas) {
		var s golden.Registered
		if err := json.Unmarshal(line, &s); err != nil {
			t.Fatal(err)
		}
		schemas[s.ID] = s
	}
	return schemas
}

// unframed takes the number of the schema off a value, or out of a header.
func unframed(t *testing.T, r golden.Record, prefix int) (id int, body []byte) {
	t.Helper()
	at := slices.IndexFunc(r.Headers, func(h golden.Header) bool { return h.Name == "apicurio.value.globalId" })
	switch value := r.Value.Raw; {
	case prefix == 0 && at >= 0 && len(r.Headers[at].Value.Raw) == 8:
		return int(binary.BigEndian.Uint64(r.Headers[at].Value.Raw)), value
	case prefix == 8 && at < 0 && len(value) > 9 && value[0] == 0:
		return int(binary.BigEndian.Uint64(value[1:])), value[9:]
	case prefix == 4 && at < 0 && len(value) > 5 && value[0] == 0:
		return int(binary.BigEndian.Uint32(value[1:])), value[5:]
	}
	t.Fatalf("value %x with headers %v has no number of %d bytes", r.Value.Raw, r.Headers, prefix)
	return 0, nil
}

// holds wants the body to be a payload by the registered schema, and that of the relay by the same one.
func holds(t *testing.T, s golden.Registered, body []byte, row int) {
	t.Helper()
	schema, err := avro.Parse(string(s.Text))
	if err != nil {
		t.Fatal(err)
	}
	var got, want any
	rest, err := schema.Decode(body, &got)
	if err != nil || len(rest) > 0 {
		t.Fatalf("body %x: %v, %d bytes left", body, err, len(rest))
	}
	if text, isText := got.(string); isText { // the payload without expansion
		if err := json.Unmarshal([]byte(text), &got); err != nil {
			t.Fatal(err)
		}
	} else {
		e, err := encode.Compile(encode.Schema{Kind: encode.Avro, ID: uint32(s.ID), Text: string(s.Text)}, encode.Options{Kind: encode.Avro})
		if err != nil {
			t.Fatal(err)
		}
		framed, err := e.Append(nil, []byte(converted[row]))
		if err != nil || !bytes.Equal(framed[5:], body) {
			t.Errorf("row %d: the relay has %x by the same schema, Debezium %x: %v", row+1, framed, body, err)
		}
	}
	if err := json.Unmarshal([]byte(converted[row]), &want); err != nil {
		t.Fatal(err)
	}
	x, err := json.Marshal(got)
	if err != nil {
		t.Fatal(err)
	}
	y, err := json.Marshal(want)
	if err != nil {
		t.Fatal(err)
	}
	if string(x) != string(y) {
		t.Errorf("row %d is %s, want %s", row+1, x, y)
	}
}
