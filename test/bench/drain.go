package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/twmb/franz-go/pkg/kadm"
)

// drainLimit is how long a contestant may take for a backlog at least.
const drainLimit = 2 * time.Minute

// trial is one run of one contestant over a workload.
type trial struct {
	b  *bench
	w  *workload
	c  contestant
	to *cluster

	topics []string
	before kadm.ListedOffsets
	base   int64
	began  time.Time
}

// begin notes where everything stands.
func (t *trial) begin(ctx context.Context) error {
	if t.to.admin != nil {
		var err error
		if t.before, t.base, err = t.to.offsets(ctx, t.topics); err != nil {
			return err
		}
	}
	t.began = time.Now()
	return nil
}

// drain has a contestant read the backlog once. watch, if not nil, runs beside it
// and is told when it is over.
func (w *workload) drain(ctx context.Context, c contestant, watch func(ctx context.Context, r *running) error) (Run, error) {
	to, err := w.b.brokers(ctx, c.sink)
	if err != nil {
		return Run{}, err
	}
	t := &trial{b: w.b, w: w, c: c, to: to, topics: w.topicNames()}
	if err := to.topics(ctx, t.topics, 4); err != nil {
		return Run{}, err
	}
	slot, err := w.slot(ctx)
	if err != nil {
		return Run{}, err
	}
	run, err := t.run(ctx, slot, watch)
	if err == nil && to.admin != nil {
		to.forget(ctx, t.topics)
	}
	if dropErr := w.drop(ctx, slot); err == nil {
		err = dropErr
	}
	return run, err
}

func (t *trial) run(ctx context.Context, slot string, watch func(context.Context, *running) error) (Run, error) {
	stood := func() (time.Duration, error) { return 0, nil }
	if t.c.confirms {
		var err error
		if stood, err = t.w.watchDrain(ctx, slot); err != nil {
			return Run{}, err
		}
		defer func() { _, _ = stood() }()
	}
	if err := t.begin(ctx); err != nil {
		return Run{}, err
	}
	r, err := t.c.start(ctx, t.b, job{w: t.w, slot: slot, topics: t.topics, to: t.to, begin: t.begin})
	if err != nil {
		return Run{}, err
	}
	g := newGauge(r.pid, t.to.pid, t.w.backends(ctx))
	bounded, cancel := context.WithTimeout(ctx, drainLimit+t.b.outage+time.Duration(t.w.rows)*200*time.Microsecond)
	defer cancel()
	bounded, abandon := context.WithCancelCause(bounded)
	defer abandon(nil)
	watched := make(chan error, 1)
	go func() {
		var err error
		if watch != nil {
			if err = watch(bounded, r); err != nil {
				abandon(err)
			}
		}
		watched <- err
	}()
	first, err := t.wait(bounded, r)
	took := time.Since(t.began)
	use := g.usage()
	still, unseen := stood()
	if unseen != nil {
		still = 0 // no figure, as with the allocations
	}
	allocs := 0.0
	if err == nil && r.metrics != "" {
		allocs, _ = allocated(ctx, r.metrics) // a column without a figure is no failure
	}
	if err != nil {
		abandon(err)
	}
	if seen := <-watched; err == nil {
		err = seen
	}
	if r.stop != nil {
		err = errors.Join(err, r.stop())
	}
	if err == nil && t.to.admin != nil {
		err = t.verify(ctx)
	}
	if err != nil {
		return Run{}, err
	}
	if t.c.first {
		took -= first
	}
	run := t.w.figures(took, use, r.spent)
	run.AllocsPerRow = allocs / float64(t.w.rows)
	run.StoodStill = still.Seconds()
	return run, nil
}

// verify reads back what the run sent.
func (t *trial) verify(ctx context.Context) (err error) {
	account := newLedger(t.w.rows)
	account.ids = !t.c.foreign
	if f, encoded := formats[t.c.name]; encoded {
		if account.number, err = f.number(t.b, t.w.shape); err != nil {
			return err
		}
	}
	if err := t.to.verify(ctx, t.topics, t.before, account); err != nil {
		return err
	}
	return account.verdict()
}

// backends gives those of the workload's database but our own; nil where the
// server does not run here.
func (w *workload) backends(ctx context.Context) func() []int {
	if !w.b.pg.Ours() {
		return nil
	}
	return func() []int {
		rows, err := w.conn.Query(ctx, "SELECT pid FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()")
		if err != nil {
			return nil
		}
		pids, _ := pgx.CollectRows(rows, pgx.RowTo[int])
		return pids
	}
}

// lookEvery spares the broker: each look asks it for every partition, and a hundred looks
// a second at 16 of them were a fifth of its time.
func lookEvery(topics int) time.Duration {
	const few = 50 * time.Millisecond
	return min(max(few, few*time.Duration(topics)/20), 10*few)
}

