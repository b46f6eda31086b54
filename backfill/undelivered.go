package backfill

import (
	"context"
	"errors"
	"fmt"

	"github.com/cdc-relay/cdc-relay/backfill/progress"
	"github.com/cdc-relay/cdc-relay/deadletter"
	"github.com/cdc-relay/cdc-relay/deadletter/waiting"
	"github.com/cdc-relay/cdc-relay/fault"
	"github.com/cdc-relay/cdc-relay/relay"
	"github.com/cdc-relay/cdc-relay/replication/wal"
	"github.com/cdc-relay/cdc-relay/router/record"
	"github.com/cdc-relay/cdc-relay/sink"
	"github.com/cdc-relay/cdc-relay/wording"
)

// undelivered are the rows of a plan whose keys have dead letters that wait: a row of such a key
// that is sent lands before rows that no consumer has.
type undelivered struct {
	keys   waiting.Keys
	unread error // why nobody can tell

	rows  int64
	of    map[string]struct{} // topics and keys of these rows
	first waiting.Oldest      // of the first of these rows
}

// readUndelivered reads which keys have dead letters that wait, where the order of a key is at
// stake: rows are set aside, and records go to their own topics.
func (r *replay) readUndelivered(ctx context.Context, w *work) {
	if w.settings.OnReject != relay.DeadLetterOnReject || r.Options.ToTopic != "" || r.facts.none {
		return
	}
	u := &r.plan.undelivered
	set, err := LoadWaiting(ctx, &w.settings, w.holder.Origin())
	if err != nil {
		u.unread = err
		return
	}
	u.keys, u.of = set.Keys(), make(map[string]struct{})
}

// LoadWaiting reads which dead letters of the configured slots wait. More of them than can be kept
// are an error.
func LoadWaiting(ctx context.Context, settings *relay.Config, here wal.Origin) (*waiting.Set, error) {
	topic := settings.DeadLetterTopic
	set, err := waiting.Load(ctx, settings.Kafka.Connection, topic, func(source string) bool {
		system, database, slot := deadletter.SplitSource(source)
		return system == here.SystemID && database == here.Database && settings.Replication.OwnSlot(slot)
	})
	e, ok := errors.AsType[*sink.Error](err)
	switch {
	case ok && e.Reason == fault.ReasonUnknownTopic && settings.Kafka.CreateTopics.Enabled: // made with the first dead letter
		return set, nil
	case err != nil:
		return nil, err
	case set.Full():
		return nil, fmt.Errorf("more dead letters wait in topic %s than can be held against the rows", topic)
	}
	return set, nil
}

// noteUndelivered notes a row that was routed if its key has dead letters that wait.
func (r *replay) noteUndelivered(row *wal.Row) {
	u := &r.plan.undelivered
	if len(u.keys) == 0 {
		return
	}
	records := r.buf.Records
	if len(records) == 0 { // its schema is not known; its key is
		rec, _ := r.routes.Salvage(&r.buf, row)
		records = []record.Record{rec}
	}
	counted := false
	for i := range records {
		rec := &records[i]
		if rec.Key == nil {
			continue
		}
		first, held := u.keys.Of(rec.Topic, rec.Key)
		if !held {
			continue
		}
		if len(u.of) == 0 {
			u.first = first
		}
		if u.of[rec.Topic+"\x00"+string(rec.Key)] = struct{}{}; !counted {
			u.rows++
			counted = true
		}
	}
}

// text says what is known; empty: no row is in question.
func (u *undelivered) text() string {
	switch {
	case u.unread != nil:
		return "nobody can tell which keys have dead letters that wait: " + u.unread.Error()
	case u.rows > 0:
		return fmt.Sprintf("%s of %s with dead letters that wait, for example of the row of table %s at %s: that row has been sent to no consumer",
			wording.Count(u.rows, "row"), wording.Count(int64(len(u.of)), "key"), u.first.Table, u.first.Place)
	}
	return ""
}

// step is what to do about it.
func (u *undelivered) step() string {
	if u.unread != nil {
		return "make the topic readable, or use --to-topic or --accept-order"
	}
	return "send the dead letters first: `cdc-relay deadletter redrive`; or use --to-topic or --accept-order"
}

// refusal is why rows of such keys are not sent unasked.
func (u *undelivered) refusal(o *ReplayOptions) error {
	text := u.text()
	if text == "" || o.AcceptOrder {
		return nil
	}
	return progress.Refuse(errors.New(text), u.step())
}
