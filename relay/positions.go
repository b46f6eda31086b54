package relay

import (
	"context"
	"errors"

	"github.com/cdc-relay/cdc-relay/deadletter"
	"github.com/cdc-relay/cdc-relay/replication/wal"
	"github.com/cdc-relay/cdc-relay/router/record"
)

// With position headers a record names the end of its transaction's commit record,
// which the server tells only behind the last row. So the rows of a transaction that
// goes on in the next batch are held until its commit was read; they count in the
// window like all others. A transaction that does not fit is read through to its
// end, without keeping any of it, and then once more from the slot: the second time
// its end is known from the start, and nothing is held.

// knownEnd is the end of a transaction that was read through.
type knownEnd struct {
	origin      wal.Origin
	commit, end wal.LSN
}

// errReadAgain ends a session to have a transaction sent again whose end is known now.
var errReadAgain = errors.New("a transaction is larger than relay.max_in_flight_bytes, and relay.position_headers needs the end of its commit")

// placed are the records, from the first on, whose position is known, with it filled
// in.
func (s *session) placed(records []record.Record) []record.Record {
	if !s.r.cfg.PositionHeaders {
		return records
	}
	for i := range records {
		if s.place(&records[i]) {
			continue
		}
		return records[:i]
	}
	return records
}

func (s *session) place(rec *record.Record) bool {
	txn := rec.Row.Txn
	if known := s.r.ends; txn.End == 0 && deadletter.RowOf(rec.Row).Commit == known.commit && s.Lineage() == known.origin.Lineage() {
		txn.End = known.end
	}
	return record.Place(rec)
}

// keep holds a flight back of which rows have no position yet. Those are the rows behind
// its Through.
func (s *session) keep(f *flight) {
	s.taken.held = append(s.taken.held, f)
	first := len(f.batch.Rows) - 1
	for first > 0 && f.open(first-1) {
		first--
	}
	f.behind = f.commitOf(first)
	f.through.Store(uint64(f.batch.Through))
	f.partial(f.pending.Load())
}

// partial confirms the transactions of a flight before the held one, once nothing
// else of it is left. It runs on B and, once a piece is durable, on a goroutine of
// the sink; B may have sent the rest and released the flight by then.
func (f *flight) partial(left int64) {
	if through := f.through.Load(); left == 1 && through != 0 {
		f.ticket.Partial(wal.LSN(through), f.behind)
	}
}

// sendHeld sends what waited for the commit that ends at end.
func (s *session) sendHeld(end wal.LSN) {
	held := s.taken.held
	s.taken.held = nil
	for _, f := range held {
		rows := f.batch.Rows
		for i := len(rows) - 1; i >= 0 && f.open(i); i-- {
			rows[i].Txn.End = end
		}
		f.through.Store(0)
		s.delivery.send(f)
		f.finish()
	}
}

// open says that a row's transaction goes on behind its batch.
func (f *flight) open(row int) bool {
	r := &f.batch.Rows[row]
	return r.Txn.End == 0 && !r.Outside()
}

// readThrough looks for the end of the transaction that fills the window, of which
// the next batch did not fit any more. Everything before it is durable and confirmed.
func (s *session) readThrough(ctx, hard context.Context) error {
	s.shown.full.Store(0) // it moves
	rows := s.taken.held[0].batch.Rows
	commit := rows[len(rows)-1].Txn.Commit
	for {
		select {
		case b, open := <-s.intake.out:
			if !open {
				return s.unfinished()
			}
			end := b.Closes
			s.r.board.Read(b)
			b.Release()
			if end != 0 {
				s.r.ends = knownEnd{s.src.Origin(), commit, end}
				return errReadAgain
			}
		case <-ctx.Done(): // the second reading would be the next start's
			return ErrDrainCut
		case err := <-s.interrupts:
			return err
		case <-s.intake.lost:
			return s.intake.srcErr
		case <-hard.Done():
			return s.cut()
		}
	}
}

// unfinished is the end of a stream that broke off inside a transaction.
func (s *session) unfinished() error {
	if s.intake.srcErr != nil {
		return s.intake.srcErr
	}
	return ErrDrainCut
}
