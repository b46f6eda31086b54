package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"time"

	"github.com/cdc-relay/cdc-relay/frame"
	"github.com/cdc-relay/cdc-relay/relay/status"
	"github.com/cdc-relay/cdc-relay/ways"
)

// screen is a terminal that the command has: no echo, keys at once, another screen. Ctrl-C
// stays a signal. Whoever opens one closes it.
type screen struct {
	keys  <-chan byte
	size  func() (width, height int)
	write func(text []byte)
	close func()
}

// openScreen is nil where there is no terminal to draw on.
func (a *app) openScreen(asJSON bool) *screen {
	out, ok := a.stdout.(*os.File)
	if asJSON || !ok || !terminal(out) || a.getenv("TERM") == "dumb" || a.getenv("TERM") == "" {
		return nil
	}
	return openTerminal(out)
}

// curve is how much of the past a frame shows.
const curve = 90

// watched is what the frame is made of.
type watched struct {
	model frame.Model
	last  time.Time // of the answer
	acked int64
	of    string // the obstacle that the ways are of
}

// looked is one look at the relay.
type looked struct {
	letters *frame.LetterList // nil: nobody asked for them
	answer  answer
	err     error
	at      time.Time
	ways    []ways.Way // of the obstacle; nil: the ones before
	past    *past      // of the first look
}

// question is what one look is to find out: the ways out of an obstacle that is not known, and dead letters.
type question struct {
	known   string // the obstacle whose ways are known
	letters bool
}

// past is what the relay knows of the time before.
type past struct{ rates, lags []float64 }

// watchScreen draws until a person ends it. It goes on through failures: a relay that restarts
// is worth watching.
func (a *app) watchScreen(ctx context.Context, c *client, f statusFlags, on *screen) error {
	w := &watched{}
	asked, answers := make(chan question, 1), make(chan looked)
	looking, end := context.WithCancel(ctx)
	defer end()
	go askRelay(looking, c, asked, answers)
	asked <- question{}
	tick := time.NewTicker(f.interval)
	defer tick.Stop()
	var rung status.State
	size := frame.Size{Colour: a.getenv("NO_COLOR") == ""}
	for {
		select {
		case <-ctx.Done():
			return w.outcome()
		case key := <-on.keys:
			if !w.press(key) {
				return w.outcome()
			}
			if w.model.Page == frame.Letters && w.model.Letters == nil {
				w.ask(asked)
			}
		case l := <-answers:
			a.ring(f, &rung, l.answer, l.err)
			w.take(&l)
		case <-tick.C:
			w.ask(asked)
		}
		w.model.Now = time.Now()
		if !w.last.IsZero() {
			w.model.Silent = w.model.Now.Sub(w.last)
		}
		size.Width, size.Height = on.size()
		on.write(painted(frame.Lines(&w.model, size)))
	}
}

// ask sends a question, unless the one before is not answered.
func (w *watched) ask(asked chan<- question) {
	select {
	case asked <- question{w.of, w.model.Page == frame.Letters && !w.model.Held}:
	default:
	}
}

// painted draws lines over what is there, in one write and without clearing, so that nothing
// flickers.
func painted(lines []string) []byte {
	var out bytes.Buffer
	out.WriteString("\x1b[H")
	for i, line := range lines {
		if i > 0 {
			out.WriteString("\r\n")
		}
		out.WriteString(line + "\x1b[K")
	}
	out.WriteString("\x1b[J")
	return out.Bytes()
}

// askRelay asks the relay whenever it is asked to.
func askRelay(ctx context.Context, c *client, asked <-chan question, answers chan<- looked) {
	first := true
	for {
		var q question
		select {
		case <-ctx.Done():
			return
		case q = <-asked:
		}
		l := looked{at: time.Now()}
		l.answer, l.err = fetchStatus(ctx, c)
		if l.err == nil {
			if first {
				l.past = fetchPast(ctx, c)
			}
			first = false
			if of := obstacleName(&l.answer.Status); of != "" && of != q.known {
				l.ways = fetchWays(ctx, c)
			}
			if q.letters {
				l.letters = fetchLetters(ctx, c)
			}
		}
		select {
		case <-ctx.Done():
			return
		case answers <- l:
		}
	}
}

// obstacleName distinguishes obstacles; empty: nothing stands in the way.
func obstacleName(s *status.Status) string {
	o := s.Obstacle
	switch {
	case o == nil:
		return ""
	case o.Row == nil:
		return o.Reason
	}
	return fmt.Sprint(o.Reason, o.Row.Commit, "/", o.Row.Number)
}

// fetchWays asks for the ways out; a relay without a console has none to tell.
func fetchWays(ctx context.Context, c *client) []ways.Way {
	var got struct {
		Ways []ways.Way `json:"ways"`
	}
	code, body, err := c.get(ctx, "/api/v1/obstacle")
	if err != nil || code != http.StatusOK || json.Unmarshal(body, &got) != nil {
		return nil
	}
	return got.Ways
}

