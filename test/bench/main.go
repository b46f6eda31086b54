// Command bench measures the relay as users run it: the static binary as a
// process of its own, a real PostgreSQL, and brokers in another process. It
// prints each figure beside its reference, measured in the same run.
//
//	go run ./test/bench            # everything, one million rows
//	go run ./test/bench -rows 100000 -only drain,latency
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"strings"

	"github.com/cdc-relay/cdc-relay/sandbox"
)

const brokerEnv = "CDC_RELAY_BENCH_BROKERS"

type options struct {
	rows    int
	only    string
	version string
	seconds int
}

func main() {
	if os.Getenv(brokerEnv) != "" {
		serveBrokers()
		return
	}
	var o options
	flag.IntVar(&o.rows, "rows", 1_000_000, "rows of the backlog and of the large transaction")
	flag.StringVar(&o.only, "only", "reader,drain,large,latency", "what to measure")
	flag.StringVar(&o.version, "postgres", "15", "major version of the server")
	flag.IntVar(&o.seconds, "seconds", 15, "length of the latency measurement")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := measure(ctx, o); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

// bench is what the measurements share.
type bench struct {
	options
	relay   string // path of the binary
	dir     string
	pg      *sandbox.Postgres
	brokers string
}

func measure(ctx context.Context, o options) error {
	b := &bench{options: o}
	var err error
	if b.dir, err = os.MkdirTemp("", "cdc-relay-bench-"); err != nil {
		return err
	}
	defer os.RemoveAll(b.dir)
	b.relay = filepath.Join(b.dir, "cdc-relay")
	build := exec.CommandContext(ctx, "go", "build", "-trimpath", "-ldflags", "-s -w", "-o", b.relay, "github.com/cdc-relay/cdc-relay/cmd/cdc-relay")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		return fmt.Errorf("build relay: %w\n%s", err, out)
	}
	b.pg, err = sandbox.StartPostgres(ctx, sandbox.PostgresOptions{Version: o.version, Log: os.Stderr, Settings: map[string]string{
		"max_wal_size": "16GB", "shared_buffers": "256MB",
	}})
	if err != nil {
		return err
	}
	defer b.pg.Close()
	version, err := b.pg.Version(ctx)
	if err != nil {
		return err
	}
	size, err := os.Stat(b.relay)
	if err != nil {
		return err
	}
	fmt.Printf("%s %s, %d cores; PostgreSQL %s; relay binary %.1f MB\n", runtime.GOOS, runtime.GOARCH, runtime.NumCPU(), version, float64(size.Size())/1e6)

	steps := []struct {
		name string
		run  func(context.Context) error
	}{{"reader", b.reader}, {"drain", b.drain}, {"large", b.large}, {"latency", b.latency}}
	for _, step := range steps {
		if !strings.Contains(","+o.only+",", ","+step.name+",") {
			continue
		}
		if err := step.run(ctx); err != nil {
			return fmt.Errorf("%s: %w", step.name, err)
		}
	}
	return nil
}

// withBrokers runs do against brokers in a process of their own, so that their
// memory and time are not the relay's.
func (b *bench) withBrokers(ctx context.Context, do func() error) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, self)
	cmd.Env = append(os.Environ(), brokerEnv+"=1")
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe() // its end tells the child to end
	if err != nil {
		return err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	defer func() {
		in.Close()
		_ = cmd.Wait()
	}()
	if _, err := fmt.Fscanln(out, &b.brokers); err != nil {
		return fmt.Errorf("start brokers: %w", err)
	}
	return do()
}

func serveBrokers() {
	k, err := sandbox.StartKafka(sandbox.KafkaOptions{Topics: map[string]int32{
		"order-events": 4, "customer-events": 4, "invoice-events": 4, "shipment-events": 4,
	}})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	defer k.Close()
	fmt.Println(strings.Join(k.Addrs(), ","))
	_, _ = io.Copy(io.Discard, os.Stdin)
}
