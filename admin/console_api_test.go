package admin

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cdc-relay/cdc-relay/figures"
	"github.com/cdc-relay/cdc-relay/relay/status"
	"github.com/cdc-relay/cdc-relay/ways"
)

func TestAPI_BadInputSaysWhatIsAllowed(t *testing.T) {
	c, _ := consoleOf(t, Config{Listen: local}, streaming, tools())
	for path, tt := range map[string]struct {
		code    int
		reason  string
		allowed string
	}{
		"/api/v1/history?series=lag_seconds,nothing": {400, "unknown_series", "lag_seconds"},
		"/api/v1/history?series=":                    {400, "unknown_series", "lag_seconds"},
		"/api/v1/history?step=5s":                    {400, "unknown_step", "1s, 10s"},
		"/api/v1/history?since=yesterday":            {400, "unknown_time", "2030"},
		"/api/v1/history?since=0001-01-01T00:00:00Z": {400, "unknown_time", "2030"},
		"/api/v1/stream?kinds=status,rows":           {400, "unknown_kind", "charts"},
		"/api/v1/stream?kinds=":                      {400, "unknown_kind", "charts"},
		"/api/v1/runbook/nothing":                    {404, "unknown_reason", "runbook"},
		"/api/v1/runbook/%3Cscript%3E":               {404, "unknown_reason", "runbook"},
		"/api/v1/tables/public.other/explain":        {404, "unknown_table", "public.outbox"},
		"/api/v1/log?after=-1":                       {400, "unknown_cursor", "number"},
		"/api/v1/log?after=x":                        {400, "unknown_cursor", "number"},
		"/api/v1/log?level=loud":                     {400, "unknown_level", "warn"},
	} {
		w := c.get(path)
		if w.Code != tt.code || reasonOf(t, w) != tt.reason || !strings.Contains(w.Body.String(), tt.allowed) || strings.Contains(w.Body.String(), "<script>") {
			t.Errorf("%s: %d %s", path, w.Code, w.Body)
		}
	}
	bare, _ := consoleOf(t, Config{Listen: local}, streaming, Tools{Tables: []string{"public.outbox"}})
	for path, reason := range map[string]string{"/api/v1/configuration": "no_configuration", "/api/v1/tables/public.outbox/explain": "no_explain"} {
		if w := bare.get(path); w.Code != 404 || reasonOf(t, w) != reason {
			t.Errorf("%s without it: %d %s", path, w.Code, w.Body)
		}
	}
	if w := bare.ask("POST", "/api/v1/check", "{}"); w.Code != 404 {
		t.Errorf("check without it: %d", w.Code)
	}
	if w := bare.get("/api/v1/log"); w.Code != 200 || w.Body.String() != "{\"lines\":[]}\n" {
		t.Errorf("an empty log: %d %s", w.Code, w.Body)
	}
	none := &client{t: t, handler: HandlerWithConsole(Config{Listen: local}, streaming, nil, NewConsole(streaming, Tools{}, 0))}
	if w := none.get("/api/v1/history"); w.Code != 404 || reasonOf(t, w) != "no_history" {
		t.Errorf("history that is not kept: %d %s", w.Code, w.Body)
	}
}

func TestCheck_RunsOnceAtATimeAndNotTooOften(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		of, blocking := tools(), make(chan struct{})
		of.Check = func(ctx context.Context) (any, error) {
			select {
			case <-blocking:
				return map[string]int{"ok": 3}, nil
			case <-ctx.Done():
				return nil, ctx.Err()
			}
		}
		c, _ := consoleOf(t, Config{Listen: local}, streaming, of)
		if w := c.get("/api/v1/check"); w.Code != 200 || w.Body.String() != "{\"at\":null,\"report\":null}\n" {
			t.Errorf("before the first: %s", w.Body)
		}
		first := make(chan *httptest.ResponseRecorder)
		go func() { first <- c.ask("POST", "/api/v1/check", "{}") }()
		synctest.Wait()
		if w := c.ask("POST", "/api/v1/check", "{}"); w.Code != 409 || reasonOf(t, w) != "running" {
			t.Errorf("a second one: %d %s", w.Code, w.Body)
		}
		close(blocking)
		if w := <-first; w.Code != 200 {
			t.Errorf("%d %s", w.Code, w.Body)
		}
		if w := c.ask("POST", "/api/v1/check", "{}"); w.Code != 429 || w.Header().Get("Retry-After") != "31" {
			t.Errorf("at once again: %d %s", w.Code, w.Header())
		}
		if w := c.get("/api/v1/check"); !strings.Contains(w.Body.String(), `"report":{"ok":3}`) {
			t.Errorf("the last one: %s", w.Body)
		}
		pass(checkPause)
		blocking = make(chan struct{}) // servers that do not answer
		if w := c.ask("POST", "/api/v1/check", "{}"); w.Code != 503 || reasonOf(t, w) != "not_answered" {
			t.Errorf("servers that do not answer: %d %s", w.Code, w.Body)
		}
	})
}

