package cutover

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/cdc-relay/cdc-relay/advice"
	"github.com/cdc-relay/cdc-relay/backfill"
	"github.com/cdc-relay/cdc-relay/backfill/handover"
	"github.com/cdc-relay/cdc-relay/fault"
	"github.com/cdc-relay/cdc-relay/postgres"
	"github.com/cdc-relay/cdc-relay/postgres/catalog"
	"github.com/cdc-relay/cdc-relay/postgres/provision"
	"github.com/cdc-relay/cdc-relay/replication/wal"
	"github.com/cdc-relay/cdc-relay/setup"
	"github.com/cdc-relay/cdc-relay/sink/topics"
	"github.com/cdc-relay/cdc-relay/wording"
)

func (w *work) say(text string, args ...any) {
	w.Out.Say(backfill.Line{What: "step", Text: fmt.Sprintf(text, args...)})
}

// act does a step, and those that follow from it.
func (w *work) act(ctx context.Context, next step) error {
	if next == begin || next == anew || next == trigger {
		if err := w.decideGivenUp(true); err != nil { // before the first row is marked
			return err
		}
	}
	if err := w.prepare(ctx); err != nil {
		return err
	}
	if w.ledger != nil {
		defer w.ledger.Close()
	}
	if next == begin || next == anew {
		if err := w.makeSlot(ctx, next); err != nil {
			return err
		}
		next = trigger
	}
	if next == trigger || next == wait {
		if err := w.whileHeld(ctx, func(ctx context.Context) error {
			if next == trigger {
				if err := w.makeTriggers(ctx); err != nil {
					return err
				}
			}
			return w.drain(ctx)
		}); err != nil {
			return err
		}
		if err := w.advance(ctx); err != nil {
			return err
		}
	}
	if next != finish {
		if err := w.escaped(ctx); err != nil {
			return err
		}
	}
	return w.finish(ctx)
}

// prepare makes publication and topics, and refuses a slot's name that a relay has used.
func (w *work) prepare(ctx context.Context) error {
	made := setup.New(w.Settings, w.Settings.Version, func(format string, args ...any) { w.say(format, args...) }, func(format string, args ...any) { w.Out.Warn(fmt.Sprintf(format, args...)) })
	if err := made.Prepare(ctx, w.Prepare, false); err != nil {
		return err
	}
	if !w.Settings.KeepsPositions() {
		return nil
	}
	var err error
	if w.ledger, err = topics.NewLedger(w.Settings.Kafka.Connection, w.Settings.CheckpointTopic); err != nil {
		return err
	}
	within, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	for i := range w.state.final {
		slot := &w.state.final[i]
		if !slot.Exists {
			err = handover.NeverStreamed(within, w.ledger, w.Settings.CheckpointTopic, w.state.system, slot.Name)
		} else if w.state.cuts[0] != nil {
			slot.Ours, err = handover.WroteBefore(within, w.ledger, w.state.system, slot.Name, w.oids(), w.state.cuts[0].At)
		}
		if err != nil {
			w.ledger.Close()
			return err
		}
	}
	return nil
}

// unused refuses, before the watch, the name of a slot that a relay has used. What else is wrong with the
// topic stops the first step that writes to it.
func (w *work) unused(ctx context.Context) error {
	waiting := time.AfterFunc(2*time.Second, func() { w.say("waiting up to 10s for the brokers, to read topic %q", w.Settings.CheckpointTopic) })
	err := handover.WithRecords(ctx, &w.Settings, func(ctx context.Context, ledger *topics.Ledger) error {
		return handover.RefuseUsedNames(ctx, ledger, w.Settings.CheckpointTopic, w.state.system, w.state.final)
	})
	waiting.Stop()
	if _, refused := errors.AsType[*advice.Refused](err); refused {
		return err
	}
	return ctx.Err()
}

// lookUpCopies finds out whether an earlier call made the slots, where their positions do not tell.
func (w *work) lookUpCopies(ctx context.Context) error {
	cut := w.state.cuts[0]
	if cut == nil || !w.state.temporary.Exists {
		return nil
	}
	return handover.WithRecords(ctx, &w.Settings, func(ctx context.Context, ledger *topics.Ledger) (err error) {
		for i := range w.state.final {
			if slot := &w.state.final[i]; err == nil && slot.Exists && slot.Confirmed != cut.At {
				slot.Ours, err = handover.WroteBefore(ctx, ledger, w.state.system, slot.Name, w.oids(), cut.At)
			}
		}
		return err
	})
}

// madeByOther warns of slots that begin elsewhere than at the cut, unless somebody has declared the rows
// before them delivered.
func (w *work) madeByOther(ctx context.Context, ledger *topics.Ledger) error {
	cut := w.state.cuts[0]
	for _, slot := range w.state.final {
		answered, err := handover.WroteOrDeclared(ctx, ledger, w.state.system, slot.Name, w.oids(), cut.At)
		switch {
		case errors.Is(ctx.Err(), context.Canceled):
			return ctx.Err()
		case err != nil:
			w.Out.Warn(fmt.Sprintf("whether the cutover made %s cannot be told: %v", postgres.SlotSubject(slot.Name), err))
			return nil
		case !answered:
			w.Out.Warn(fmt.Sprintf("nothing shows that the cutover made %s: rows that were written between %s (%s) and its beginning are marked as published, and nobody has sent them unless a backfill did; find them with `cdc-relay audit`",
				postgres.SlotSubject(slot.Name), cut.At, cut.Time.UTC().Format("2006-01-02 15:04:05 UTC")))
		}
	}
	return nil
}

