package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"time"
)

// part is one piece of the whole programme.
type part struct {
	name  string
	about string
	share int // of the time that is left once all else is done; 0: as long as it takes
	run   func(*programme, context.Context) error
}

// parts stay within the budget: those that can be of any length come last and
// divide what the others left of it.
var parts = []part{
	{"kills", "200 kill -9 in one run, real broker", 0, func(p *programme, ctx context.Context) error { return p.kills(ctx, 200, false) }},
	{"kills_once", "200 kill -9 in one run with exactly_once, real broker", 0, func(p *programme, ctx context.Context) error { return p.kills(ctx, 200, true) }},
	{"stops", "50 SIGTERM in one run, real broker: no duplicate", 0, (*programme).stops},
	{"standby", "30 takeovers: clean stop, kill -9, frozen leader", 0, (*programme).takeovers},
	{"failpoints", "kill -9 at each named step, the 1st, 2nd, 7th time", 0, (*programme).steps},
	{"old_rows", "kill -9 of backfill and cutover at each named step, each with its relay afterwards", 0, (*programme).oldRows},
	{"delivered", "100 kill -9 each of retention (delete, archive, folder, bucket, partitions), mark, rejects, audit and replay at their named steps", 0, func(p *programme, ctx context.Context) error { return p.delivered(ctx, 100) }},
	{"bar", "targets for losses, memory and stops, at full size", 0, (*programme).bar},
	{"mutants", "bugs planted into the relay", 0, (*programme).mutate},
	{"kinds", "every kind of fault on in-process brokers, PostgreSQL 15 and 18", 8, func(p *programme, ctx context.Context) error {
		return p.seeds(ctx, "kfake", atLeastOnce)
	}},
	{"jobs", "every kind of fault while the relay deletes, exports and marks beside its stream, the first seed and each fourth with exactly_once", 3, func(p *programme, ctx context.Context) error {
		return p.seeds(ctx, "kfake", mixed, jobFaults()...)
	}},
	{"once", "kinds of faults with exactly_once, in-process brokers and a real one", 4, func(p *programme, ctx context.Context) error {
		return p.seeds(ctx, "kfake,apache", exactlyOnce)
	}},
	{"apache", "every kind that one real broker can have", 5, func(p *programme, ctx context.Context) error {
		return p.seeds(ctx, "apache", atLeastOnce)
	}},
	{"apache3", "every kind that three real brokers can have, the first seed and each fourth with exactly_once", 6, func(p *programme, ctx context.Context) error {
		return p.seeds(ctx, "apache3", mixed)
	}},
}

// least is what a part with a share gets even if the budget is gone.
const least = 90 * time.Second

// slack is what the parts with a share leave of the budget: their last seed may take
// longer than those before it, and what was begun has to be cleaned up.
const slack = 2 * time.Minute

// everything runs all parts, or those that were asked for, and goes on after one
// that found something. Parts that an earlier run left in the file of figures stay
// there until they run again.
func (p *programme) everything(ctx context.Context) error {
	began, shares := time.Now(), 0
	var chosen []part
	for _, each := range parts {
		if p.only == "" || slices.Contains(strings.Split(p.only, ","), each.name) {
			chosen = append(chosen, each)
			shares += each.share
		}
	}
	if len(chosen) == 0 {
		return fmt.Errorf("-only %s: no such part", p.only)
	}
	done := map[string]Part{}
	if p.json != "" && p.only != "" {
		if earlier, err := load(p.json); err == nil {
			for _, each := range earlier.Parts {
				done[each.Name] = each
			}
		} else if !errors.Is(err, os.ErrNotExist) {
			return err
		}
	}
	var found error
	for _, each := range chosen {
		inner := *p
		inner.figures, inner.only = newFigures(), ""
		inner.flags.out = filepath.Join(p.flags.out, each.name) // parts may run the same seeds
		if each.share > 0 {
			inner.total = max(least, (p.budget-slack-time.Since(began))*time.Duration(each.share)/time.Duration(shares))
			shares -= each.share
		}
		if err := os.MkdirAll(inner.flags.out, 0o755); err != nil {
			return err
		}
		fmt.Fprintf(p.out, "\n== %s: %s\n", each.name, each.about)
		err := each.run(&inner, ctx)
		outcome := "passed"
		switch {
		case errors.Is(err, errFound):
			outcome, found = "FAILED", errors.Join(found, fmt.Errorf("%s: %w", each.name, err))
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case err != nil:
			fmt.Fprintln(p.out, err)
			outcome, found = "NOT RUN TO ITS END", errors.Join(found, fmt.Errorf("%s: %w", each.name, err))
		}
		inner.figures.finish()
		fmt.Fprintf(p.out, "== %s %s in %s\n", each.name, outcome, inner.figures.Took)
		done[each.name] = Part{each.name, each.about, outcome, inner.figures}
		var all []Part
		for _, each := range parts {
			if d, ran := done[each.name]; ran {
				all = append(all, d)
			}
		}
		*p.figures = *sum(all)
		if err := p.store(); err != nil {
			return err
		}
	}
	if took := time.Since(began); took > p.budget {
		fmt.Fprintf(p.out, "the budget of %s was not kept: %s\n", p.budget, took.Round(time.Second))
	}
	return found
}

