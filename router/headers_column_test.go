package router

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/cdc-relay/cdc-relay/replication/wal"
	"github.com/cdc-relay/cdc-relay/router/format"
	"github.com/cdc-relay/cdc-relay/router/record"
	"github.com/cdc-relay/cdc-relay/router/record/recordtest"
)

// columnHeaders routes a row whose headers column has the given type and text,
// and gives what stands behind id, `;` between headers.
func columnHeaders(t testing.TB, typ, text string) (string, error) {
	rel := table(t, "id uuid", "aggregate_type text", "payload json", "h "+typ)
	rec, err := routeOne(t, Mapping{Columns: Columns{Headers: "h"}}, textRow(rel, testID, "order", "{}", text))
	if err != nil {
		return "", err
	}
	var s []string
	for _, h := range rec.Headers[1:] {
		s = append(s, h.Key+"="+recordtest.Bytes(h.Value))
	}
	return strings.Join(s, ";"), nil
}

func TestHeadersColumn(t *testing.T) {
	for _, c := range []struct{ typ, text, want string }{
		{"jsonb", null, ""},
		{"jsonb", `null`, ""},
		{"jsonb", `{}`, ""},
		{"json", ` { "a" : "x" , "b":true,"c":null } `, "a=x;b=true;c=null"},
		{"json", `{"a":"","b":{"x": 1},"c":[1, 2],"d":-1.50e3}`, `a=empty;b={"x": 1};c=[1, 2];d=-1.50e3`},
		{"json", `{"id":"fake","\u0069d":"fake","a":"x"}`, "a=x"},
		{"json", `{"cdc-relay-lsn":"FF/0","cdc-relay-error-topic":"evil","cdc-relays":"r","a":"x"}`, "cdc-relays=r;a=x"}, // those are the relay's word
		{"hstore", `"cdc-relay-seq"=>"1", "a"=>"1"`, "a=1"},
		{"_text", `{cdc-relay-commit-time,1,a,1}`, "a=1"},
		{"json", `{"a\"b":"c\\d","e":"\ud83d\ude00","f":"\ud83d"}`, `a"b=c\d;e=😀;f=bytes efbfbd`},
		{"json", `{"a":"1","a":"2"}`, "a=1;a=2"},
		{"text", `{"a":"x"}`, "a=x"},
		{"varchar", `{"a":"x"}`, "a=x"},
		{"json", `[]`, "error: is not a JSON object"},
		{"json", `"x"`, "error: is not a JSON object"},
		{"text", `{"a":}`, "error: is not JSON"},
		{"text", ``, "error: is not JSON"},
		{"json", `{"a":"\x"}`, "error: is not JSON"}, // the server would not have taken it
		{"hstore", ``, ""},
		{"hstore", `"a"=>"1", "b"=>NULL, "id"=>"fake"`, "a=1;b=null"},
		{"hstore", `""=>"e", "\\"=>"=>", "b c"=>"l, m", "x\"y"=>"q\"\\z"`, `=e;\==>;b c=l, m;x"y=q"\z`},
		{"hstore", `"a"=>"1",`, "error: hstore"},
		{"hstore", `"a"=>"1" "b"=>"2"`, "error: hstore"},
		{"hstore", `a=>1`, "error: hstore"},
		{"hstore", `"a"=>"1`, "error: hstore"},
		{"hstore", `NULL=>"1"`, "error: hstore"},
		{"hstore", `"a"="1"`, "error: hstore"},
		{"_text", `{}`, ""},
		{"_text", `{a,1,b,NULL,id,fake,"c d","x\"y\\z"}`, `a=1;b=null;c d=x"y\z`},
		{"_varchar", `{{a,1},{b,NULL}}`, "a=1;b=null"},
		{"_text", `[2:3]={a,"NULL"}`, "a=NULL"},
		{"_text", `{a}`, "error: key without a value"},
		{"_text", `{NULL,a}`, "error: key that is NULL"},
		{"_text", `{a,b`, "error: array"},
		{"_text", `{a,}`, "error: key without"},
		{"_text", `{a b,"c"d}`, "error: array"},
		{"_text", `a,b`, "error: array"},
		{"_text", `{a,b}}`, "error: array"},
	} {
		got, err := columnHeaders(t, c.typ, c.text)
		if want, fails := strings.CutPrefix(c.want, "error: "); fails {
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%s %s: %q, %v; want error %q", c.typ, c.text, got, err, want)
			}
			continue
		}
		if err != nil || got != c.want {
			t.Errorf("%s %s: got %q, %v; want %q", c.typ, c.text, got, err, c.want)
		}
	}
}

func TestHeadersColumn_AtAPointer(t *testing.T) {
	row := rowWith(t, map[string]string{"extra": `{"meta": {"a": "1"}, "list": []}`})
	rec, err := routeOne(t, Mapping{Columns: Columns{Headers: "extra#/meta"}}, row)
	if err != nil || header(rec, "a") != "1" {
		t.Errorf("%v\n%s", err, recordtest.Show(rec))
	}
	if _, err = routeOne(t, Mapping{Columns: Columns{Headers: "extra#/list"}}, row); err == nil {
		t.Error("an array passes for headers")
	}
	if rec, err = routeOne(t, Mapping{Columns: Columns{Headers: "extra#/none"}}, row); err != nil || len(rec.Headers) != 2 {
		t.Errorf("%v\n%s", err, recordtest.Show(rec))
	}
}

