package admin

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rs/zerolog"
)

// safe is a log that is read while it is written.
type safe struct {
	mu   sync.Mutex
	text strings.Builder
}

func (s *safe) Write(line []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.text.Write(line)
}

func (s *safe) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.text.String()
}

// box is a dead-letter topic of a test.
type box struct {
	audit  safe
	reads  int
	failed error                                             // of each tool
	act    func(begun func(), halted func() bool) error      // nil: done at once
	letter func(at Place, values bool) (*ShownLetter, error) // nil: there is one at 3/17
}

const secretKey = "the key of a row"

func (b *box) tools() Tools {
	all := tools()
	all.Audit = zerolog.New(&b.audit)
	all.Retry = func() bool { return true }
	began := time.Date(2030, 1, 31, 12, 0, 0, 0, time.UTC)
	at := func(partition int32, offset int64, reason, state string) Letter {
		return Letter{Partition: partition, Offset: offset, Time: began.Add(time.Duration(offset) * time.Minute), Reason: reason, Table: "public.outbox", Topic: "orders", LSN: "0/1", Seq: 1, Source: "1/5/s", EventID: "e", State: state}
	}
	all.Letters = &LetterTools{
		Topic: "cdc-relay.dead-letters",
		Read: func(context.Context) (*LetterList, error) {
			b.reads++
			return &LetterList{Letters: []Letter{at(3, 17, "record_too_large", "waiting"), at(0, 1, "record_too_large", "sent"), at(1, 5, "<script>", "waiting"), at(2, 5, "record_too_large", "waiting")}}, b.failed
		},
		Show: func(_ context.Context, place Place, values bool) (*ShownLetter, error) {
			if b.letter != nil {
				return b.letter(place, values)
			}
			if (place != Place{3, 17}) {
				return nil, b.failed
			}
			return &ShownLetter{Letter: at(3, 17, "record_too_large", "waiting"), Message: "too large", Headers: []string{"id"}, Record: map[string]string{"key": secretKey}}, b.failed
		},
		Plan: func(_ context.Context, f LetterFilter) (*Plan, error) {
			if b.failed != nil {
				return nil, b.failed
			}
			one := PlannedAction{Words: "RE-DRIVE 2", Letters: 2, Keys: 1, Along: 1, Groups: []any{map[string]string{"table": "public.outbox"}}}
			other := PlannedAction{Words: "DISCARD 1", Letters: 1, Keys: 1, Left: 1, Groups: []any{}}
			return &Plan{Digest: "d", Redrive: one, Discard: other}, nil
		},
		Act: func(ctx context.Context, p *Plan, discard bool, begun func(), progress func(Progress), halted func() bool) error {
			if b.act != nil {
				return b.act(begun, halted)
			}
			begun()
			progress(Progress{Done: 2, Records: 2, Keys: 1, Groups: []any{}, Text: "2 of 2"})
			return nil
		},
	}
	return all
}

func operators() Config {
	return Config{
		Listen: local, Token: func() (string, error) { return "sesame", nil }, Actions: true, Payloads: true,
		Operator: func() (string, error) { return "open", nil },
	}
}

// staffed is a console with a box whose jobs run.
func staffed(t *testing.T, cfg Config) (*client, *Console, *box) {
	t.Helper()
	b := new(box)
	c, console := consoleOf(t, cfg, streaming, b.tools())
	wait := console.desk.open(t.Context())
	t.Cleanup(wait)
	c.header = map[string]string{"Authorization": "Bearer open"}
	return c, console, b
}

func plans(t *testing.T, c *client, console *Console) string {
	t.Helper()
	console.planning.ended = time.Time{} // their pace is of another test
	w := c.ask("POST", "/api/v1/dead-letters/plans", "{}")
	var p Plan
	if err := json.Unmarshal(w.Body.Bytes(), &p); err != nil || w.Code != 200 || p.ID == "" {
		t.Fatalf("%d %s", w.Code, w.Body)
	}
	return "/api/v1/dead-letters/plans/" + p.ID
}