func (w *work) oids() []uint32 {
	all := make([]uint32, len(w.tables))
	for i, t := range w.tables {
		all[i] = t.OID
	}
	return all
}

// makeSlot makes the slot before the cut. What lies between the two is the publisher's.
func (w *work) makeSlot(ctx context.Context, next step) error {
	name := w.state.temporary.Name
	if next == anew {
		if err := handover.Drop(ctx, w.holder, name); err != nil {
			return err
		}
	}
	made, err := provision.ExportSlot(ctx, w.Settings.Replication, name, provision.DefaultSlotTimeout)
	if err != nil {
		return err
	}
	made.Close() // its snapshot is of no use
	w.say("made slot %q", name)
	w.OnStep("slot_made")
	return nil
}

// temporary is the configuration of the cutover's slot, which is of no shard.
func (w *work) temporary(shard postgres.Config) postgres.Config {
	shard.Slot, shard.Shard, shard.Messages = w.state.temporary.Name, postgres.Shard{}, nil
	shard.ApplicationName = "cdc-relay cutover"
	return shard
}

// whileHeld runs do while this process streams from the slot, so that nobody else does.
func (w *work) whileHeld(ctx context.Context, do func(context.Context) error) error {
	ctx, cancel := context.WithCancel(ctx)
	held := make(chan struct{})
	go func() {
		defer close(held)
		handover.Occupy(ctx, w.temporary(w.Settings.Replication.OfShard(0)), w.Log)
	}()
	defer func() { cancel(); <-held }()
	return do(ctx)
}

// lockPause is how long writers are let go on before the lock is asked for again.
const lockPause = 3 * time.Second

// makeTriggers makes the triggers, and with them the cut.
func (w *work) makeTriggers(ctx context.Context) error {
	locked, err := w.lock(ctx)
	if err != nil {
		return err
	}
	defer locked.Close()
	at, err := locked.Cut(w.state.system, w.state.slot)
	if err != nil {
		return err
	}
	if err := w.holder.Ask(ctx, w.readCuts); err != nil {
		return err
	}
	w.say("new rows are marked as published from %s on: they are the relay's, and those before the publisher's", at)
	w.OnStep("trigger_made")
	return nil
}

