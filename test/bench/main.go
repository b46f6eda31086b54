// Command bench measures the relay as users run it: the static binary as a
// process of its own, a real PostgreSQL, a real Apache Kafka. Every figure stands
// beside the same figure of other contestants that read the same rows on the same
// servers in the same run, in turns.
//
//	go run ./test/bench                       # the default suites, at most 20 minutes
//	go run ./test/bench -full                 # every suite, two hours
//	go run ./test/bench -suites drain -rows 100000 -only relay-kafka,pg_recvlogical
//	CONTESTANT_mine='./my-relay' go run ./test/bench -suites drain
//
// docs/benchmarks.md says what the figures mean.
package main

import (
	"context"
	"debug/buildinfo"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strings"
	"syscall"
	"time"
)

func main() {
	if role := os.Getenv(roleVariable); role != "" {
		os.Exit(play(role))
	}
	o, err := parse(os.Args[1:])
	if errors.Is(err, flag.ErrHelp) {
		return
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(2)
	}
	if o.list {
		printList()
		return
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := do(ctx, o); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func do(ctx context.Context, o options) error {
	if info, ok := debug.ReadBuildInfo(); ok && raced(info) {
		return errors.New("this is a build with the race detector, which measures the detector: build without -race")
	}
	chosen, err := chooseSuites(o)
	if err != nil {
		return err
	}
	if err := o.canWrite(); err != nil {
		return err
	}
	var found *Results
	var failed error
	if o.read != "" {
		found, err = readResults(o.read)
	} else {
		found, failed, err = measure(ctx, o, chosen)
	}
	if err != nil {
		return err
	}
	if found.empty() {
		return errors.Join(failed, errors.New("there is no figure, and nothing is written"))
	}
	found.print(os.Stdout)
	if o.json != "" {
		if err := found.writeJSON(o.json); err != nil {
			return err
		}
	}
	if o.docs != "" {
		if err := found.writeDocs(o.docs); err != nil {
			return err
		}
	}
	return failed
}

func raced(info *debug.BuildInfo) bool {
	return slices.ContainsFunc(info.Settings, func(s debug.BuildSetting) bool { return s.Key == "-race" && s.Value == "true" })
}

// measure runs the suites. A suite that fails, or an interrupt, does not take the
// others' results away: failed says so at the end.
func measure(ctx context.Context, o options, chosen []suite) (found *Results, failed, err error) {
	dir, err := os.MkdirTemp("", "cdc-relay-bench-")
	if err != nil {
		return nil, nil, err
	}
	defer os.RemoveAll(dir)
	b := &bench{options: o, dir: dir, results: &Results{Started: time.Now().UTC().Format(time.RFC3339)}, missing: map[string]string{}, warmed: map[string]bool{}, lacking: map[string]error{}}
	if err := b.findRelay(ctx); err != nil {
		return nil, nil, err
	}
	if err := b.startServers(ctx); err != nil {
		return nil, nil, err
	}
	defer b.stopServers()
	b.enter()
	for _, s := range chosen {
		fmt.Printf("== %s: %s\n", s.name, s.about)
		began := time.Now()
		if err := s.run(ctx, b); err != nil {
			err = fmt.Errorf("suite %s: %w", s.name, err)
			fmt.Fprintln(os.Stderr, "bench:", err)
			failed = errors.Join(failed, err)
		}
		fmt.Printf("   (%.0f s)\n", time.Since(began).Seconds())
		if ctx.Err() != nil {
			failed = errors.Join(failed, context.Cause(ctx))
			break
		}
	}
	b.leave()
	return b.results, failed, nil
}

// findRelay builds the relay as a release is built, unless it was given.
func (b *bench) findRelay(ctx context.Context) error {
	if b.relay == "" {
		b.binary = filepath.Join(b.dir, "cdc-relay")
		args := []string{"build", "-trimpath", "-ldflags", "-s -w", "-o", b.binary}
		flags, err := os.ReadFile("cmd/cdc-relay/gcflags")
		if err != nil {
			return fmt.Errorf("read the compiler's flags, in the root of the project: %w", err)
		}
		for line := range strings.Lines(string(flags)) {
			if strings.HasPrefix(line, "-") {
				args = append(args, strings.TrimSpace(line))
			}
		}
		build := exec.CommandContext(ctx, "go", append(args, "github.com/cdc-relay/cdc-relay/cmd/cdc-relay")...)
		build.Env = append(os.Environ(), "CGO_ENABLED=0")
		if out, err := build.CombinedOutput(); err != nil {
			return fmt.Errorf("build the relay: %w\n%s", err, out)
		}
		return nil
	}
	var err error
	if b.binary, err = filepath.Abs(b.relay); err != nil {
		return err
	}
	info, err := buildinfo.ReadFile(b.binary)
	if err != nil {
		return fmt.Errorf("read the relay's build: %w", err)
	}
	if raced(info) {
		return fmt.Errorf("%s is a build with the race detector, which measures the detector: build it without -race", b.binary)
	}
	return nil
}