// Each role at each path that acts or shows letters.
func TestActions_WhoMayWhat(t *testing.T) {
	without := operators()
	without.Actions, without.Payloads = false, false
	free := operators() // on loopback, viewers need no token
	free.Token = nil
	open := free
	open.Listen = ":8080"
	same := operators()
	same.Operator = same.Token
	for _, tt := range []struct {
		method, path, body                                          string
		operator, viewer, none, off, loopback, anybody, anyOperator int
	}{
		{"GET", "/api/v1/dead-letters", "", 200, 200, 401, 200, 200, 403, 200},
		{"GET", "/api/v1/dead-letters/3/17", "", 200, 200, 401, 200, 200, 403, 200},
		{"GET", "/api/v1/dead-letters/3/17?values=true", "", 200, 403, 401, 403, 403, 403, 200},
		{"POST", "/api/v1/dead-letters/plans", "{}", 200, 403, 401, 405, 403, 403, 200},
		{"POST", "/api/v1/dead-letters/plans/x/redrive", `{"words": "x"}`, 404, 403, 401, 405, 403, 403, 404},
		{"POST", "/api/v1/dead-letters/plans/x/discard", `{"words": "x"}`, 404, 403, 401, 405, 403, 403, 404},
		{"GET", "/api/v1/jobs/x", "", 404, 404, 401, 404, 404, 403, 404},
		{"DELETE", "/api/v1/jobs/x", "", 404, 403, 401, 405, 403, 403, 404},
		{"POST", "/api/v1/retry", "{}", 200, 403, 401, 405, 403, 403, 200},
		{"GET", "/api/v1/log", "", 200, 200, 401, 200, 200, 403, 200},
		{"DELETE", "/api/v1/dead-letters/3/17", "", 405, 405, 405, 405, 405, 405, 405},
		{"PUT", "/api/v1/retry", "{}", 405, 405, 405, 405, 405, 405, 405},
	} {
		for name, of := range map[string]struct {
			cfg    Config
			bearer string
			want   int
		}{
			"an operator":                  {operators(), "open", tt.operator},
			"a viewer":                     {operators(), "sesame", tt.viewer},
			"nobody":                       {operators(), "", tt.none},
			"a wrong token":                {operators(), "shut", tt.none},
			"an operator, actions off":     {without, "open", tt.off},
			"nobody on loopback":           {free, "", tt.loopback},
			"an operator on loopback":      {free, "open", tt.operator},
			"nobody of the network":        {open, "", tt.anybody},
			"an operator of the network":   {open, "open", tt.anyOperator},
			"a token that both roles have": {same, "sesame", tt.viewer},
		} {
			c, _, b := staffed(t, of.cfg)
			c.header = nil
			if of.bearer != "" {
				c.header = map[string]string{"Authorization": "Bearer " + of.bearer}
			}
			w := c.ask(tt.method, tt.path, tt.body)
			if w.Code != of.want {
				t.Errorf("%s, %s %s: %d, want %d: %.200s", name, tt.method, tt.path, w.Code, of.want, w.Body)
			}
			if shown := strings.Contains(w.Body.String(), secretKey); shown != (strings.Contains(tt.path, "values") && w.Code == 200) {
				t.Errorf("%s, %s: %s", name, tt.path, w.Body)
			}
			if w.Code == 405 && !strings.Contains(w.Header().Get("Allow"), "GET") {
				t.Errorf("%s, %s %s: %s", name, tt.method, tt.path, w.Header())
			}
			if strings.Contains(b.audit.String(), secretKey) || strings.Contains(b.audit.String(), "sesame") {
				t.Errorf("the audit log: %s", b.audit.String())
			}
		}
	}
}

