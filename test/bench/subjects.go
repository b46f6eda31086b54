package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"

	"github.com/twmb/franz-go/pkg/sr"
	"github.com/twmb/franz-go/pkg/sr/srfake"
)

const (
	manySubjects = 200
	subjectRows  = 200_000 // at most
)

// subjects drains the same rows in Avro by one schema and by many, in turns: each event type has a
// subject, and each subject a schema of its own.
func subjects(ctx context.Context, b *bench) error {
	if len(b.taking(ctx, named(relayAvro))) == 0 {
		return nil
	}
	counts := []int{1, manySubjects}
	backlogs, peaks := map[int]*workload{}, map[int][]float64{}
	defer func() {
		for _, w := range backlogs {
			_ = w.close(ctx)
		}
	}()
	for _, n := range counts {
		s := usual(min(b.rows, subjectRows))
		s.events = n
		w, err := b.fill(ctx, fmt.Sprintf("subjects_%d", n), s)
		if err != nil {
			return err
		}
		backlogs[n] = w
	}
	for range b.repeat {
		for _, n := range counts {
			run, err := backlogs[n].drain(ctx, contestant{name: relayAvro, sink: toKafka, start: startSubjects(n)}, nil)
			if err != nil {
				return fmt.Errorf("%d subjects: %w", n, err)
			}
			fmt.Printf("   %-18s %s\n", fmt.Sprint(n, " subjects"), run)
			peaks[n] = append(peaks[n], run.PeakMB[groupContestant])
		}
	}
	one, many := peaks[1], peaks[manySubjects]
	more := median(many) - median(one)
	b.figure("subjects", fmt.Sprintf("peak memory of a drain of %d rows in Avro, %d event types with a schema each", backlogs[1].rows, manySubjects),
		fmt.Sprintf("%s, %+.1f MB", megabytesOf(many), more), "one event type: "+megabytesOf(one), "≤ +5 MB")
	return nil
}

// megabytesOf is the median of runs with what they were between.
func megabytesOf(peaks []float64) string {
	return fmt.Sprintf("%.1f MB (%.1f–%.1f)", median(peaks), slices.Min(peaks), slices.Max(peaks))
}

// startSubjects starts a relay whose rows have so many event types, each with a schema of its own. It
// has to have asked for each when it ends.
func startSubjects(n int) func(context.Context, *bench, job) (*running, error) {
	return func(ctx context.Context, b *bench, j job) (*running, error) {
		r := srfake.New()
		var asked sync.Map
		r.Intercept(func(_ http.ResponseWriter, req *http.Request) bool {
			if subject, ok := strings.CutPrefix(req.URL.Path, "/subjects/"); ok {
				subject, _, _ = strings.Cut(subject, "/")
				asked.Store(subject, true)
			}
			return false
		})
		for i := range n {
			schema := strings.Replace(avroOrder, `"name": "Order"`, fmt.Sprintf(`"name": "Order%d"`, i), 1)
			if _, _, err := r.RegisterSchema(eventType(i), sr.Schema{Schema: schema}); err != nil {
				r.Close()
				return nil, err
			}
		}
		run, err := startEncoding(ctx, b, j, r, formats[relayAvro].value, "${event_type}")
		if err != nil {
			return nil, err
		}
		stop := run.stop
		run.stop = func() error {
			failed := stop()
			for i := range n {
				if _, ok := asked.Load(eventType(i)); !ok {
					failed = errors.Join(failed, fmt.Errorf("the relay never asked for subject %s", eventType(i)))
				}
			}
			return failed
		}
		return run, nil
	}
}

// eventType is that of the rows whose number leaves i.
func eventType(i int) string { return fmt.Sprint("Changed", i) }