// wait returns when the backlog has arrived, and how long the first record took.
func (t *trial) wait(ctx context.Context, r *running) (first time.Duration, err error) {
	if r.finished != nil {
		return 0, r.finished(ctx)
	}
	tick := time.NewTicker(lookEvery(len(t.topics)))
	defer tick.Stop()
	late := func(arrived int64) error {
		return fmt.Errorf("%w, with %d of %d rows; it said: %s", context.Cause(ctx), arrived, t.w.rows, r.log)
	}
	arrived := int64(0)
	for ended := false; ; {
		select {
		case <-tick.C:
		case <-r.exited: // it may have been through
			if ended {
				return first, fmt.Errorf("it ended with %d of %d rows: %s", arrived, t.w.rows, r.log)
			}
			ended = true
		case <-ctx.Done():
			return first, late(arrived)
		}
		_, now, err := t.to.offsets(ctx, t.topics)
		if err != nil {
			switch {
			case ctx.Err() != nil:
				return first, late(arrived)
			case t.c.sink == toKafka:
				continue // an outage is part of one suite
			}
			return first, err
		}
		if arrived = now - t.base; arrived > 0 && first == 0 {
			first = time.Since(t.began)
		}
		if arrived >= int64(t.w.rows) {
			return first, nil
		}
	}
}

func (w *workload) figures(took time.Duration, use map[string]Usage, spent time.Duration) Run {
	u := use[groupContestant]
	u.CPU -= spent
	use[groupContestant] = u
	run := Run{Seconds: took.Seconds(), RowsPerSecond: float64(w.rows) / took.Seconds(), MBPerSecond: w.megabytes() / took.Seconds(),
		CPUPerMillion: map[string]float64{}, PeakMB: map[string]float64{}}
	for group, u := range use {
		run.CPUPerMillion[group] = u.CPU.Seconds() * 1e6 / float64(w.rows)
		run.PeakMB[group] = float64(u.Peak) / 1e6
	}
	return run
}

// Whoever meets a broker that has just started pays for the compiling of its code:
// three times the CPU time at first, and still twice in the second drain.
const (
	warmDrains  = 6
	warmBacklog = 500_000 // a smaller one warms nothing
)

// warm has the relay drain the backlog, uncounted, by each listener of the broker that is taken: TLS
// is code of its own. In the suite backfill the command does so, in transactions as well.
func (b *bench) warm(ctx context.Context, w *workload, taking []contestant) error {
	if w.rows < warmBacklog {
		return nil
	}
	for _, c := range taking {
		if c.name != relayKafka && c.name != relayTLS && c.name != backfillAny && c.name != backfillOnce || b.warmed[c.name] {
			continue
		}
		b.warmed[c.name] = true
		if err := b.warmBy(ctx, w, c); err != nil {
			return err
		}
	}
	return nil
}

// warmBy drains until two drains in succession have not cost the broker clearly less than those before.
func (b *bench) warmBy(ctx context.Context, w *workload, c contestant) error {
	best := 0.0
	for round, in := 0, 0; round < warmDrains && in < 2; round++ {
		run, err := w.drain(ctx, c, nil)
		if err != nil {
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
			err = fmt.Errorf("warm the broker: %w", err)
			b.refuse(w.database, c, err)
			return fmt.Errorf("%s: %w", c.name, err)
		}
		fmt.Printf("   %-18s %s\n", "(not counted)", run)
		in++
		if spent := run.CPUPerMillion[groupBroker]; best == 0 || spent < best*0.85 {
			best, in = spent, 0
		}
	}
	return nil
}

// compare runs contestants over one backlog in turns: each round has everybody
// once, so that whatever else the machine does meets all of them.
func (b *bench) compare(ctx context.Context, name string, s shape, keep func(contestant) bool) error {
	taking := b.taking(ctx, keep)
	if len(taking) == 0 {
		return nil
	}
	w, err := b.fill(ctx, name, s)
	if err != nil {
		return err
	}
	defer w.close(ctx)
	table := Table{Name: name, Rows: s.rows, PerTxn: s.perTxn, Payload: s.payload, Topics: s.topics, Wide: s.wide}
	failed := b.warm(ctx, w, taking)
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	runs := map[string][]Run{}
	for round := range b.repeat {
		for _, c := range taking {
			if c.runs > 0 && round >= c.runs || b.missing[c.name] != "" {
				continue
			}
			run, err := w.drain(ctx, c, nil)
			if err != nil {
				if ctx.Err() != nil {
					return context.Cause(ctx)
				}
				b.refuse(name, c, err)
				delete(runs, c.name) // what one run did wrong, the others may have done unseen
				if c.sink != toKafka || c.name == relayKafka {
					failed = errors.Join(failed, fmt.Errorf("%s: %w", c.name, err))
				}
				continue
			}
			fmt.Printf("   %-18s %s\n", c.name, run)
			runs[c.name] = append(runs[c.name], run)
		}
	}
	for _, c := range taking {
		if len(runs[c.name]) > 0 {
			table.Lines = append(table.Lines, Line{Contestant: c.name, Runs: runs[c.name]})
		}
	}
	if len(table.Lines) > 0 {
		b.results.Drains = append(b.results.Drains, table)
	}
	return failed
}
