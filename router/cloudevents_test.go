package router

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"mime"
	"net/url"
	"runtime/debug"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/cdc-relay/cdc-relay/replication/wal"
	"github.com/cdc-relay/cdc-relay/router/format"
	"github.com/cdc-relay/cdc-relay/router/record"
)

// checkAttributes applies the rules of CloudEvents 1.0.2 §2 and §3 to an event's
// context attributes in their string form.
func checkAttributes(t *testing.T, attributes map[string]string) {
	t.Helper()
	for _, required := range []string{"id", "source", "specversion", "type"} {
		if attributes[required] == "" {
			t.Errorf("required attribute %s is missing or empty in %q", required, attributes)
		}
	}
	for name, value := range attributes {
		if len(name) > 20 || strings.Trim(name, "abcdefghijklmnopqrstuvwxyz0123456789") != "" || name == "" || name == "data" {
			t.Errorf("attribute name %q", name)
		}
		if value == "" || !utf8.ValidString(value) {
			t.Errorf("attribute %s is %q", name, value)
		}
		for _, r := range value {
			if unicode.IsControl(r) || r >= 0xFDD0 && r <= 0xFDEF || r&0xFFFE == 0xFFFE {
				t.Errorf("attribute %s has character %U", name, r)
			}
		}
	}
	if attributes["specversion"] != "1.0" {
		t.Errorf("specversion %q", attributes["specversion"])
	}
	if _, err := url.Parse(attributes["source"]); err != nil || strings.ContainsAny(attributes["source"], " \"<>") {
		t.Errorf("source %q is no URI reference: %v", attributes["source"], err)
	}
	if at, there := attributes["time"]; there {
		if _, err := time.Parse(time.RFC3339, at); err != nil {
			t.Error(err)
		}
	}
	if typ, there := attributes["datacontenttype"]; there {
		if _, _, err := mime.ParseMediaType(typ); err != nil {
			t.Error(err)
		}
	}
}

// structured reads a record in structured mode by the rules of the JSON format
// and of the Kafka binding (§3.3), and gives attributes and data.
func structured(t *testing.T, rec record.Record) (attributes map[string]string, data []byte) {
	t.Helper()
	typ := ""
	for _, h := range rec.Headers {
		if h.Key == "content-type" {
			typ += string(h.Value)
		}
	}
	if typ != "application/cloudevents+json; charset=UTF-8" {
		t.Errorf("content-type %q", typ)
	}
	var members map[string]json.RawMessage
	if err := json.Unmarshal(rec.Value, &members); err != nil {
		t.Fatalf("%v: %s", err, rec.Value)
	}
	if members["data"] != nil && members["data_base64"] != nil {
		t.Errorf("both data and data_base64: %s", rec.Value)
	}
	attributes = map[string]string{}
	for name, raw := range members {
		if name == "data" {
			data = raw
			continue
		}
		var text string
		switch raw[0] {
		case '"':
			if err := json.Unmarshal(raw, &text); err != nil {
				t.Fatalf("%s: %v", name, err)
			}
		default: // a boolean or an integer
			text = string(raw)
		}
		if name == "data_base64" {
			var err error
			if data, err = base64.StdEncoding.DecodeString(text); err != nil {
				t.Error(err)
			}
			continue
		}
		attributes[name] = text
	}
	if typ := attributes["datacontenttype"]; typ != jsonType && members["data"] != nil {
		var text string
		if err := json.Unmarshal(data, &text); err != nil {
			t.Errorf("data of type %s is no JSON string: %v", typ, err)
		}
		data = []byte(text)
	}
	checkAttributes(t, attributes)
	return attributes, data
}

// binaryMode does the same for binary mode (§3.2 of the Kafka binding).
func binaryMode(t *testing.T, rec record.Record) (attributes map[string]string, data []byte) {
	t.Helper()
	attributes = map[string]string{}
	for _, h := range rec.Headers {
		name, found := strings.CutPrefix(h.Key, "ce_")
		if h.Key == "content-type" {
			name, found = "datacontenttype", true
		}
		if !found {
			continue
		}
		if _, twice := attributes[name]; twice || name == "datacontenttype" && h.Key != "content-type" {
			t.Errorf("header %s twice or not as the binding has it", h.Key)
		}
		attributes[name] = string(h.Value)
	}
	checkAttributes(t, attributes)
	return attributes, rec.Value
}