// shownLetters are as many as the largest terminal has room for.
const shownLetters = "100"

// fetchLetters asks for the dead letters that wait. Why there is no answer is one.
func fetchLetters(ctx context.Context, c *client) *frame.LetterList {
	code, body, err := c.get(ctx, "/api/v1/dead-letters?state=waiting&limit="+shownLetters)
	got := new(frame.LetterList)
	var said struct {
		Detail string `json:"detail"`
	}
	switch {
	case err != nil:
		got.Failure = err.Error()
	case code == http.StatusOK && json.Unmarshal(body, got) == nil:
	case json.Unmarshal(body, &said) == nil && said.Detail != "":
		got.Failure = said.Detail
	case code == http.StatusNotFound:
		got.Failure = "this relay does not show its dead letters: http.console.enabled is false, or it is of an earlier version; run cdc-relay deadletter list"
	default:
		got.Failure = fmt.Sprintf("the dead letters are not shown: HTTP %d; run cdc-relay deadletter list", code)
	}
	return got
}

// fetchPast asks for the last minute and a half.
func fetchPast(ctx context.Context, c *client) *past {
	var got struct {
		Series map[string][]*float64 `json:"series"`
	}
	since := time.Now().Add(-curve * time.Second).UTC().Format(time.RFC3339)
	code, body, err := c.get(ctx, "/api/v1/history?step=1s&series=acknowledged,lag_seconds&since="+since)
	if err != nil || code != http.StatusOK || json.Unmarshal(body, &got) != nil {
		return nil
	}
	known := func(all []*float64) (values []float64) {
		for _, v := range all {
			if v != nil {
				values = append(values, *v)
			}
		}
		return values
	}
	return &past{known(got.Series["acknowledged"]), known(got.Series["lag_seconds"])}
}

// take takes a look into the model.
func (w *watched) take(l *looked) {
	if l.err != nil {
		w.model.Failure = l.err.Error()
		if w.last.IsZero() {
			w.last = l.at // it has never answered
			w.model.Status = status.Status{}
		}
		return
	}
	if w.model.Held {
		w.last = l.at
		return
	}
	if l.letters != nil {
		w.model.Letters = l.letters
	}
	s := l.answer.Status
	if p := l.past; p != nil {
		w.model.Rates, w.model.Lags = p.rates, p.lags
	} else if passed := l.at.Sub(w.last).Seconds(); w.model.Status.State != "" && passed > 0 && s.EventsPublished >= w.acked {
		w.model.Rates = append(w.model.Rates, float64(s.EventsPublished-w.acked)/passed)
		if s.LagSeconds != nil {
			w.model.Lags = append(w.model.Lags, *s.LagSeconds)
		}
	}
	w.model.Rates, w.model.Lags = newest(w.model.Rates), newest(w.model.Lags)
	if s.LagBytes != nil {
		w.model.Largest = max(w.model.Largest, *s.LagBytes)
	}
	if s.CatchUp == nil {
		w.model.Largest = 0
	}
	if of := obstacleName(&s); of == "" || l.ways != nil {
		w.of, w.model.Ways = of, l.ways
	}
	w.model.Status, w.model.Failure, w.last, w.acked = s, "", l.at, s.EventsPublished
}

func newest(values []float64) []float64 { return values[max(0, len(values)-curve):] }

// press obeys a key; false: the end.
func (w *watched) press(key byte) bool {
	m := &w.model
	switch key {
	case 'q', 3, 4: // also Ctrl-C and Ctrl-D of a terminal that makes no signal of them
		return false
	case 'b':
		m.Page = toggled(m.Page, frame.Blocked)
	case 'd':
		m.Page = toggled(m.Page, frame.Letters)
	case '?', 'h':
		m.Page = toggled(m.Page, frame.Help)
	case 'n', 27:
		m.Page = frame.Now
	case 'p':
		m.Held = !m.Held
	}
	return true
}

func toggled(page, to frame.Page) frame.Page {
	if page == to {
		return frame.Now
	}
	return to
}

// outcome is that of the last answer.
func (w *watched) outcome() error {
	if w.model.Failure != "" || w.model.Status.State != status.Streaming {
		return &quietError{exitFailed}
	}
	return nil
}

// ring rings when the relay becomes blocked, and when it no longer is.
func (a *app) ring(f statusFlags, rung *status.State, s answer, err error) {
	if err != nil {
		return
	}
	if before := *rung; f.bell && before != "" && (before == status.Blocked) != (s.State == status.Blocked) {
		fmt.Fprint(a.stderr, "\a")
	}
	*rung = s.State
}
