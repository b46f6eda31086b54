package backfill

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/cdc-relay/cdc-relay/backfill/progress"
	"github.com/cdc-relay/cdc-relay/fault"
	"github.com/cdc-relay/cdc-relay/postgres"
	"github.com/cdc-relay/cdc-relay/postgres/provision"
	"github.com/cdc-relay/cdc-relay/postgres/snapshot"
	"github.com/cdc-relay/cdc-relay/wording"
)

// assumedRate is the rows a second that a plan counts with, on the cautious side.
const assumedRate = 50_000

// plan says what would be done, and refuses what would end badly.
func (b *Backfill) plan(ctx context.Context, w *work, s *progress.State, step progress.Step) error {
	for _, warning := range w.warnings {
		b.Out.warn(warning)
	}
	lines := []string{""}
	line := Line{What: "plan", Step: string(step)}
	if step == progress.Begin || step == progress.Anew || step == progress.Resume {
		if err := w.count(ctx, s, step); err != nil {
			return err
		}
		for i := range w.tables {
			text, t := w.tableLine(i)
			lines, line.Tables = append(lines, text...), append(line.Tables, t)
		}
		budget, err := b.budget(ctx, w)
		if err != nil {
			return err
		}
		more, err := b.foretell(ctx, w, s, step, budget)
		lines = append(lines, more...)
		if err != nil {
			lines[0] = b.planned(w, s, step)
			line.Text = strings.Join(lines, "\n")
			b.Out.say(line)
			return err
		}
	}
	var refused error
	if step != progress.Nothing {
		if err := w.roomForSlots(ctx, s); err != nil {
			if postgres.Reason(err) != fault.ReasonServerLimit {
				return err
			}
			lines = append(lines, fmt.Sprintf("warning: %v", err))
			refused = err
		}
		if !b.Options.Yes {
			lines, refused = append(lines, "", "nothing was changed; repeat with --yes"), nil
		}
	}
	lines[0] = b.planned(w, s, step)
	line.Text = strings.Join(lines, "\n")
	b.Out.say(line)
	return refused
}

// roomForSlots refuses where the server has no room for the slots: that of the backfill is dropped when the others
// are made.
func (w *work) roomForSlots(ctx context.Context, s *progress.State) error {
	names := []string{s.Temporary.Name}
	for _, slot := range s.Final {
		names = append(names, slot.Name)
	}
	return w.holder.Ask(ctx, func(q postgres.Querier, _ int) error { return provision.RoomForSlots(q, names...) })
}

// planned is what the step means.
func (b *Backfill) planned(w *work, s *progress.State, step progress.Step) string {
	final := postgres.SlotSubject(baseSlot(b.Settings.Replication))
	if n := len(s.Final); n > 1 {
		final = fmt.Sprintf("the slots of %d shards", n)
	}
	if w.online != nil && step != progress.Anew {
		return w.online.planned(s, step, final)
	}
	switch step {
	case progress.Begin:
		return fmt.Sprintf("make slot %q, send the rows from before it, then copy it to %s", s.Temporary.Name, final)
	case progress.Anew:
		how := ""
		if w.online != nil {
			how = " in " + wording.Count(w.online.filter.Buckets, "bucket")
		}
		why := "its progress is unknown"
		if p := s.Progress; p != nil && p.Rows > 0 {
			why = fmt.Sprintf("it cannot be continued, or --restart asks for a new one: the %s that it sent will be repeated", wording.Count(p.Rows, "row"))
		}
		return fmt.Sprintf("an earlier attempt left slot %q, and %s: drop and recreate the slot, send all rows%s, then create %s from it", s.Temporary.Name, why, how, final)
	case progress.Resume:
		return fmt.Sprintf("go on with slot %q: %s sent so far; then make %s from it", s.Temporary.Name, wording.Count(s.Progress.Rows, "row"), final)
	case progress.Finish:
		return fmt.Sprintf("all rows are sent: make %s from slot %q, and drop that", final, s.Temporary.Name)
	case progress.Nothing:
	}
	return fmt.Sprintf("the backfill is complete (%s sent): start `cdc-relay run`, which streams from %s", wording.Count(s.Progress.Rows, "row"), final)
}

func (w *work) tableLine(i int) ([]string, TableLine) {
	t, n := &w.tables[i], w.counts[i]
	about := ""
	if !n.exact {
		about = "about "
	}
	order, none := promise(&t.Order)
	if none && !w.Options.AcceptOrder {
		order += "; --yes needs --accept-order"
	}
	return []string{
		fmt.Sprintf("table %s: %s%s (%s)", t.Name, about, wording.Count(n.rows, "row"), w.choices[i].text),
		"  order of old rows within a key: " + order,
	}, TableLine{Table: t.Name.String(), Rows: n.rows, Exact: n.exact, Order: t.Order.Names()}
}

