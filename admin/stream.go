package admin

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/cdc-relay/cdc-relay/figures"
	"github.com/cdc-relay/cdc-relay/loopback"
	"github.com/cdc-relay/cdc-relay/tail"
)

const (
	maxStreams        = 16
	maxAddressStreams = 4
	slowReader        = 5 * time.Second
	keepAliveEvery    = 15 * time.Second
)

// streams counts those that are open, and shares what each second costs between them.
type streams struct {
	mu    sync.Mutex
	open  map[string]int // by address
	all   int
	made  time.Time // of status
	shown []byte
}

// left is how many more an address may open. Whoever comes by a proxy or a tunnel of this machine has the
// address of loopback, so that one has no limit of its own. Call it with the lock held.
func (s *streams) left(address string) int {
	left := maxStreams - s.all
	if !loopback.Is(address) {
		left = min(left, maxAddressStreams-s.open[address])
	}
	return max(0, left)
}

// leftFor is left for the sender of a request.
func (s *streams) leftFor(r *http.Request) int {
	address, _, _ := net.SplitHostPort(r.RemoteAddr)
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.left(address)
}

// number is how many are open.
func (s *streams) number() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.all
}

func (s *streams) enter(address string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.left(address) == 0 {
		return false
	}
	if s.open == nil {
		s.open = map[string]int{}
	}
	s.all++
	s.open[address]++
	return true
}

func (s *streams) leave(address string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.all--
	if s.open[address]--; s.open[address] == 0 {
		delete(s.open, address)
	}
}

// statusLine is the status as JSON on one line, made once for all that ask in the same moment.
func (a *api) statusLine(now time.Time) []byte {
	s := &a.console.streams
	s.mu.Lock()
	defer s.mu.Unlock()
	if now.Sub(s.made) >= 500*time.Millisecond || s.shown == nil {
		if line, err := json.Marshal(a.snapshot()); err == nil {
			s.shown, s.made = line, now
		}
	}
	return s.shown
}

// kinds are what a stream may have.
var kinds = []string{"status", "charts", "log"}

// stream sends what is new each second as server-sent events. The id is the number of the last
// line of the log, so that a browser that comes back gets those it has missed.
func (a *api) stream(w http.ResponseWriter, r *http.Request) {
	wanted := strings.Split(r.URL.Query().Get("kinds"), ",")
	if !r.URL.Query().Has("kinds") {
		wanted = []string{"status"}
	}
	for _, kind := range wanted {
		if !slices.Contains(kinds, kind) {
			problem(w, http.StatusBadRequest, "unknown_kind", "kinds: "+strconv.Quote(kind)+" is not allowed; allowed: "+strings.Join(kinds, ", "))
			return
		}
	}
	if slices.Contains(wanted, "log") && !a.mayRead(w, r) {
		return
	}
	number := int64(-1)
	if last := r.Header.Get("Last-Event-ID"); last != "" {
		n, err := strconv.ParseInt(last, 10, 64)
		if err != nil || n < 0 {
			problem(w, http.StatusBadRequest, "unknown_cursor", "Last-Event-ID: "+strconv.Quote(cut(last))+" is not allowed; allowed: the number of a line")
			return
		}
		number = n
	}
	a.send(w, r, func() func(time.Time) []byte {
		f := follower{a: a, wanted: wanted, number: number}
		return f.next
	})
}

// send is a stream: each second what next has, which open makes once the stream may begin. It ends with
// the request, with the right to it, and at a reader that is too slow.
func (a *api) send(w http.ResponseWriter, r *http.Request, open func() (next func(time.Time) []byte)) {
	address, _, _ := net.SplitHostPort(r.RemoteAddr)
	if !a.console.streams.enter(address) {
		w.Header().Set("Retry-After", "5")
		problem(w, http.StatusServiceUnavailable, "too_many_streams", fmt.Sprintf("%d streams are open, or %d of this address, which is the most: close a page, or ask /api/v1/status", maxStreams, maxAddressStreams))
		return
	}
	defer a.console.streams.leave(address)
	a.console.looked(a.now())
	out := http.NewResponseController(w)
	_ = out.SetReadDeadline(time.Time{}) // the request is over; its end is that of the connection
	w.Header().Set("Content-Type", "text/event-stream")
	w.Header().Set("X-Accel-Buffering", "no")
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	next := open()
	for now := a.now(); ; {
		if text := next(now); len(text) > 0 {
			_ = out.SetWriteDeadline(time.Now().Add(slowReader))
			if _, err := w.Write(text); err != nil {
				return
			}
			if out.Flush() != nil {
				return
			}
		}
		select {
		case <-r.Context().Done():
			return
		case now = <-tick.C:
		}
		if a.revoked(r) {
			return // the token was rotated, or the session is over
		}
	}
}

// tail sends a sample of the delivered rows, and how many there were.
func (a *api) tail(w http.ResponseWriter, r *http.Request) {
	if a.console.tools.Tail == nil {
		problem(w, http.StatusNotFound, "no_tail", "this program does not show delivered rows")
		return
	}
	var look *tail.Viewer
	defer func() {
		if look != nil {
			look.Close()
		}
	}()
	a.send(w, r, func() func(time.Time) []byte {
		look = a.console.tools.Tail.Open(r.URL.Query().Get("table"), r.URL.Query().Get("topic"))
		return func(time.Time) []byte {
			lines, passed := look.Next()
			data, err := json.Marshal(map[string]any{"lines": append([]tail.Line{}, lines...), "passed": passed})
			if err != nil {
				return nil
			}
			return []byte("event: rows\ndata: " + string(data) + "\n\n")
		}
	})
}

// follower is what one stream has sent.
type follower struct {
	a      *api
	wanted []string
	number int64 // of the last line of the log; -1: from the first one that is kept
	charts time.Time
	sent   time.Time
}

// next is what is new.
func (f *follower) next(now time.Time) []byte {
	var b bytes.Buffer
	event := func(kind string, data []byte) {
		b.WriteString("event: " + kind + "\ndata: ")
		b.Write(data)
		b.WriteString("\n\n")
	}
	for _, kind := range f.wanted {
		switch kind {
		case "status":
			event(kind, f.a.statusLine(now))
		case "charts":
			if at, last := f.a.console.lastSample(); at.After(f.charts) {
				f.charts = at
				event(kind, sampleJSON(at, last))
			}
		case "log":
			for _, line := range f.a.console.tools.Log.After(f.number) {
				f.number = line.Number
				if data, err := json.Marshal(line); err == nil {
					b.WriteString("id: " + strconv.FormatInt(line.Number, 10) + "\n")
					event(kind, data)
				}
			}
		}
	}
	if b.Len() == 0 && now.Sub(f.sent) >= keepAliveEvery {
		b.WriteString(": nothing new\n\n")
	}
	if b.Len() > 0 {
		f.sent = now
	}
	return b.Bytes()
}

func (c *Console) lastSample() (time.Time, figures.Sample) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.sampled.at, c.sampled.last
}
