package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"

	"github.com/jackc/pgx/v5/pgconn"
)

// The contestants of the suite backfill read a table, and no slot.
const (
	copyOut      = "copy"
	backfillOnce = "backfill-exactly-once"
	backfillAny  = "backfill"
)

// startCopy is the reference: the server gives the rows in the order of the backfill to a client
// that throws them away.
func startCopy(_ context.Context, _ *bench, j job) (*running, error) {
	p, err := startRole("copy", "BENCH_POSTGRES_URL="+j.w.url())
	if err != nil {
		return nil, err
	}
	p.drain()
	return &running{pid: p.pid(), exited: p.done, finished: p.awaitEnd, stop: p.end, log: p.stderr}, nil
}

// copyTable plays the role.
func copyTable(ctx context.Context) error {
	conn, err := pgconn.Connect(ctx, os.Getenv("BENCH_POSTGRES_URL"))
	if err != nil {
		return err
	}
	defer conn.Close(context.WithoutCancel(ctx))
	_, err = conn.CopyTo(ctx, io.Discard, "COPY (SELECT * FROM outbox ORDER BY created_at, id) TO STDOUT")
	return err
}

// startBackfill runs the command from its start to its end, slot and hand-over included.
func startBackfill(env ...string) func(context.Context, *bench, job) (*running, error) {
	return func(ctx context.Context, b *bench, j job) (*running, error) {
		j.slot += "b" // it makes its own
		cmd := exec.Command(b.binary, "backfill", "--all", "--yes")
		cmd.Dir = b.dir
		cmd.Env = append(os.Environ(), relayEnv(j, env...)...)
		p, err := launch(cmd)
		if err != nil {
			return nil, err
		}
		p.drain()
		stop := func() error {
			var failed error
			for _, name := range []string{j.slot, j.slot + "_backfill"} {
				if err := j.w.drop(ctx, name); err != nil {
					failed = errors.Join(failed, fmt.Errorf("drop slot %s: %w", name, err))
				}
			}
			return errors.Join(p.end(), failed)
		}
		return &running{pid: p.pid(), exited: p.done, finished: p.awaitEnd, stop: stop, log: p.stderr}, nil
	}
}
