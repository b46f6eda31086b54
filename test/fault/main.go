// Command fault runs the relay's binary between a real PostgreSQL and brokers
// while faults of every kind are made, and has an oracle that knows nothing of the
// relay judge what came of it.
//
//	go run ./test/fault                              # one seed
//	go run ./test/fault -seed 7 -for 5m              # seeds 7, 8, … for five minutes
//	go run ./test/fault -faults 'net_*,relay_kill' -postgres 15,18 -broker kfake,apache
//	go run ./test/fault -replay .bin/fault/7/plan.json -shrink
//	go run ./test/fault -list
//
// A seed decides workload, settings and schedule; the moment at which a fault hits
// the relay is the machine's. A failing run leaves its plan and everything that
// was seen in its folder.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

type flags struct {
	seed     uint64
	length   time.Duration
	total    time.Duration
	gap      time.Duration
	faults   string
	postgres string
	brokers  string
	out      string
	json     string
	large    int
	replay   string
	shrink   bool
	race     bool
	binary   string
	list     bool
	full     bool
	mutants  bool
	only     string
	budget   time.Duration
	huge     int

	guarantee string
	docs      string
}

// The guarantees that a run can be told to have.
const (
	atLeastOnce = "at_least_once"
	exactlyOnce = "exactly_once"
	mixed       = "mixed" // one seed in four has exactly_once
)

func main() {
	var f flags
	flag.Uint64Var(&f.seed, "seed", 0, "first seed; 0 draws one")
	flag.DurationVar(&f.length, "duration", 20*time.Second, "how long faults go on for each seed")
	flag.DurationVar(&f.total, "for", 0, "go on with the next seeds until this much time is gone")
	flag.DurationVar(&f.gap, "gap", 1500*time.Millisecond, "time between two faults, on average")
	flag.StringVar(&f.faults, "faults", "", "comma-separated kinds, or prefixes that end in *; empty: all")
	flag.StringVar(&f.postgres, "postgres", "15,18", "major versions, taken in turn")
	flag.StringVar(&f.brokers, "broker", "kfake", "kfake, apache, apache3; several are taken in turn")
	flag.StringVar(&f.out, "out", filepath.Join(".bin", "fault"), "folder for what failing seeds leave")
	flag.StringVar(&f.json, "json", "", "file for the figures as JSON")
	flag.IntVar(&f.large, "large", 3000, "rows of a large transaction")
	flag.StringVar(&f.replay, "replay", "", "run a stored plan again")
	flag.BoolVar(&f.shrink, "shrink", false, "drop actions from a failing plan as long as it fails")
	flag.BoolVar(&f.race, "race", false, "build the relay with the race detector")
	flag.StringVar(&f.binary, "binary", "", "relay to put to the test; empty: built from here")
	flag.BoolVar(&f.list, "list", false, "show the kinds of faults")
	flag.BoolVar(&f.full, "full", false, "the whole programme, within -budget")
	flag.BoolVar(&f.mutants, "mutants", false, "plant faults into the relay and see that each is found")
	flag.StringVar(&f.only, "only", "", "parts of -full, or names of mutants, comma-separated; empty: all")
	flag.DurationVar(&f.budget, "budget", time.Hour, "how long -full may take")
	flag.IntVar(&f.huge, "huge", 300_000, "rows of the transaction that one seed in eight has")
	flag.StringVar(&f.guarantee, "guarantee", mixed, "at_least_once, exactly_once, mixed")
	flag.StringVar(&f.docs, "docs", "", "write the figures into this file; with nothing else but -json, those that are stored there")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := start(ctx, f, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "fault:", err)
		os.Exit(1)
	}
}

var errFound = errors.New("a property does not hold")

func start(ctx context.Context, f flags, out io.Writer) error {
	if f.list {
		for _, k := range kinds {
			if k.special {
				continue
			}
			where := k.brokers
			if where == "" {
				where = "any"
			}
			fmt.Fprintf(out, "%-44s %-8s %s\n", k.name, where, k.about)
		}
		return nil
	}
	if f.docs != "" && !f.full {
		stored, err := load(f.json)
		if err != nil {
			return err
		}
		return stored.document(f.docs)
	}
	if f.guarantee != mixed && f.guarantee != atLeastOnce && f.guarantee != exactlyOnce {
		return fmt.Errorf("-guarantee %q: it takes %s, %s, %s", f.guarantee, atLeastOnce, exactlyOnce, mixed)
	}
	if f.seed == 0 {
		f.seed = 1 + rand.Uint64N(1_000_000)
	}
	if err := os.MkdirAll(f.out, 0o755); err != nil {
		return err
	}
	p := &programme{flags: f, out: out, servers: newServers(), figures: newFigures()}
	defer func() {
		if err := p.servers.close(); err != nil {
			fmt.Fprintln(out, "clean up:", err)
		}
	}()
	if f.mutants {
		return p.mutate(ctx)
	}
	var err error
	var more []string
	if f.race {
		more = append(more, "-race")
	}
	if p.binary = f.binary; p.binary == "" {
		if p.binary, err = build(ctx, f.out, more...); err != nil {
			return err
		}
	}
	switch {
	case f.full:
		err = p.everything(ctx)
	case f.replay != "":
		err = p.again(ctx)
	default:
		err = p.sample(ctx)
	}
	if err != nil && !errors.Is(err, errFound) && !f.full {
		return err
	}
	p.figures.finish()
	fmt.Fprint(out, p.figures)
	if stored := p.store(); stored != nil {
		return stored
	}
	if f.docs != "" && err == nil {
		return p.figures.document(f.docs)
	}
	return err
}

