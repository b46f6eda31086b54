package cutover

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/cdc-relay/cdc-relay/backfill"
	"github.com/cdc-relay/cdc-relay/backfill/progress"
	"github.com/cdc-relay/cdc-relay/fault"
	"github.com/cdc-relay/cdc-relay/postgres"
	"github.com/cdc-relay/cdc-relay/postgres/provision"
	"github.com/cdc-relay/cdc-relay/relay"
	"github.com/cdc-relay/cdc-relay/relay/shards"
	"github.com/cdc-relay/cdc-relay/replication/wal"
	"github.com/cdc-relay/cdc-relay/wording"
	"github.com/rs/zerolog"
	"github.com/twmb/franz-go/pkg/kgo"
)

// back gives the table back to the publisher.
func (w *work) back(ctx context.Context) error {
	cut, err := w.state.cut()
	if err != nil {
		return err
	}
	s := &w.state
	switch {
	case cut == nil:
		w.Out.Say(backfill.Line{What: "result", Text: "no table has the trigger " + postgres.CutoverTrigger + ": there is nothing to take back. Rows that a relay sent without it have no mark, and a publisher that starts now sends them again"})
		return nil
	case cut.Off && w.Options.Yes:
		return w.dropTriggers(ctx)
	case cut.Off:
		w.Out.Say(backfill.Line{What: "plan", Step: string(Back), Text: "new rows are the publisher's; the trigger is disabled and would be dropped\n\nnothing was changed; repeat with --yes"})
		return nil
	case s.temporary.Exists:
		return progress.Refuse(errors.New("the cutover is not complete, and rows after the cut wait in its slot"), "complete it with `cdc-relay cutover --mark-new --yes`, and go back then")
	}
	for _, slot := range s.final {
		switch {
		case !slot.Exists:
			return s.lost(cut)
		case slot.Active:
			return progress.Refuse(fmt.Errorf("a relay streams from %s", postgres.SlotSubject(slot.Name)), "stop it first: this command delivers what the slot has, and nothing after it")
		case slot.Err != nil:
			return progress.Refuse(fmt.Errorf("%w: rows after %s are marked as published, and nobody has sent them", slot.Err, slot.Confirmed), wayOut(cut))
		}
	}
	if !w.Options.Yes {
		w.warnOfLetters(ctx)
		w.Out.Say(backfill.Line{What: "plan", Step: string(Back), Text: fmt.Sprintf("deliver what %s has, drop the trigger within %s while writers wait, and leave later rows to the publisher\n\nnothing was changed; repeat with --yes", w.finalName(), w.Options.Stall)})
		return nil
	}
	return w.goBack(ctx)
}

// warnOfLetters warns if dead letters wait: no relay parks their keys any more, and the publisher sends
// later rows of these keys first. It does not refuse, because somebody who goes back may have to at once.
func (w *work) warnOfLetters(ctx context.Context) {
	settings := w.Settings.WithDefaults()
	if settings.OnReject != relay.DeadLetterOnReject {
		return
	}
	set, err := backfill.LoadWaiting(ctx, &settings, w.holder.Origin())
	if err != nil {
		w.Out.Warn("nobody can tell whether dead letters wait: " + err.Error())
		return
	}
	if n := set.Len(); n > 0 {
		w.Out.Warn(fmt.Sprintf("%s: consumers do not have these rows, and the publisher sends later rows of their keys ahead of them; send them with `cdc-relay deadletter redrive`, if you can before you go back",
			wording.Count(n, "waiting dead letter")))
	}
}

// runner is what streams meanwhile.
type runner interface {
	Run(context.Context) error
}

func (w *work) runner() (runner, error) {
	settings := w.Settings
	settings.OnBlocked = relay.ExitWhenBlocked
	if !settings.Replication.Shard.Divided() {
		return relay.Open(settings, relay.Events{}, zerolog.Nop())
	}
	all := make([]int, len(w.state.final))
	for i := range all {
		all[i] = i
	}
	return shards.Open(settings, all, zerolog.Nop(), func(int) (relay.Events, []func() kgo.Hook) { return relay.Events{}, nil })
}