func TestObstacle_HasRunbookAndWays(t *testing.T) {
	at := blocked()
	at.Obstacle = &status.Obstacle{Reason: "unknown_topic", Slot: "cdc_relay", Row: &status.BlockedRow{Table: "public.outbox", Commit: 0x16_B374D848, Number: 1, Topic: "orders"}}
	c, _ := consoleOf(t, Config{Listen: local}, func() status.Status { return at }, tools())
	var got struct {
		Obstacle *status.Obstacle
		Entry    struct{ Means []map[string]any }
		Ways     []ways.Way
	}
	if err := json.Unmarshal(c.get("/api/v1/obstacle").Body.Bytes(), &got); err != nil {
		t.Fatal(err)
	}
	if got.Obstacle.Row.Topic != "orders" || len(got.Entry.Means) == 0 || len(got.Ways) < 2 || got.Ways[0].Shell != "kafka-topics.sh --bootstrap-server b1:9092 --create --topic orders --partitions 12" {
		t.Errorf("%+v", got)
	}
	if w := c.get("/api/v1/runbook/record_too_large"); !strings.Contains(w.Body.String(), "max.message.bytes=BYTES") || strings.Contains(w.Body.String(), "16/B374D849") {
		t.Errorf("an entry of another matter has the row of this one: %s", w.Body)
	}
	calm, _ := consoleOf(t, Config{Listen: local}, streaming, tools())
	if w := calm.get("/api/v1/obstacle"); !strings.Contains(w.Body.String(), `"obstacle":null,"entry":null,"heals_by_itself":false,"ways":[]`) {
		t.Errorf("while all is well: %s", w.Body)
	}
}

// Rows from before the slot was lost are sent again from a time before which all is delivered: it is taken while
// the relay streams, and stands still from then on.
func TestObstacle_KnowsSinceWhenRowsAreSentAgain(t *testing.T) {
	st, lag := streaming(), 600.0
	st.LagSeconds = &lag
	of := tools()
	of.Facts.File = "/etc/relays/orders.yaml"
	c, console := consoleOf(t, Config{Listen: local}, func() status.Status { return st }, of)
	console.Sample(time.Date(2026, 1, 31, 8, 20, 0, 0, time.UTC))
	short := int64(0)
	st.State, st.Reason, st.Obstacle = status.Blocked, "slot_lost", &status.Obstacle{Reason: "slot_lost", Slot: "cdc_relay"}
	console.Sample(time.Date(2026, 1, 31, 9, 0, 0, 0, time.UTC))
	want := `cdc-relay --config /etc/relays/orders.yaml replay --since 2026-01-31T08:05:00Z --complete-keys --yes`
	if w := c.get("/api/v1/obstacle"); !strings.Contains(w.Body.String(), want) {
		t.Errorf("%s is not in %s", want, w.Body)
	}
	if w := c.get("/api/v1/console"); !strings.Contains(w.Body.String(), `"file":"/etc/relays/orders.yaml"`) {
		t.Errorf("the page cannot name the file: %s", w.Body)
	}
	st.Obstacle = &status.Obstacle{Reason: "kafka_unreachable"}
	st.SlotState = &status.Slot{SafeWALBytes: &short, RetainedBytes: 32 << 20}
	if w := c.get("/api/v1/obstacle"); !strings.Contains(w.Body.String(), "max_slot_wal_keep_size = '64MB'") {
		t.Errorf("with no room for WAL: %s", w.Body)
	}
	st.SlotState.RetainedBytes = 1 << 20
	if w := c.get("/api/v1/obstacle"); strings.Contains(w.Body.String(), "max_slot_wal_keep_size = '") {
		t.Errorf("with little to keep: %s", w.Body)
	}
}

