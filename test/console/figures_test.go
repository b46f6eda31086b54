//go:build tools

package console

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cdc-relay/cdc-relay/relay/status"
	"github.com/cdc-relay/cdc-relay/sandbox"
	"github.com/cdc-relay/cdc-relay/test/harness"
	"github.com/cdc-relay/cdc-relay/test/harness/relaytest"
)

const (
	drainRows = 100_000
	rounds    = 5
	idleFor   = 150 * time.Second // longer than the two minutes after which Go collects in any case
)

// started is the real binary without tokens, with or without a console.
func started(t *testing.T, console bool) (p *relaytest.Pipeline, process *relaytest.Process, address string) {
	t.Helper()
	brokers := harness.Kfake(t, sandbox.KafkaOptions{Topics: map[string]int32{"order-events": 3}, Discard: true})
	p = relaytest.New(t, harness.Postgres(t, "15"), brokers, []string{"{table: public.outbox}"})
	p.YAML = strings.Replace(p.YAML, `http: {listen: ""}`, fmt.Sprintf("http: {listen: '127.0.0.1:0', console: {enabled: %t}}", console), 1)
	p.Setup(t)
	process = p.Exec(t, "run")
	relaytest.Eventually(t, "HTTP server", func() (bool, string) {
		if m := listening.FindStringSubmatch(process.Output()); m != nil {
			address = "http://" + m[1]
		}
		return address != "" && ask(address).State == status.Streaming, process.Output()
	})
	return p, process, address
}

func ask(address string) (st status.Status) {
	answer, err := http.Get(address + "/api/v1/status")
	if err != nil {
		return st
	}
	defer answer.Body.Close()
	_ = json.NewDecoder(answer.Body).Decode(&st)
	return st
}

// used is the time of a process on a processor.
func used(t *testing.T, pid int) (cpu time.Duration) {
	t.Helper()
	tasks, err := os.ReadDir(fmt.Sprintf("/proc/%d/task", pid))
	if err != nil {
		harness.NotHere(t, "figures are of Linux: "+err.Error())
	}
	for _, task := range tasks {
		text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/task/%s/schedstat", pid, task.Name()))
		if fields := strings.Fields(string(text)); len(fields) > 0 {
			n, _ := strconv.ParseInt(fields[0], 10, 64)
			cpu += time.Duration(n)
		}
	}
	return cpu
}

// load is that of the machine, without which no figure means anything.
func load() string {
	text, _ := os.ReadFile("/proc/loadavg")
	return strings.Join(strings.Fields(string(text))[:min(3, len(strings.Fields(string(text))))], " ")
}

// resident is what a process has in memory: of its own, and of the pages of its binary that it used.
func resident(pid int) (own, binary float64) {
	text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	for line := range strings.Lines(string(text)) {
		name, value, _ := strings.Cut(line, ":")
		n, _ := strconv.ParseFloat(strings.TrimSuffix(strings.TrimSpace(value), " kB"), 64)
		switch name {
		case "RssAnon":
			own = n * 1024 / 1e6
		case "RssFile":
			binary = n * 1024 / 1e6
		}
	}
	return own, binary
}

// Relays stand idle beside each other for minutes, half of them with a console at which nobody looks. Two of each
// show how far two that do the same differ.
func TestFigures_Idle(t *testing.T) {
	type side struct {
		console bool
		process *relaytest.Process
		cpu     time.Duration
	}
	var sides []*side
	for _, on := range []bool{false, true, false, true} {
		_, process, _ := started(t, on)
		sides = append(sides, &side{console: on, process: process})
	}
	<-time.After(10 * time.Second)
	for _, s := range sides {
		s.cpu = used(t, s.process.PID())
	}
	begin := time.Now()
	<-time.After(idleFor)
	var cost [2]float64
	for _, s := range sides {
		share := (used(t, s.process.PID()) - s.cpu).Seconds() / time.Since(begin).Seconds() * 100
		own, binary := resident(s.process.PID())
		t.Logf("console %t, nobody looks: %.4f %% of a core, %.2f MB resident of its own and %.2f MB of the binary (load %s)", s.console, share, own, binary, load())
		if s.console {
			cost[1] += share / 2
		} else {
			cost[0] += share / 2
		}
		if s.process.Ended() {
			t.Error("the relay ended: " + s.process.Output())
		}
	}
	t.Logf("a console at which nobody looks costs %.4f %% of a core", cost[1]-cost[0])
}

