package cutover

import (
	"context"
	"fmt"
	"strings"

	"github.com/cdc-relay/cdc-relay/backfill"
	"github.com/cdc-relay/cdc-relay/fault"
	"github.com/cdc-relay/cdc-relay/postgres"
	"github.com/cdc-relay/cdc-relay/postgres/provision"
)

// plan says what would be done.
func (w *work) plan(ctx context.Context, next step) error {
	lines := []string{w.planned(next)}
	switch next {
	case begin, anew, trigger:
		for i := range w.tables {
			text, err := w.tableLines(ctx, &w.tables[i])
			if err != nil {
				return err
			}
			lines = append(lines, text...)
		}
		lines = append(lines, "the slot holds the WAL back until the publisher has sent the rest"+w.keepSize(ctx))
	case wait:
		if err := w.count(ctx); err != nil {
			return err
		}
		for i := range w.tables {
			lines = append(lines, fmt.Sprintf("table %s: %s", w.tables[i].Name, w.tables[i].left))
		}
	case finish:
	case complete:
		lines = append(lines, w.farewell()...)
	}
	if !w.Options.Yes && next != complete {
		lines = append(lines, "", "nothing was changed; repeat with --yes")
	}
	w.Out.Say(backfill.Line{What: "plan", Step: string(next), Text: strings.Join(lines, "\n")})
	return nil
}

// finalName is the slot that run streams from, or all of them.
func (w *work) finalName() string {
	if n := len(w.state.final); n > 1 {
		return fmt.Sprintf("the slots of %d shards", n)
	}
	return postgres.SlotSubject(w.state.final[0].Name)
}

func (w *work) planned(next step) string {
	t := w.state.temporary.Name
	rest := fmt.Sprintf("have a trigger mark new rows as published, wait until the publisher has sent the rest and %s longer, then make %s at the position where the trigger begins", w.Options.Settle, w.finalName())
	switch next {
	case begin:
		return fmt.Sprintf("make slot %q, %s", t, rest)
	case anew:
		return fmt.Sprintf("slot %q is lost, and nothing hangs on it: make it anew, %s", t, rest)
	case trigger:
		return fmt.Sprintf("slot %q is there: %s", t, rest)
	case wait:
		if cut := w.state.cuts[0]; w.state.finals() > 0 {
			return fmt.Sprintf("slot %q is before %s again, as after a crash of the server: see once more that the publisher has sent the rest, wait %s, move the slot there, make of %s what is missing, and drop it", t, cut.At, w.Options.Settle, w.finalName())
		}
		return fmt.Sprintf("new rows are marked since %s: wait until the publisher has sent the rest and %s longer, then make %s there", w.state.cuts[0].At, w.Options.Settle, w.finalName())
	case finish:
		return fmt.Sprintf("the publisher has sent the rest: copy slot %q to %s, and drop it", t, w.finalName())
	case complete:
	}
	return fmt.Sprintf("the cutover is complete: start `cdc-relay run`, which streams from %s", w.finalName())
}

func (w *work) tableLines(ctx context.Context, t *polled) ([]string, error) {
	lively, err := w.watch(ctx, t)
	if err != nil {
		return nil, err
	}
	sets := make([]string, len(t.marks))
	for i, m := range t.marks {
		sets[i] = m.Column + " = " + strings.TrimPrefix(m.Set, "pg_catalog.")
	}
	lines := []string{
		fmt.Sprintf("table %s: %s", t.Name, t.left),
		"  the publisher asks for rows with " + t.marks[0].Where + "; a new row would get " + strings.Join(sets, ", "),
		fmt.Sprintf("  until it has sent the rest, no writer may have ON CONFLICT DO UPDATE SET %[1]s = EXCLUDED.%[1]s: that would mark an old row, and nobody would send it", t.marks[0].Column),
	}
	if lively != "" {
		lines = append(lines, "  "+lively)
	}
	return lines, nil
}

// keepSize says beyond which max_slot_wal_keep_size the slot is lost; empty: there is no limit.
func (w *work) keepSize(ctx context.Context) (text string) {
	_ = w.holder.Ask(ctx, func(q postgres.Querier, _ int) error { // who may not see it reads nothing of it
		row, err := q.One("SELECT current_setting('max_slot_wal_keep_size')")
		if err == nil && row.Text(0) != "-1" {
			text = ", and is lost beyond max_slot_wal_keep_size (" + row.Text(0) + ")"
		}
		return err
	})
	return text
}

// farewell says how the trigger goes, once no publisher is left.
func (w *work) farewell() []string {
	lines := []string{"when no publisher is left and the relay has no backlog, the owner drops the trigger; before that, rows without a mark would be sent by both, and rows with one by nobody if the slot is lost:"}
	for _, t := range w.tables {
		lines = append(lines, "  "+provision.UncutSQL(t.Name, t.OID)+";")
	}
	return lines
}

// decideGivenUp refuses rows that the publisher may have given up, until a flag decides about them. Rows
// with another status count once no publisher is at work: until then they may be those that it has claimed.
func (w *work) decideGivenUp(atWork bool) error {
	if w.Options.GivenUp != Unsaid {
		return nil
	}
	for i := range w.tables {
		t := &w.tables[i]
		var which []string
		published := ""
		if t.left.givenUp > 0 {
			which = append(which, t.marks[0].Where+" AND "+t.givenUp)
		}
		if t.left.between > 0 && !atWork {
			which = append(which, t.between)
			published = "if they are published, name their status with --published; else "
		}
		if len(which) == 0 {
			continue
		}
		return undecided(fault.ReasonGivenUp, fmt.Errorf("table %s has %s", t.Name, t.left),
			fmt.Sprintf("look at them: SELECT … WHERE %s; then %shave the publisher try them again, or add %s, and run the command again", strings.Join(which, " OR "), published, map[bool]string{true: "--given-up send or --given-up leave", false: "--given-up leave"}[w.Options.Mode == Stopped]))
	}
	return nil
}

// anyGivenUp counts the rows that nobody sends unless somebody says so.
func (w *work) anyGivenUp() (n int64) {
	for i := range w.tables {
		n += w.tables[i].left.givenUp + w.tables[i].left.between
	}
	return n
}