// With the defaults nothing can be changed over HTTP, whatever the method.
// The record of the newest row has a payload: operators see it, where payloads may be shown, and the log says so.
func TestExplain_ShowsARecordToOperatorsAlone(t *testing.T) {
	const path = "/api/v1/tables/public.outbox/explain"
	for name, tt := range map[string]struct {
		token, query, reason string
		payloads             bool
		code                 int
	}{
		"an operator":              {"open", "?values=true", "", true, 200},
		"an operator, not asked":   {"open", "", "", true, 200},
		"a viewer":                 {"sesame", "?values=true", "operator_needed", true, 403},
		"a viewer, not asked":      {"sesame", "?values=false", "", true, 200},
		"where payloads are off":   {"open", "?values=true", "payloads_off", false, 403},
		"something else is asked":  {"open", "?values=yes", "unknown_value", true, 400},
		"somebody without a token": {"", "?values=true", "", true, 401},
	} {
		t.Run(name, func(t *testing.T) {
			log := new(safe)
			of := tools()
			of.Audit = zerolog.New(log)
			cfg := operators()
			cfg.Payloads = tt.payloads
			c, _ := consoleOf(t, cfg, streaming, of)
			if tt.token != "" {
				c.header = map[string]string{"Authorization": "Bearer " + tt.token}
			}
			w := c.get(path + tt.query)
			if w.Code != tt.code || tt.reason != "" && reasonOf(t, w) != tt.reason {
				t.Errorf("%d %s", w.Code, w.Body)
			}
			shown := tt.code == 200 && tt.query == "?values=true"
			if strings.Contains(w.Body.String(), `"values":true`) != shown || strings.Contains(log.String(), `"action":"show_values"`) != shown {
				t.Errorf("%s; the log has %s", w.Body, log)
			}
		})
	}
}

func TestActions_AreOffByDefault(t *testing.T) {
	c, console := consoleOf(t, Config{Listen: local}, streaming, new(box).tools())
	a := &api{console: console}
	for _, one := range a.routes() {
		path := strings.NewReplacer("{id}", "x", "{partition}", "3", "{offset}", "17", "{table}", "public.outbox", "{reason}", "slot_lost").Replace(one.path)
		for _, method := range []string{"POST", "PUT", "PATCH", "DELETE"} {
			w := c.ask(method, path, "{}")
			looks := method == "POST" && (path == "/api/v1/check" || path == "/login" || path == "/logout")
			if (w.Code != 405) != looks {
				t.Errorf("%s %s: %d", method, path, w.Code)
			}
			if one.acts && one.method == method && !strings.Contains(w.Body.String(), "http.console.actions") {
				t.Errorf("%s %s does not name the key: %s", method, path, w.Body)
			}
		}
	}
}

func TestActions_FromPlanToOutcome(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, console, b := staffed(t, operators())
		path := plans(t, c, console)
		for body, reason := range map[string]string{
			`{"words": "yes"}`: "wrong_words", `{"words": "re-drive 2"}`: "wrong_words", `{}`: "wrong_words", `{"words": 2}`: "malformed", `x`: "malformed", `{"words": "RE-DRIVE 2", "force": true}`: "malformed",
		} {
			if w := c.ask("POST", path+"/redrive", body); w.Code != 400 || reasonOf(t, w) != reason {
				t.Errorf("%s: %d %s", body, w.Code, w.Body)
			}
		}
		if w := c.ask("POST", path+"/discard", `{"words": "RE-DRIVE 2"}`); w.Code != 400 {
			t.Errorf("the words of the other action: %d", w.Code)
		}
		w := c.ask("POST", path+"/redrive", `{"words": " RE-DRIVE 2 "}`)
		var job Job
		if err := json.Unmarshal(w.Body.Bytes(), &job); err != nil || w.Code != 202 || w.Header().Get("Location") != "/api/v1/jobs/"+job.ID {
			t.Fatalf("%d %s", w.Code, w.Body)
		}
		synctest.Wait()
		if w := c.get("/api/v1/jobs/" + job.ID); !strings.Contains(w.Body.String(), `"state":"done"`) || !strings.Contains(w.Body.String(), `"text":"2 of 2"`) {
			t.Errorf("%s", w.Body)
		}
		if w := c.ask("POST", path+"/redrive", `{"words": "RE-DRIVE 2"}`); w.Code != 404 || reasonOf(t, w) != "unknown_plan" {
			t.Errorf("a plan that was used: %d %s", w.Code, w.Body)
		}
		for _, want := range []string{`"action":"plan"`, `"action":"redrive","role":"operator","session":"bearer","remote":"127.0.0.1:5000","filter":"{}","count":2,"outcome":"begun"`, `"count":2,"outcome":"done"`} {
			if !strings.Contains(b.audit.String(), want) {
				t.Errorf("the audit log has no %s:\n%s", want, b.audit.String())
			}
		}
		path = plans(t, c, console)
		pass(planLasts + time.Second)
		if w := c.ask("POST", path+"/discard", `{"words": "DISCARD 1"}`); w.Code != 409 || reasonOf(t, w) != "plan_expired" {
			t.Errorf("an old plan: %d %s", w.Code, w.Body)
		}
	})
}

