package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/cdc-relay/cdc-relay/sandbox"
)

// relays keeps a number of relay processes alive, as a supervisor would: one that
// ends is started again. It notes how each ended and what each said of itself.
type relays struct {
	binary string
	args   []string
	dir    string
	env    []string // of the next start; failpoints are set by it

	mu     sync.Mutex
	places []*place
	exits  []Exit
	states []State
	peak   int64
	starts []time.Time
	closed bool
	work   sync.WaitGroup
	quit   chan struct{}
}

// place is where one relay runs, again and again.
type place struct {
	number  int
	process *sandbox.Process // nil between two
	url     string
	asked   bool          // we ended it, so its end is no surprise
	hold    bool          // do not start it again yet
	changed chan struct{} // one token: hold or the process changed
	status  Status
	seen    time.Time
}

// Exit is the end of one process.
type Exit struct {
	At    time.Time `json:"at"`
	Relay int       `json:"relay"`
	Code  int       `json:"code"` // -1: a signal
	Asked bool      `json:"asked"`
	Last  string    `json:"last"` // end of its log
}

// Status is what of a relay's own account is looked at.
type Status struct {
	State   string `json:"state"`
	Reason  string `json:"reason"`
	Message string `json:"message"`
	LSN     struct {
		Confirmed string `json:"confirmed"`
	} `json:"lsn"`
	Reconnects int64 `json:"reconnects_total"`
	Overtaken  int64 `json:"overtaken_total"`
	Published  int64 `json:"events_published_total"`
	ParkedKeys int   `json:"parked_keys"`
}

// State is a status that differs from the one before it.
type State struct {
	At    time.Time `json:"at"`
	Relay int       `json:"relay"`
	Status
}

func newRelays(binary, dir string, n int, args []string) *relays {
	r := &relays{binary: binary, args: args, dir: dir, quit: make(chan struct{})}
	for i := range n {
		r.places = append(r.places, &place{number: i, hold: true, changed: make(chan struct{}, 1)})
	}
	for _, p := range r.places {
		r.work.Go(func() { r.keep(p) })
	}
	r.work.Go(r.watch)
	return r
}

func (p *place) wake() {
	select {
	case p.changed <- struct{}{}:
	default:
	}
}

// again is the pause before a relay that ended by itself is started anew.
const again = 500 * time.Millisecond

func (r *relays) keep(p *place) {
	for {
		r.mu.Lock()
		for p.hold && !r.closed {
			r.mu.Unlock()
			<-p.changed
			r.mu.Lock()
		}
		if r.closed {
			r.mu.Unlock()
			return
		}
		err := r.start(p)
		process := p.process
		r.mu.Unlock()
		if err != nil {
			r.note(Exit{At: time.Now(), Relay: p.number, Code: -2, Last: err.Error()})
			return
		}
		<-process.Done()
		r.mu.Lock()
		asked := p.asked
		p.process, p.asked, p.status = nil, false, Status{}
		r.mu.Unlock()
		r.note(Exit{At: time.Now(), Relay: p.number, Code: process.ExitCode(), Asked: asked, Last: r.logEnd(p)})
		if !asked {
			select {
			case <-time.After(again):
			case <-r.quit:
			}
		}
	}
}

func (r *relays) note(e Exit) {
	r.mu.Lock()
	r.exits = append(r.exits, e)
	r.mu.Unlock()
}

func (r *relays) logFile(p *place) string {
	return filepath.Join(r.dir, fmt.Sprintf("relay-%d.log", p.number))
}

// start is called with the lock held.
func (r *relays) start(p *place) error {
	port, err := sandbox.FreePort()
	if err != nil {
		return err
	}
	log, err := os.OpenFile(r.logFile(p), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	defer log.Close()
	cmd := exec.Command(r.binary, append(append([]string{"run"}, r.args...), "--set", "http.listen=127.0.0.1:"+strconv.Itoa(port))...)
	cmd.Env = append([]string{"PATH=" + os.Getenv("PATH"), "HOME=" + os.Getenv("HOME")}, r.env...)
	cmd.Stdout, cmd.Stderr = log, log
	if p.process, err = sandbox.Run(cmd); err != nil {
		return err
	}
	p.url = fmt.Sprintf("http://127.0.0.1:%d", port)
	r.starts = append(r.starts, time.Now())
	return nil
}

func (r *relays) logEnd(p *place) string {
	text, err := os.ReadFile(r.logFile(p))
	if err != nil {
		return ""
	}
	text = bytes.TrimSpace(text[max(0, len(text)-600):])
	return string(text)
}

// signal sends one to the relay at a place, and reports whether there was one.
func (r *relays) signal(n int, s syscall.Signal, ends bool) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	p := r.places[n]
	if p.process == nil {
		return false
	}
	p.asked = p.asked || ends
	return p.process.Signal(s) == nil
}

