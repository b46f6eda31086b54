package main

import (
	"context"
	"errors"
	"fmt"
	"syscall"
	"time"

	"github.com/cdc-relay/cdc-relay/sandbox"
)

// letterKinds are about rows that are rejected and set aside. A run that has one of them
// has writers whose rows are rejected all the time, among good ones; one redrive at a
// time works on a source, as the documentation asks for.
var letterKinds = []*kind{
	{name: "letters_redrive", about: "dead letters are re-driven while the relay runs", takes: onLetters, letters: true, most: sec, run: func(ctx context.Context, w *world, d *Done) error {
		return w.withoutLimit(ctx, d, func() error {
			d.hold(ctx) // rows that were refused are not, and their keys may be parked
			r, err := w.redrive(ctx, w.relays.args, 0, everyLetter...)
			d.Detail = fmt.Sprintf("code %d", r.Code)
			d.Took = Span(r.Ended.Sub(r.Began))
			return err
		})
	}},
	{name: "letters_redrive_kill", about: "kill -9 of a redrive at a random step, three times, and another one", takes: onLetters, letters: true, run: func(ctx context.Context, w *world, d *Done) error {
		return w.withoutLimit(ctx, d, func() error {
			killed := 0
			for i := range 3 {
				r, err := w.redrive(ctx, w.relays.args, killAfter(d.N, i), everyLetter...)
				if err != nil {
					return err
				}
				if r.Code == -1 {
					killed++
				}
			}
			d.Detail = fmt.Sprintf("%d of 3 were killed", killed)
			_, err := w.redrive(ctx, w.relays.args, 0, everyLetter...)
			return err
		})
	}},
	{name: "letters_relay_kill", about: "kill -9 of the relay while it rejects rows, twice", takes: []string{"letters", "relay"}, letters: true, most: 300 * ms, run: func(ctx context.Context, w *world, d *Done) error {
		for i := range 2 {
			w.await(ctx, 5*sec, func() bool { return w.relays.state(w.relays.leader()) == "streaming" })
			if err := w.refuse(ctx, d); err != nil {
				return err
			}
			rest(ctx, killAfter(d.N, i)/3)
			n := w.relays.leader()
			w.relays.signal(n, syscall.SIGKILL, true)
			w.relays.ended(n, 5*sec)
			d.hold(ctx)
		}
		return nil
	}},
	{name: "letters_discard", about: "one letter of a key is discarded, others of it wait", takes: onLetters, letters: true, run: func(ctx context.Context, w *world, d *Done) error {
		if err := w.refuse(ctx, d); err != nil {
			return err
		}
		var found []listed
		w.await(ctx, 5*sec, func() bool {
			found, _ = w.waiting(ctx)
			return len(found) > 0
		})
		if len(found) == 0 {
			d.Detail = "no letter waited"
			return nil
		}
		one := found[d.N%uint64(len(found))]
		w.box.mu.Lock()
		w.box.discarded[one.Event] = true // it may be marked although the command fails
		w.box.mu.Unlock()
		r, err := w.redrive(ctx, w.relays.args, 0, append(one.flags(), "--discard", "--yes")...)
		d.Detail = fmt.Sprintf("%s at %d/%d, code %d", one.Event, one.Partition, one.Offset, r.Code)
		return err
	}},
	{name: "letters_two_pipelines", about: "another relay and its slot share the dead-letter topic, and both are re-driven", takes: []string{"letters", "kafka", "kafkanet", "pgnet", "postgres"}, letters: true, run: twoPipelines},
	{name: "letters_broker_restart", about: "brokers restart during a redrive", takes: []string{"letters", "kafka", "kafkanet"}, letters: true, least: 200 * ms, most: sec, run: func(ctx context.Context, w *world, d *Done) error {
		return w.withoutLimit(ctx, d, func() error {
			restarted := make(chan error, 1)
			go func() {
				rest(ctx, killAfter(d.N, 0))
				restarted <- w.restartBrokers(ctx, d)
			}()
			r, err := w.redrive(ctx, w.relays.args, 0, everyLetter...)
			d.Detail = fmt.Sprintf("code %d", r.Code)
			d.Took = Span(r.Ended.Sub(r.Began))
			if err = errors.Join(err, <-restarted); err != nil || r.Code == 0 {
				return err
			}
			_, err = w.redrive(ctx, w.relays.args, 0, everyLetter...)
			return err
		})
	}},
}

var onLetters = []string{"letters"}

// killAfter is from a command's start to its end by kill -9: between the first reading of
// its configuration and the last marker, on most machines.
func killAfter(n uint64, i int) time.Duration {
	return time.Duration(40+(n>>(16*i))%700) * ms
}

// withoutLimit writes rows that are refused, gives them time to be set aside, and has the
// topics take them while do is at work. Rows without a topic get one, half of them.
func (w *world) withoutLimit(ctx context.Context, d *Done, do func() error) error {
	if err := w.refuse(ctx, d); err != nil {
		return err
	}
	rest(ctx, 300*ms)
	narrowed, err := w.widen(ctx, w.topics...)
	if err == nil {
		if err = w.mend(ctx, false); err == nil {
			err = do()
		}
	}
	return errors.Join(err, narrowed())
}

// restartBrokers stops a broker and starts it again; those in our process cannot, and go
// away for as long.
func (w *world) restartBrokers(ctx context.Context, d *Done) error {
	if k, ok := w.kafka.(*sandbox.Cluster); ok {
		i := int(d.N % uint64(k.Brokers()))
		if err := k.Stop(i); err != nil {
			return err
		}
		d.hold(ctx)
		return k.Start(context.WithoutCancel(ctx), i)
	}
	defer heal(w.kafka.Proxies())
	each(w.kafka.Proxies(), func(p *sandbox.Proxy) {
		p.Refuse()
		p.Cut()
	})
	d.hold(ctx)
	return nil
}
