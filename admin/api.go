package admin

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/cdc-relay/cdc-relay/docs"
	"github.com/cdc-relay/cdc-relay/figures"
	"github.com/cdc-relay/cdc-relay/loopback"
	"github.com/cdc-relay/cdc-relay/relay/status"
	"github.com/cdc-relay/cdc-relay/ways"
)

// route is a path of the console's interface. web/openapi.json describes each; a test compares.
type route struct {
	method, path string
	open         bool // whoever asks, without a token
	sensitive    bool // more than the status shows: see mayRead
	acts         bool // for operators, where http.console.actions is set
	handle       http.HandlerFunc
}

// api lists the console's paths.
func (a *api) routes() []route {
	return []route{
		{method: http.MethodGet, path: "/api/v1/console", open: true, handle: a.about},
		{method: http.MethodGet, path: "/api/v1/history", handle: a.history},
		{method: http.MethodGet, path: "/api/v1/history/flows", handle: a.flowHistory},
		{method: http.MethodGet, path: "/api/v1/stream", handle: a.stream},
		{method: http.MethodGet, path: "/api/v1/tail", sensitive: true, handle: a.tail},
		{method: http.MethodGet, path: "/api/v1/obstacle", handle: a.obstacle},
		{method: http.MethodGet, path: "/api/v1/runbook/{reason}", handle: a.runbook},
		{method: http.MethodGet, path: "/api/v1/tables", handle: a.tables},
		{method: http.MethodGet, path: "/api/v1/tables/{table}/explain", sensitive: true, handle: a.explain},
		{method: http.MethodGet, path: "/api/v1/check", sensitive: true, handle: a.lastCheck},
		{method: http.MethodPost, path: "/api/v1/check", sensitive: true, handle: a.check},
		{method: http.MethodGet, path: "/api/v1/configuration", sensitive: true, handle: a.configuration},
		{method: http.MethodGet, path: "/api/v1/log", sensitive: true, handle: a.log},
		{method: http.MethodGet, path: "/api/v1/dead-letters", sensitive: true, handle: a.letters},
		{method: http.MethodGet, path: "/api/v1/dead-letters/{partition}/{offset}", sensitive: true, handle: a.letter},
		{method: http.MethodPost, path: "/api/v1/dead-letters/plans", acts: true, handle: a.plan},
		{method: http.MethodPost, path: "/api/v1/dead-letters/plans/{id}/redrive", acts: true, handle: a.redrive},
		{method: http.MethodPost, path: "/api/v1/dead-letters/plans/{id}/discard", acts: true, handle: a.discard},
		{method: http.MethodGet, path: "/api/v1/jobs/{id}", sensitive: true, handle: a.job},
		{method: http.MethodDelete, path: "/api/v1/jobs/{id}", acts: true, handle: a.cancel},
		{method: http.MethodPost, path: "/api/v1/retry", acts: true, handle: a.retry},
		{method: http.MethodGet, path: "/api/v1/openapi.json", open: true, handle: a.openapi},
		{method: http.MethodPost, path: "/login", open: true, handle: a.login},
		{method: http.MethodPost, path: "/logout", open: true, handle: a.logout},
	}
}

// changing reports whether a path takes the method of a request, which is not GET or HEAD.
func (a *api) changing(r *http.Request) bool {
	if a.changes == nil || r.Method == http.MethodGet || r.Method == http.MethodHead {
		return false
	}
	_, pattern := a.changes.Handler(r)
	return strings.HasPrefix(pattern, r.Method+" ")
}

// problem answers as RFC 9457 has it. reason is for programs, detail for people.
func problem(w http.ResponseWriter, code int, reason, detail string) {
	body, _ := json.Marshal(map[string]any{"type": "about:blank", "title": http.StatusText(code), "status": code, "reason": reason, "detail": detail})
	w.Header().Set("Content-Type", "application/problem+json")
	w.WriteHeader(code)
	_, _ = w.Write(append(body, '\n'))
}

func answerJSON(w http.ResponseWriter, v any) { answerJSONAs(w, http.StatusOK, v) }

