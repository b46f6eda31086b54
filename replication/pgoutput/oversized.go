package pgoutput

import (
	"bytes"
	"encoding/binary"
	"fmt"

	"github.com/cdc-relay/cdc-relay/fault"
	"github.com/cdc-relay/cdc-relay/replication/wal"
)

// Oversized decides about a message over the limit, of which head is the beginning and
// size the length. It refuses one that would become a row. A message that is not delivered is
// counted as Decode does with the whole of it, and its body need not be read. counted is
// false for one that has to be decoded, such as a relation; those are small.
func (d *Decoder) Oversized(head []byte, size, limit int, walStart wal.LSN) (counted bool, err error) {
	subject := d.becomesRow(head)
	if subject == "" {
		return d.readPast(head, size, walStart)
	}
	past, row := "it", d.RowAhead()
	if row != nil {
		past = "the transaction, committing at " + row.Commit.String()
		row.Number = d.ordinal + 1
		if head[0] != 'M' {
			row.Table = subject
		}
	}
	return false, &fault.Error{
		Kind: fault.KindProtocol, Reason: fault.ReasonRowTooLarge, Op: "read row of", Subject: subject,
		LSN: d.position(walStart), Row: row,
		Err: fmt.Errorf("row %d of its transaction takes %d bytes, the limit is %d", d.ordinal+1, size, limit),
		Hint: "the relay did not read it and confirms nothing past it; raise relay.max_row_bytes if the relay has four times as much memory, " +
			"or move the slot past " + past + "; a CHECK on the payload's length keeps such rows out",
	}
}

// RowAhead is the place of whatever comes next, as far as the transaction in hand has it; nil
// outside one.
func (d *Decoder) RowAhead() *fault.Row {
	if !d.open {
		return nil
	}
	return &fault.Row{Commit: d.txn.Commit, Time: d.txn.Time}
}

// readPast counts a message that is not delivered, of which the beginning is at hand, as
// Decode does with the whole of it. It is false for one that has to be decoded, such as a
// relation; those are small.
func (d *Decoder) readPast(head []byte, size int, walStart wal.LSN) (counted bool, err error) {
	if d.failed != nil {
		return false, d.failed
	}
	switch head[0] {
	case 'I':
		if _, err = d.insertInto(head, walStart); err == nil {
			d.passForeign()
		}
	case 'U', 'D':
		f := fields{rest: head[1:]}
		r, unknown := d.lookup(f.uint32())
		err = d.refuse(walStart, "decode update or delete", "", d.inside(unknown))
		if err == nil && r.drift != nil && (head[0] == 'U' && d.wanted(r).Update || head[0] == 'D' && d.wanted(r).Delete) {
			err = d.drifted(r, "decode update or delete", walStart)
		}
		d.current().OtherOps++
	case 'M':
		f := fields{rest: head[1:]}
		flags, _ := f.byte(), f.lsn()
		if !bytes.Contains(f.rest, []byte{0}) { // a prefix this long may be configured
			return false, nil
		}
		err = d.refuse(walStart, "decode logical message", "", d.placed(flags))
	default:
		return false, nil
	}
	d.current().Received += size
	d.failed = err
	return err == nil, err
}

// becomesRow names the table or the prefix of a message of which the beginning is at
// hand, or is empty for one that is read past.
func (d *Decoder) becomesRow(head []byte) string {
	const flagsAndLSN = 1 + 1 + 8
	if len(head) < flagsAndLSN {
		return ""
	}
	switch head[0] {
	case 'I', 'U', 'D':
		r := d.relations[binary.BigEndian.Uint32(head[1:])]
		if r == nil || r.Table < 0 || head[0] == 'U' && !d.wants[r.Table].Update || head[0] == 'D' && !d.wants[r.Table].Delete {
			return ""
		}
		return r.Qualified()
	case 'M':
		prefix, _, whole := bytes.Cut(head[flagsAndLSN:], []byte{0})
		if whole && (d.byPrefix[string(prefix)] != nil || d.byPrefix[wal.AnyPrefix] != nil) {
			return fmt.Sprintf("message %q", prefix)
		}
	}
	return ""
}