// Beside the size of a record that a topic refused stands what the topic takes. The brokers are asked once in a
// while, and not at all about anything else.
func TestObstacle_HasTheLimitOfTheTopic(t *testing.T) {
	st, asked := blocked(), 0
	st.Obstacle = &status.Obstacle{Reason: "record_too_large", Row: &status.BlockedRow{Table: "public.outbox", Topic: "orders", Bytes: 2000}}
	of := tools()
	failing := false
	of.TopicLimit = func(_ context.Context, topic string) (int, error) {
		asked++
		if failing || topic != "orders" {
			return 0, errors.New("not authorized")
		}
		return 1000, nil
	}
	c, console := consoleOf(t, Config{Listen: local}, func() status.Status { return st }, of)
	limit := func() any {
		var got map[string]any
		if err := json.Unmarshal(c.get("/api/v1/obstacle").Body.Bytes(), &got); err != nil {
			t.Fatal(err)
		}
		return got["topic_limit"]
	}
	if got, again := limit(), limit(); got != 1000.0 || again != 1000.0 || asked != 1 {
		t.Errorf("%v, again %v, asked %d times", got, again, asked)
	}
	failing, console.limit.at = true, time.Now().Add(-limitFresh)
	if got, again := limit(), limit(); got != nil || again != nil || asked != 2 {
		t.Errorf("where the brokers do not say: %v, again %v, asked %d times", got, again, asked)
	}
	console.limit = topicLimit{}
	for name, change := range map[string]func(*status.Obstacle){
		"another reason":     func(o *status.Obstacle) { o.Reason = "unknown_topic" },
		"the relay's limit":  func(o *status.Obstacle) { o.Row.Limit = 5 },
		"no topic":           func(o *status.Obstacle) { o.Row.Topic = "" },
		"a row without name": func(o *status.Obstacle) { o.Row = nil },
	} {
		o, row := *st.Obstacle, *st.Obstacle.Row
		o.Row = &row
		change(&o)
		if got := console.topicLimit(t.Context(), time.Now(), &o); got != nil || asked != 2 {
			t.Errorf("%s: %v, asked %d times", name, got, asked)
		}
	}
}

func TestSample_IsWhatTheStatusSays(t *testing.T) {
	st := streaming()
	seen := uint64(0)
	of := tools()
	of.Timings = func() (ages, produce figures.Buckets) {
		seen += 100
		b := figures.Buckets{Upper: []float64{1, 2}, Counts: []uint64{seen / 2, seen}, Total: seen}
		return b, b
	}
	c, console := consoleOf(t, Config{Listen: local}, func() status.Status { return st }, of)
	begin := time.Now().Add(-10 * time.Second).Truncate(time.Second)
	lag := 2.5
	for s := range 3 {
		st.RowsRead, st.EventsPublished, st.LagSeconds = int64(s*500), int64(s*400), &lag
		if s == 2 {
			st.State, st.Reason = status.Blocked, "unknown_topic"
		}
		console.Sample(begin.Add(time.Duration(s) * time.Second))
	}
	w := c.get("/api/v1/history?step=1s&series=received,acknowledged,lag_seconds,age_p50,safe_bytes,state&since=" + begin.UTC().Format(time.RFC3339))
	var got struct {
		From    time.Time
		Series  map[string][]*float64
		States  []string
		Changes []Change
	}
	if err := json.Unmarshal(w.Body.Bytes(), &got); err != nil {
		t.Fatalf("%v: %s", err, w.Body)
	}
	text := func(name string) (all []string) {
		for _, v := range got.Series[name][:4] {
			if v == nil {
				all = append(all, "-")
			} else {
				all = append(all, fmt.Sprint(*v))
			}
		}
		return all
	}
	for name, want := range map[string]string{
		"received": "[- 500 500 -]", "acknowledged": "[- 400 400 -]", "lag_seconds": "[2.5 2.5 2.5 -]", "age_p50": "[- 1 1 -]", "safe_bytes": "[- - - -]", "state": "[1 1 4 -]",
	} {
		if s := fmt.Sprint(text(name)); s != want {
			t.Errorf("%s: %s, want %s", name, s, want)
		}
	}
	if !got.From.Equal(begin) || got.States[4] != "blocked" || len(got.Changes) != 2 || got.Changes[1].Reason != "unknown_topic" {
		t.Errorf("%+v", got)
	}
}

