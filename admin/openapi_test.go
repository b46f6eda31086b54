package admin

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/cdc-relay/cdc-relay/relay/status"
	"github.com/santhosh-tekuri/jsonschema/v6"
)

// described is the description of the interface, ready to check answers.
type described struct {
	doc      map[string]any
	compiler *jsonschema.Compiler
	schemas  map[string]*jsonschema.Schema
}

func description(t *testing.T) *described {
	t.Helper()
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(assets()["openapi.json"].plain))
	if err != nil {
		t.Fatal(err)
	}
	d := &described{doc: doc.(map[string]any), compiler: jsonschema.NewCompiler(), schemas: map[string]*jsonschema.Schema{}}
	if err := d.compiler.AddResource("mem:///openapi.json", doc); err != nil {
		t.Fatal(err)
	}
	return d
}

// fits checks an answer: its code and kind are described, and its body is what its schema says.
func (d *described) fits(t *testing.T, method, path string, w *httptest.ResponseRecorder) {
	t.Helper()
	kind, _, _ := strings.Cut(w.Header().Get("Content-Type"), ";")
	escape := strings.NewReplacer("~", "~0", "/", "~1").Replace
	of, ok := d.doc["paths"].(map[string]any)[path].(map[string]any)[strings.ToLower(method)].(map[string]any)["responses"].(map[string]any)[fmt.Sprint(w.Code)].(map[string]any)
	if !ok {
		t.Errorf("%s %s: %d is not described: %.200s", method, path, w.Code, w.Body)
		return
	}
	content, _ := of["content"].(map[string]any)
	if w.Body.Len() == 0 && content == nil {
		return
	}
	if _, ok := content[kind]; !ok {
		t.Errorf("%s %s: %d as %s is not described: %.200s", method, path, w.Code, kind, w.Body)
		return
	}
	if !strings.HasSuffix(kind, "json") {
		return
	}
	at := "mem:///openapi.json#/paths/" + escape(path) + "/" + strings.ToLower(method) + "/responses/" + fmt.Sprint(w.Code) + "/content/" + escape(kind) + "/schema"
	schema := d.schemas[at]
	if schema == nil {
		var err error
		if schema, err = d.compiler.Compile(at); err != nil {
			t.Fatalf("%s: %v", at, err)
		}
		d.schemas[at] = schema
	}
	body, err := jsonschema.UnmarshalJSON(bytes.NewReader(w.Body.Bytes()))
	if err == nil {
		err = schema.Validate(body)
	}
	if err != nil {
		t.Errorf("%s %s: %d: %v\n%.400s", method, path, w.Code, err, w.Body)
	}
}

// Each route answers as it is described: well, blocked, and to whoever asks wrongly.
func TestOpenAPI_AnswersAreWhatIsDescribed(t *testing.T) {
	d := description(t)
	stuck := blocked()
	stuck.Obstacle = &status.Obstacle{Reason: "unknown_topic", Slot: "cdc_relay", Row: &status.BlockedRow{Table: "public.outbox", Commit: 1, Number: 1, Topic: "orders"}}
	for name, of := range map[string]func() status.Status{"streaming": streaming, "blocked": func() status.Status { return stuck }} {
		b := new(box)
		c, console := consoleOf(t, operators(), of, b.tools())
		wait := console.desk.open(t.Context())
		console.Sample(time.Now())
		for _, bearer := range []string{"open", "sesame", "wrong"} {
			c.header = map[string]string{"Authorization": "Bearer " + bearer}
			for _, one := range (&api{console: console}).routes() {
				if one.path == "/api/v1/stream" || one.path == "/api/v1/tail" || one.path == "/login" {
					continue // a stream does not end; the other is asked below
				}
				body, path := "", one.path
				if one.method == "POST" {
					body = "{}"
				}
				id := "latest"
				if strings.Contains(path, "plans/{id}") && bearer == "open" {
					id = strings.TrimPrefix(plans(t, c, console), "/api/v1/dead-letters/plans/")
					body = map[bool]string{true: `{"words": "DISCARD 1"}`, false: `{"words": "RE-DRIVE 2"}`}[strings.HasSuffix(path, "discard")]
				}
				path = strings.NewReplacer("{id}", id, "{partition}", "3", "{offset}", "17", "{table}", "public.outbox", "{reason}", "slot_lost").Replace(path)
				console.planning.ended = time.Time{}
				w := c.ask(one.method, path, body)
				if bearer == "open" && !one.open && w.Code >= 400 && one.method != "DELETE" {
					t.Errorf("%s, %s %s: %d %s", name, one.method, path, w.Code, w.Body)
				}
				d.fits(t, one.method, one.path, w)
				console.desk.ended.Wait()
			}
		}
		for _, body := range []string{`{"token": "x"}`, `{"token": "open"}`, "x"} {
			d.fits(t, "POST", "/login", c.ask("POST", "/login", body))
		}
		wait()
	}
}