// store keeps the figures with what they were measured of, after each part, so
// that a run that is cut short has proven something.
func (p *programme) store() error {
	p.figures.Host = fmt.Sprintf("%d cores, %s/%s", runtime.NumCPU(), runtime.GOOS, runtime.GOARCH)
	p.figures.Day = time.Now().UTC().Format(time.DateOnly)
	if out, err := exec.Command("git", "describe", "--always", "--dirty").Output(); err == nil {
		p.figures.Commit = strings.TrimSpace(string(out))
	}
	if p.json == "" {
		return nil
	}
	return p.figures.store(p.json)
}

// seeds begins with exactly_once where the guarantees are mixed, so that a budget of
// one seed has it.
func (p *programme) seeds(ctx context.Context, brokers, guarantee string, faults ...string) error {
	inner := *p
	inner.brokers, inner.faults, inner.length, inner.guarantee = brokers, strings.Join(faults, ","), 30*time.Second, guarantee
	if guarantee == mixed {
		for !mixedIsOnce(inner.seed) {
			inner.seed++
		}
	}
	return inner.sample(ctx)
}

// jobFaults are the kinds of faults of jobs, and some of those that everything has to bear.
func jobFaults() []string {
	names := []string{"relay_kill", "relay_term", "pg_terminate*", "net_pg_cut*", "net_kafka_cut*", "leader_move"}
	for _, k := range upkeepKinds {
		names = append(names, k.name)
	}
	return names
}

// row is n times the same kind, one after another.
func row(kind string, n int, gap time.Duration, lasts time.Duration) []Action {
	var actions []Action
	for i := range n {
		jitter := time.Duration(i*7919%1000) * gap / 2000
		actions = append(actions, Action{Kind: kind, At: Span(time.Duration(i)*gap + jitter), For: Span(lasts), N: uint64(i)})
	}
	return actions
}

func (p *programme) plain(actions []Action, relays int) Plan {
	last := actions[len(actions)-1]
	return Plan{
		Seed: p.seed, Postgres: "18", Broker: "apache", Relays: relays, Writers: 2, Pause: Span(30 * time.Millisecond), Large: 500,
		Duration: last.At + Span(2*time.Second), Actions: actions, Settings: []string{"relay.max_in_flight_bytes=512KiB", "relay.drain_timeout=15s"},
	}
}

func (p *programme) kills(ctx context.Context, n int, once bool) error {
	plan := p.plain(row("relay_kill", n, 1100*time.Millisecond, 0), 1)
	plan.ExactlyOnce, plan.Patience = once, Span(3*killRecovery) // or a slow machine would add kill to kill
	if err := p.one(ctx, plan); err != nil {
		return err
	}
	if beyond := p.figures.beyond(n); beyond != "" {
		fmt.Fprintln(p.out, "FAILED:", beyond)
		return errFound
	}
	return nil
}

// The bounds of a kill -9 while brokers answer. Debezium needs 7 s and repeats some
// 2000 rows. A busy machine takes a multiple of what a quiet one does, so there is
// room: 0.4 s and 100 rows are usual.
const (
	killRecovery = 5 * time.Second // p99
	killRepeats  = 1000            // rows, on average: plain's window, of which each takes 2 KiB or more
)

// beyond names a bound that kills did not keep.
func (f *Figures) beyond(kills int) string {
	spans := slices.Sorted(slices.Values(f.Recovery))
	p99, repeats := time.Duration(quantile(spans, .99)), f.Duplicates/max(kills, 1)
	switch {
	case f.Kills < kills*9/10 || len(spans) < kills*9/10:
		return fmt.Sprintf("of %d kills %d hit a relay, and the recovery of %d was seen", kills, f.Kills, len(spans))
	case p99 > killRecovery:
		return fmt.Sprintf("the p99 of recovery is %s; the bound is %s", p99, killRecovery)
	case repeats > killRepeats:
		return fmt.Sprintf("%d duplicates a kill; the bound is %d", repeats, killRepeats)
	}
	return ""
}

