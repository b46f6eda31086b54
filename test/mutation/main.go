// Command mutation changes the code of packages in small ways and looks whether their
// tests notice.
//
//	go run ./test/mutation -gremlins .bin/gremlins checkpoint deadletter
//
// It fails when fewer of the changes are noticed than the threshold asks for, of those in
// lines that a test runs. Changes that no test can notice are in equivalent.txt, each with
// its reason, and do not count; a line there that names none is a failure too.
package main

import (
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
)

// threshold is how many of a hundred changes the tests have to notice.
const threshold = 95

// targets are what a row's delivery hangs on.
var targets = []target{
	{name: "checkpoint"},
	{name: "checkpoint/stored"},
	{name: "deadletter"},
	{name: "deadletter/restore"},
	{name: "deadletter/waiting"},
	{name: "deadletter/overtaken"},
	{name: "debezium/takeover"},
	{name: "replication/pgoutput", files: []string{"decoder.go", "wire.go", "relation.go", "collect.go"}},
	{name: "relay/resume"},
	{name: "relay", files: []string{"session.go", "session_end.go", "for_delivery.go", "already_sent.go"}},
	{name: "relay/delivery", beside: "relay"},
}

// target is a package, or some files of it.
type target struct {
	name  string
	files []string // none: all

	// beside is a folder above the package, whose tests have to notice its changes too: they
	// run the package in simulations.
	beside string
}

//go:embed equivalent.txt
var equivalents string

func main() {
	gremlins := flag.String("gremlins", "gremlins", "the program")
	workers := flag.String("workers", "0", "how many changes are tried at a time; 0: as many as there are processors")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := start(ctx, *gremlins, *workers, flag.Args(), os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "mutation:", err)
		os.Exit(1)
	}
}

var errSurvived = errors.New("too many changes were not noticed")

func start(ctx context.Context, gremlins, workers string, names []string, out io.Writer) error {
	known, err := readEquivalents(equivalents)
	if err != nil {
		return err
	}
	for _, name := range names {
		if !slices.ContainsFunc(targets, func(t target) bool { return t.name == name }) {
			return fmt.Errorf("no target is called %q", name)
		}
	}
	var failed error
	for _, t := range targets {
		if len(names) > 0 && !slices.Contains(names, t.name) {
			continue
		}
		report, err := t.run(ctx, gremlins, workers)
		if err == nil && t.beside != "" {
			err = t.try(ctx, report, workers)
		}
		if err != nil {
			return fmt.Errorf("%s: %w", t.name, err)
		}
		o, err := t.judge(report, known, os.ReadFile)
		if err != nil {
			return fmt.Errorf("%s: %w", t.name, err)
		}
		o.print(out, t.name)
		if !o.passed() {
			failed = errSurvived
		}
	}
	return failed
}

// report is what gremlins writes.
type report struct {
	Files []struct {
		Name      string   `json:"file_name"`
		Mutations []change `json:"mutations"`
	} `json:"files"`
}

// change is one of a line of a file.
type change struct {
	Type   string `json:"type"`
	Status string `json:"status"`
	Line   int    `json:"line"`
	Column int    `json:"column"`
}

// run has the tests of the target run once for each change, without those that need a
// server.
func (t target) run(ctx context.Context, gremlins, workers string) (*report, error) {
	file, err := os.CreateTemp("", "mutation-*.json")
	if err != nil {
		return nil, err
	}
	defer func() { _ = os.Remove(file.Name()) }()
	defer file.Close()
	args := []string{"unleash", "--workers", workers, "--timeout-coefficient", "10", "--output", file.Name()}
	if t.beside != "" { // gremlins runs no tests but those of the package: see try
		args = append(args, "--dry-run", "--coverpkg", "./"+t.name)
	}
	excluded, err := t.excluded()
	if err != nil {
		return nil, err
	}
	for _, pattern := range excluded {
		args = append(args, "--exclude-files", pattern)
	}
	cmd := exec.CommandContext(ctx, gremlins, append(args, "./"+t.root())...)
	cmd.Env = append(os.Environ(), "GOFLAGS=-short", "CDC_RELAY_REQUIRE=")
	if text, err := cmd.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("%w\n%s", err, text)
	}
	var r report
	if err := json.NewDecoder(file).Decode(&r); err != nil {
		return nil, fmt.Errorf("read what gremlins found: %w", err)
	}
	return &r, nil
}

// root is the folder whose tests gremlins runs to see which lines they come to.
func (t target) root() string {
	if t.beside != "" {
		return t.beside
	}
	return t.name
}

