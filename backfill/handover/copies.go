package handover

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/cdc-relay/cdc-relay/backfill/progress"
	"github.com/cdc-relay/cdc-relay/checkpoint/stored"
	"github.com/cdc-relay/cdc-relay/postgres"
	"github.com/cdc-relay/cdc-relay/postgres/catalog"
	"github.com/cdc-relay/cdc-relay/postgres/provision"
	"github.com/cdc-relay/cdc-relay/postgres/snapshot"
	"github.com/cdc-relay/cdc-relay/relay"
	"github.com/cdc-relay/cdc-relay/relay/checkpoints"
	"github.com/cdc-relay/cdc-relay/relay/promise"
	"github.com/cdc-relay/cdc-relay/replication/wal"
	"github.com/cdc-relay/cdc-relay/sink/topics"
)

// Copies makes the slots from which run streams, as copies of one that stands where they are to
// begin, and writes what is known of the rows before them. Each step may have been done by a call
// before.
type Copies struct {
	Settings relay.Config
	Ledger   *topics.Ledger // nil: the configuration keeps no positions

	Source   string // the slot that is copied
	Slots    []Slot
	System   string // system identifier of the cluster
	Timeline int32
	Began    wal.LSN // where the timeline begins: wal.Origin.Begin
	Point    wal.LSN // where Source stands
	Tables   []Table

	Say, Warn func(text string)
	OnStep    func(step string)

	Changed []string // Make notes the tables whose publication was changed
}

// Slot is a configured slot, of one shard.
type Slot struct {
	Name   string
	Exists bool
	Ours   bool // the record of the rows before it is written, with Point
}

// Table is a table of the publication.
type Table struct {
	Name    string
	OID     uint32
	Unknown bool // it has rows from before Point of which nobody knows whether they are delivered

	// As is what Published returned before Point; empty: nobody asked then. Until is the position up to which it was
	// so, if a later call found another one.
	As, Until string

	published map[string]string // as catalog.PublishedAs has it
	ended     uint64            // catalog.EndedBefore the source
}

// Make does what is not done yet.
func (h *Copies) Make(ctx context.Context, holder *snapshot.Holder) error {
	for _, slot := range h.Slots {
		if slot.Exists {
			continue
		}
		if err := h.forget(ctx, slot.Name); err != nil {
			return err
		}
		err := holder.Ask(ctx, func(q postgres.Querier, version int) error {
			warning, err := provision.CopySlot(q, h.Settings.Replication, version, h.Source, slot.Name)
			if warning != "" {
				h.Warn(warning)
			}
			return err
		})
		if err != nil {
			return err
		}
		h.OnStep("copied")
		h.Say(fmt.Sprintf("made slot %q at %s", slot.Name, h.Point))
	}
	if err := holder.Ask(ctx, h.lookUpPublications); err != nil {
		return err
	}
	for i := range h.Slots {
		if err := h.begins(ctx, holder, h.Settings.OfShard(i, len(h.Slots)), h.Slots[i]); err != nil {
			return err
		}
		h.OnStep("written")
	}
	return nil
}

func (h *Copies) lookUpPublications(q postgres.Querier, version int) error {
	ended, err := catalog.EndedBefore(q, h.Source)
	if err != nil {
		return postgres.Classify("look at slot "+h.Source, err)
	}
	for i := range h.Tables {
		t := &h.Tables[i]
		t.ended = ended
		if t.published, err = publishedAs(q, version, h.Settings.Replication, t.OID); err != nil {
			return err
		}
		if t.As == "" || catalog.Fingerprint(t.published) == t.As {
			continue
		}
		t.Unknown = true
		h.Changed = append(h.Changed, t.Name)
		h.Warn(PublicationChanged(t.Name, cmp.Or(t.Until, h.Point.String())) + "; find them with `cdc-relay audit`, and send them with `cdc-relay replay`")
	}
	return nil
}

// PublicationChanged is said of a table whose publications are not as they were up to a position.
func PublicationChanged(table, since string) string {
	return fmt.Sprintf("the publication of table %s was changed since %s: rows that were written while it did not have the table are in no stream", table, since)
}

// Published tells how the publications have a table. What is returned differs after any change of
// them that concerns the table.
func Published(ctx context.Context, holder *snapshot.Holder, cfg postgres.Config, table uint32) (as string, err error) {
	err = holder.Ask(ctx, func(q postgres.Querier, version int) error {
		published, err := publishedAs(q, version, cfg, table)
		as = catalog.Fingerprint(published)
		return err
	})
	return as, err
}