func TestTrace(t *testing.T) {
	const parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	for _, c := range []struct{ typ, text, parent, state string }{
		{"text", null, "absent", "absent"},
		{"text", "", "absent", "absent"},
		{"text", parent, parent, "absent"},
		{"text", `{"traceparent":"` + parent + `","tracestate":"a=b"}`, parent, "a=b"},
		{"jsonb", `{"tracestate": "a=b", "traceparent": "` + parent + `"}`, parent, "a=b"},
		{"jsonb", `{"traceparent": "` + parent + `", "tracestate": null}`, parent, "absent"},
		{"jsonb", `{}`, "absent", "absent"},
		{"jsonb", `"` + parent + `"`, parent, "absent"},
		{"jsonb", `""`, "absent", "absent"},
		{"jsonb", `null`, "absent", "absent"},
	} {
		rel := table(t, "id uuid", "aggregate_type text", "payload json", "ctx "+c.typ)
		rec, err := routeOne(t, Mapping{Columns: Columns{Trace: "ctx"}}, textRow(rel, testID, "order", "{}", c.text))
		if err != nil {
			t.Errorf("%s %s: %v", c.typ, c.text, err)
			continue
		}
		if p, s := header(rec, format.TraceParent), header(rec, format.TraceState); p != c.parent || s != c.state {
			t.Errorf("%s %s: traceparent %q tracestate %q", c.typ, c.text, p, s)
		}
	}
	rel := table(t, "id uuid", "aggregate_type text", "payload json", "ctx text")
	if _, err := routeOne(t, Mapping{Columns: Columns{Trace: "ctx"}}, textRow(rel, testID, "order", "{}", `{"traceparent"`)); err == nil {
		t.Error("malformed JSON passes for a trace context")
	}
	rel = table(t, "id uuid", "aggregate_type text", "payload json", "ctx jsonb")
	if _, err := routeOne(t, Mapping{Columns: Columns{Trace: "ctx"}}, textRow(rel, testID, "order", "{}", `[1]`)); err == nil {
		t.Error("a JSON array passes for a trace context")
	}
}

// fuzzHeaders routes text as a headers column of a type; it must not panic, and
// an error must not quote it.
func fuzzHeaders(f *testing.F, typ string, check func(t *testing.T, text []byte, rec record.Record, err error), seeds ...string) {
	for _, s := range seeds {
		f.Add([]byte(s))
	}
	rel := table(f, "id uuid", "aggregate_type text", "payload json", "h "+typ)
	r := mustNew(f, Mapping{Columns: Columns{Headers: "h"}})
	f.Fuzz(func(t *testing.T, text []byte) {
		row := textRow(rel, testID, "order", "{}", "")
		row.Values[3] = wal.Value{Kind: wal.Text, Data: slices.Clone(text)}
		var b record.Buffer
		err := r.Route(&b, row)
		var rec record.Record
		if err == nil {
			rec = b.Records[0]
		}
		check(t, text, rec, err)
	})
}

func FuzzHeadersJSON(f *testing.F) {
	fuzzHeaders(f, "text", func(t *testing.T, text []byte, rec record.Record, err error) {
		var want map[string]json.RawMessage
		if jerr := json.Unmarshal(text, &want); jerr != nil {
			if err == nil {
				t.Fatalf("%q is no object, and passes", text)
			}
			return
		}
		if err != nil {
			t.Fatalf("%q: %v", text, err)
		}
		delete(want, record.IdHeader)
		got := map[string]bool{}
		for _, h := range rec.Headers[1:] {
			got[strings.ToValidUTF8(h.Key, "\uFFFD")] = true
		}
		if len(got) > len(want) || len(got) < len(want) && strings.ToValidUTF8(string(text), "") == string(text) {
			t.Fatalf("%q gives %q, want %q", text, slices.Sorted(maps.Keys(got)), slices.Sorted(maps.Keys(want)))
		}
	}, `{"a":"x","b":{"c":[1,"]"]},"id":1}`, `{"\u0061":"\ud83d\ude00"}`, `{}`, `null`, `{"a":1,"a":2}`, `[`, `{"a"`)
}

func FuzzHeadersHstore(f *testing.F) {
	fuzzHeaders(f, "hstore", func(t *testing.T, text []byte, rec record.Record, err error) {
		if err == nil && len(rec.Headers) > 1 && !strings.Contains(string(text), "=>") {
			t.Fatalf("%q gives %d headers", text, len(rec.Headers)-1)
		}
	}, `"a"=>"1", "b"=>NULL`, `""=>"e", "x\"y"=>"q\"\\z"`, `"a"=>"1`, `"a"=>NULL,`)
}

func FuzzHeadersArray(f *testing.F) {
	fuzzHeaders(f, "_text", func(t *testing.T, text []byte, rec record.Record, err error) {
		if err == nil && len(rec.Headers) > 1 && !strings.Contains(string(text), ",") {
			t.Fatalf("%q gives %d headers", text, len(rec.Headers)-1)
		}
	}, `{a,1,"c d","x\"y\\z"}`, `{{a,1},{b,NULL}}`, `[2:3]={a,b}`, `{`, `{a,b,`, `{"a`)
}