// hostile are texts that programs choke on.
var hostile = []string{
	"", " ", "0", "-1", "1e9", "99999999999999999999", "NaN", "true", "null", "{}", "[]", "a,b", "../../etc/passwd", "%00", "\x00", "\n\r\n", "'; DROP TABLE outbox; --",
	"<script>alert(1)</script>", "\u202etxet", "é", "\xff\xfe", strings.Repeat("x", 5000), "2030-01-31T14:00:00Z", "0000-00-00T00:00:00Z", "9999-12-31T23:59:59Z", "3/17", "-0/-0", "public.outbox", "slot_lost",
}

// Whatever is sent, nothing breaks, and the answer is one that is described.
func TestOpenAPI_BadInputBreaksNothing(t *testing.T) {
	d := description(t)
	for _, cfg := range []Config{operators(), {Listen: local}} {
		b := new(box)
		c, console := consoleOf(t, cfg, streaming, b.tools())
		wait := console.desk.open(t.Context())
		random := rand.New(rand.NewPCG(20, 26))
		some := func() string { return hostile[random.IntN(len(hostile))] }
		for _, one := range (&api{console: console}).routes() {
			if one.path == "/api/v1/stream" || one.path == "/api/v1/tail" {
				continue // see TestAPI_BadInputSaysWhatIsAllowed
			}
			for range 60 {
				c.header, c.cookies = map[string]string{"Authorization": "Bearer open", formHeader: some()}, nil
				if random.IntN(8) == 0 {
					c.header["Authorization"] = some()
				}
				parts := strings.Split(one.path, "/")
				for i, part := range parts {
					if strings.HasPrefix(part, "{") {
						if parts[i] = url.PathEscape(some()); strings.Trim(parts[i], ".") == "" {
							parts[i] = "x" // an empty one, or dots, is another path
						}
					}
				}
				query := url.Values{}
				for _, name := range []string{"series", "step", "since", "after", "level", "state", "limit", "reason", "table", "topic", "values", "kinds"} {
					if random.IntN(3) == 0 {
						query.Add(name, some())
					}
				}
				body := ""
				if one.method == "POST" {
					text, _ := json.Marshal(map[string]any{some(): some(), "words": some(), "token": some()})
					body = []string{string(text), some(), "{}", `{"letters": [` + some() + `]}`, `{"words": ` + some() + `}`, `{"since": "` + some() + `"}`}[random.IntN(6)]
				}
				console.planning.ended, console.checks.ended, console.explains.ended = time.Time{}, time.Time{}, time.Time{}
				w := c.ask(one.method, strings.Join(parts, "/")+"?"+query.Encode(), body)
				if w.Code >= 500 {
					t.Errorf("%s %s?%s %q: %d %s", one.method, one.path, query.Encode(), body, w.Code, w.Body)
				}
				if strings.HasPrefix(w.Header().Get("Content-Type"), "text/html") {
					t.Errorf("%s %s answers with HTML", one.method, one.path)
				}
				d.fits(t, one.method, one.path, w)
			}
		}
		wait()
	}
}