func publishedAs(q postgres.Querier, version int, cfg postgres.Config, table uint32) (map[string]string, error) {
	var publications []string
	for _, shard := range cfg.Shards() {
		publications = append(publications, shard.Publication)
	}
	published, err := catalog.PublishedAs(q, version, table, publications)
	return published, postgres.Classify("look at publications", err)
}

// forget removes the positions of an earlier slot of the name, from which nobody streamed (NeverStreamed).
// They may lie behind the copy: of a server that was put back to an older copy since, the WAL up to them is
// gone. Whoever streams from the new slot would take its rows up to there for delivered. So they go before
// there is a slot.
func (h *Copies) forget(ctx context.Context, slot string) error {
	if h.Ledger == nil {
		return nil
	}
	writing, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	known, err := recorded(writing, h.Ledger, h.System, slot)
	if err != nil || len(known) == 0 {
		return err
	}
	if err := promise.TakeBack(writing, h.Ledger, h.System, slot, h.Settings.Version); err != nil { // what was known was known of that slot
		return err
	}
	for key := range known {
		if err := h.Ledger.Write(writing, key, nil); err != nil {
			return err
		}
	}
	return nil
}

// setupHolder is who writes a slot's first position, among the holders of a slot.
const setupHolder = "setup"

// begins writes where a slot begins, between two records of what lies before it: see
// stored.BeforeSlot for the order. A relay that began meanwhile has written its own position.
func (h *Copies) begins(ctx context.Context, holder *snapshot.Holder, cfg relay.Config, slot Slot) error {
	if h.Ledger == nil {
		return nil
	}
	writing, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	if !slot.Ours {
		if err := promise.TakeBack(writing, h.Ledger, h.System, slot.Name, h.Settings.Version); err != nil { // of an earlier slot
			return err
		}
		if err := h.before(writing, cfg, stored.BeforeUnknown); err != nil {
			return err
		}
	}
	known, err := recorded(writing, h.Ledger, h.System, slot.Name)
	if err != nil {
		return err
	}
	end, err := holder.WALInserted(ctx) // last: who streams writes no position beyond it
	if err != nil {
		return err
	}
	for key, rec := range known {
		gone := rec.Timeline == holder.Origin().Timeline && rec.Exceeds(end)
		if rec.End >= h.Point && !gone {
			continue
		}
		if gone {
			h.Warn(fmt.Sprintf("the server's WAL ends at %s, before the position %s of slot %q in topic %s: its disk was put back to a copy, or it lost flushed WAL; the position is forgotten, and rows from %s on are sent, of which some may be repeated",
				end, rec.End, slot.Name, h.Settings.CheckpointTopic, h.Point))
		}
		// Else it is of an earlier slot that nobody streamed from.
		if err := h.Ledger.Write(writing, key, nil); err != nil {
			return err
		}
		delete(known, key)
	}
	if len(known) == 0 {
		rec := stored.Position{
			System: h.System, Timeline: h.Timeline, Began: h.Began, Slot: slot.Name, Publication: cfg.Replication.Publication, Relay: h.Settings.Version, End: h.Point,
		}
		if cfg.Guarantee == relay.ExactlyOnce {
			err = checkpoints.WriteFirst(writing, h.Settings.Replication, cfg, &rec)
			if errors.Is(err, checkpoints.ErrTaken) {
				err = nil
			}
		} else {
			err = h.Ledger.Write(writing, stored.PromiseKey(setupHolder, h.System, slot.Name), rec.Encode())
		}
		if err != nil {
			return err
		}
	}
	return h.before(writing, cfg, stored.BeforeSent)
}

// before writes what is known of the rows before a slot, in each table. Of rows that were left out
// that is nothing.
func (h *Copies) before(ctx context.Context, cfg relay.Config, known stored.Before) error {
	slot := cfg.Replication.Slot
	kind := stored.Promises
	if h.Settings.Guarantee == relay.ExactlyOnce {
		kind = stored.Checkpoints
	}
	for _, t := range h.Tables {
		about := known
		if t.Unknown {
			about = stored.BeforeUnknown
		}
		rec := stored.BeforeSlot{
			System: h.System, Timeline: h.Timeline, Began: h.Began, Slot: slot, Table: t.Name, OID: t.OID,
			Before: about, Point: h.Point, Positions: kind, Published: t.published[cfg.Replication.Publication], Ended: t.ended, At: time.Now(), Relay: h.Settings.Version,
		}
		if err := h.Ledger.Write(ctx, stored.BeforeSlotKey(h.System, slot, t.OID), rec.Encode()); err != nil {
			return err
		}
	}
	return nil
}