// counted is how many rows of a table are still to be sent.
type counted struct {
	rows  int64
	exact bool // false: by the server's statistics, which know of no condition
}

// count counts with a snapshot of its own, before anything is held.
func (w *work) count(ctx context.Context, s *progress.State, step progress.Step) error {
	counting, err := snapshot.Open(ctx, w.settings.Replication)
	if err != nil {
		return err
	}
	defer counting.Close()
	if _, err := counting.Begin(ctx, ""); err != nil {
		return err
	}
	w.counts = make([]counted, len(w.tables))
	for i := range w.tables {
		var after, upTo snapshot.Tuple
		if step == progress.Resume && w.online == nil {
			if i < s.Progress.Table {
				w.counts[i].exact = true
				continue
			}
			if i == s.Progress.Table {
				after = s.Progress.Done
			}
			if upTo = s.Progress.Tables[i].Last; upTo == nil {
				w.counts[i].exact = true
				continue
			}
		}
		if w.counts[i], err = w.countTable(ctx, counting, &w.tables[i], after, upTo); err != nil {
			return err
		}
	}
	return nil
}

func (w *work) countTable(ctx context.Context, holder *snapshot.Holder, t *snapshot.Selection, after, upTo snapshot.Tuple) (counted, error) {
	reader, err := holder.Reader(ctx)
	if err != nil {
		return counted{}, err
	}
	defer reader.Close()
	n, exact, err := reader.Count(ctx, t, after, upTo, w.CountPatience)
	if err == nil && !exact {
		n, err = holder.Estimate(ctx, t.Table)
	}
	return counted{n, exact}, err
}

// budget measures how fast the server writes, where a slot may be lost by that.
func (b *Backfill) budget(ctx context.Context, w *work) (progress.Budget, error) {
	budget := progress.Budget{Limit: -1, Rate: assumedRate}
	if rate := b.Options.MaxRate; rate > 0 {
		budget.Rate = min(budget.Rate, float64(rate))
	}
	for _, n := range w.counts {
		budget.Rows += n.rows
	}
	limit, before, err := walWritten(ctx, w.holder)
	if err != nil || limit < 0 {
		return budget, err
	}
	began := time.Now()
	select {
	case <-time.After(b.Sample):
	case <-ctx.Done():
		return budget, ctx.Err()
	}
	_, after, err := walWritten(ctx, w.holder)
	budget.Limit, budget.WAL = limit, float64(after-before)/time.Since(began).Seconds()
	return budget, err
}

// walWritten is max_slot_wal_keep_size in bytes, -1 where there is none, and how much the server
// has written.
func walWritten(ctx context.Context, holder *snapshot.Holder) (limit, written int64, err error) {
	err = holder.Ask(ctx, func(q postgres.Querier, _ int) error {
		row, err := q.One(`SELECT CASE WHEN setting::bigint < 0 THEN -1 ELSE setting::bigint * 1048576 END, pg_catalog.pg_wal_lsn_diff(pg_catalog.pg_current_wal_insert_lsn(), '0/0')
			FROM pg_catalog.pg_settings WHERE name = 'max_slot_wal_keep_size'`)
		if err != nil {
			return postgres.Classify("look at the WAL", err)
		}
		if limit, err = strconv.ParseInt(row.Text(0), 10, 64); err != nil {
			return err
		}
		written, err = strconv.ParseInt(row.Text(1), 10, 64)
		return err
	})
	return limit, written, err
}

// foretell estimates how long it takes, and refuses a slot that would not last.
func (b *Backfill) foretell(ctx context.Context, w *work, s *progress.State, step progress.Step, budget progress.Budget) ([]string, error) {
	if w.online != nil {
		if err := w.chooseBuckets(s, step); err != nil {
			return nil, err
		}
		return w.foretellOnline(ctx, s, step, budget)
	}
	lines := []string{fmt.Sprintf("takes about %s at %.0f rows a second; meanwhile the slot holds back the WAL, and the snapshot holds back vacuum", progress.Shown(budget.Takes()), budget.Rate)}
	if !s.Keeps {
		lines = append(lines, "the configuration keeps no positions in Kafka (relay.detect_moved_slot): an interrupted backfill starts from the beginning")
	} else if !s.Total {
		lines = append(lines, "there is no unique key without NULLs: an interrupted backfill starts from the beginning")
	}
	warning := budget.Warning()
	if warning == "" {
		return lines, nil
	}
	lines = append(lines, "warning: "+warning)
	if b.Options.Yes && !b.Options.AcceptWAL {
		return lines, progress.Refuse(fmt.Errorf("%s", warning), "raise max_slot_wal_keep_size, raise or remove --max-rate, or use --accept-wal")
	}
	return lines, nil
}
