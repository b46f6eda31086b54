package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/cdc-relay/cdc-relay/admin"
	"github.com/cdc-relay/cdc-relay/relay/status"
	"github.com/rs/zerolog"
)

// operated is the console of a relay's configuration, asked by an operator.
type operated struct {
	*life
	t       *testing.T
	handler http.Handler
	log     *auditLog
}

// auditLog is read while it is written.
type auditLog struct {
	mu   sync.Mutex
	text strings.Builder
}

func (a *auditLog) Write(line []byte) (int, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.text.Write(line)
}

func (a *auditLog) String() string {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.text.String()
}

func operate(t *testing.T, l *life) *operated {
	t.Helper()
	a := &app{process: process{stdout: io.Discard, stderr: io.Discard, env: append([]string{"HOME=/nonexistent", "CDC_RELAY_RELAY_ON_REJECT=dead_letter"}, l.env...)}}
	cfg, err := a.load()
	if err != nil {
		t.Fatal(err)
	}
	o := &operated{life: l, t: t, log: new(auditLog)}
	show := func() status.Status { return status.Status{} }
	console := admin.NewConsole(show, admin.Tools{Letters: letterTools(cfg, cfg.Relay()), Audit: zerolog.New(o.log)}, 0)
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() { defer close(ended); console.Run(ctx) }()
	t.Cleanup(func() { stop(); <-ended })
	o.handler = admin.HandlerWithConsole(admin.Config{
		Listen: "127.0.0.1:8080", Actions: true, Payloads: true, Operator: func() (string, error) { return "open", nil },
	}, show, http.NotFoundHandler(), console)
	return o
}

func (o *operated) ask(method, path, body string, into any) int {
	o.t.Helper()
	r := httptest.NewRequest(method, path, strings.NewReader(body))
	r.Host = "127.0.0.1:8080"
	r.Header.Set("Authorization", "Bearer open")
	r.Header.Set("Content-Type", "application/json")
	w := httptest.NewRecorder()
	o.handler.ServeHTTP(w, r)
	if into != nil {
		if err := json.Unmarshal(w.Body.Bytes(), into); err != nil {
			o.t.Fatalf("%s %s: %v: %s", method, path, err, w.Body)
		}
	}
	return w.Code
}

// plan is a plan of a filter; the pace of plans is waited for.
func (o *operated) plan(filter string) (p admin.Plan) {
	o.t.Helper()
	o.await(o.t, "a plan", func() bool { return o.ask("POST", "/api/v1/dead-letters/plans", filter, &p) == 200 })
	return p
}

// finished is the last job once it is over.
func (o *operated) finished() (job admin.Job) {
	o.t.Helper()
	o.await(o.t, "the end of the job", func() bool {
		var got struct{ Job *admin.Job }
		o.ask("GET", "/api/v1/jobs/latest", "", &got)
		if got.Job == nil || got.Job.State == "running" {
			return false
		}
		job = *got.Job
		return true
	})
	return job
}

