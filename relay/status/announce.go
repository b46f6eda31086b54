package status

import (
	"fmt"
	"strings"
	"time"

	"github.com/cdc-relay/cdc-relay/fault"
)

// announce logs a change of the shown state, and calls the event. It returns the message that it
// logged; empty: it logged none.
func (b *Monitor) announce() string {
	b.mu.Lock()
	now := time.Now()
	a := &b.announced
	from, was, blockedSince := a.state, a.reason, a.since
	state, reason, message := b.view(now)
	changed := state != from || reason != was
	hint := state == Blocked && strings.Contains(message, MoveSlot)
	more := !changed && hint && !a.skipHint
	if changed || more {
		a.skipHint, a.logged = hint, now
	}
	if changed {
		if state != from {
			a.since = now
		}
		if reason != was {
			a.whySince = now
		}
		if reason == "" {
			a.whySince = time.Time{}
		}
		a.state, a.reason = state, reason
		if reason == "" || reason != was {
			b.tries = tries{}
		}
	}
	b.mu.Unlock()
	if !changed && !more {
		return ""
	}
	switch {
	case more: // the block itself is logged
		b.log.Warn().Str("state", string(state)).Str("reason", reason).Msg("everything before the row that blocks is delivered: " + message)
	case state == Blocked:
		b.log.Error().Str("state", string(state)).Str("from", string(from)).Str("reason", reason).Msg("blocked: " + reason + ": " + message)
	default:
		b.logChange(from, state, was, reason, message, now.Sub(blockedSince))
	}
	if changed && b.changed != nil {
		b.changed(from, state, reason)
	}
	return message
}

// MoveSlot is PostgreSQL's function that gives up the transaction of a row. A message that
// has it is the whole advice.
const MoveSlot = "pg_replication_slot_advance"

// logChange logs a change to a state that is not Blocked.
func (b *Monitor) logChange(from, state State, was, reason, message string, held time.Duration) {
	line := b.log.Info()
	if reason != "" && state != Standby {
		line = b.log.Warn()
	}
	line = line.Str("state", string(state))
	what := "state changed"
	switch {
	case from == Blocked && state == Streaming:
		what = "no longer blocked, after " + held.Round(time.Second).String()
		line = line.Str("from", string(from))
	case state != from:
		line = line.Str("from", string(from))
	case reason == "" && state == Streaming && was == fault.ReasonConfirmedNotMoving:
		what = "the confirmed position moves again"
	case reason == "" && state == Streaming: // what view says of them alone has a reason there
		what = "the brokers answer again"
	default:
		what = "reason changed"
	}
	if was != "" && (state == from || from == Blocked) {
		line = line.Str("was", was)
	}
	if reason != "" {
		line = line.Str("reason", reason).Str("err", message)
	}
	line.Msg(what)
}

// Tick keeps what is shown current: it logs a change of the state, what still stands in the way,
// and how a backlog goes. Call it every moment.
func (b *Monitor) Tick(now time.Time) {
	b.announce()
	b.remind(now)
	b.follow(now)
	b.count(now)
	b.weigh(now)
}

// remindEvery is how often the log repeats what stands in the way.
const remindEvery = time.Minute

// remind repeats in the log what the relay is blocked at, and that no broker answers, with
// how long that has been so and what it costs PostgreSQL. A log of the last ten minutes has
// it, and so has an alert on lines.
func (b *Monitor) remind(now time.Time) {
	b.mu.Lock()
	state, reason, message := b.view(now)
	blocked := state == Blocked
	due := now.Sub(b.announced.logged) >= remindEvery && (blocked || reason == fault.ReasonKafkaUnreachable || reason == fault.ReasonConfirmedNotMoving)
	since, kept := b.announced.whySince, ""
	if due {
		b.announced.logged = now
		if reason != fault.ReasonKafkaUnreachable { // which has it already
			kept = b.kept(now)
		}
	}
	b.mu.Unlock()
	if !due {
		return
	}
	line := b.log.Warn()
	if blocked {
		line = b.log.Error()
	}
	line.Str("state", string(state)).Str("reason", reason).
		Msg(fmt.Sprintf("still %s, for %s: %s: %s%s", state, now.Sub(since).Round(time.Second), reason, message, kept))
}
