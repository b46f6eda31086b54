package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// auditing compares -rows rows that a relay has sent with their records.
func auditing(ctx context.Context, b *bench) error {
	return b.streaming(ctx, "audit", "", func(s *beside, r *running) error { return s.audit(ctx, r) })
}

func (s *beside) audit(ctx context.Context, r *running) error {
	rows := s.b.rows
	if _, err := s.w.conn.Exec(ctx, fmt.Sprintf("CALL bench_fill(%d, 10, 285, 4)", rows)); err != nil {
		return err
	}
	s.w.rows = rows
	if err := s.passed(ctx, r); err != nil {
		return err
	}
	began := time.Now() // the least that it takes: the table in its order, then the topics
	p, err := startRole("copy", "BENCH_POSTGRES_URL="+s.w.url())
	if err != nil {
		return err
	}
	if err := s.finish(ctx, p, "copy"); err != nil {
		return err
	}
	if err := s.readBack(ctx, rows, nil); err != nil {
		return err
	}
	least := time.Since(began)
	return s.auditOnce(ctx, least)
}

func (s *beside) auditOnce(ctx context.Context, least time.Duration) error {
	dir := filepath.Join(s.b.dir, "audit")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	looking, end := context.WithCancel(ctx)
	defer end()
	most := make(chan int64, 1)
	go func() {
		top := int64(0)
		for pause(looking, 50*time.Millisecond) {
			top = max(top, sizeOf(dir))
		}
		most <- top
	}()
	began := time.Now()
	p, err := s.begin(nil, "audit", "--dir", dir)
	if err != nil {
		return err
	}
	g := newGauge(p.pid(), 0, nil)
	err = s.finish(ctx, p, "audit")
	took := time.Since(began)
	use := g.usage()[groupContestant]
	end()
	disk := <-most
	if err != nil {
		return err
	}
	if want := fmt.Sprintf("proven %d of %d", s.w.rows, s.w.rows); !strings.Contains(strings.ReplaceAll(p.stderr.String(), ",", ""), want) {
		return fmt.Errorf("%w: it does not say %q: %s", errUnverified, want, p.stderr)
	}
	rate := float64(s.w.rows) / took.Seconds()
	s.b.figure("audit", fmt.Sprintf("`audit` of %d rows, all proven", s.w.rows), fmt.Sprintf("%.0f rows/s", rate),
		fmt.Sprintf("%.0f rows/s for `COPY` of the table and a read of the topics, one after the other", float64(s.w.rows)/least.Seconds()), "100 M rows in 45 min: ≥ 37 037 rows/s")
	files := "none: everything fits into memory, and more -rows do not"
	if disk > 0 {
		files = fmt.Sprintf("%.2f GB; of 100 M rows %.1f GB (calculated)", float64(disk)/1e9, float64(disk)/float64(s.w.rows)/10)
	}
	s.b.figure("audit", "the same rate for 100 M rows (calculated)", fmt.Sprintf("%.0f min", 1e8/rate/60), "", "≤ 45 min")
	s.b.figure("audit", "peak memory, with `--memory` of 256 MiB", fmt.Sprintf("%.0f MiB", float64(use.Peak)/(1<<20)), "", "≤ 256 MiB")
	s.b.figure("audit", "files in `--dir` at most", files, "", "≤ 10 GB of 100 M rows")
	return nil
}

func sizeOf(dir string) (sum int64) {
	files, _ := os.ReadDir(dir) // a file that goes meanwhile counts no more
	for _, f := range files {
		if info, err := f.Info(); err == nil && !f.IsDir() {
			sum += info.Size()
		} else if f.IsDir() {
			sum += sizeOf(filepath.Join(dir, f.Name()))
		}
	}
	return sum
}