// The page re-drives what the command would: whole keys in order, with a marker behind them.
func TestConsole_RedrivesWhatWasPlanned(t *testing.T) {
	t.Parallel()
	l, _ := withLetters(t, setAside{key: "a"}, setAside{key: "b", reason: "route"}, setAside{key: "a", reason: "parked"}, setAside{key: "c", source: "7000000000000000001/16384/elsewhere"})
	l.brokers.CreateTopic(t, "orders", 1)
	o := operate(t, l)
	var list struct {
		Total, Waiting, Matched int
		Letters                 []admin.Letter
	}
	if code := o.ask("GET", "/api/v1/dead-letters?reason=record_too_large", "", &list); code != 200 || list.Total != 4 || list.Waiting != 4 || list.Matched != 2 {
		t.Fatalf("%d %+v", code, list)
	}
	p := o.plan(`{"reason": "record_too_large"}`)
	if r := p.Redrive; r.Words != "RE-DRIVE 2" || r.Letters != 2 || r.Keys != 1 || r.Along != 1 || p.Others != 1 || p.Discard.Words != "DISCARD 1" || p.Discard.Left != 1 {
		t.Fatalf("%+v", p)
	}
	path := "/api/v1/dead-letters/plans/" + p.ID
	if code := o.ask("POST", path+"/redrive", `{"words": "yes"}`, nil); code != 400 {
		t.Errorf("other words: %d", code)
	}
	if n := len(l.brokers.Read(t, "cdc-relay.dead-letters")); n != 4 {
		t.Fatalf("%d records: a plan changed something", n)
	}
	var job admin.Job
	if code := o.ask("POST", path+"/redrive", `{"words": "RE-DRIVE 2"}`, &job); code != 202 {
		t.Fatalf("%d %+v", code, job)
	}
	if job = o.finished(); job.State != "done" || job.Done != 2 || job.Records != 2 || !strings.Contains(job.Text, "2 of 2 dead letters of the selected keys re-driven, 0 left") {
		t.Errorf("%+v", job)
	}
	sent := l.brokers.Read(t, "orders")
	if len(sent) != 2 || string(sent[0].Value) != "0" || string(sent[1].Value) != "2" {
		t.Errorf("%d records in topic orders: %v", len(sent), sent)
	}
	if code := o.ask("POST", path+"/redrive", `{"words": "RE-DRIVE 2"}`, nil); code != 404 {
		t.Errorf("the same plan again: %d", code)
	}
	if o.ask("GET", "/api/v1/dead-letters?state=sent", "", &list); list.Matched != 2 || list.Waiting != 2 {
		t.Errorf("afterwards: %+v", list)
	}
	invoke(t, l.env, "deadletter", "list").want(t, exitOK, "2 of 2 dead letters waiting", "")
	for _, want := range []string{`"action":"plan"`, `"action":"redrive"`, `"outcome":"begun"`, `"outcome":"done"`, `"count":2`, `"role":"operator"`} {
		o.await(t, "in the audit log "+want, func() bool { return strings.Contains(o.log.String(), want) })
	}
}

// A plan is done as it was made, or not at all.
func TestConsole_DoesNothingWhenTheTopicMovedUnderThePlan(t *testing.T) {
	t.Parallel()
	for name, move := range map[string]func(l *life){
		"done with meanwhile": func(l *life) {
			invoke(t, l.env, "deadletter", "redrive", "--all", "--discard", "--yes").want(t, exitOK, "", "")
		},
		"another of the key": func(l *life) { l.setMoreAside(t, setAside{key: "a", reason: "parked"}) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l, _ := withLetters(t, setAside{key: "a"}, setAside{key: "a"})
			l.brokers.CreateTopic(t, "orders", 1)
			o := operate(t, l)
			p := o.plan(`{"letters": [{"partition": 0, "offset": 0}]}`)
			move(l)
			before := len(l.brokers.Read(t, "cdc-relay.dead-letters"))
			for _, verb := range []string{"redrive", "discard"} {
				words := map[string]string{"redrive": p.Redrive.Words, "discard": p.Discard.Words}[verb]
				var answer struct{ Reason, Detail string }
				code := o.ask("POST", "/api/v1/dead-letters/plans/"+p.ID+"/"+verb, fmt.Sprintf(`{"words": %q}`, words), &answer)
				if code != 409 || answer.Reason != "plan_changed" || !strings.Contains(answer.Detail, "plan again") {
					t.Errorf("%s: %d %+v", verb, code, answer)
				}
				p = o.plan(`{"letters": [{"partition": 0, "offset": 0}]}`)
				if name == "done with meanwhile" {
					break // nothing is left to plan
				}
				move(l)
				before++
			}
			if n := len(l.brokers.Read(t, "cdc-relay.dead-letters")); n != before || len(l.brokers.Read(t, "orders")) != 0 {
				t.Errorf("%d records in the dead-letter topic, %d before", n, before)
			}
		})
	}
}