// What is posted to is not there for reading, and says so.
func TestAPI_PathsThatArePostedToAreNotRead(t *testing.T) {
	c, _ := consoleOf(t, Config{Listen: local}, streaming, tools())
	for _, path := range []string{"/api/v1/retry", "/api/v1/dead-letters/plans", "/api/v1/dead-letters/plans/1/redrive", "/logout"} {
		if w := c.get(path); w.Code != 405 || w.Header().Get("Allow") != "POST" || reasonOf(t, w) != "only_post" {
			t.Errorf("%s: %d %s %s", path, w.Code, w.Header(), w.Body)
		}
	}
	guarded, _ := consoleOf(t, withToken(), streaming, tools())
	if w := guarded.get("/api/v1/retry"); w.Code != 401 {
		t.Errorf("without a token: %d %s", w.Code, w.Body)
	}
}

// The description and the routes say the same, in both directions.
func TestOpenAPI_IsWhatIsServed(t *testing.T) {
	c, console := consoleOf(t, Config{Listen: local}, streaming, tools())
	var doc struct {
		Paths map[string]map[string]struct {
			Security  *[]any
			Responses map[string]any
		}
	}
	w := c.get("/api/v1/openapi.json")
	if err := json.Unmarshal(w.Body.Bytes(), &doc); err != nil || w.Header().Get("Content-Type") != "application/json" {
		t.Fatalf("%v: %s", err, w.Header())
	}
	a := &api{console: console}
	served := []string{"GET /api/v1/status"}
	for _, r := range a.routes() {
		served = append(served, r.method+" "+r.path)
		if described := doc.Paths[r.path][strings.ToLower(r.method)]; (described.Security != nil) != r.open {
			t.Errorf("%s %s is open: %t, and the description says otherwise", r.method, r.path, r.open)
		}
	}
	var described []string
	for path, of := range doc.Paths {
		for method := range of {
			described = append(described, strings.ToUpper(method)+" "+path)
		}
	}
	slices.Sort(served)
	slices.Sort(described)
	if !slices.Equal(served, described) {
		t.Errorf("served\n%s\ndescribed\n%s", strings.Join(served, "\n"), strings.Join(described, "\n"))
	}
	for _, name := range figures.Names() {
		if !bytes.Contains(w.Body.Bytes(), []byte(name)) {
			t.Errorf("series %s is not described", name)
		}
	}
}

// A page has the hour of each table, and a name that attacks is a text in it.
func TestFlows_AreKeptOfTablesTopicsAndShards(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const hostile = "a\"b</script>\u2028"
		rate := 0.0
		c, console := consoleOf(t, Config{Listen: local}, func() status.Status {
			s := streaming()
			s.Tables, s.TopicRates = []status.Flow{{Name: hostile, PerSecond: rate}}, []status.Flow{{Name: "orders", PerSecond: 2}}
			s.Shards = []status.Status{{Slot: "s0", LagBytes: new(int64(5)), LSN: status.LSNs{Server: 9}}, {Slot: "s1"}}
			return s
		}, tools())
		for range 25 {
			console.Sample(time.Now())
			rate++
			pass(time.Second)
		}
		for of, want := range map[string]map[string]string{
			"tables": {hostile: "[0 10 20]"}, "topics": {"orders": "[2 2 2]"}, "shards": {"s0": "[5 5 5]"},
		} {
			var got struct {
				Step   int `json:"step_seconds"`
				Series map[string][]float64
			}
			w := c.get("/api/v1/history/flows?of=" + of)
			if err := json.Unmarshal(w.Body.Bytes(), &got); err != nil || w.Code != 200 || got.Step != 10 || len(got.Series) != len(want) {
				t.Fatalf("%s: %d %s", of, w.Code, w.Body)
			}
			for name, numbers := range want {
				if fmt.Sprint(got.Series[name]) != numbers {
					t.Errorf("%s: %v, want %s", of, got.Series, numbers)
				}
			}
		}
		for query, code := range map[string]int{"": 200, "?of=": 400, "?of=x": 400} {
			if w := c.get("/api/v1/history/flows" + query); w.Code != code || code == 400 && !strings.Contains(w.Body.String(), "tables, topics, shards") {
				t.Errorf("%q: %d %s", query, w.Code, w.Body)
			}
		}
		without := NewConsole(streaming, tools(), 0)
		without.Sample(time.Now())
		off := &client{t: t, handler: HandlerWithConsole(Config{Listen: local}, streaming, http.HandlerFunc(metricsStub), without)}
		if w := off.get("/api/v1/history/flows?of=tables"); w.Code != 404 || reasonOf(t, w) != "no_history" {
			t.Errorf("without a history: %d %s", w.Code, w.Body)
		}
	})
}