func TestCloudEvents_FollowTheSpecification(t *testing.T) {
	commit := time.Date(2024, 5, 6, 7, 8, 9, 123456000, time.UTC)
	for _, c := range []struct {
		name, column, payload string
		contentType           string
		data                  string // of structured mode; empty: the payload
	}{
		{"jsonb object", "payload jsonb", `{"n": 1.50, "ü": "😀"}`, jsonType, ""},
		{"jsonb number", "payload jsonb", `42`, jsonType, ""},
		{"json null", "payload json", `null`, jsonType, ""},
		{"text of an object", "payload text", ` {"n":1}`, jsonType, `{"n":1}`},
		{"text of a number", "payload text", `42`, textType, ""},
		{"text", "payload varchar", "a \"line\"\n\tü 😀", textType, ""},
		{"empty text", "payload text", "", textType, ""},
		{"bytes", "payload bytea", `\x0001ff`, bytesType, "\x00\x01\xff"},
		{"no bytes", "payload bytea", `\x`, bytesType, " "},
		{"bytes of an object", "payload bytea", `\x7b226e223a317d`, jsonType, `{"n":1}`},
	} {
		t.Run(c.name, func(t *testing.T) {
			rel := table(t, "id uuid", "aggregate_type text", "aggregate_id text", "event_type text", c.column, "traceparent text", "tenant int4")
			rel.Namespace, rel.Name = "Shop ü", "Out%Box"
			row := textRow(rel, idA, "order", "o-1", "com.example.order.placed", c.payload, trace, "7")
			row.Txn.Time = commit
			want := c.data
			switch want {
			case "":
				want = c.payload
			case " ":
				want = ""
			}
			for _, m := range []Mapping{
				{Value: format.CloudEvents, ValueFields: []Field{{Name: "tenantid", Column: "tenant"}}},
				{Value: format.CloudEventsBinary, ValueFields: []Field{{Name: "tenantid", Column: "tenant"}}},
			} {
				rec, err := routeOne(t, m, row)
				if err != nil {
					t.Fatal(err)
				}
				read := structured
				if m.Value == format.CloudEventsBinary {
					read = binaryMode
				}
				attributes, data := read(t, rec)
				if m.Value == format.CloudEventsBinary && c.data == `{"n":1}` {
					data = bytes.TrimSpace(data)
				}
				if string(data) != want && (m.Value != format.CloudEvents || strings.TrimSpace(string(data)) != want) {
					t.Errorf("%s: data %q, want %q", m.Value, data, want)
				}
				for name, value := range map[string]string{
					"id": idA, "type": "com.example.order.placed", "source": "/cdc-relay/Shop%20%C3%BC.Out%25Box", "subject": "o-1", "time": "2024-05-06T07:08:09.123456Z",
					"datacontenttype": c.contentType, "traceparent": trace, "tenantid": "7",
				} {
					if attributes[name] != value {
						t.Errorf("%s: %s is %q, want %q", m.Value, name, attributes[name], value)
					}
				}
				if len(attributes) != 9 {
					t.Errorf("%s: attributes %q", m.Value, attributes)
				}
			}
		})
	}
}

func TestCloudEvents_TakeTimeAndSourceFromTheMapping(t *testing.T) {
	rel := table(t, "id uuid", "event_type text", "aggregate_id text", "payload jsonb", "at timestamptz")
	row := textRow(rel, idA, "placed", null, `{}`, noon)
	rec, err := routeOne(t, Mapping{Value: format.CloudEvents, Columns: Columns{Timestamp: "at"}, CloudEventsSource: "https://shop.example/orders"}, row)
	if err != nil {
		t.Fatal(err)
	}
	attributes, _ := structured(t, rec)
	if attributes["time"] != "2024-01-02T12:00:00Z" || attributes["source"] != "https://shop.example/orders" {
		t.Errorf("%q", attributes)
	}
	if _, there := attributes["subject"]; there {
		t.Error("a null key gives a subject")
	}
}

func TestCloudEvents_PointersAndBase64(t *testing.T) {
	row := presetCases["watermill-forwarder"].row(t)
	rec, err := routeOne(t, Mapping{Value: format.CloudEvents, Columns: Columns{Type: "payload#/metadata/name"}}, row)
	if err != nil {
		t.Fatal(err)
	}
	if attributes, data := structured(t, rec); string(data) != `{"n": 1}` || attributes["type"] != "OrderPlaced" || attributes["id"] != idB {
		t.Errorf("%q %s", attributes, data)
	}
	rel := table(t, "id uuid", "event_type text", "payload jsonb")
	for payload, want := range map[string]string{`{"inner": {"n": 1}}`: `{"n": 1}`, `{"inner": "te\"xt"}`: `te"xt`, `{"inner": 4.0}`: `4.0`} {
		rec, err := routeOne(t, Mapping{Value: format.CloudEvents, Columns: Columns{Payload: "payload#/inner"}}, textRow(rel, idA, "placed", payload))
		if err != nil {
			t.Fatal(err)
		}
		if _, data := structured(t, rec); string(data) != want {
			t.Errorf("%s: data %s", payload, data)
		}
	}
}

