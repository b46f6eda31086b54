// Command random compares the relay with a real Debezium on what nobody thought
// of: it makes tables, EventRouter configurations and rows from a seed, sends them
// through both, and compares every byte.
//
//	go run ./test/parity/random [-seed N] [-configs N] [-rows N] [-out DIR]
//
// A configuration that comes out differently is kept in DIR as a golden case. The
// same seed makes the same cases.
package main

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/cdc-relay/cdc-relay/test/parity"
	"github.com/cdc-relay/cdc-relay/test/parity/golden"
	"github.com/cdc-relay/cdc-relay/test/parity/stage"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "random:", err)
		stop()
		os.Exit(1)
	}
}

type options struct {
	seed    uint64
	configs int
	rows    int
	out     string
}

func run(ctx context.Context) error {
	var o options
	flag.Uint64Var(&o.seed, "seed", uint64(time.Now().Unix()), "of the first configuration; the next one has the next seed")
	flag.IntVar(&o.configs, "configs", 20, "how many configurations")
	flag.IntVar(&o.rows, "rows", 12, "rows of each")
	flag.StringVar(&o.out, "out", filepath.Join(os.TempDir(), "parity-random"), "folder for cases that differ")
	flag.Parse()
	servers, err := stage.Start(ctx, stage.ServerOptions{Log: os.Stderr})
	if err != nil {
		return err
	}
	defer servers.Close()
	connect := servers.NewConnect(nil)
	defer connect.Close()
	return compareAll(ctx, servers.Lane, connect, o)
}

// sums are the figures of a run.
type sums struct{ configs, rows, records, refused, differ, failed int }

func compareAll(ctx context.Context, lane *stage.Lane, connect *stage.Connect, o options) error {
	var sum sums
	for seed := o.seed; seed < o.seed+uint64(o.configs); seed++ {
		began := time.Now()
		verdict, err := compareOne(ctx, lane, connect, o, seed, &sum)
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if err != nil {
			sum.failed++
			verdict = "FAILED: " + err.Error()
		}
		fmt.Printf("seed %d (%.1fs): %s\n", seed, time.Since(began).Seconds(), verdict)
	}
	fmt.Printf("seeds %d to %d: %d configurations, %d rows, %d records of Debezium, which refused %d configurations; %d differ, %d could not be run\n",
		o.seed, o.seed+uint64(o.configs)-1, sum.configs, sum.rows, sum.records, sum.refused, sum.differ, sum.failed)
	if sum.differ+sum.failed > 0 {
		return errors.New("not every configuration came out the same")
	}
	return nil
}

func compareOne(ctx context.Context, lane *stage.Lane, connect *stage.Connect, o options, seed uint64, sum *sums) (string, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, 3*time.Minute, errors.New("the configuration took too long"))
	defer cancel()
	made := generate(seed, o.rows)
	c, err := made.write(filepath.Join(o.out, fmt.Sprintf("random-%d%s", seed, golden.Ext)))
	if err != nil {
		return "", err
	}
	captured, err := connect.Capture(ctx, c, stage.CaptureWith{Enough: made.inserts})
	if err != nil {
		return "", fmt.Errorf("debezium: %w", err)
	}
	markUnprintable(captured.Records)
	if err := captured.Write(c); err != nil {
		return "", err
	}
	if c, err = golden.Load(c.Path); err != nil {
		return "", err
	}
	var log bytes.Buffer
	out, err := parity.Relay(ctx, lane, c, parity.RelayWith{Log: &log})
	if err != nil {
		return "", fmt.Errorf("relay: %w\n%s", err, &log)
	}
	sum.configs++
	sum.rows += made.inserts
	sum.records += len(captured.Records)
	if c.Error != "" {
		sum.refused++
	}
	if problem := parity.Judge(c, out); problem != "" {
		sum.differ++
		return fmt.Sprintf("DIFFERS, see %s: %s", c.Path, problem), keep(c.Path, out.YAML)
	}
	return summary(c), os.Remove(c.Path)
}

// keep adds the relay's configuration to a case.
func keep(path string, config []byte) error {
	files, err := golden.ReadFiles(path)
	if err != nil {
		return err
	}
	files[golden.RelayConfig] = config
	return files.Write(path)
}

func summary(c *golden.Case) string {
	text := fmt.Sprintf("same, %d records", len(c.Records))
	if c.Error != "" {
		text += ", then refused: " + c.Error[strings.LastIndexByte(c.Error, '\n')+1:]
	}
	return text
}

// markUnprintable names as volatile what Java prints as an address in memory.
func markUnprintable(records []golden.Record) {
	const address = "[B@"
	for i := range records {
		r := &records[i]
		if strings.Contains(string(r.Key.Raw), address) {
			r.Volatile = append(r.Volatile, "key", "partition")
		}
		if strings.Contains(string(r.Value.Raw), address) {
			r.Volatile = append(r.Volatile, "value")
		}
		for _, h := range r.Headers {
			if strings.Contains(string(h.Value.Raw), address) {
				r.Volatile = append(r.Volatile, "headers."+h.Name)
			}
		}
	}
}