// lock keeps writers out of the tables. It waits behind open transactions, for a short time each.
func (w *work) lock(ctx context.Context) (*provision.Locked, error) {
	for tries := 0; ; tries++ {
		locked, err := provision.LockTables(ctx, w.Settings.Replication, w.cutTables())
		if err == nil || postgres.Reason(err) != fault.ReasonLockTimeout {
			return locked, err
		}
		if tries%5 == 0 {
			who := ""
			_ = w.holder.Ask(ctx, func(q postgres.Querier, _ int) error { who = catalog.Blockers(q); return nil }) // for the message alone
			w.say("%v; writers go on, and it is tried again until transactions have ended: %s", err, who)
		}
		select {
		case <-time.After(lockPause):
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

const (
	sayEvery = 10 * time.Second // how much is left
	idleFor  = time.Minute      // without a row published
)

// drain waits until the publisher has sent what is not marked, and for as long as one without
// locks may need for what it read before.
func (w *work) drain(ctx context.Context) error {
	since := time.Time{} // when the last row was published
	said, began, least := time.Time{}, time.Now(), int64(-1)
	for {
		looked := time.Now()
		if err := w.count(ctx); err != nil {
			return err
		}
		took := time.Since(looked)
		var waiting int64
		for i := range w.tables {
			waiting += w.tables[i].left.waiting
		}
		if least < 0 || waiting < least {
			least, began = waiting, time.Now()
		}
		switch {
		case waiting > 0:
			since = time.Time{}
		case since.IsZero():
			since = time.Now()
			w.OnStep("drained")
		case time.Since(since) >= w.Options.Settle:
			if err := w.countBetween(ctx); err != nil {
				return err
			}
			if err := w.decideGivenUp(false); err != nil {
				return err
			}
			w.OnStep("settled")
			return nil
		}
		if time.Since(said) >= sayEvery {
			said = time.Now()
			w.sayLeft(waiting, since, time.Since(began))
		}
		pause := max(w.LookEvery, 5*took) // a look without an index reads the whole table
		if !since.IsZero() {
			pause = min(pause, max(10*time.Millisecond, time.Until(since.Add(w.Options.Settle))))
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func (w *work) sayLeft(waiting int64, since time.Time, idle time.Duration) {
	var text []string
	for i := range w.tables {
		text = append(text, fmt.Sprintf("table %s: %s", w.tables[i].Name, w.tables[i].left))
	}
	line := backfill.Line{What: "progress", Of: waiting, Text: strings.Join(text, "; ")}
	switch {
	case !since.IsZero():
		line.Text += fmt.Sprintf("; a publisher that still sends what it read has %s more", max(0, time.Until(since.Add(w.Options.Settle))).Round(time.Second))
	case idle > idleFor:
		line.What = "warning"
		line.Text += fmt.Sprintf("; none was published for %s: is the publisher running?", idle.Round(time.Second))
	}
	w.Out.Say(line)
}

// advance moves the slot to the cut.
func (w *work) advance(ctx context.Context) error {
	cut := w.state.cuts[0]
	err := handover.WhenFree(ctx, func() error {
		return w.holder.Ask(ctx, func(q postgres.Querier, _ int) error {
			return provision.AdvanceSlot(q, w.state.temporary.Name, cut.At)
		})
	})
	if err != nil {
		return err
	}
	w.say("the publisher has sent the last row from before %s", cut.At)
	w.OnStep("advanced")
	return nil
}

// peekFor is how long new rows are looked at.
const peekFor = 10 * time.Second

// escaped looks at the rows that wait in the slot: one without a mark is the publisher's too.
func (w *work) escaped(ctx context.Context) error {
	end, err := w.holder.WALInserted(ctx)
	if err != nil {
		return err
	}
	errEnough := errors.New("enough")
	rows, unmarked, began := 0, 0, time.Now()
	for _, shard := range w.Settings.Replication.Shards() {
		err := handover.WhenFree(ctx, func() error {
			return handover.Peek(ctx, w.temporary(shard), w.Settings.Stream.MaxRowBytes, end, func(b *wal.Batch) error {
				for i := range b.Rows {
					row := &b.Rows[i]
					if n := row.Relation.Table; row.Change == nil && n < len(w.tables) {
						rows++
						if w.tables[n].unmarked(row) {
							unmarked++
						}
					}
				}
				if time.Since(began) > peekFor {
					return errEnough
				}
				return nil
			})
		})
		if err != nil && !errors.Is(err, errEnough) {
			return err
		}
	}
	w.say("%s after the cut looked at", wording.Count(rows, "row"))
	if unmarked > 0 {
		w.Out.Warn(fmt.Sprintf("%s after the cut without a mark, which publisher and relay send both: a trigger of yours takes the mark back, or the publisher sets it and takes it back", wording.Count(unmarked, "row")))
	}
	return nil
}

// unmarked reports whether the publisher would see the row. A column that the publication hides
// tells nothing.
func (t *polled) unmarked(row *wal.Row) bool {
	m := t.marks[0]
	for i, c := range row.Relation.Columns {
		if c.Name != m.Column {
			continue
		}
		v := row.Values[i]
		switch {
		case strings.HasSuffix(m.Where, " IS NULL"):
			return v.Kind == wal.Null
		case strings.HasSuffix(m.Where, " IS NOT TRUE"):
			return v.Kind == wal.Null || string(v.Data) != "t"
		}
		return v.Kind == wal.Text && strings.HasSuffix(m.Where, " = "+postgres.QuoteLiteral(string(v.Data)))
	}
	return false
}

// finish makes the slots that run streams from.
func (w *work) finish(ctx context.Context) error {
	cut := w.state.cuts[0]
	if w.anyGivenUp() > 0 {
		w.sayLeave()
	}
	h := &handover.Copies{
		Settings: w.Settings, Ledger: w.ledger, Source: w.state.temporary.Name, System: w.state.system, Timeline: w.holder.Origin().Timeline, Began: w.holder.Origin().Begin(w.holder.Origin().Timeline), Point: cut.At,
		Say: func(text string) { w.say("%s", text) }, Warn: w.Out.Warn, OnStep: w.OnStep,
	}
	for _, slot := range w.state.final {
		h.Slots = append(h.Slots, handover.Slot{Name: slot.Name, Exists: slot.Exists, Ours: slot.Ours})
	}
	for i := range w.tables {
		t := &w.tables[i] // without marks a call before this one has waited, and nobody counted
		h.Tables = append(h.Tables, handover.Table{Name: t.Name.String(), OID: t.OID, Unknown: len(t.marks) == 0 || !t.marks[0].Sure || t.left.givenUp > 0, As: w.state.cuts[i].As})
	}
	if err := h.Make(ctx, w.holder); err != nil {
		return err
	}
	if err := handover.Drop(ctx, w.holder, w.state.temporary.Name); err != nil {
		return err
	}
	w.OnStep("dropped")
	w.Out.Say(backfill.Line{What: "result", Text: strings.Join(append([]string{"the publisher's last row is sent; start `cdc-relay run`"}, w.farewell()...), "\n")})
	return nil
}

func (w *work) sayLeave() {
	w.say("left are %s with failed attempts or another status: retention keeps away from rows from before the slot until `cdc-relay setup --before-slot delivered`", wording.Count(w.anyGivenUp(), "row"))
}
