package records

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"time"

	"github.com/cdc-relay/cdc-relay/advice"
	"github.com/cdc-relay/cdc-relay/checkpoint/stored"
	"github.com/cdc-relay/cdc-relay/deadletter/waiting"
	"github.com/cdc-relay/cdc-relay/fault"
	"github.com/cdc-relay/cdc-relay/proof"
	"github.com/cdc-relay/cdc-relay/relay"
	"github.com/cdc-relay/cdc-relay/sink"
	"github.com/cdc-relay/cdc-relay/sink/topics"
	"github.com/cdc-relay/cdc-relay/wording"
)

// Waiting implements proof.Records. It is asked after Kept.
func (t *Table) Waiting(ctx context.Context) (found proof.Waiting, err error) {
	err = t.Reader.read(ctx, true, func() {
		table := t.letters()
		held := t.Reader.waiting.Of(table)
		found = proof.Waiting{IDs: held.IDs, NoID: held.NoID, All: held.Any() || held.Letters > 0 && !t.byID(), Full: t.Reader.waiting.Full()}
		if t.Discarded && t.byID() {
			var ids map[string]struct{}
			ids, found.Unmarked = t.Reader.waiting.Discarded(table)
			maps.Copy(found.IDs, ids)
		}
	})
	if err != nil {
		return proof.Waiting{}, err
	}
	return found, nil
}

// letters select those of the table.
func (t *Table) letters() *waiting.Table {
	cfg := &t.Reader.settings.Replication
	return &waiting.Table{Name: t.Table, OID: t.OID, ID: t.ID, Others: cfg.Tables, Messages: cfg.Messages}
}

// byID reports whether dead letters name the table's rows.
func (t *Table) byID() bool { return t.ID.Name != "" }

// Held reads the dead letters up to where their topic ends at the call, and returns those of
// the table.
func (t *Table) Held(ctx context.Context) (held waiting.Held, full bool, err error) {
	err = t.Reader.read(ctx, false, func() { held, full = t.Reader.waiting.Of(t.letters()), t.Reader.waiting.Full() })
	return held, full, err
}

// Unnamed says of letters that do not name their rows why they do not, and what ends it.
func (t *Table) Unnamed(held *waiting.Held) (notes []string) {
	note := func(n int, one, several string) {
		switch {
		case n == 1:
			notes = append(notes, "a dead letter waits that may be of any row, as "+one+": all rows are held back until its pipeline has sent or discarded it (`cdc-relay deadletter redrive`)")
		case n > 1:
			notes = append(notes, fmt.Sprintf("%d dead letters wait that may be of any row, as %s: all rows are held back until their pipeline has sent or discarded them (`cdc-relay deadletter redrive`)", n, several))
		}
	}
	if n := held.Former; n > 0 {
		notes = append(notes, fmt.Sprintf("%s of %s, whose slot does not exist, %s: send or discard %s with `cdc-relay deadletter redrive --source %[2]s`",
			wording.Count(n, "dead letter"), held.FormerSource, map[bool]string{true: "waits", false: "wait"}[n == 1], map[bool]string{true: "it", false: "them"}[n == 1]))
	}
	if !t.byID() {
		const why = "the event id of the table is not the text of one column"
		note(held.Letters, why, why)
		return notes
	}
	note(held.Stripped, "it was too large for its event id", "they were too large for their event ids")
	note(held.Earlier, "an earlier version wrote it, without its table's OID and the column of its event id", "an earlier version wrote them, without their table's OID and the column of their event ids")
	switch of := held.Example; of.Name {
	case "":
		note(held.Other, "its event id is not the text of one column", "their event ids are not the text of one column")
	case t.ID.Name:
		why := fmt.Sprintf("column %q had another type then", of.Name)
		note(held.Other, why, why)
	default:
		why := fmt.Sprintf("of column %q, and not of %q as the mapping has it now", of.Name, t.ID.Name)
		note(held.Other, "its event id is "+why, "their event ids are "+why)
	}
	return notes
}

// Named are the letters of the table that were read so far and wait, by event id.
func (t *Table) Named() map[string]waiting.Named { return t.Reader.waiting.Named(t.letters()) }

