package promise

import (
	"bytes"
	"context"
	"slices"
	"time"

	"github.com/cdc-relay/cdc-relay/checkpoint/stored"
	"github.com/cdc-relay/cdc-relay/replication/wal"
	"github.com/rs/zerolog"
)

// doubtPatience is how long the ledger may take. A relay that stays blocked tries again.
const doubtPatience = 5 * time.Second

// Doubts are what a relay writes when a change of publication or table left rows out of the
// stream: the slot's position is ahead of them, and nobody may take a row of the slot's tables for
// delivered until a person says so (stored.BeforeDeclared).
type Doubts struct {
	written, looked bool
	gone            []byte // the checkpoint for which Absent took back all
}

// Again has Absent look once more: another relay has used the slot.
func (d *Doubts) Again() { d.looked = false }

// Absent makes unknown, once, what was recorded (stored.BeforeSlot) of tables that this relay does not
// stream: the slot moves past rows that nobody sends. It does the same for tables that the relay before it
// did not stream, if the record is older than start: the slot has moved past their rows.
//
// And it does the same for all tables where the server's WAL ended before the checkpoint, which is then gone
// (else nil): the server was put back to an older copy. What was recorded may be of a slot that the copy did
// not have, and this one may have been made behind rows that nobody sent. With promises Open does that.
//
// Nothing may be confirmed before that. It takes no longer than limit.
func (d *Doubts) Absent(ctx context.Context, limit time.Duration, ledger Ledger, system, slot, version string, start wal.LSN, gone []byte, tables []*wal.Relation) error {
	lost := gone != nil && !bytes.Equal(gone, d.gone)
	if ledger == nil || d.looked && !lost {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	known, err := ledger.Read(ctx, stored.BeforeSlotSuffix(system, slot))
	if err != nil {
		return err
	}
	ours := stored.Streamed{Relay: version}
	for _, t := range tables {
		ours.Tables = append(ours.Tables, t.OID)
	}
	key := stored.StreamedKey(system, slot)
	before, unknown := stored.ParseStreamed(known[key])
	lacked := func(rec *stored.BeforeSlot) bool {
		return unknown == nil && rec.Point < start && !slices.Contains(before.Tables, rec.OID)
	}
	err = takeBack(ctx, ledger, known, version, func(rec *stored.BeforeSlot) bool {
		return lost || !slices.Contains(ours.Tables, rec.OID) || lacked(rec)
	})
	if err == nil && !bytes.Equal(known[key], ours.Encode()) { // last: until then the tables of before count
		err = ledger.Write(ctx, key, ours.Encode())
	}
	if d.looked = err == nil; d.looked && lost {
		d.gone = gone
	}
	return err
}

// Write takes back what is known of the rows of a slot, once, also after a stop was asked for.
// Without a ledger nothing is known.
func (d *Doubts) Write(ctx context.Context, ledger Ledger, system, slot, version string, log zerolog.Logger) {
	if ledger == nil || d.written {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), doubtPatience)
	defer cancel()
	if err := TakeBack(ctx, ledger, system, slot, version); err != nil {
		log.Error().Err(err).Msg("cannot record in the checkpoint topic that rows may be missing from the stream: do not run `cdc-relay retention` or `cdc-relay mark`, and set maintenance.in_run: false")
		return
	}
	d.written = true
}

// TakeBack takes back what is known of the rows of a slot, in all tables, also in those that the
// configuration does not have any more.
func TakeBack(ctx context.Context, ledger Ledger, system, slot, version string) error {
	known, err := ledger.Read(ctx, stored.BeforeSlotSuffix(system, slot))
	if err != nil {
		return err
	}
	return takeBack(ctx, ledger, known, version, func(*stored.BeforeSlot) bool { return true })
}

func takeBack(ctx context.Context, ledger Ledger, known map[string][]byte, version string, of func(*stored.BeforeSlot) bool) error {
	for key, value := range known {
		rec, err := stored.ParseBeforeSlot(value)
		if err != nil || !rec.Before.Known() || !of(&rec) {
			continue // nobody relies on it
		}
		rec.Before, rec.At, rec.Relay = stored.BeforeUnknown, time.Now(), version
		if err := ledger.Write(ctx, key, rec.Encode()); err != nil {
			return err
		}
	}
	return nil
}
