package main

import (
	"context"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/cdc-relay/cdc-relay/sandbox"
)

// The kinds of this file have a server or the network fail in the middle of a backfill or a cutover.

var halfwayKinds = slices.Concat(
	halfway("pg_immediate", "immediate stop of PostgreSQL", "", func(ctx context.Context, w *world, _ *Done) error {
		return w.pg.Restart(context.WithoutCancel(ctx), sandbox.Immediate)
	}),
	halfway("broker_kill", "kill -9 of a broker", "apache", func(ctx context.Context, w *world, d *Done) error {
		k, i := someBroker(w, d)
		if err := k.Kill(i); err != nil {
			return err
		}
		rest(ctx, 500*ms)
		return k.Start(context.WithoutCancel(ctx), i)
	}),
	halfway("net_cut", "every connection is reset, three times", "", func(ctx context.Context, w *world, _ *Done) error {
		for range 3 {
			each(allProxies(w), (*sandbox.Proxy).Cut)
			rest(ctx, 400*ms)
		}
		return nil
	}),
	halfway("net_cut_inside", "every connection is reset in mid-message", "", func(ctx context.Context, w *world, d *Done) error {
		defer heal(allProxies(w))
		each(allProxies(w), func(p *sandbox.Proxy) {
			p.CutAfter(sandbox.ToClient, int64(1+d.N%20_000))
			p.CutAfter(sandbox.ToServer, int64(1+d.N%7_000))
		})
		rest(ctx, sec)
		return nil
	}),
	halfway("net_blackhole", "everything vanishes, both ways, to PostgreSQL and the brokers", "", func(ctx context.Context, w *world, d *Done) error {
		defer heal(allProxies(w))
		each(allProxies(w), func(p *sandbox.Proxy) {
			p.Blackhole(sandbox.ToClient)
			p.Blackhole(sandbox.ToServer)
		})
		rest(ctx, time.Duration(1+d.N%3)*sec)
		return nil
	}),
)

func allProxies(w *world) []*sandbox.Proxy { return append(w.kafka.Proxies(), w.pgProxy) }

// halfway is one fault in a backfill and in a cutover.
func halfway(name, about, brokers string, fails func(context.Context, *world, *Done) error) (both []*kind) {
	for _, o := range []oldTable{
		{command: []string{"backfill", "--all", "--yes", "--max-rate", "1000"}}, // some seconds
		{command: cutoverCommand, polled: true},
	} {
		o.halfway = fails
		verb := o.command[0]
		both = append(both, &kind{name: verb + "_" + name, about: about + ", in the middle of a " + verb, takes: onAllServers, brokers: brokers, run: func(ctx context.Context, w *world, d *Done) error {
			played := o
			return playOld(ctx, w, d, &played)
		}})
	}
	return both
}

// fails makes the fault once the command is in the middle of its work.
func (o *oldTable) fails(ctx context.Context, d *Done) error {
	under := o.sends
	if o.polled {
		under = o.cut
	}
	if !o.w.await(ctx, callLimit/2, func() bool { return under(ctx) }) {
		if ctx.Err() == nil {
			o.w.problem("old rows: %s was not in the middle of its work within %s", o.command[0], callLimit/2)
		}
		return nil
	}
	d.Detail = "in the middle"
	return o.halfway(ctx, o.w, d)
}

// sends reports whether a tenth of the old rows is in the topic.
func (o *oldTable) sends(ctx context.Context) bool {
	listed, err := o.w.admin.ListEndOffsets(ctx, o.topic)
	if err != nil {
		return false
	}
	n := int64(0)
	for _, p := range listed.Offsets().Sorted() {
		n += p.At
	}
	return n > oldRows/10
}

// cut reports whether new rows are marked.
func (o *oldTable) cut(ctx context.Context) (is bool) {
	conn, err := pgx.Connect(ctx, o.w.pg.URL(o.w.database))
	if err != nil {
		return false
	}
	defer conn.Close(context.WithoutCancel(ctx))
	err = conn.QueryRow(ctx, "SELECT count(*) > 0 FROM pg_trigger WHERE tgrelid = $1::regclass AND NOT tgisinternal", o.name).Scan(&is)
	return err == nil && is
}