func TestCloudEvents_NullPayloadIsANullValue(t *testing.T) {
	rel := table(t, "id uuid", "event_type text", "payload jsonb")
	for _, name := range []string{format.CloudEvents, format.CloudEventsBinary} {
		rec, err := routeOne(t, Mapping{Value: name}, textRow(rel, idA, "placed", null))
		if err != nil || rec.Value != nil {
			t.Errorf("%s: %q, %v", name, rec.Value, err)
		}
		for _, h := range rec.Headers {
			if h.Key == format.ContentTypeHeader {
				t.Errorf("%s: content-type without content", name)
			}
		}
	}
}

func TestCloudEvents_HeadersColumnCannotReplaceAttributes(t *testing.T) {
	rel := table(t, "id uuid", "event_type text", "payload jsonb", "headers jsonb")
	row := textRow(rel, idA, "placed", `{}`, `{"ce_id": "fake", "Content-Type": "text/html", "ce_more": "x", "tenant": "t1"}`)
	rec, err := routeOne(t, Mapping{Value: format.CloudEventsBinary, Headers: []HeaderMapping{{"ce_region", "${event_type}"}}}, row)
	if err != nil {
		t.Fatal(err)
	}
	attributes, _ := binaryMode(t, rec)
	if attributes["id"] != idA || attributes["datacontenttype"] != jsonType || attributes["more"] != "" || attributes["region"] != "placed" {
		t.Errorf("%q", attributes)
	}
	if last := rec.Headers[len(rec.Headers)-1]; last.Key != "tenant" {
		t.Errorf("last header %s", last.Key)
	}
}

func TestCloudEvents_RejectWhatNoAttributeMayHold(t *testing.T) {
	rel := table(t, "id text", "event_type text", "aggregate_id text", "payload jsonb")
	for _, c := range []struct{ id, typ, key, want string }{
		{"", "placed", "k", "event id"},
		{"a\nb", "placed", "k", "event id"},
		{"a", "", "k", "topic"},
		{"a", "pla\u0085ced", "k", "topic"},
	} {
		for _, topic := range []string{"", "orders"} {
			m := Mapping{Value: format.CloudEventsBinary, Topic: topic}
			want := c.want
			if topic != "" && want == "topic" {
				want = "event type"
			}
			if _, err := routeOne(t, m, textRow(rel, c.id, c.typ, c.key, `{}`)); err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%q %q: %v does not say %q", c.id, c.typ, err, want)
			}
		}
	}
	rec, err := routeOne(t, Mapping{Value: format.CloudEvents}, textRow(rel, "a", "placed", "k\x01", `{}`))
	if err != nil {
		t.Fatal(err)
	}
	if attributes, _ := structured(t, rec); attributes["subject"] != "" {
		t.Errorf("subject %q", attributes["subject"])
	}
}

func TestCloudEvents_ConfigurationErrors(t *testing.T) {
	for _, c := range []struct {
		m    Mapping
		want string
	}{
		{Mapping{CloudEventsSource: "/x"}, "outbox[0].cloudevents_source: only value formats"},
		{Mapping{Value: format.CloudEvents, CloudEventsSource: "a b"}, "outbox[0].cloudevents_source: "},
		{Mapping{Value: format.CloudEvents, CloudEventsSource: "%zz"}, "outbox[0].cloudevents_source: "},
		{Mapping{Value: format.CloudEventsBinary, Headers: []HeaderMapping{{"ce_id", "x"}}}, "outbox[0].headers.ce_id: "},
		{Mapping{Value: format.CloudEvents, Headers: []HeaderMapping{{"Content-Type", "x"}}}, "outbox[0].headers.Content-Type: "},
		{Mapping{Value: format.CloudEvents, ValueFields: []Field{{"Tenant", "x"}}}, "outbox[0].value_fields.Tenant: "},
		{Mapping{Value: format.CloudEvents, ValueFields: []Field{{"data", "x"}}}, "outbox[0].value_fields.data: "},
		{Mapping{Value: format.CloudEvents, ValueFields: []Field{{"subject", "x"}}}, "outbox[0].value_fields.subject: "},
	} {
		if _, err := New(Config{Mappings: []Mapping{c.m}}); err == nil || !strings.HasPrefix(err.Error(), c.want) {
			t.Errorf("%v does not begin with %q", err, c.want)
		}
	}
	_, err := mustNew(t, Mapping{Value: format.CloudEvents, Topic: "t"}).Pin(table(t, "id uuid", "payload jsonb"))
	if err == nil || !strings.Contains(err.Error(), "outbox[0].columns.type: ") {
		t.Errorf("%v", err)
	}
	_, err = mustNew(t, Mapping{Value: format.Eventuate, Topic: "t"}).Pin(table(t, "id uuid", "payload jsonb", "headers hstore"))
	if err == nil || !strings.Contains(err.Error(), "outbox[0].columns.headers: ") {
		t.Errorf("%v", err)
	}
}