// stops repeats nothing: a stop that drained leaves nothing to send again.
func (p *programme) stops(ctx context.Context) error {
	before := p.figures.Duplicates
	if err := p.one(ctx, p.plain(row("relay_term", 50, 1300*time.Millisecond, 0), 1)); err != nil {
		return err
	}
	if n := p.figures.Duplicates - before; n > 0 {
		fmt.Fprintf(p.out, "FAILED: %d duplicates after 50 clean stops\n", n)
		return errFound
	}
	return nil
}

// The bounds of a takeover on a live network.
const (
	stopTakeover = 2 * time.Second
	killTakeover = 5 * time.Second
	lostTakeover = senderTimeout + 5*time.Second
)

func (p *programme) takeovers(ctx context.Context) error {
	for _, each := range []struct {
		kind  string
		n     int
		gap   time.Duration
		limit time.Duration
	}{
		{"standby_takes_over_term", 12, 4 * time.Second, stopTakeover},
		{"standby_takes_over_kill", 12, 4 * time.Second, killTakeover},
		{"standby_takes_over_freeze", 6, 9 * time.Second, lostTakeover},
	} {
		plan := p.plain(row(each.kind, each.n, each.gap, time.Second), 2)
		plan.Broker = "kfake"
		if err := p.one(ctx, plan); err != nil {
			return err
		}
		spans := slices.Sorted(slices.Values(p.figures.Takeover[each.kind]))
		if len(spans) < each.n/2 {
			fmt.Fprintf(p.out, "FAILED: only %d of %d takeovers of %s were seen\n", len(spans), each.n, each.kind)
			return errFound
		}
		if longest := time.Duration(spans[len(spans)-1]); longest > each.limit {
			fmt.Fprintf(p.out, "FAILED: %s took %s; the bound is %s\n", each.kind, longest, each.limit)
			return errFound
		}
	}
	return nil
}

// steps kills the relay at every failpoint that it has, with either guarantee.
func (p *programme) steps(ctx context.Context) error {
	dir := filepath.Join(p.flags.out, "failpoints")
	binary, err := buildFailpoints(ctx, dir)
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	inner := *p
	inner.binary = binary
	var found error
	for i, guarantee := range []string{atLeastOnce, exactlyOnce} {
		plan := p.plain(stepsOf(guarantee), 1)
		plan.Seed += uint64(i) // a folder of its own
		plan.Broker, plan.ExactlyOnce = "kfake", guarantee == exactlyOnce
		switch err := inner.one(ctx, plan); {
		case errors.Is(err, errFound):
			found = err
		case err != nil:
			return err
		}
	}
	return found
}

// oldRows kills backfill and cutover at every step that they have, some 100 times.
func (p *programme) oldRows(ctx context.Context) error {
	var found error
	n := uint64(0)
	for _, version := range []string{"15", "18"} {
		for _, guarantee := range []string{atLeastOnce, exactlyOnce} {
			actions := slices.Concat(row("backfill_steps", 2, time.Second, 0), row("backfill_online_steps", 1, time.Second, 0), row("cutover_steps", 1, time.Second, 0))
			for i := range actions {
				actions[i].N = uint64(i)
			}
			plan := p.plain(actions, 1)
			plan.Seed, plan.Postgres, plan.Broker, plan.ExactlyOnce = plan.Seed+n, version, "kfake", guarantee == exactlyOnce
			n++
			switch err := p.one(ctx, plan); {
			case errors.Is(err, errFound):
				found = err
			case err != nil:
				return err
			}
		}
	}
	return found
}

// delivered kills each command that works on delivered rows so often in all, on either server and
// with either guarantee.
func (p *programme) delivered(ctx context.Context, times int) error {
	var found error
	for i, version := range []string{"15", "18"} {
		plan := p.plain(deliveredSteps(times/2), 1)
		plan.Seed, plan.Postgres, plan.Broker, plan.ExactlyOnce = plan.Seed+uint64(i), version, "kfake", i == 1
		plan.Writers, plan.Pause, plan.Large = 1, Span(time.Second), 1 // each command has a table and a writer of its own
		switch err := p.one(ctx, plan); {
		case errors.Is(err, errFound):
			found = err
		case err != nil:
			return err
		}
	}
	return found
}

