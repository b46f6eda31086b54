package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"time"
)

// build makes the binary that is put to the test, with whatever of its source an
// overlay replaces.
func build(ctx context.Context, dir string, flags ...string) (string, error) {
	path := filepath.Join(dir, "cdc-relay")
	args := append(append([]string{"build", "-o", path}, flags...), "github.com/cdc-relay/cdc-relay/cmd/cdc-relay")
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Env = os.Environ()
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build the relay: %w\n%s", err, out)
	}
	return path, nil
}

// run plays one plan and judges what came of it. An error means that nothing was
// proven either way.
func run(ctx context.Context, s *servers, plan Plan, binary, dir string) (*Verdict, error) {
	w, err := newWorld(ctx, s, plan, binary, dir)
	if err != nil {
		return nil, err
	}
	defer w.close()
	h := &History{Plan: plan}
	for n := range w.relays.places {
		w.relays.hold(n, false)
	}
	if !w.await(ctx, 2*time.Minute, func() bool { return w.relays.state(w.relays.leader()) == "streaming" }) {
		return nil, fmt.Errorf("the relay does not stream: %s", w.relays.logEnd(w.relays.places[0]))
	}
	h.Base = w.relays.usage(w.relays.leader())
	w.load = startWorkload(proxied(w.pg.URL(w.database), w.inProxy.Addr()), plan, w.aggregates)
	w.play(ctx)
	w.load.end()
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	if err := w.settle(ctx, h); err != nil {
		return nil, err
	}
	if err := w.collect(ctx, h); err != nil {
		return nil, err
	}
	v := judge(h)
	if len(v.Violations) > 0 {
		w.keep(h, v)
	}
	return v, nil
}

func (w *world) await(ctx context.Context, patience time.Duration, holds func() bool) bool {
	deadline := time.Now().Add(patience)
	for !holds() {
		if ctx.Err() != nil || time.Now().After(deadline) {
			return false
		}
		rest(ctx, 20*time.Millisecond)
	}
	return true
}

// settle waits until everything is confirmed and stops the relays cleanly.
func (w *world) settle(ctx context.Context, h *History) error {
	began := time.Now()
	tip, err := w.lsn(ctx, "SELECT pg_current_wal_insert_lsn()::text")
	if err != nil {
		return err
	}
	h.Settled = -1
	if w.await(ctx, settleLimit, func() bool {
		s, ok := w.samples.latest()
		h.Behind = tip - min(tip, s.Confirmed)
		return ok && s.Confirmed >= tip
	}) {
		h.Settled = time.Since(began)
	}
	if err := w.clear(ctx); err != nil {
		return fmt.Errorf("re-drive what waits: %w", err)
	}
	rest(ctx, 300*time.Millisecond)
	w.await(ctx, 10*time.Second, func() bool { // connections that a fault broke end when they notice
		h.Last = w.relays.usage(w.relays.leader())
		return !h.moreFiles() && !h.moreGoroutines()
	})
	if err := w.released(ctx, h); err != nil {
		return err
	}
	h.Code = w.relays.close()
	w.samples.end()
	return nil
}

// released waits until the slot lets go of the WAL. A record of running transactions
// makes PostgreSQL name a restart position, the confirmation of that record moves the
// slot there, and no other is named before; the first may be as old as a transaction
// that a crash of the server left open. So it takes several rounds, each of a
// checkpoint and the confirmation of an idle slot.
func (w *world) released(ctx context.Context, h *History) error {
	var failed error
	w.await(ctx, releaseLimit, func() bool {
		if failed = w.exec(ctx, w.database, "CHECKPOINT"); failed != nil {
			return true
		}
		rest(ctx, 400*time.Millisecond)
		s, ok := w.samples.latest()
		if ok {
			h.Retained = s.WAL - min(s.WAL, s.Restart)
		}
		return ok && h.Retained <= retainLimit
	})
	return failed
}

// keep stores what a failure is to be understood by.
func (w *world) keep(h *History, v *Verdict) {
	_ = h.Plan.store(filepath.Join(w.dir, "plan.json"))
	for name, what := range map[string]any{"verdict.json": v, "actions.json": h.Actions, "exits.json": h.Exits, "states.json": h.States, "samples.json": h.Samples, "redrives.json": h.Redrives} {
		if text, err := json.MarshalIndent(what, "", " "); err == nil {
			_ = os.WriteFile(filepath.Join(w.dir, name), text, 0o644)
		}
	}
	sink, err := os.Create(filepath.Join(w.dir, "sink.txt"))
	if err != nil {
		return
	}
	defer sink.Close()
	j := &judgement{History: h, Verdict: &Verdict{}}
	j.truth()
	for _, d := range h.Records {
		id := recordID(d)
		commit := "-"
		if i, known := j.commit[id]; known {
			commit = showLSN(h.Txns[i].Commit)
		}
		fmt.Fprintf(sink, "%s %s/%d@%d %s commit %s place %d key %s\n", d.Timestamp.Format("15:04:05.000"), d.Topic, d.Partition, d.Offset, id, commit, j.place[id], d.Key)
	}
}
