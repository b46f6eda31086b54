package main

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// writersRate is that of the writers which others may hold up.
const writersRate = 1000

// cutOvers takes a table over from a polling publisher again and again, each time a new one.
func cutOvers(ctx context.Context, b *bench) error {
	var held, usual, longest []float64
	for n := range 5 * b.repeat {
		s, err := b.aside(ctx, fmt.Sprintf("cutover_%d", n), "", false)
		if err != nil {
			return err
		}
		h, u, l, err := s.cutOver(ctx)
		if err := errors.Join(err, s.close(ctx)); err != nil {
			return err
		}
		held, usual, longest = append(held, h...), append(usual, u...), append(longest, l...)
	}
	b.figure("cutover", fmt.Sprintf("`cutover --mark-new`, %d writers at %d rows/s: the first row of each that the trigger marked", latencyWriters, writersRate), quantiles(held),
		"inserts of the second before: "+quantiles(usual), "p99 < 100 ms")
	b.figure("cutover", "any insert while the command ran", quantiles(longest), "", "")
	return nil
}

// cutOver ends with the relay streaming, and every row once in the topics.
func (s *beside) cutOver(ctx context.Context) (held, usual, during []float64, err error) {
	poller, err := startPolling(ctx, s.b, s.j)
	if err != nil {
		return nil, nil, nil, err
	}
	stopped := false
	defer func() {
		if !stopped {
			err = errors.Join(err, poller.stop())
		}
	}()
	w := s.startWriters(ctx, 0, writersRate)
	pause(ctx, 2*time.Second)
	began := time.Now()
	failed := s.do(ctx, nil, "cutover", "--mark-new", "--yes", "--settle", "2s")
	ended := time.Now()
	last, err := w.end(ctx)
	stopped = true
	if err := errors.Join(failed, err, poller.stop()); err != nil {
		return nil, nil, nil, err
	}
	if n := w.failures(); n > 0 {
		return nil, nil, nil, fmt.Errorf("%w: %d inserts failed", errUnverified, n)
	}
	held = w.firstMarked()
	if len(held) != latencyWriters {
		return nil, nil, nil, fmt.Errorf("%w: the trigger marked rows of %d of %d writers", errUnverified, len(held), latencyWriters)
	}
	r, err := s.relay(ctx)
	if err != nil {
		return nil, nil, nil, err
	}
	err = errors.Join(s.passed(ctx, r), r.stop())
	if err == nil {
		err = s.readBack(ctx, last, nil)
	}
	return held, w.took(between(began.Add(-time.Second), began)), w.took(between(began, ended)), err
}

// The partitioned table is the usual one with a partition for each day but one, which would be too
// old in the afternoon only.
const (
	partitioned = `DROP PUBLICATION bench; DROP TABLE outbox;
		CREATE TABLE outbox (id uuid NOT NULL, aggregate_type varchar(100) NOT NULL, aggregate_id uuid NOT NULL, event_type varchar(100) NOT NULL, payload jsonb NOT NULL,
			created_at timestamptz NOT NULL DEFAULT now(), published_at timestamptz, PRIMARY KEY (id, created_at)) PARTITION BY RANGE (created_at);
		DO $$ BEGIN FOR n IN -20..2 LOOP
			CONTINUE WHEN n = -5;
			EXECUTE format('CREATE TABLE outbox_%s PARTITION OF outbox FOR VALUES FROM (%L) TO (%L)', n + 20, current_date + n, current_date + n + 1);
		END LOOP; END $$;
		CREATE PUBLICATION bench FOR TABLE outbox WITH (publish = 'insert', publish_via_partition_root = true)`
	dueDays   = 15
	dayOfRows = 1000
	tooOld    = "FROM pg_inherits WHERE inhparent = 'outbox'::regclass"
)

// partitions drops those of fifteen days beside writers of the same table.
func partitions(ctx context.Context, b *bench) (err error) {
	s, err := b.aside(ctx, "partition", partitioned, true)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.close(ctx)) }()
	r, err := s.relay(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, r.stop()) }()
	for day := range dueDays {
		for _, sql := range []string{
			fmt.Sprintf("ALTER TABLE outbox ALTER created_at SET DEFAULT current_date - %d + interval '1 hour'", 20-day),
			fmt.Sprintf("SELECT bench_rows(%d, %d, 285, 4)", day*dayOfRows+1, (day+1)*dayOfRows),
		} {
			if _, err := s.w.conn.Exec(ctx, sql); err != nil {
				return err
			}
		}
	}
	if _, err := s.w.conn.Exec(ctx, "ALTER TABLE outbox ALTER created_at SET DEFAULT now()"); err != nil {
		return err
	}
	if err := s.passed(ctx, r); err != nil {
		return err
	}
	return s.dropBeside(ctx, r)
}

func (s *beside) dropBeside(ctx context.Context, r *running) error {
	had, err := s.count(ctx, "SELECT count(*) "+tooOld)
	if err != nil {
		return err
	}
	w := s.startWriters(ctx, dueDays*dayOfRows, writersRate)
	began := time.Now()
	pause(ctx, time.Duration(s.b.seconds)*time.Second)
	dropping := time.Now()
	failed := s.do(ctx, []string{"CDC_RELAY_OUTBOX_RETENTION_THEN=drop_partition", "CDC_RELAY_OUTBOX_RETENTION_KEEP=108h", "CDC_RELAY_OUTBOX_RETENTION_CREATE_AHEAD=0", notInRun}, "retention", "--once")
	ended := time.Now()
	last, err := w.end(ctx)
	if err := errors.Join(failed, err); err != nil {
		return err
	}
	left, err := s.count(ctx, "SELECT count(*) "+tooOld)
	if err != nil {
		return err
	}
	if had-left != dueDays {
		return fmt.Errorf("%w: %d partitions are gone, and not %d", errUnverified, had-left, dueDays)
	}
	if err := s.passed(ctx, r); err != nil {
		return err
	}
	if err := s.readBack(ctx, last, nil); err != nil {
		return err
	}
	s.b.figure("partition", fmt.Sprintf("inserts into the root while %d partitions are dropped (%.1f s), %d writers at %d rows/s", dueDays, ended.Sub(dropping).Seconds(), latencyWriters, writersRate),
		quantiles(w.took(between(dropping, ended))), "before: "+quantiles(w.took(between(began.Add(time.Second), dropping))), "root locked < 20 ms")
	s.b.figure("partition", "inserts that failed", fmt.Sprint(w.failures()), "", "0")
	return nil
}