// goBack runs a relay until the trigger is disabled. The tables are locked from before the end of the WAL
// is read until then, so no row commits in between: every earlier one is delivered by the relay, which
// has ended, and every later one is the publisher's.
func (w *work) goBack(ctx context.Context) error {
	for tries := 1; ; tries++ {
		done, err := w.tryBack(ctx)
		if err != nil || done {
			return err
		}
		w.say("the relay did not get there within %s; writers go on, and it is tried again", w.Options.Stall)
	}
}

func (w *work) tryBack(ctx context.Context) (done bool, err error) {
	r, err := w.runner()
	if err != nil {
		return false, err
	}
	running, stop := context.WithCancel(ctx)
	defer stop()
	ended := make(chan struct{})
	var failed error
	go func() { defer close(ended); failed = r.Run(running) }()
	end := func() error { stop(); <-ended; return failed }
	defer end() //nolint:errcheck // nothing is asked of it any more

	beside, err := provision.OpenSlotReader(ctx, w.Settings.Replication)
	if err != nil {
		return false, w.ending(ctx, err, end())
	}
	defer beside.Close()
	at, err := beside.End(ctx)
	if err == nil {
		err = w.reach(ctx, beside, at, ended, 0) // before a writer has to wait
	}
	if err != nil {
		return false, w.ending(ctx, err, end())
	}
	w.OnStep("caught_up")
	locked, err := w.lock(ctx)
	if err != nil {
		return false, w.ending(ctx, err, end())
	}
	defer locked.Close()
	w.OnStep("locked")
	if at, err = locked.End(); err == nil {
		err = w.reach(ctx, beside, at, ended, w.Options.Stall)
	}
	if errors.Is(err, errLate) {
		locked.Close()
		return false, end()
	}
	if relayErr := end(); err != nil || relayErr != nil {
		if err == nil {
			err = relayErr
		}
		return false, w.ending(ctx, err, relayErr)
	}
	w.OnStep("delivered")
	if err := locked.Disable(); err != nil {
		return false, err
	}
	locked.Close()
	w.OnStep("disabled")
	w.say("rows that commit before %s are delivered, and later ones are the publisher's", at)
	w.warnOfLetters(ctx)
	return true, w.dropTriggers(ctx)
}

// dropTriggers ends the way back. A reader holds it up, and that is of no matter to anybody.
func (w *work) dropTriggers(ctx context.Context) error {
	for {
		err := provision.DropTriggers(ctx, w.Settings.Replication, w.cutTables())
		if err == nil {
			break
		}
		if postgres.Reason(err) != fault.ReasonLockTimeout {
			return err
		}
		w.say("%v; the trigger is disabled already, and it is tried again", err)
		select {
		case <-time.After(lockPause):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	w.OnStep("trigger_dropped")
	w.Out.Say(backfill.Line{What: "result", Text: "new rows are the publisher's; next, in this order:\n  1. see that a publisher runs: nobody else sends them\n  2. take the relay out of service: started again, it would send them too\n" +
		"  3. run `cdc-relay teardown --yes`: it drops the publication and " + w.finalName() + ", which would hold the WAL back\n  4. before another cutover with exactly_once or detect_moved_slot, name another postgres.slot: the checkpoint topic has positions of this one"})
	return nil
}

var errLate = errors.New("the slot is not there in time")

// reach waits until all slots are confirmed up to a position. A stall of zero waits as long as it
// takes.
func (w *work) reach(ctx context.Context, beside *provision.SlotReader, at wal.LSN, ended <-chan struct{}, stall time.Duration) error {
	names := make([]string, len(w.state.final))
	for i, slot := range w.state.final {
		names[i] = slot.Name
	}
	began, nudged := time.Now(), time.Time{}
	for {
		all, err := beside.Confirmed(ctx, names)
		if err != nil {
			return err
		}
		if slices.Min(all) >= at {
			return nil
		}
		if stall > 0 && time.Since(began) > stall {
			return errLate
		}
		if time.Since(nudged) > time.Second { // an idle server writes out what it has
			if err := beside.Nudge(ctx); err != nil {
				return err
			}
			nudged = time.Now()
		}
		select {
		case <-ended:
			return errEnded
		case <-time.After(20 * time.Millisecond):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

var errEnded = errors.New("the relay ended early; run the command again")

// ending is why it went no further: what ended the relay, if it ended by itself.
func (w *work) ending(ctx context.Context, err, relayErr error) error {
	if ctx.Err() == nil && relayErr != nil && errors.Is(err, errEnded) {
		return relayErr
	}
	return err
}