func TestActions_OneJobAtATimeAndItCanBeCancelled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, console, b := staffed(t, operators())
		next := make(chan struct{})
		b.act = func(begun func(), halted func() bool) error {
			begun()
			for range next {
				if halted() {
					return ErrHalted
				}
			}
			return errors.New("the lock was lost")
		}
		first, second := plans(t, c, console), plans(t, c, console)
		if w := c.ask("POST", first+"/redrive", `{"words": "RE-DRIVE 2"}`); w.Code != 202 {
			t.Fatalf("%d %s", w.Code, w.Body)
		}
		if w := c.ask("POST", second+"/redrive", `{"words": "RE-DRIVE 2"}`); w.Code != 409 || reasonOf(t, w) != "running" {
			t.Errorf("a second job: %d %s", w.Code, w.Body)
		}
		id := console.desk.running().ID
		next <- struct{}{}
		synctest.Wait()
		if w := c.ask("DELETE", "/api/v1/jobs/"+id, ""); w.Code != 202 {
			t.Errorf("cancel: %d %s", w.Code, w.Body)
		}
		next <- struct{}{}
		synctest.Wait()
		if job := console.desk.running(); job.State != "cancelled" || job.Ended == nil {
			t.Errorf("%+v", job)
		}
		if w := c.ask("DELETE", "/api/v1/jobs/"+id, ""); w.Code != 409 || reasonOf(t, w) != "ended" {
			t.Errorf("cancel what is over: %d %s", w.Code, w.Body)
		}
		c.ask("POST", second+"/redrive", `{"words": "RE-DRIVE 2"}`)
		close(next)
		synctest.Wait()
		if job := console.desk.running(); job.State != "failed" || job.Text != "the lock was lost" {
			t.Errorf("%+v", job)
		}
		if !strings.Contains(b.audit.String(), `"action":"cancel"`) || !strings.Contains(b.audit.String(), `"outcome":"cancelled"`) {
			t.Errorf("the audit log: %s", b.audit.String())
		}
	})
}