func answerJSONAs(w http.ResponseWriter, code int, v any) {
	body, err := json.Marshal(v)
	if err != nil {
		problem(w, http.StatusInternalServerError, "encode", "encode the answer: "+err.Error())
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_, _ = w.Write(append(body, '\n'))
}

// mayRead admits to what shows more than the status: configuration, log, and what asks servers.
// Where anybody of the network may ask without a token, that is nobody. It answers if not.
func (a *api) mayRead(w http.ResponseWriter, r *http.Request) bool {
	host, _, err := net.SplitHostPort(a.cfg.Listen)
	if a.cfg.Token != nil || err != nil || loopback.Is(host) {
		return true
	}
	if who, err := a.who(r); err == nil && who.role == operator {
		return true
	}
	problem(w, http.StatusForbidden, "token_needed", "http.listen can be reached from other machines: set http.token_file, then sign in to see this")
	return false
}

// about says what the page may show, before anybody is signed in.
func (a *api) about(w http.ResponseWriter, r *http.Request) {
	who, err := a.who(r)
	if err != nil {
		who = asker{}
	}
	about := map[string]any{
		"admitted": who.role >= viewer, "token": a.cfg.Token != nil, "signed_in": who.session != "", "history_seconds": int(a.console.keep.Seconds()),
		"role": who.role.String(), "operators": a.cfg.Operator != nil, "actions": a.cfg.Actions, "payloads": a.cfg.Payloads,
		"form_token": who.formToken(), "until": nil, "source": "", "file": "",
		"dead_letters": a.console.tools.Letters != nil, "streams_left": a.console.streams.leftFor(r),
	}
	if who.role >= viewer {
		about["source"], about["file"] = a.console.tools.Source, a.console.tools.Facts.File
	}
	if who.session != "" {
		about["until"] = who.until.UTC()
	}
	answerJSON(w, about)
}

// history gives columns of numbers.
func (a *api) history(w http.ResponseWriter, r *http.Request) {
	query := r.URL.Query()
	var of []figures.Series
	for name := range strings.SplitSeq(query.Get("series"), ",") {
		if one, ok := figures.Named(name); ok {
			of = append(of, one)
		} else if name != "" || query.Has("series") {
			problem(w, http.StatusBadRequest, "unknown_series", "series: "+strconv.Quote(name)+" is not allowed; allowed: "+strings.Join(figures.Names(), ", "))
			return
		}
	}
	if !query.Has("series") {
		for i := range figures.Names() {
			of = append(of, figures.Series(i))
		}
	}
	step := figures.Steps[len(figures.Steps)-1]
	if query.Has("step") {
		given, err := time.ParseDuration(query.Get("step"))
		if err != nil || !slices.Contains(figures.Steps, given) {
			problem(w, http.StatusBadRequest, "unknown_step", "step: "+strconv.Quote(query.Get("step"))+" is not allowed; allowed: 1s, 10s")
			return
		}
		step = given
	}
	c, now := a.console, a.now()
	since := now.Add(-c.keep)
	if query.Has("since") {
		given, err := time.Parse(time.RFC3339, query.Get("since"))
		if err != nil || given.Year() < 1970 || given.Year() > 9999 {
			problem(w, http.StatusBadRequest, "unknown_time", "since: "+strconv.Quote(query.Get("since"))+" is not allowed; allowed: a time such as 2030-01-31T14:00:00Z")
			return
		}
		since = given
	}
	if c.ring == nil {
		problem(w, http.StatusNotFound, "no_history", "no figures are kept: http.console.history is 0s")
		return
	}
	c.looked(now)
	c.mu.Lock()
	columns := c.ring.Read(of, since, now, step)
	changes := append([]Change{}, c.changes...)
	c.mu.Unlock()
	body := []byte(`{"from":"` + columns.From.UTC().Format(time.RFC3339) + `","step_seconds":` + strconv.Itoa(int(columns.Step.Seconds())) + `,"series":{`)
	for i, one := range columns.Series {
		if i > 0 {
			body = append(body, ',')
		}
		body = append(strconv.AppendQuote(body, figures.Names()[one]), ':')
		body = appendNumbers(body, columns.Values[i])
	}
	states, _ := json.Marshal(worsening)
	changed, _ := json.Marshal(changes)
	body = append(append(append(append(append(body, `},"states":`...), states...), `,"changes":`...), changed...), "}\n"...)
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(body)
}

// appendNumbers writes numbers as JSON, null for NaN.
func appendNumbers(body []byte, all []float32) []byte {
	body = append(body, '[')
	for i, v := range all {
		if i > 0 {
			body = append(body, ',')
		}
		body = appendNumber(body, v)
	}
	return append(body, ']')
}

func appendNumber(body []byte, v float32) []byte {
	if math.IsNaN(float64(v)) || math.IsInf(float64(v), 0) {
		return append(body, "null"...)
	}
	return strconv.AppendFloat(body, float64(v), 'g', 6, 32)
}

// sampleJSON is one point of every series.
func sampleJSON(at time.Time, s figures.Sample) []byte {
	body := []byte(`{"at":"` + at.UTC().Format(time.RFC3339) + `","series":{`)
	for i, v := range s {
		if i > 0 {
			body = append(body, ',')
		}
		body = append(strconv.AppendQuote(body, figures.Names()[i]), ':')
		body = appendNumber(body, v)
	}
	return append(body, "}}"...)
}

// obstacle is what stands in the way, what the runbook says of it, and the ways out.
func (a *api) obstacle(w http.ResponseWriter, r *http.Request) {
	st := a.status()
	shown := struct {
		State    status.State     `json:"state"`
		Headline string           `json:"headline"`
		Message  string           `json:"message"`
		Obstacle *status.Obstacle `json:"obstacle"`
		Entry    *docs.Entry      `json:"entry"`
		Heals    bool             `json:"heals_by_itself"`
		Ways     []ways.Way       `json:"ways"`

		TopicLimit *int `json:"topic_limit"` // of a record that the topic is too small for; null: not known
	}{State: st.State, Headline: st.Headline, Obstacle: st.Obstacle, Ways: []ways.Way{}}
	if o := st.Obstacle; o != nil {
		shown.Message = st.Message
		if e, found := docs.Runbook(o.Reason); found {
			shown.Entry = &e
		}
		shown.Heals, shown.TopicLimit = ways.HealsByItself(o.Reason), a.console.topicLimit(r.Context(), a.now(), o)
		shown.Ways = append(shown.Ways, ways.Out(o.Reason, a.console.facts(&st))...)
	}
	answerJSON(w, shown)
}

func (a *api) runbook(w http.ResponseWriter, r *http.Request) {
	reason := r.PathValue("reason")
	e, found := docs.Runbook(reason)
	if !found {
		problem(w, http.StatusNotFound, "unknown_reason", "the runbook has no entry for "+strconv.Quote(reason))
		return
	}
	st := a.status()
	f := a.console.facts(&st)
	if st.Obstacle == nil || st.Obstacle.Reason != reason {
		f.Position, f.Bytes = "", 0 // of another matter
	}
	answerJSON(w, map[string]any{"entry": e, "heals_by_itself": ways.HealsByItself(reason), "ways": append([]ways.Way{}, ways.Out(reason, f)...)})
}

// tables lists those that are configured, with what was read of each.
func (a *api) tables(w http.ResponseWriter, _ *http.Request) {
	st := a.status()
	all := append([]status.Flow{}, st.Tables...)
	for _, name := range a.console.tools.Tables {
		if !slices.ContainsFunc(all, func(f status.Flow) bool { return f.Name == name }) {
			all = append(all, status.Flow{Name: name})
		}
	}
	slices.SortFunc(all, func(x, y status.Flow) int { return strings.Compare(x.Name, y.Name) })
	answerJSON(w, map[string]any{"tables": all, "topics": append([]status.Flow{}, st.TopicRates...)})
}

const (
	checkPause   = 30 * time.Second
	explainPause = time.Second
	patience     = 25 * time.Second // of one request: the server gives up an answer after 30 s
)

// once runs what asks servers, one at a time.
func (a *api) once(w http.ResponseWriter, r *http.Request, s *singly, pause time.Duration, what string, run func(context.Context) (any, error)) (any, bool) {
	ok, running, wait := s.begin(a.now(), pause)
	if running {
		problem(w, http.StatusConflict, "running", "another "+what+" runs; wait until it is over")
		return nil, false
	}
	if !ok {
		w.Header().Set("Retry-After", strconv.Itoa(int(wait.Seconds())+1))
		problem(w, http.StatusTooManyRequests, "too_often", "the last "+what+" was a moment ago; wait "+wait.Round(time.Second).String())
		return nil, false
	}
	defer func() { s.end(a.now()) }()
	ctx, cancel := context.WithTimeout(r.Context(), patience)
	defer cancel()
	v, err := run(ctx)
	if err != nil {
		fail(w, fmt.Errorf("%s: %w", what, err))
		return nil, false
	}
	return v, true
}

func (a *api) explain(w http.ResponseWriter, r *http.Request) {
	table, tools := r.PathValue("table"), &a.console.tools
	if tools.Explain == nil {
		problem(w, http.StatusNotFound, "no_explain", "this program has no explain; run cdc-relay explain")
		return
	}
	if !slices.Contains(tools.Tables, table) {
		problem(w, http.StatusNotFound, "unknown_table", strconv.Quote(table)+" is not configured; configured: "+strings.Join(tools.Tables, ", "))
		return
	}
	values, who, ok := a.values(w, r)
	if !ok {
		return
	}
	found, ok := a.once(w, r, &a.console.explains, explainPause, "explain", func(ctx context.Context) (any, error) {
		found, err := tools.Explain(ctx, table, values)
		if values {
			a.audit(r, who, "show_values", "newest row of "+table, 1, outcomeOf(err, false))
		}
		return found, err
	})
	if ok {
		answerJSON(w, found)
	}
}

// report is the last check.
type report struct {
	At     *time.Time `json:"at"` // null: there was none
	Report any        `json:"report"`
}

func (a *api) lastCheck(w http.ResponseWriter, _ *http.Request) {
	c := a.console
	c.mu.Lock()
	last := c.checked
	c.mu.Unlock()
	answerJSON(w, last)
}

func (a *api) check(w http.ResponseWriter, r *http.Request) {
	c := a.console
	if c.tools.Check == nil {
		problem(w, http.StatusNotFound, "no_check", "this program has no check; run cdc-relay check")
		return
	}
	found, ok := a.once(w, r, &c.checks, checkPause, "check", c.tools.Check)
	if !ok {
		return
	}
	at := a.now().UTC()
	c.mu.Lock()
	c.checked = report{&at, found}
	c.mu.Unlock()
	answerJSON(w, report{&at, found})
}

func (a *api) configuration(w http.ResponseWriter, _ *http.Request) {
	if a.console.tools.Configuration == nil {
		problem(w, http.StatusNotFound, "no_configuration", "this program does not show its configuration")
		return
	}
	text, err := a.console.tools.Configuration()
	if err != nil {
		problem(w, http.StatusInternalServerError, "configuration", err.Error())
		return
	}
	answerJSON(w, map[string]string{"yaml": text})
}

// levels are those of the log, the quietest first.
var levels = []string{"trace", "debug", "info", "warn", "error"}

func (a *api) log(w http.ResponseWriter, r *http.Request) {
	query := r.URL.Query()
	number := int64(0)
	if query.Has("after") {
		n, err := strconv.ParseInt(query.Get("after"), 10, 64)
		if err != nil || n < 0 {
			problem(w, http.StatusBadRequest, "unknown_cursor", "after: "+strconv.Quote(query.Get("after"))+" is not allowed; allowed: the number of a line")
			return
		}
		number = n
	}
	least := 0
	if query.Has("level") {
		if least = slices.Index(levels, query.Get("level")); least < 0 {
			problem(w, http.StatusBadRequest, "unknown_level", "level: "+strconv.Quote(query.Get("level"))+" is not allowed; allowed: "+strings.Join(levels, ", "))
			return
		}
	}
	lines := []LogLine{}
	for _, line := range a.console.tools.Log.After(number) {
		if at := slices.Index(levels, line.Level); at < 0 || at >= least {
			lines = append(lines, line)
		}
	}
	answerJSON(w, map[string]any{"lines": lines})
}