func TestCloudEvents_DoNotAllocate(t *testing.T) {
	limit := 0.0
	if info, ok := debug.ReadBuildInfo(); ok && slices.Contains(info.Settings, debug.BuildSetting{Key: "-race", Value: "true"}) {
		limit = 3 // the race detector empties pools at random; make allocs holds the bound without it
	}
	rel := table(t, "id uuid", "aggregate_type text", "aggregate_id text", "event_type text", "payload jsonb")
	row := textRow(rel, idA, "order", "o-1", "placed", `{"n": 1}`)
	row.Txn = &wal.Txn{Time: time.Unix(1700000000, 0)}
	for _, name := range []string{format.CloudEvents, format.CloudEventsBinary} {
		r := mustNew(t, Mapping{Value: name})
		var b record.Buffer
		if allocated := testing.AllocsPerRun(1000, func() {
			b.Reset()
			if err := r.Route(&b, row); err != nil {
				t.Fatal(err)
			}
		}); allocated > limit {
			t.Errorf("%s: %v allocations", name, allocated)
		}
	}
}

// Media types of data.
const (
	jsonType  = "application/json"
	textType  = "text/plain; charset=UTF-8"
	bytesType = "application/octet-stream"
)

// allowedAttribute is the specification's rule for a required attribute.
func allowedAttribute(text string) bool {
	forbidden := func(r rune) bool { return unicode.IsControl(r) || unicode.Is(unicode.Noncharacter_Code_Point, r) }
	return text != "" && utf8.ValidString(text) && !strings.ContainsFunc(text, forbidden)
}

// FuzzCloudEvents gives any text to every attribute: what comes out follows the
// specification, or the row is rejected.
func FuzzCloudEvents(f *testing.F) {
	for _, s := range []string{"a", "", "a\nb", "\u0085", "\uffff", "\U0001fffe", "\xff", `{"n":1}`, "😀", `"`} {
		f.Add(s, "placed", s, s)
		f.Add("1", s, "k", "{}")
	}
	rel := table(f, "id text", "event_type text", "aggregate_id text", "payload text")
	both := []*Router{mustNew(f, Mapping{Value: format.CloudEvents, Topic: "t"}), mustNew(f, Mapping{Value: format.CloudEventsBinary, Topic: "t"})}
	f.Fuzz(func(t *testing.T, id, typ, key, payload string) {
		for i, r := range both {
			var b record.Buffer
			if err := r.Route(&b, textRow(rel, id, typ, key, payload)); err != nil {
				if allowedAttribute(id) && allowedAttribute(typ) && utf8.ValidString(payload) {
					t.Fatal(err)
				}
				continue
			}
			if i == 0 {
				structured(t, b.Records[0])
				continue
			}
			if _, data := binaryMode(t, b.Records[0]); string(data) != payload {
				t.Fatalf("data %q, want %q", data, payload)
			}
		}
	})
}

// FuzzEventuate: the message object is JSON that gives payload and headers back.
func FuzzEventuate(f *testing.F) {
	f.Add(`{"n":1}`, `{"ID":"1"}`)
	f.Add("\"\\\n😀", ` {} `)
	f.Add("", `[`)
	rel := table(f, "id text", "payload text", "headers text")
	r := mustNew(f, Mapping{Value: format.Eventuate, Topic: "t", Columns: Columns{Headers: "headers"}})
	f.Fuzz(func(t *testing.T, payload, headers string) {
		var b record.Buffer
		if err := r.Route(&b, textRow(rel, "1", payload, headers)); err != nil {
			return
		}
		var got struct {
			Payload string
			Headers map[string]json.RawMessage
		}
		if err := json.Unmarshal(b.Records[0].Value, &got); err != nil || got.Payload != payload || got.Headers == nil {
			t.Fatalf("%q: %v", b.Records[0].Value, err)
		}
	})
}