// programme is one call of the program.
type programme struct {
	flags
	out     io.Writer
	servers *servers
	figures *Figures
	binary  string
}

// sample runs one seed, or seeds until the time is gone.
func (p *programme) sample(ctx context.Context) error {
	began := time.Now()
	versions, brokers := strings.Split(p.postgres, ","), strings.Split(p.brokers, ",")
	var found error
	var longest time.Duration // a seed takes its servers' start and the reading of everything, too
	for i := 0; ; i++ {
		start := time.Now()
		plan, err := NewPlan(p.seed+uint64(i), Options{
			Duration: p.length, Gap: p.gap, Faults: list(p.faults), Large: p.large,
			Postgres: versions[i%len(versions)], Broker: brokers[i/len(versions)%len(brokers)], Huge: p.huge, Guarantee: p.guarantee,
		})
		if err != nil {
			return err
		}
		if err := p.one(ctx, plan); errors.Is(err, errFound) {
			found = err
		} else if err != nil {
			return err
		}
		longest = max(longest, time.Since(start))
		if time.Since(began)+longest >= p.total {
			return found
		}
	}
}

func list(text string) []string {
	if text == "" {
		return nil
	}
	return strings.Split(text, ",")
}

// one runs a plan, prints it when it fails, and adds to the figures.
func (p *programme) one(ctx context.Context, plan Plan) error {
	dir := filepath.Join(p.flags.out, strconv.FormatUint(plan.Seed, 10))
	if err := errors.Join(os.RemoveAll(dir), os.MkdirAll(dir, 0o755)); err != nil {
		return err
	}
	began := time.Now()
	v, err := run(ctx, p.servers, plan, p.binary, dir)
	if err != nil && ctx.Err() == nil { // servers that did not start in time prove nothing
		p.servers.forget(plan)
		fmt.Fprintf(p.out, "seed %d once more: %v\n", plan.Seed, err)
		v, err = run(ctx, p.servers, plan, p.binary, dir)
	}
	if err != nil {
		p.servers.forget(plan)
		return fmt.Errorf("seed %d: %w", plan.Seed, err)
	}
	p.figures.add(plan, v)
	fmt.Fprintf(p.out, "seed %d, PostgreSQL %s, %s: %d rows, %d faults, %d sessions, %d duplicates (at most %d), settled in %s, %s in all\n",
		plan.Seed, plan.Postgres, plan.Broker, v.Rows, len(plan.Actions), v.Sessions, v.Duplicates, v.Bound, time.Duration(v.Settled).Round(time.Millisecond), time.Since(began).Round(time.Second))
	if len(v.Violations) == 0 {
		return os.RemoveAll(dir)
	}
	p.servers.forget(plan)
	fmt.Fprintf(p.out, "FAILED: %s\n%s\nagain: go run ./test/fault -replay %s/plan.json\n", strings.Join(v.Violations, "\n        "), plan, dir)
	return errFound
}

// again runs a stored plan, and makes it smaller if it is told to.
func (p *programme) again(ctx context.Context) error {
	plan, err := loadPlan(p.replay)
	if err != nil {
		return err
	}
	if err := p.one(ctx, plan); err == nil || !p.shrink || !errors.Is(err, errFound) {
		return err
	}
	smaller := shrink(plan, func(candidate Plan) bool {
		for range 2 { // a moment that is missed once may be hit the next time
			if err := p.one(ctx, candidate); errors.Is(err, errFound) {
				return true
			} else if err != nil {
				return false
			}
		}
		return false
	})
	file := strings.TrimSuffix(p.replay, ".json") + ".shrunk.json"
	fmt.Fprintf(p.out, "smallest plan that fails, in %s:\n%s", file, smaller)
	return errors.Join(smaller.store(file), errFound)
}

// shrink drops actions, halves first, as long as the plan fails.
func shrink(plan Plan, fails func(Plan) bool) Plan {
	for size := (len(plan.Actions) + 1) / 2; size > 0; size /= 2 {
		for at := 0; at < len(plan.Actions); {
			candidate := plan
			candidate.Actions = append(append([]Action(nil), plan.Actions[:at]...), plan.Actions[min(at+size, len(plan.Actions)):]...)
			if fails(candidate) {
				plan = candidate
			} else {
				at += size
			}
		}
	}
	return plan
}