// view opens what a page on Now has open, and counts what comes.
func view(ctx context.Context, t *testing.T, address string, all *sync.WaitGroup) *atomic.Int64 {
	t.Helper()
	events := new(atomic.Int64)
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, address+"/api/v1/stream?kinds=status,charts,log", nil)
	if err != nil {
		t.Fatal(err)
	}
	answer, err := http.DefaultClient.Do(request)
	if err != nil || answer.StatusCode != http.StatusOK {
		t.Fatalf("open a stream: %v %+v", err, answer)
	}
	all.Go(func() {
		defer answer.Body.Close()
		lines := bufio.NewScanner(answer.Body)
		lines.Buffer(nil, 1<<20)
		for lines.Scan() {
			if strings.HasPrefix(lines.Text(), "event: status") {
				events.Add(1)
			}
		}
	})
	return events
}

// The same backlog is read again and again, in turns with no page, one and fifteen pages open.
func TestFigures_Drain(t *testing.T) {
	p, process, address := started(t, true)
	seconds, cores := map[int][]float64{}, map[int][]float64{}
	for round := range rounds + 1 {
		for _, viewers := range []int{0, 1, 15} {
			took, cpu := drained(t, p, process, address, viewers, round, drainRows)
			if round > 0 { // the first one warms up
				seconds[viewers], cores[viewers] = append(seconds[viewers], took.Seconds()), append(cores[viewers], cpu.Seconds())
			}
		}
	}
	for _, viewers := range []int{0, 1, 15} {
		slices.Sort(seconds[viewers])
		slices.Sort(cores[viewers])
		t.Logf("%2d pages open: median of %d drains of %d rows %.2f s (%.0f to %.0f rows/s), %.2f s on a processor (load %s)", viewers, rounds, drainRows,
			seconds[viewers][rounds/2], drainRows/seconds[viewers][rounds-1], drainRows/seconds[viewers][0], cores[viewers][rounds/2], load())
	}
}

// drained is how long a backlog takes, from its commit until everything is confirmed.
func drained(t *testing.T, p *relaytest.Pipeline, process *relaytest.Process, address string, viewers, round, rows int) (took, cpu time.Duration) {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	var all sync.WaitGroup
	defer all.Wait()
	defer stop()
	var opened []*atomic.Int64
	for range viewers {
		opened = append(opened, view(ctx, t, address, &all))
	}
	before := ask(address).EventsPublished
	p.DB.Exec(t, fmt.Sprintf("INSERT INTO outbox (aggregate_type, aggregate_id, event_type, payload) SELECT 'order', 'k' || n %% 1000, 'E%d', jsonb_build_object('n', n, 'x', repeat('y', 200)) FROM generate_series(1, %d) n", round, rows))
	began := time.Now()
	cpuBefore := used(t, process.PID())
	for ask(address).EventsPublished < before+int64(rows) {
		if time.Since(began) > relaytest.Patience || process.Ended() {
			t.Fatalf("%d of %d rows are delivered: %s", ask(address).EventsPublished-before, rows, process.Output())
		}
		<-time.After(20 * time.Millisecond)
	}
	took = time.Since(began)
	cpuAfter := used(t, process.PID())
	for i, events := range opened {
		if events.Load() == 0 {
			t.Errorf("page %d got no status", i)
		}
	}
	return took, cpuAfter - cpuBefore
}