// hold keeps a place empty once its relay ended, and release fills it again.
func (r *relays) hold(n int, on bool) {
	r.mu.Lock()
	r.places[n].hold = on
	r.mu.Unlock()
	r.places[n].wake()
}

// ended waits until the relay at a place is gone.
func (r *relays) ended(n int, patience time.Duration) bool {
	r.mu.Lock()
	process := r.places[n].process
	r.mu.Unlock()
	if process == nil {
		return true
	}
	select {
	case <-process.Done():
		return true
	case <-time.After(patience):
		return false
	}
}

// leader is the place whose relay holds the slot, as far as is known.
func (r *relays) leader() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	best := 0
	for i, p := range r.places {
		if p.status.State == "streaming" || p.status.State == "blocked" {
			return i
		}
		if p.process != nil && p.status.State != "standby" {
			best = i
		}
	}
	return best
}

// state is what the relay at a place says it does.
func (r *relays) state(n int) string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.places[n].status.State
}

// look is how often the relays are asked for their status.
const look = 200 * time.Millisecond

func (r *relays) watch() {
	client := &http.Client{Timeout: time.Second}
	tick := time.NewTicker(look)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-r.quit:
			return
		}
		for _, p := range r.places {
			r.mu.Lock()
			process, url := p.process, p.url
			r.mu.Unlock()
			if process == nil {
				continue
			}
			peak := procBytes(process.PID(), "VmHWM:")
			status, err := ask(client, url)
			r.mu.Lock()
			r.peak = max(r.peak, peak)
			if err == nil && p.process == process {
				changed := status.State != p.status.State || status.Reason != p.status.Reason
				p.status, p.seen = status, time.Now()
				if changed {
					r.states = append(r.states, State{time.Now(), p.number, status})
				}
			}
			r.mu.Unlock()
		}
	}
}

func ask(client *http.Client, url string) (Status, error) {
	var s Status
	answer, err := client.Get(url + "/api/v1/status")
	if err != nil {
		return s, err
	}
	defer answer.Body.Close()
	return s, json.NewDecoder(answer.Body).Decode(&s)
}

// procBytes is one line of Linux's account of a process; 0 where there is none.
func procBytes(pid int, name string) int64 {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0
	}
	for line := range strings.Lines(string(text)) {
		if value, found := strings.CutPrefix(line, name); found {
			kib, _ := strconv.ParseInt(strings.TrimSuffix(strings.TrimSpace(value), " kB"), 10, 64)
			return kib << 10
		}
	}
	return 0
}

// Usage is what a process holds.
type Usage struct {
	Files      int `json:"files"`
	Goroutines int `json:"goroutines"`
}

func (r *relays) usage(n int) Usage {
	r.mu.Lock()
	process, url := r.places[n].process, r.places[n].url
	r.mu.Unlock()
	var u Usage
	if process == nil {
		return u
	}
	if files, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", process.PID())); err == nil {
		u.Files = len(files)
	}
	client := &http.Client{Timeout: 2 * time.Second}
	answer, err := client.Get(url + "/metrics")
	if err != nil {
		return u
	}
	defer answer.Body.Close()
	var text bytes.Buffer
	_, _ = text.ReadFrom(answer.Body)
	for line := range strings.Lines(text.String()) {
		if strings.HasPrefix(line, "go_goroutines") {
			u.Goroutines, _ = strconv.Atoi(strings.TrimSpace(line[strings.LastIndexByte(line, ' ')+1:]))
		}
	}
	return u
}

// close ends every relay: asks first, then by force. It returns the exit code of
// the one that held the slot.
func (r *relays) close() int {
	leader := r.leader()
	r.mu.Lock()
	if r.closed {
		r.mu.Unlock()
		return 0
	}
	r.closed = true
	for _, p := range r.places {
		if p.process != nil {
			p.asked = true
			_ = p.process.Signal(syscall.SIGCONT)
			_ = p.process.Signal(syscall.SIGTERM)
		}
	}
	r.mu.Unlock()
	close(r.quit)
	code := 0
	for i, p := range r.places {
		r.mu.Lock()
		process := p.process
		r.mu.Unlock()
		if process != nil {
			if !r.ended(i, 25*time.Second) {
				process.Kill()
			}
			if i == leader {
				code = process.ExitCode()
			}
		}
		p.wake()
	}
	r.work.Wait()
	return code
}