// What a tool refuses before anything was changed is the answer, with its status.
func TestActions_AnswerWhyNothingWasDone(t *testing.T) {
	for _, tt := range []struct {
		err    error
		code   int
		reason string
	}{
		{&Failure{409, "plan_changed", errors.New("2 waited then")}, 409, "plan_changed"},
		{&Failure{409, "locked", errors.New("another redrive is at them")}, 409, "locked"},
		{errors.New("no route to host"), 503, "not_answered"},
	} {
		c, console, b := staffed(t, operators())
		path := plans(t, c, console)
		b.act = func(func(), func() bool) error { return tt.err }
		if w := c.ask("POST", path+"/discard", `{"words": "DISCARD 1"}`); w.Code != tt.code || reasonOf(t, w) != tt.reason || !strings.Contains(w.Body.String(), tt.err.Error()) {
			t.Errorf("%d %s", w.Code, w.Body)
		}
		b.failed = tt.err
		console.planning.ended = time.Time{}
		for _, ask := range []func() string{
			func() string { w := c.get("/api/v1/dead-letters"); return fmt.Sprint(w.Code, reasonOf(t, w)) },
			func() string { w := c.get("/api/v1/dead-letters/3/17"); return fmt.Sprint(w.Code, reasonOf(t, w)) },
			func() string {
				w := c.ask("POST", "/api/v1/dead-letters/plans", "{}")
				return fmt.Sprint(w.Code, reasonOf(t, w))
			},
		} {
			if got := ask(); got != fmt.Sprint(tt.code, tt.reason) {
				t.Errorf("%s, want %d %s", got, tt.code, tt.reason)
			}
		}
	}
	c, console, _ := staffed(t, operators())
	path := plans(t, c, console)
	console.desk.life = nil // it starts, or stops
	if w := c.ask("POST", path+"/discard", `{"words": "DISCARD 1"}`); w.Code != 503 || reasonOf(t, w) != "stopping" {
		t.Errorf("%d %s", w.Code, w.Body)
	}
}

// A cookie alone changes nothing: the page has to say what only it was told.
func TestActions_ASessionNeedsItsFormToken(t *testing.T) {
	c, console, b := staffed(t, operators())
	c.header = nil
	if w := c.ask("POST", "/login", `{"token": "open"}`); w.Code != 204 {
		t.Fatalf("%d", w.Code)
	}
	var about struct {
		Role, FormToken string `json:"-"`
	}
	var said map[string]any
	_ = json.Unmarshal(c.get("/api/v1/console").Body.Bytes(), &said)
	about.Role, _ = said["role"].(string)
	about.FormToken, _ = said["form_token"].(string)
	if about.Role != "operator" || len(about.FormToken) != 64 || said["until"] == nil {
		t.Fatalf("%v", said)
	}
	if strings.Contains(about.FormToken, c.cookies[0].Value) {
		t.Error("the form token tells the session")
	}
	for token, want := range map[string]int{"": 403, "x": 403, about.FormToken: 200} {
		c.header = map[string]string{formHeader: token}
		if w := c.ask("POST", "/api/v1/retry", "{}"); w.Code != want {
			t.Errorf("%.5q: %d %s", token, w.Code, w.Body)
		}
	}
	for name, header := range map[string]map[string]string{
		"another site": {formHeader: about.FormToken, "Sec-Fetch-Site": "cross-site", "Origin": "http://evil.example"},
		"a subdomain":  {formHeader: about.FormToken, "Sec-Fetch-Site": "same-site", "Origin": "http://127.0.0.1:9"},
		"a form":       {formHeader: about.FormToken, "Content-Type": "application/x-www-form-urlencoded"},
	} {
		c.header = header
		if w := c.ask("POST", "/api/v1/retry", "{}"); w.Code != 403 && w.Code != 415 {
			t.Errorf("%s: %d", name, w.Code)
		}
		if w := c.ask("DELETE", "/api/v1/jobs/x", ""); name != "a form" && w.Code != 403 {
			t.Errorf("DELETE of %s: %d", name, w.Code)
		}
	}
	if !strings.Contains(b.audit.String(), `"action":"sign_in"`) || strings.Count(b.audit.String(), "requests to the console were refused") != 1 {
		t.Errorf("the log: %s", b.audit.String())
	}
	// A viewer's session is no operator's, also with its own form token.
	c.cookies, c.header = nil, nil
	c.ask("POST", "/login", `{"token": "sesame"}`)
	_ = json.Unmarshal(c.get("/api/v1/console").Body.Bytes(), &said)
	c.header = map[string]string{formHeader: said["form_token"].(string)}
	if w := c.ask("POST", "/api/v1/retry", "{}"); w.Code != 403 || reasonOf(t, w) != "operator_needed" {
		t.Errorf("a viewer: %d %s", w.Code, w.Body)
	}
	_ = console
}