// visit takes a record of the dead-letter topic; nil: the topic was deleted and created again.
func (r *Reader) visit(m *topics.Message) {
	if m == nil {
		if n := r.waiting.Len(); n > 0 {
			r.lost.Add(int64(n))
			r.log.Warn().Int("letters", n).Str("topic", r.settings.DeadLetterTopic).Msg("the dead-letter topic was deleted and created again while dead letters waited: these are lost, and retention and marks pause")
		}
	}
	r.waiting.Read(m)
}

// settingsAge is how long the topic's settings are taken to be as they were.
const settingsAge = 5 * time.Second

// read has take see the letters that wait, after everything that their topic holds now was read. The
// topic is looked at after that: what take saw is all only if no record was deleted until then,
// and the topic is the one that always had the letters. first: whoever asks knows that nothing
// is recorded of that, if nothing was read.
func (r *Reader) read(ctx context.Context, first bool, take func()) error {
	within, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	err := r.letters.CatchUp(within, true)
	gone := err != nil && r.without(err) && r.recorded() == nil // there never was a topic
	if err == nil || gone {
		take()
	}
	if err == nil {
		err = r.unchanged(within, first)
	}
	switch {
	case err == nil, gone:
		return nil
	case ctx.Err() != nil:
		return context.Cause(ctx)
	}
	return r.lettersUnread(err)
}

func (r *Reader) lettersKey() string {
	return stored.LettersTopicKey(r.Origin().SystemID, r.settings.Replication.BaseSlot())
}

// recorded is what the checkpoint topic has of the dead-letter topic; nil: nothing.
func (r *Reader) recorded() []byte { return r.keys.get(r.lettersKey()) }

// unchanged returns why letters may have waited that the topic does not hold.
func (r *Reader) unchanged(ctx context.Context, first bool) error {
	topic := r.settings.DeadLetterTopic
	seen, err := r.letters.Extent(ctx, r.kept, settingsAge)
	if err != nil {
		return err
	}
	if seen.ID == "" {
		return advice.Give(errors.New("the brokers give topics no ids, as Kafka before 2.8: nothing would show that it was deleted and created again, and that the letters that waited in it are lost"),
			"use brokers that give topics ids (Kafka 2.8 or later), and then declare it: `cdc-relay setup --before-slot delivered`")
	}
	now := stored.LettersTopic{Topic: topic, ID: seen.ID, Begins: seen.Begins, At: time.Now()}
	value := r.recorded()
	if value == nil {
		if changed := (*stored.LettersTopic)(nil).Changed(&now); changed != "" || !first {
			return declare(changed)
		}
		return r.record(ctx, &now)
	}
	was, err := stored.ParseLettersTopic(value)
	if err != nil {
		return fmt.Errorf("checkpoint topic %q: %w", r.settings.CheckpointTopic, err)
	}
	if changed := was.Changed(&now); changed != "" {
		return declare(changed)
	}
	r.lost.Store(0) // or somebody said what became of them
	return nil
}

// declare is the error of letters that may be lost, and what to do about it.
func declare(changed string) error {
	if changed == "" {
		return nil
	}
	return advice.Give(errors.New(changed+": dead letters that waited may be lost, and nobody has delivered their rows"), stored.DeclareLetters)
}

func (r *Reader) record(ctx context.Context, now *stored.LettersTopic) error {
	ledger, err := topics.NewLedger(r.settings.Kafka.Connection, r.settings.CheckpointTopic)
	if err != nil {
		return err
	}
	defer ledger.Close()
	return ledger.Write(ctx, r.lettersKey(), now.Encode())
}

// without reports that there is no topic of dead letters, and need not be one.
func (r *Reader) without(err error) bool {
	e, ok := errors.AsType[*sink.Error](err)
	return ok && e.Reason == fault.ReasonUnknownTopic && r.settings.OnReject != relay.DeadLetterOnReject
}

func (r *Reader) lettersUnread(err error) error {
	kind := fault.KindRefused
	if e, ok := errors.AsType[*sink.Error](err); ok && e.Class == sink.Retry {
		kind = fault.KindRetry
	}
	seen, next := advice.Split(err)
	if n := int(r.lost.Load()) + r.waiting.Len(); n > 0 && kind == fault.KindRefused {
		seen += "; " + wording.Count(n, "dead letter") + " of this configuration waited when it was last read"
	}
	return &fault.Error{Kind: kind, Reason: fault.ReasonDeadLettersUnread, Op: "read the dead letters", Subject: fmt.Sprintf("topic %q", r.settings.DeadLetterTopic), Err: errors.New(seen), Hint: next}
}