// deliveredSteps are one action for each command. The ways of replay share what one command has.
func deliveredSteps(times int) (actions []Action) {
	replays := 0
	for _, c := range stepCases() {
		if c.again {
			replays++
		}
	}
	for i, c := range stepCases() {
		n := times
		if c.again {
			n = (times + replays - 1) / replays
		}
		actions = append(actions, Action{Kind: "steps_" + c.name, At: Span(i) * Span(time.Second), N: uint64(n*1000 + i)})
	}
	return actions
}

// stepsOf are the steps at which a relay with a guarantee dies, each the 1st, 2nd and
// 7th time that it comes there.
func stepsOf(guarantee string) []Action {
	var actions []Action
	for i, point := range failpoints {
		for _, times := range []uint64{1, 2, 7} {
			if !point.comes(guarantee) || times > 2 && strings.HasPrefix(point.name, "start") {
				continue // start: once in a session, and the back-off between sessions would take minutes
			}
			actions = append(actions, Action{Kind: "failpoint", At: Span(len(actions)) * Span(stepGap[guarantee]), N: uint64(i)*1000 + times})
		}
	}
	return actions
}

// stepGap is from one step to the next; what takes longer delays those after it.
var stepGap = map[string]time.Duration{atLeastOnce: 1500 * time.Millisecond, exactlyOnce: time.Second}

// stepFails makes the next relay die at a failpoint and waits until it did.
func stepFails(ctx context.Context, w *world, d *Done) error {
	point, times := failpoints[d.N/1000], d.N%1000
	d.Detail = fmt.Sprintf("%s:%d", point.name, times)
	w.relays.mu.Lock()
	w.relays.env = []string{failpointVariable + "=" + d.Detail}
	w.relays.mu.Unlock()
	w.relays.signal(0, syscall.SIGKILL, true)
	w.relays.ended(0, 5*time.Second)
	w.await(ctx, 5*time.Second, func() bool { return w.relays.signal(0, 0, true) })
	w.relays.mu.Lock()
	w.relays.env = nil
	doomed := w.relays.places[0].process
	w.relays.mu.Unlock()
	if doomed == nil {
		return nil // at once
	}
	if strings.HasSuffix(point.name, "_last_word") { // only a stop comes there
		rest(ctx, 500*time.Millisecond)
		w.relays.signal(0, syscall.SIGTERM, true)
	}
	if strings.HasPrefix(point.name, "start") { // once in a session
		for range times {
			select {
			case <-doomed.Done():
				return nil
			case <-time.After(700 * time.Millisecond):
			}
			_ = w.sql(ctx, "SELECT pg_terminate_backend(active_pid) FROM pg_replication_slots WHERE slot_name = $1", w.slot)
		}
	}
	select {
	case <-doomed.Done():
	case <-time.After(10 * time.Second):
		w.problem("the relay did not come to step %s within 10s", d.Detail)
	}
	return nil
}

// barTests are those whose size the environment sets.
var barTests = []struct{ pkg, run, env string }{
	{"./test/fault", "^TestTarget_", "CDC_RELAY_FAULT_SCALE=full"},
	{"./test/integration", "^TestTarget_", "CDC_RELAY_FAULT_SCALE=full"},
	{"./relay", "^TestSim_", "CDC_RELAY_TEST_SIM_SEEDS=10000"},
	{"./test/integration", "^TestIdle_OutboxFollowsTheWALOfOtherTables$", "CDC_RELAY_TEST_IDLE_MB=1024"},
	{"./test/integration", "^TestHuge_", "CDC_RELAY_FAULT_SCALE=full"},
}

var testOutcome = regexp.MustCompile(`(?m)^\s*--- (PASS|FAIL|SKIP): (\S+) \((\S+)\)|^\s+\S+\.go:\d+: (bar: .*)$`)

func (p *programme) bar(ctx context.Context) error {
	var found error
	for _, each := range barTests {
		cmd := exec.CommandContext(ctx, "go", "test", "-count=1", "-v", "-timeout", "45m", "-run", each.run, each.pkg)
		cmd.Env = append(os.Environ(), each.env)
		out, err := cmd.CombinedOutput()
		for _, m := range testOutcome.FindAllStringSubmatch(string(out), -1) {
			if m[4] != "" {
				fmt.Fprintln(p.out, m[4])
				p.figures.Bar = append(p.figures.Bar, strings.TrimPrefix(m[4], "bar: "))
			}
		}
		if err != nil {
			fmt.Fprintf(p.out, "FAILED: go test -run '%s' %s: %v\n%s\n", each.run, each.pkg, err, out)
			found = errFound
		}
	}
	return found
}