func TestActions_ARotatedTokenEndsTheOperatorsSession(t *testing.T) {
	token := "open"
	cfg := operators()
	cfg.Operator = func() (string, error) { return token, nil }
	c, _, _ := staffed(t, cfg)
	c.header = nil
	c.ask("POST", "/login", `{"token": "open"}`)
	if w := c.get("/api/v1/status"); w.Code != 200 {
		t.Fatalf("%d", w.Code)
	}
	token = "another"
	if w := c.get("/api/v1/status"); w.Code != 401 {
		t.Errorf("with a rotated token: %d", w.Code)
	}
	cfg.Operator = func() (string, error) { return "", errors.New("open /run/x") }
	c, _, _ = staffed(t, cfg)
	c.header = map[string]string{"Authorization": "Bearer sesame"}
	if w := c.get("/api/v1/status"); w.Code != 200 {
		t.Errorf("viewers while the operators' token cannot be read: %d", w.Code)
	}
	c.header = map[string]string{"Authorization": "Bearer open"}
	if w := c.ask("POST", "/api/v1/retry", "{}"); w.Code != 503 || strings.Contains(w.Body.String(), "/run/x") {
		t.Errorf("an operator: %d %s", w.Code, w.Body)
	}
}

func TestActions_AreLimited(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, console, _ := staffed(t, operators())
		for range mostActions {
			if w := c.ask("POST", "/api/v1/retry", "{}"); w.Code != 200 {
				t.Fatalf("%d %s", w.Code, w.Body)
			}
		}
		if w := c.ask("POST", "/api/v1/retry", "{}"); w.Code != 429 || w.Header().Get("Retry-After") == "" {
			t.Errorf("%d %s", w.Code, w.Header())
		}
		path := plans(t, c, console)
		if w := c.ask("POST", path+"/discard", `{"words": "DISCARD 1"}`); w.Code != 429 {
			t.Errorf("a job: %d", w.Code)
		}
		if w := c.ask("POST", "/api/v1/dead-letters/plans", "{}"); w.Code != 429 {
			t.Errorf("a plan at once after another: %d", w.Code)
		}
		pass(time.Minute)
		if w := c.ask("POST", path+"/discard", `{"words": "DISCARD 1"}`); w.Code != 202 {
			t.Errorf("a minute later: %d %s", w.Code, w.Body)
		}
		synctest.Wait()
	})
}

func TestLetters_AreListedNewestFirstInPages(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, console, b := staffed(t, operators())
		places := func(query string) string {
			var got struct {
				Letters        []Letter
				Next           *string
				Matched        int
				Total, Waiting int
				Reasons        []counted
			}
			w := c.get("/api/v1/dead-letters?" + query)
			if err := json.Unmarshal(w.Body.Bytes(), &got); err != nil || w.Code != 200 || got.Total != 4 || got.Waiting != 3 {
				t.Fatalf("%s: %d %s", query, w.Code, w.Body)
			}
			text := ""
			for _, l := range got.Letters {
				text += fmt.Sprintf("%d/%d ", l.Partition, l.Offset)
			}
			if got.Next != nil {
				text += "next " + *got.Next
			}
			return text
		}
		for query, want := range map[string]string{
			"": "3/17 2/5 1/5 ", "state=all": "3/17 2/5 1/5 0/1 ", "state=sent": "0/1 ", "reason=record_too_large&limit=1": "3/17 next 3/17",
			"reason=record_too_large&limit=1&after=3/17": "2/5 ", "since=2030-01-31T12:10:00Z": "3/17 ", "table=public.other": "", "topic=orders&after=1/5": "",
		} {
			if got := places(query); got != want {
				t.Errorf("%s: %q, want %q", query, got, want)
			}
		}
		if b.reads != 1 {
			t.Errorf("the topic was read %d times in a moment", b.reads)
		}
		pass(lettersFresh + time.Second)
		places("")
		if b.reads != 2 {
			t.Errorf("it was read %d times", b.reads)
		}
		pass(lettersKept)
		console.desk.forget(time.Now())
		if console.desk.list != nil {
			t.Error("letters that nobody asks for are kept")
		}
	})
}

