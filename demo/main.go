// Command demo shows the relay at work on servers of its own: a real PostgreSQL
// in a temporary directory, in-process Kafka brokers for the occasion, an order
// service that writes its rows and its events in one transaction, and the relay
// as a process that can be killed.
//
// At the end it reads the topics and compares them with what was committed; the
// exit code is not 0 when an event is missing or out of order. It leaves nothing
// behind.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"
)

type options struct {
	postgresURL string
	duration    time.Duration
	rate        int
	plain       bool
}

// Why a demo ends.
var (
	errQuit       = errors.New("stopped by the user")
	errOver       = errors.New("the time is over")
	errParentGone = errors.New("the process that started the demo is gone")
)

func main() {
	if os.Getenv(relayVariable) != "" {
		os.Exit(relayMain())
	}
	var o options
	flag.StringVar(&o.postgresURL, "postgres-url", "", "use this PostgreSQL (superuser, wal_level=logical) instead of starting one")
	flag.DurationVar(&o.duration, "duration", 0, "end after this time, such as 15s")
	flag.IntVar(&o.rate, "rate", 20, "transactions a second")
	flag.BoolVar(&o.plain, "plain", false, "plain lines, as without a terminal")
	flag.Parse()
	if flag.NArg() > 0 || o.duration < 0 || o.rate < 1 || o.rate > 1000 {
		fmt.Fprintln(os.Stderr, "demo: --rate is 1 to 1000, --duration is positive, and there are no other arguments")
		flag.Usage()
		os.Exit(2)
	}
	os.Exit(run(o))
}

func run(o options) int {
	ctx, stop := context.WithCancelCause(context.Background())
	defer stop(nil)
	watchSignals(stop)
	watchParent(stop)

	err := perform(ctx, stop, o)
	if err != nil {
		fmt.Fprintln(os.Stderr, "demo:", err)
		return 1
	}
	return 0
}

// watchSignals stops at the first signal and gives up at the second, which leaves
// the cleaning up to the servers' guards.
func watchSignals(stop context.CancelCauseFunc) {
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
	go func() {
		<-signals
		stop(errQuit)
		<-signals
		restoreTerminal()
		os.Exit(1)
	}()
}

// watchParent stops when whoever started the demo is gone without a word.
func watchParent(stop context.CancelCauseFunc) {
	parent := os.Getppid()
	go func() {
		for range time.Tick(250 * time.Millisecond) {
			if os.Getppid() != parent {
				stop(errParentGone)
				return
			}
		}
	}()
}

// perform is the demo from curtain to curtain. Whatever it starts has ended when
// it returns.
func perform(ctx context.Context, stop context.CancelCauseFunc, o options) (err error) {
	s, err := build(ctx, o)
	if s != nil {
		defer func() { err = errors.Join(err, s.strike()) }()
	}
	if err != nil {
		if errors.Is(context.Cause(ctx), errQuit) {
			return nil
		}
		return err
	}
	show := newShow(s, o, stop)
	if o.duration > 0 {
		timer := time.AfterFunc(o.duration, func() { stop(errOver) })
		defer timer.Stop()
	}
	if err := show.run(ctx); err != nil {
		return err
	}
	if errors.Is(context.Cause(ctx), errParentGone) {
		return errParentGone
	}
	return show.verify()
}
