package status

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/cdc-relay/cdc-relay/fault"
	"github.com/cdc-relay/cdc-relay/sink"
	"github.com/cdc-relay/cdc-relay/wording"
)

// SetState sets the state of the relay's loop, and reports whether the log has the message
// with it. Stopping is final.
func (b *Monitor) SetState(s State, reason, message string) (logged bool) {
	b.mu.Lock()
	if b.state != Stopping {
		b.state, b.reason, b.message = s, reason, message
	}
	b.mu.Unlock()
	return strings.Contains(b.announce(), message)
}

// SetBlocked shows the relay as blocked. It and ClearBlocked move between Blocked and
// Streaming only, so that they cannot hide a stop.
func (b *Monitor) SetBlocked(reason string, cause error) { b.SetState(Blocked, reason, cause.Error()) }

// ClearBlocked ends what SetBlocked began.
func (b *Monitor) ClearBlocked() {
	b.mu.Lock()
	blocked := b.state == Blocked
	b.mu.Unlock()
	if blocked {
		b.SetState(Streaming, "", "")
	}
}

// Kafka has to stall for that long before the relay is shown as blocked: short back-pressure is
// normal.
const (
	fullUnreachable = time.Second
	fullSilent      = 10 * time.Second
)

// view is the state as users see it: the state that Run's goroutine set, and how a
// blocked row ahead, the window and the brokers change it. Call it with the lock held.
//
// A connection that comes and goes changes nothing about a blocked row, which waits
// for a person: the message names both. If another relay has the slot, the row is that relay's,
// and the message names only the slot.
func (b *Monitor) view(now time.Time) (State, string, string) {
	away := b.reachable(now)
	if o := b.blockedRow; o != nil && b.state == Streaming {
		return Blocked, o.reason, o.message
	} else if o != nil && b.state == Reconnecting {
		return Blocked, o.reason, o.message + "; at present also: " + b.advise(b.reason, b.message)
	}
	if b.state != Streaming || b.session == nil || b.sink == nil {
		return b.state, b.reason, b.advise(b.reason, b.message)
	}
	full, loading := b.session.BlockedFor(now)
	if away != nil {
		state, reason, message := Streaming, fault.ReasonKafkaUnreachable, away.Error()
		if refused, ok := errors.AsType[*sink.Error](away); ok {
			reason = refused.Reason
		}
		if full > fullUnreachable {
			state = Blocked
			if loading {
				message += "; reading is paused: no broker has given the partitions of a topic that the relay has not sent to since it connected"
			}
		}
		return state, reason, b.advise(reason, message)
	}
	// The time in which no broker answered is no silence of theirs.
	if full = min(full, now.Sub(b.brokers.away)); full > fullSilent {
		message := "the brokers answer but have not acknowledged a record for " + full.Round(time.Second).String() + ": look at min.insync.replicas and the partitions' leaders"
		if loading {
			message = "the brokers answer but have not said for " + full.Round(time.Second).String() + " where the partitions of a topic are: look at the partitions' leaders"
		}
		return Blocked, fault.ReasonKafkaNotAcknowledging, message
	}
	if reason, message, ok := b.standsStill(now); ok && b.reason == "" {
		return Streaming, reason, message
	}
	return b.state, b.reason, b.message
}

// reachable returns why no broker answers, and remembers when. Call it with the lock held.
func (b *Monitor) reachable(now time.Time) error {
	if b.sink == nil {
		return nil
	}
	err := b.sink.Reachable()
	if err != nil {
		b.brokers.away = now
	}
	return err
}

// DrainBlocker describes what a drain was waiting for. The state stopping hides every other.
func (b *Monitor) DrainBlocker(now time.Time) string {
	b.mu.Lock()
	defer b.mu.Unlock()
	if away := b.reachable(now); away != nil {
		return "and no broker answered: " + b.advise(fault.ReasonKafkaUnreachable, away.Error())
	}
	if o := b.blockedRow; o != nil && o.reason != "" {
		return "and the relay was blocked (" + o.reason + "): " + o.message
	}
	if b.session == nil {
		return "and there was no session with PostgreSQL"
	}
	return fmt.Sprintf("with %s unacknowledged or unconfirmed; check the brokers, or raise relay.drain_timeout", wording.Count(b.session.Stats().Rows, "row"))
}

// advise adds the next step to the message of brokers that do not answer, and how much time is
// left for it. Call it with the lock held.
func (b *Monitor) advise(reason, message string) string {
	if reason != fault.ReasonKafkaUnreachable {
		return message
	}
	message += "; start the brokers, or correct kafka.brokers or the addresses that they advertise"
	if b.snapshot == nil || b.snapshot.Drift != nil || b.snapshot.Slot.Restart == 0 {
		return message
	}
	slot := b.snapshot.Slot
	kept := wording.Bytes(max(0, int64(b.snapshot.WALEnd)-int64(slot.Restart)))
	if now := time.Now(); b.unanswered(now) {
		return message + "; PostgreSQL kept " + kept + " of WAL when it answered last, " + now.Sub(b.looked).Round(time.Second).String() + " ago"
	}
	if slot.SafeWAL == nil {
		return message + "; nothing is lost: PostgreSQL keeps the WAL, " + kept + " so far"
	}
	return message + "; nothing is lost before another " + wording.Bytes(max(0, *slot.SafeWAL)) + " of WAL: PostgreSQL keeps " + kept + " so far"
}

// kept describes how much WAL PostgreSQL keeps for the slot, and how much is left until the slot
// is lost. Call it with the lock held.
func (b *Monitor) kept(now time.Time) string {
	if b.snapshot == nil || b.snapshot.Drift != nil || b.snapshot.Slot.Restart == 0 {
		return ""
	}
	slot := b.snapshot.Slot
	kept := wording.Bytes(max(0, int64(b.snapshot.WALEnd)-int64(slot.Restart))) + " of WAL for the slot"
	if b.unanswered(now) {
		return "; PostgreSQL kept " + kept + " when it answered last, " + now.Sub(b.looked).Round(time.Second).String() + " ago"
	}
	text := "; PostgreSQL keeps " + kept
	if slot.SafeWAL == nil {
		return text
	}
	text += ", which is lost after another " + wording.Bytes(max(0, *slot.SafeWAL))
	if lasts, known := b.budget.lasts(*slot.SafeWAL); known {
		text += ", in about " + lasts.String() + " at the present pace"
	}
	return text
}