func TestConsole_TakesTheLockOfTheCommand(t *testing.T) {
	t.Parallel()
	l, source := withLetters(t, setAside{key: "a"}, setAside{key: "b"})
	l.brokers.CreateTopic(t, "orders", 1)
	o := operate(t, l)
	p := o.plan(`{}`)
	release := l.locked(t, source)
	var answer struct{ Reason, Detail string }
	if code := o.ask("POST", "/api/v1/dead-letters/plans/"+p.ID+"/discard", `{"words": "DISCARD 2"}`, &answer); code != 409 || answer.Reason != "locked" || !strings.Contains(answer.Detail, "another redrive is at them") {
		t.Errorf("%d %+v", code, answer)
	}
	release()
	p = o.plan(`{"letters": [{"partition": 0, "offset": 1}]}`)
	if code := o.ask("POST", "/api/v1/dead-letters/plans/"+p.ID+"/discard", `{"words": "DISCARD 1"}`, nil); code != 202 {
		t.Fatalf("%d", code)
	}
	if job := o.finished(); job.State != "done" || job.Done != 1 {
		t.Errorf("%+v", job)
	}
	invoke(t, l.env, "deadletter", "list").want(t, exitOK, "1 of 1 dead letter waiting", "")
	if n := len(l.brokers.Read(t, "orders")); n != 0 {
		t.Errorf("discarding sent %d records", n)
	}
}

func TestConsole_ShowsValuesOfALetterToOperatorsAlone(t *testing.T) {
	t.Parallel()
	l, _ := withLetters(t, setAside{key: "the-key"})
	o := operate(t, l)
	var hidden, shown map[string]any
	if code := o.ask("GET", "/api/v1/dead-letters/0/0", "", &hidden); code != 200 || hidden["record"] != nil || strings.Contains(fmt.Sprint(hidden), "the-key") {
		t.Errorf("%d %v", code, hidden)
	}
	if code := o.ask("GET", "/api/v1/dead-letters/0/0?values=true", "", &shown); code != 200 || !strings.Contains(fmt.Sprint(shown["record"]), "the-key") {
		t.Errorf("%d %v", code, shown)
	}
	if !strings.Contains(o.log.String(), `"action":"show_values"`) || strings.Contains(o.log.String(), "the-key") {
		t.Errorf("the audit log: %s", o.log)
	}
	if code := o.ask("GET", "/api/v1/dead-letters/0/9", "", nil); code != 410 {
		t.Errorf("a letter that is not there: %d", code)
	}
	bare := operate(t, newLife(t))
	var answer struct{ Reason, Detail string }
	if code := bare.ask("GET", "/api/v1/dead-letters", "", &answer); code != 409 || answer.Reason != "refused" || !strings.Contains(answer.Detail, "cdc-relay setup") {
		t.Errorf("without the topic: %d %+v", code, answer)
	}
}

// The records of a job that is cancelled are those of whole keys.
func TestConsole_CancelsBetweenKeys(t *testing.T) {
	t.Parallel()
	l, _ := withLetters(t, setAside{key: "a"}, setAside{key: "a"}, setAside{key: "b"})
	l.brokers.CreateTopic(t, "orders", 1)
	o := operate(t, l)
	p := o.plan(`{}`)
	arrived, release := l.holdProduce(1)
	var job admin.Job
	if code := o.ask("POST", "/api/v1/dead-letters/plans/"+p.ID+"/redrive", `{"words": "RE-DRIVE 3"}`, &job); code != 202 {
		t.Fatalf("%d", code)
	}
	<-arrived
	if code := o.ask("DELETE", "/api/v1/jobs/"+job.ID, "", nil); code != 202 {
		t.Errorf("cancel: %d", code)
	}
	release()
	if job = o.finished(); job.State != "cancelled" || job.Done != 2 || !strings.Contains(job.Text, "cancelled between two keys: 2 dead letters of 3 dead letters done") {
		t.Errorf("%+v", job)
	}
	if n := len(l.brokers.Read(t, "orders")); n != 2 {
		t.Errorf("%d records", n)
	}
	if code := o.ask("DELETE", "/api/v1/jobs/"+job.ID, "", nil); code != 409 {
		t.Errorf("cancel it again: %d", code)
	}
	invoke(t, l.env, "deadletter", "list").want(t, exitOK, "1 of 1 dead letter waiting", "")
}
