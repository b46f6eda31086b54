package main

import (
	"context"
	"errors"
	"fmt"
	"syscall"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

// resumes kills a backfill in its middle, starts it again, and then starts the relay.
func resumes(ctx context.Context, b *bench) error {
	for _, guarantee := range []string{"at_least_once", "exactly_once"} {
		if err := b.resume(ctx, guarantee); err != nil {
			return fmt.Errorf("%s: %w", guarantee, err)
		}
	}
	return nil
}

func (b *bench) resume(ctx context.Context, guarantee string) (err error) {
	s, err := b.aside(ctx, "resume_"+guarantee, "", false)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.w.drop(ctx, s.j.slot+"_backfill"), s.close(ctx)) }()
	if _, err := s.w.conn.Exec(ctx, fmt.Sprintf("CALL bench_fill(%d, 10, 285, 4)", b.rows)); err != nil {
		return err
	}
	s.w.rows = b.rows
	env := []string{"CDC_RELAY_RELAY_GUARANTEE=" + guarantee}
	if guarantee == "exactly_once" {
		env = append(env, "CDC_RELAY_RELAY_DETECT_MOVED_SLOT=false") // it has that anyway
	}
	p, err := s.begin(env, "backfill", "--all", "--yes")
	if err != nil {
		return err
	}
	_, base, err := s.j.to.offsets(ctx, s.j.topics)
	if err == nil {
		err = s.midway(ctx, p, base)
	}
	signalGroup(p.cmd, syscall.SIGKILL)
	<-p.done
	if err != nil {
		return fmt.Errorf("%w; it said: %s", err, p.stderr)
	}
	ends, _, err := s.j.to.offsets(ctx, s.j.topics)
	if err != nil {
		return err
	}
	began := time.Now()
	if p, err = s.begin(env, "backfill", "--all", "--yes"); err != nil {
		return err
	}
	first, failed := s.j.to.firstBehind(ctx, ends, began)
	if err := errors.Join(failed, s.finish(ctx, p, "backfill")); err != nil {
		return err
	}
	repeats := 0
	if err := s.readBack(ctx, b.rows, &repeats); err != nil {
		return err
	}
	if guarantee == "exactly_once" && repeats > 0 {
		return fmt.Errorf("%w: %d rows came twice", errUnverified, repeats)
	}
	target := "< 2 s; at most what was in flight and of one second"
	if guarantee == "exactly_once" {
		target = "< 2 s; 0"
	}
	b.figure("resume", "first record after kill -9 of a backfill, "+guarantee, fmt.Sprintf("%.2f s; %d of %d rows twice", first.Seconds(), repeats, b.rows), "", target)
	return s.firstStreamed(ctx, guarantee, env)
}

// midway is the workload's, and ends with the process.
func (s *beside) midway(ctx context.Context, p *process, base int64) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	go func() {
		select {
		case <-p.done:
			cancel(errors.New("it ended"))
		case <-ctx.Done():
		}
	}()
	return s.w.midway(ctx, s.j.to, base)
}

// firstStreamed is from the start of `run` to a row that was written after the backfill.
func (s *beside) firstStreamed(ctx context.Context, guarantee string, env []string) (err error) {
	ends, _, err := s.j.to.offsets(ctx, s.j.topics)
	if err != nil {
		return err
	}
	if _, err := s.w.conn.Exec(ctx, "SELECT bench_rows($1, $1, 285, 4)", s.w.rows+1); err != nil {
		return err
	}
	began := time.Now()
	r, err := s.relay(ctx, env...)
	if err != nil {
		return err
	}
	first, failed := s.j.to.firstBehind(ctx, ends, began)
	if err := errors.Join(failed, s.passed(ctx, r), r.stop()); err != nil {
		return err
	}
	repeats := 0
	if err := s.readBack(ctx, s.w.rows+1, &repeats); err != nil {
		return err
	}
	s.b.figure("resume", "first streamed row after the start of `run`, "+guarantee, fmt.Sprintf("%.2f s", first.Seconds()), "", "< 1 s")
	return nil
}

// firstBehind waits for a committed record behind the ends.
func (c *cluster) firstBehind(ctx context.Context, ends kadm.ListedOffsets, began time.Time) (time.Duration, error) {
	from := map[string]map[int32]kgo.Offset{}
	ends.Each(func(o kadm.ListedOffset) {
		if from[o.Topic] == nil {
			from[o.Topic] = map[int32]kgo.Offset{}
		}
		from[o.Topic][o.Partition] = kgo.NewOffset().At(o.Offset)
	})
	client, err := kgo.NewClient(kgo.SeedBrokers(c.addrs...), kgo.ConsumePartitions(from), kgo.FetchMinBytes(1),
		kgo.FetchMaxWait(20*time.Millisecond), kgo.FetchIsolationLevel(kgo.ReadCommitted()))
	if err != nil {
		return 0, err
	}
	defer client.Close()
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	for {
		got := client.PollFetches(ctx)
		if got.NumRecords() > 0 {
			return time.Since(began), nil
		}
		if err := ctx.Err(); err != nil {
			return 0, fmt.Errorf("no record came: %w", context.Cause(ctx))
		}
	}
}