// excluded are patterns for what is not asked for: files of the package, and packages below it
// and, with tests of a folder above, beside it.
func (t target) excluded() ([]string, error) {
	if t.beside != "" {
		return t.excludedAround()
	}
	all, err := os.ReadDir(t.name)
	if err != nil {
		return nil, err
	}
	var others []string
	for _, each := range all {
		name := each.Name()
		switch {
		case each.IsDir():
			others = append(others, `(^|/)`+regexp.QuoteMeta(name)+`/`)
		case t.files != nil && strings.HasSuffix(name, ".go") && !strings.HasSuffix(name, "_test.go") && !slices.Contains(t.files, name):
			others = append(others, `(^|/)`+regexp.QuoteMeta(name)+`$`)
		}
	}
	return others, nil
}

// excludedAround are patterns for all that lies beside the package in the folder above it. All of
// the package is asked for, and nothing lies below it.
func (t target) excludedAround() ([]string, error) {
	all, err := os.ReadDir(t.beside)
	if err != nil {
		return nil, err
	}
	var others []string
	for _, each := range all {
		switch name := each.Name(); {
		case each.IsDir() && t.beside+"/"+name != t.name:
			others = append(others, `^`+regexp.QuoteMeta(name)+`/`)
		case !each.IsDir():
			others = append(others, `^`+regexp.QuoteMeta(name)+`$`)
		}
	}
	return others, nil
}

// place names a change, whatever is added or removed above it.
type place struct {
	file   string // with its folder
	kind   string
	column string // in the line without its indent
	text   string // of the line
}

func (p place) String() string { return p.file + " " + p.kind + " " + p.column + " " + p.text }

// readEquivalents reads lines of FILE KIND COLUMN TEXT, each followed by one or more of
// its reason, which are indented.
func readEquivalents(text string) (map[place]bool, error) {
	known := map[place]bool{}
	var last *place
	for n, line := range strings.Split(text, "\n") {
		fields := strings.SplitN(line, " ", 4)
		switch {
		case strings.TrimSpace(line) == "" || strings.HasPrefix(line, "#"):
		case line[0] == ' ' || line[0] == '\t':
			last = nil
		case len(fields) < 4:
			return nil, fmt.Errorf("equivalent.txt, line %d: it wants file, kind, column and the line", n+1)
		case last != nil:
			return nil, fmt.Errorf("equivalent.txt: no reason is given for %s", last)
		default:
			last = &place{fields[0], fields[1], fields[2], fields[3]}
			known[*last] = true
		}
	}
	if last != nil {
		return nil, fmt.Errorf("equivalent.txt: no reason is given for %s", last)
	}
	return known, nil
}

// outcome is what happened to a target's changes.
type outcome struct {
	noticed, uncovered, equivalent int
	hung                           int // of noticed: the tests took too long
	lived                          []string
	stale                          []string // of equivalent.txt: no such change
}

func (t target) judge(r *report, known map[place]bool, read func(string) ([]byte, error)) (*outcome, error) {
	o, seen, used := &outcome{}, map[place]bool{}, map[place]bool{}
	for _, f := range r.Files {
		path := t.name + "/" + filepath.Base(f.Name)
		source, err := read(path)
		if err != nil {
			return nil, err
		}
		lines := strings.Split(string(source), "\n")
		for _, m := range f.Mutations {
			if m.Line < 1 || m.Line > len(lines) {
				return nil, fmt.Errorf("%s has no line %d", path, m.Line)
			}
			line := lines[m.Line-1]
			text := strings.TrimSpace(line)
			at := place{path, m.Type, fmt.Sprint(m.Column - strings.Index(line, text)), text}
			seen[at] = true
			switch {
			case m.Status == "KILLED":
				o.noticed++
			case m.Status == "TIMED OUT":
				o.noticed++
				o.hung++
			case m.Status == "LIVED" && known[at] && !used[at]: // another line may read the same
				used[at] = true
				o.equivalent++
			case m.Status == "LIVED":
				o.lived = append(o.lived, fmt.Sprintf("%s  (line %d)", at, m.Line))
			case m.Status == "NOT COVERED":
				o.uncovered++
			}
		}
	}
	for at := range known {
		if filepath.Dir(at.file) == t.name && !seen[at] {
			o.stale = append(o.stale, at.String())
		}
	}
	slices.Sort(o.stale)
	return o, nil
}

func (o *outcome) share() float64 {
	return 100 * float64(o.noticed) / float64(max(o.noticed+len(o.lived), 1))
}

func (o *outcome) passed() bool { return o.share() >= threshold && o.stale == nil }

func (o *outcome) print(out io.Writer, name string) {
	fmt.Fprintf(out, "%-12s %5.1f %% of %d changes were noticed (at least %d %%), %d because the tests took too long; %d more are equivalent, %d are in lines that no test without a server runs\n",
		name, o.share(), o.noticed+len(o.lived), threshold, o.hung, o.equivalent, o.uncovered)
	for _, each := range o.lived {
		fmt.Fprintln(out, "  lives:", each)
	}
	for _, each := range o.stale {
		fmt.Fprintln(out, "  equivalent.txt names no such change:", each)
	}
}
