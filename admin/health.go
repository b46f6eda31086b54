package admin

import (
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/cdc-relay/cdc-relay/relay/status"
)

// liveWithin is how long the relay's loop may stand still. Its waits are all
// shorter, whatever PostgreSQL and Kafka do.
const liveWithin = 30 * time.Second

// check is one named line of ?verbose; an empty problem is good.
type check struct {
	name    string
	problem string
}

func (a *api) live(w http.ResponseWriter, r *http.Request) {
	turned := a.status().LastTick
	if turned.Before(a.born) {
		turned = a.born // the loop has not begun; it gets as long
	}
	c := check{name: "loop"}
	if still := a.now().Sub(turned); still > liveWithin {
		c.problem = fmt.Sprintf("has not turned for %s", still.Round(time.Second))
	}
	answer(w, r, []check{c})
}

// ready: the relay streams, or stands by for the slot that another one holds.
func (a *api) ready(w http.ResponseWriter, r *http.Request) {
	s := a.status()
	state := check{name: "state"}
	if !s.Ready() {
		state.problem = describe(s, a.trusted(r))
	}
	checks := []check{state}
	if r.URL.Query().Has("verbose") {
		checks = append(checks, note("postgres", s.SourceConnected || s.State == status.Standby), note("kafka", s.SinkConnected))
	}
	answerBy(w, r, checks, s.Ready())
}

func (a *api) startup(w http.ResponseWriter, r *http.Request) {
	s := a.status()
	answer(w, r, []check{
		{name: "configuration"},
		reached("postgres", s.SourceReached, s, a.trusted(r)),
		reached("kafka", s.SinkReached, s, a.trusted(r)),
	})
}

// trusted reports whether the asker may read messages, which name tables and topics.
func (a *api) trusted(r *http.Request) bool {
	ok, err := a.allowed(r)
	return ok && err == nil
}

func note(name string, good bool) check {
	if good {
		return check{name: name}
	}
	return check{name: name, problem: "not connected"}
}

func reached(name string, good bool, s status.Status, trusted bool) check {
	if good {
		return check{name: name}
	}
	return check{name: name, problem: "not reached yet: " + describe(s, trusted)}
}

func describe(s status.Status, trusted bool) string {
	text := string(s.State)
	if s.Reason != "" {
		text += ": " + s.Reason
	}
	if s.Message != "" && trusted {
		text += ": " + s.Message
	}
	return text
}

func answer(w http.ResponseWriter, r *http.Request, checks []check) {
	good := true
	for _, c := range checks {
		good = good && c.problem == ""
	}
	answerBy(w, r, checks, good)
}

// answerBy prints `ok`, or what is wrong; with ?verbose a line for each check.
func answerBy(w http.ResponseWriter, r *http.Request, checks []check, good bool) {
	var b strings.Builder
	verbose := r.URL.Query().Has("verbose")
	for _, c := range checks {
		switch {
		case verbose && c.problem == "":
			fmt.Fprintf(&b, "[+] %s ok\n", c.name)
		case verbose:
			fmt.Fprintf(&b, "[-] %s: %s\n", c.name, c.problem)
		case c.problem != "":
			fmt.Fprintf(&b, "%s: %s\n", c.name, c.problem)
		}
	}
	if good {
		b.WriteString("ok\n")
	} else if verbose {
		b.WriteString("not ok\n")
	}
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	if !good {
		w.WriteHeader(http.StatusServiceUnavailable)
	}
	_, _ = w.Write([]byte(b.String()))
}
