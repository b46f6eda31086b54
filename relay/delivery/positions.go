package delivery

import (
	"errors"

	"github.com/cdc-relay/cdc-relay/replication/wal"
	"github.com/cdc-relay/cdc-relay/router/record"
)

// With position headers a record names the end of its transaction's commit record,
// which the server sends only after the last row. So the rows of a transaction that
// continues in the next batch are held until its commit was read; they count in the
// window like all others. A transaction that does not fit is read through to its
// end, without keeping any of it, and then once more from the slot: the second time
// its end is known from the start, and nothing is held.

// errReadAgain ends a session to have a transaction sent again whose end is known now.
var errReadAgain = errors.New("a transaction is larger than relay.max_in_flight_bytes, and relay.position_headers needs the end of its commit")

// withPosition fills in positions, and returns the records before the first one whose position
// is not known.
func (d *Delivery) withPosition(records []record.Record) []record.Record {
	if !d.shared.router.PositionHeaders() {
		return records
	}
	for i := range records {
		if !d.fillPosition(&records[i]) {
			return records[:i]
		}
	}
	return records
}

func (d *Delivery) fillPosition(rec *record.Record) bool {
	txn := rec.Row.Txn
	if end, known := d.shared.ends[rec.Row.Place().Commit]; known && txn.End == 0 {
		txn.End = end
	}
	return record.FillPosition(rec)
}

// holdBack holds back a batch whose last rows, those after its Through, have no position yet.
func (d *Delivery) holdBack(f *InFlight) {
	d.held = append(d.held, f)
	first := len(f.batch.Rows) - 1
	for first > 0 && f.endUnknown(first-1) {
		first--
	}
	f.remaining = f.commitOf(first)
	f.through.Store(uint64(f.batch.Through))
	f.confirmBeforeHeld(f.pending.Load())
}

// confirmBeforeHeld confirms the transactions of a batch before the held one, once all records before
// the held rows are durable. It runs on the deliverer and on goroutines of the sink; the deliverer
// may have sent the rest and released the batch by then.
func (f *InFlight) confirmBeforeHeld(left int64) {
	if through := f.through.Load(); left == 1 && through != 0 {
		f.ticket.Partial(wal.LSN(through), f.remaining)
	}
}

// Begin takes each batch first. It sends the rows that waited for the end of their transaction, if the batch
// has it. An error ends the session.
func (d *Delivery) Begin(b *wal.Batch) error {
	if err := d.follow(b); err != nil {
		return err
	}
	if b.Closes != 0 {
		d.sendHeld(b.Closes)
	}
	return nil
}

// sendHeld sends the rows that waited for the commit that ends at end.
func (d *Delivery) sendHeld(end wal.LSN) {
	held := d.held
	d.held = nil
	for _, f := range held {
		rows := f.batch.Rows
		for i := len(rows) - 1; i >= 0 && f.endUnknown(i); i-- {
			rows[i].Txn.End = end
		}
		f.through.Store(0)
		d.send(f)
		f.countDown()
	}
}

// endUnknown reports that the end of a row's transaction was not read yet.
func (f *InFlight) endUnknown(row int) bool {
	r := &f.batch.Rows[row]
	return r.Txn.End == 0 && !r.Outside()
}

// Holding reports whether rows wait for the commit of their transaction.
func (d *Delivery) Holding() bool { return len(d.held) > 0 }

// ReadThrough returns the error that ends a session which read the transaction of the held
// rows to its end: the next one knows where that is.
func (d *Delivery) ReadThrough(end wal.LSN) error {
	rows := d.held[0].batch.Rows
	if d.shared.ends == nil {
		d.shared.ends = make(map[wal.LSN]wal.LSN)
	}
	d.shared.ends[rows[len(rows)-1].Txn.Commit] = end
	return errReadAgain
}
