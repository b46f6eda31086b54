package main

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

type options struct {
	rows     int
	repeat   int
	suites   string
	only     string
	without  string
	version  string
	relay    string
	json     string
	docs     string
	read     string
	full     bool
	seconds  int
	outage   time.Duration
	pollRows int
	tier     int
	list     bool
}

// parse reads the command line and refuses what could not become a figure.
func parse(args []string) (options, error) {
	var o options
	set := flag.NewFlagSet("bench", flag.ContinueOnError)
	set.IntVar(&o.rows, "rows", 1_000_000, "rows of the backlog")
	set.IntVar(&o.repeat, "repeat", 3, "runs of each quick contestant, in the latency suite half as many; slow ones run once or twice")
	set.StringVar(&o.suites, "suites", "", "comma-separated; empty takes the default ones, see -list")
	set.StringVar(&o.only, "only", "", "contestants to run, comma-separated")
	set.StringVar(&o.without, "without", "", "contestants to leave out, comma-separated")
	set.StringVar(&o.version, "postgres", "15", "major version of the server")
	set.StringVar(&o.relay, "relay", "", "relay binary; empty builds it")
	set.StringVar(&o.json, "json", "", "write the results to this file")
	set.StringVar(&o.docs, "docs", "", "write tables and charts into this folder's benchmarks.md")
	set.StringVar(&o.read, "read", "", "measure nothing: take the results from this file, for -docs")
	set.BoolVar(&o.full, "full", false, "every suite")
	set.IntVar(&o.seconds, "seconds", 10, "length of each latency and idle measurement")
	set.DurationVar(&o.outage, "outage", 20*time.Second, "length of the broker outage; -full makes it 10m")
	set.IntVar(&o.pollRows, "poll-rows", 100, "rows that the polling contestant takes at a time")
	set.IntVar(&o.tier, "tier", 4, "how far the broker compiles its own code: 1 is ready sooner, 4 faster in the end")
	set.BoolVar(&o.list, "list", false, "list suites and contestants")
	if err := set.Parse(args); err != nil {
		return o, err
	}
	if set.NArg() > 0 {
		return o, fmt.Errorf("%q is no flag; suites are chosen with -suites", set.Arg(0))
	}
	given := map[string]bool{}
	set.Visit(func(f *flag.Flag) { given[f.Name] = true })
	if o.full && !given["outage"] {
		o.outage = 10 * time.Minute
	}
	return o, o.check(given)
}

// The writers of the latency suite number their rows, and a number in a payload has
// nine digits at most.
const (
	maxRows    = 99_000_000 // the backlog suite takes ten times as many
	maxSeconds = 180
)

func (o options) check(given map[string]bool) error {
	if o.read != "" {
		for name := range given {
			if !slices.Contains([]string{"read", "docs", "json"}, name) {
				return fmt.Errorf("-read measures nothing, so -%s would mean nothing", name)
			}
		}
	}
	for _, n := range []struct {
		name            string
		value, low, top int
	}{
		{"rows", o.rows, 1, maxRows}, {"repeat", o.repeat, 1, 100}, {"seconds", o.seconds, 1, maxSeconds},
		{"poll-rows", o.pollRows, 1, 1_000_000}, {"tier", o.tier, 1, 4},
	} {
		if n.value < n.low || n.value > n.top {
			return fmt.Errorf("-%s is %d, and must be %d to %d", n.name, n.value, n.low, n.top)
		}
	}
	if o.outage <= 0 {
		return fmt.Errorf("-outage is %s, and must be more than nothing", o.outage)
	}
	seen := map[string]bool{}
	for _, c := range contestants() {
		if seen[c.name] {
			return fmt.Errorf("CONTESTANT_%s: there is a contestant of that name; take another", c.name)
		}
		seen[c.name] = true
	}
	return nil
}

// canWrite says before a run what would else be known after it.
func (o options) canWrite() error {
	if o.json != "" {
		if info, err := os.Stat(filepath.Dir(o.json)); err != nil {
			return fmt.Errorf("write -json: %w", err)
		} else if !info.IsDir() {
			return fmt.Errorf("write -json: %s is no folder", filepath.Dir(o.json))
		}
	}
	if o.docs == "" {
		return nil
	}
	if _, _, err := readPage(o.docs); err != nil {
		return err
	}
	if _, err := readResults(resultsOf(o.docs)); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return nil
}

func chosenNames(list string) map[string]bool {
	names := map[string]bool{}
	for name := range strings.SplitSeq(list, ",") {
		if name = strings.TrimSpace(name); name != "" {
			names[name] = true
		}
	}
	return names
}
