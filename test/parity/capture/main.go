// Command capture runs a real Debezium on a real Kafka and PostgreSQL and
// rewrites golden cases:
//
//	go run ./test/parity/capture [-cases DIR] [-check] [NAME…]
//
// Without names it captures all. A case's archive changes only where Debezium does
// something else than they say; what differs from run to run does not count.
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
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/cdc-relay/cdc-relay/test/parity/golden"
	"github.com/cdc-relay/cdc-relay/test/parity/stage"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "capture:", err)
		stop()
		os.Exit(1)
	}
}

type options struct {
	dir   string
	check bool
	log   bool
}

func run(ctx context.Context) error {
	var o options
	flag.StringVar(&o.dir, "cases", filepath.Join("test", "parity", "testdata"), "folder of cases")
	flag.BoolVar(&o.check, "check", false, "change no archive; fail where Debezium does something else")
	flag.BoolVar(&o.log, "log", false, "show the worker's log")
	flag.Parse()
	cases, err := choose(o.dir, flag.Args())
	if err != nil {
		return err
	}
	servers, err := stage.Start(ctx, stage.ServerOptions{Log: os.Stderr})
	if err != nil {
		return err
	}
	defer servers.Close()
	var log *os.File
	if o.log {
		log = os.Stderr
	}
	connect := servers.NewConnect(log)
	defer connect.Close()
	return captureAll(ctx, connect, cases, o)
}

func choose(dir string, names []string) ([]*golden.Case, error) {
	cases, err := golden.LoadAll(dir)
	if err != nil || len(names) == 0 {
		return cases, err
	}
	var chosen []*golden.Case
	for _, name := range names {
		at := slices.IndexFunc(cases, func(c *golden.Case) bool { return c.Name == name })
		if at < 0 {
			return nil, fmt.Errorf("%s has no case %s", dir, name)
		}
		chosen = append(chosen, cases[at])
	}
	return chosen, nil
}

func captureAll(ctx context.Context, connect *stage.Connect, cases []*golden.Case, o options) error {
	var changed, failed []string
	for i, c := range cases {
		began := time.Now()
		difference, err := captureOne(ctx, connect, c, o)
		verdict := "same"
		switch {
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case err != nil:
			failed = append(failed, c.Name)
			verdict = "FAILED: " + err.Error()
		case difference != "":
			changed = append(changed, c.Name)
			verdict = "changed: " + difference
		}
		fmt.Printf("%d/%d %s (%.0fs): %s\n", i+1, len(cases), c.Name, time.Since(began).Seconds(), verdict)
	}
	fmt.Printf("%d cases: %d the same, %d changed %s, %d failed %s\n", len(cases),
		len(cases)-len(changed)-len(failed), len(changed), strings.Join(changed, " "), len(failed), strings.Join(failed, " "))
	if len(failed) > 0 || o.check && len(changed) > 0 {
		return errors.New("not every case came out as it is stored")
	}
	return nil
}

func captureOne(ctx context.Context, connect *stage.Connect, c *golden.Case, o options) (string, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, 5*time.Minute, errors.New("the case took too long"))
	defer cancel()
	captured, err := connect.Capture(ctx, c, stage.CaptureWith{})
	if err != nil {
		return "", err
	}
	difference := c.Differs(captured.Records, captured.Error)
	if difference == "" && !bytes.Equal(c.Schemas, captured.Schemas) {
		difference = "registered schemas"
	}
	if difference == "" || o.check {
		return difference, nil
	}
	return difference, captured.Write(c)
}