func TestLetters_BadInputSaysWhatIsAllowed(t *testing.T) {
	c, console, _ := staffed(t, operators())
	for path, tt := range map[string]struct {
		code    int
		reason  string
		allowed string
	}{
		"/api/v1/dead-letters?state=gone":               {400, "unknown_state", "waiting, sent, discarded, all"},
		"/api/v1/dead-letters?since=yesterday":          {400, "unknown_time", "2030"},
		"/api/v1/dead-letters?limit=-1":                 {400, "unknown_limit", "1 to 500"},
		"/api/v1/dead-letters?limit=501":                {400, "unknown_limit", "1 to 500"},
		"/api/v1/dead-letters?after=x":                  {400, "unknown_cursor", "3/17"},
		"/api/v1/dead-letters?after=-1/2":               {400, "unknown_cursor", "3/17"},
		"/api/v1/dead-letters?after=9/9":                {410, "letter_gone", "without after"},
		"/api/v1/dead-letters/x/1":                      {400, "unknown_place", "two numbers"},
		"/api/v1/dead-letters/99999999999/1":            {400, "unknown_place", "two numbers"},
		"/api/v1/dead-letters/0/-1":                     {400, "unknown_place", "two numbers"},
		"/api/v1/dead-letters/0/99":                     {410, "letter_gone", "any more"},
		"/api/v1/dead-letters/3/17?values=%3Cscript%3E": {400, "unknown_value", "true, false"},
		"/api/v1/jobs/nothing":                          {404, "unknown_job", "last 20"},
	} {
		w := c.get(path)
		if w.Code != tt.code || reasonOf(t, w) != tt.reason || !strings.Contains(w.Body.String(), tt.allowed) || strings.Contains(w.Body.String(), "<script>") {
			t.Errorf("%s: %d %s", path, w.Code, w.Body)
		}
	}
	for body, reason := range map[string]string{
		`{"letters": [{"partition": -1, "offset": 0}]}`: "unknown_place", `{"letters": "all"}`: "malformed", `{"everything": true}`: "malformed", `[]`: "malformed", `{} {}`: "malformed",
		`{"letters": [` + strings.TrimSuffix(strings.Repeat(`{"partition":0,"offset":0},`, 301), ",") + `]}`: "too_many_letters",
		`{"reason": "` + strings.Repeat("x", 20<<10) + `"}`:                                                  "malformed", `{"since": "yesterday"}`: "malformed",
	} {
		console.planning.ended = time.Time{}
		if w := c.ask("POST", "/api/v1/dead-letters/plans", body); w.Code != 400 || reasonOf(t, w) != reason {
			t.Errorf("%.60s: %d %.200s", body, w.Code, w.Body)
		}
	}
	bare, _ := consoleOf(t, operators(), streaming, tools())
	bare.header = map[string]string{"Authorization": "Bearer open"}
	for _, of := range []struct{ method, path string }{{"GET", "/api/v1/dead-letters"}, {"GET", "/api/v1/dead-letters/0/0"}, {"POST", "/api/v1/dead-letters/plans"}, {"POST", "/api/v1/dead-letters/plans/x/discard"}} {
		if w := bare.ask(of.method, of.path, map[string]string{"POST": "{}"}[of.method]); w.Code != http.StatusNotFound || reasonOf(t, w) != "no_dead_letters" {
			t.Errorf("%s without a dead-letter topic: %d %s", of.path, w.Code, w.Body)
		}
	}
}