// WroteBefore reports whether a slot's record of the rows before it, in any of the tables, has
// this beginning.
func WroteBefore(ctx context.Context, ledger *topics.Ledger, system, slot string, tables []uint32, point wal.LSN) (bool, error) {
	return anyBefore(ctx, ledger, system, slot, tables, func(rec *stored.BeforeSlot) bool { return rec.Point == point })
}

// WroteOrDeclared reports the same, or that somebody has declared the rows before the slot delivered,
// which writes a later beginning.
func WroteOrDeclared(ctx context.Context, ledger *topics.Ledger, system, slot string, tables []uint32, point wal.LSN) (bool, error) {
	return anyBefore(ctx, ledger, system, slot, tables, func(rec *stored.BeforeSlot) bool {
		return rec.Point == point || rec.Before == stored.BeforeDeclared
	})
}

func anyBefore(ctx context.Context, ledger *topics.Ledger, system, slot string, tables []uint32, is func(*stored.BeforeSlot) bool) (bool, error) {
	for _, oid := range tables {
		value, err := ledger.Committed(ctx, stored.BeforeSlotKey(system, slot, oid))
		if err != nil {
			return false, err
		}
		if rec, err := stored.ParseBeforeSlot(value); value != nil && err == nil && is(&rec) {
			return true, nil
		}
	}
	return false, nil
}

// lookFor is how long the records of an earlier call are looked for, where no broker is needed otherwise.
const lookFor = 10 * time.Second

// WithRecords has do read the checkpoint topic, if the configuration keeps positions.
func WithRecords(ctx context.Context, settings *relay.Config, do func(context.Context, *topics.Ledger) error) error {
	if !settings.KeepsPositions() {
		return nil
	}
	ledger, err := topics.NewLedger(settings.Kafka.Connection, settings.CheckpointTopic)
	if err != nil {
		return err
	}
	defer ledger.Close()
	within, cancel := context.WithTimeout(ctx, lookFor)
	defer cancel()
	return do(within, ledger)
}

// RefuseUsedNames is NeverStreamed for those slots that do not exist.
func RefuseUsedNames(ctx context.Context, ledger *topics.Ledger, topic, system string, slots []progress.Slot) error {
	for _, slot := range slots {
		if slot.Exists {
			continue
		}
		if err := NeverStreamed(ctx, ledger, topic, system, slot.Name); err != nil {
			return err
		}
	}
	return nil
}

// NeverStreamed refuses the name of a slot from which a relay has streamed.
func NeverStreamed(ctx context.Context, ledger *topics.Ledger, topic, system, slot string) error {
	began, err := ledger.Read(ctx, stored.BeforeSlotSuffix(system, slot))
	if err != nil {
		return err
	}
	positions, err := recorded(ctx, ledger, system, slot)
	if err != nil {
		return err
	}
	for _, rec := range positions {
		if !begins(began, rec.End) {
			return progress.Refuse(fmt.Errorf("topic %q has a position of an earlier slot %s, from which a relay has streamed", topic, slot),
				"choose another postgres.slot; the publication may stay, unless another relay streams with it; a backfill with --where can send the rows that the old relay did not send")
		}
	}
	return nil
}

// recorded are the positions that the topic has of a slot, by their keys.
func recorded(ctx context.Context, ledger *topics.Ledger, system, slot string) (map[string]stored.Position, error) {
	positions := make(map[string]stored.Position)
	for _, guarantee := range []relay.Guarantee{relay.AtLeastOnce, relay.ExactlyOnce} {
		values, err := checkpoints.Read(ctx, ledger, guarantee, system, slot)
		if err != nil {
			return nil, err
		}
		for key, value := range values {
			rec, err := stored.ParsePosition(value)
			if err != nil {
				return nil, progress.Refuse(err, "choose another postgres.slot")
			}
			positions[key] = rec
		}
	}
	return positions, nil
}

// begins reports whether a position is where a slot began: nothing was confirmed past it.
func begins(began map[string][]byte, end wal.LSN) bool {
	for _, value := range began {
		if rec, err := stored.ParseBeforeSlot(value); err == nil && rec.Point == end {
			return true
		}
	}
	return false
}
