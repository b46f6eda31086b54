package relay

import (
	"cmp"
	"context"
	"slices"
	"sync/atomic"
	"time"

	"github.com/cdc-relay/cdc-relay/checkpoint"
	"github.com/cdc-relay/cdc-relay/deadletter"
	"github.com/cdc-relay/cdc-relay/replication/wal"
	"github.com/cdc-relay/cdc-relay/router/record"
)

// flight is a batch between the source and its acknowledgement.
type flight struct {
	s       *session
	batch   *wal.Batch
	buf     *record.Buffer
	ticket  checkpoint.Ticket
	read    time.Time         // when B took the batch
	routed  int               // rows that were routed
	sent    int               // records that were handed to the sink
	durable int               // of them, those that are acknowledged for sure; see overtakes
	waited  int               // rows up to the one that waited for that last; zero: none did
	letters []string          // reasons of the records that became dead letters
	skipped bool              // there are records without a topic, which are not sent
	handed  time.Time         // first hand-over to the sink
	acked   atomic.Int64      // records that are durable
	settled atomic.Int64      // of them, those of transactions that may be confirmed
	pending atomic.Int64      // pieces not durable, plus one while rows are left to route or held
	through atomic.Uint64     // while rows are held: what may be confirmed once the others are durable
	behind  checkpoint.Commit // of the first held row; written before through
}

// piece is what one Send got of a flight.
type piece struct {
	f       *flight
	seq     uint64
	records []record.Record
	left    int // records not durable; owned by B once the piece failed
}

// hand gives the sink the next records of a flight, of which those of parked keys were
// replaced.
func (s *session) hand(f *flight, records []record.Record) {
	f.sent += len(records)
	p := &piece{f: f, seq: s.sends.pieces, records: records}
	s.sends.pieces++
	f.pending.Add(1)
	if f.handed.IsZero() {
		f.handed = time.Now()
	}
	s.give(records, func(err error) { s.done(p, err) })
}

// give has the sink send records. Whatever they are, nothing else is done while it waits.
func (s *session) give(records []record.Record, done func(error)) {
	s.sends.outstanding.Add(1)
	s.shown.waits.Store(instant(time.Now()))
	s.sink.Send(s.bounds.sending, records, done)
	s.shown.waits.Store(0)
}

// done runs on a goroutine of the sink, once for each Send.
func (s *session) done(p *piece, err error) {
	if err == nil {
		p.f.acknowledged(p.records)
		p.f.finish()
	} else {
		s.sends.mu.Lock()
		s.sends.failed = append(s.sends.failed, failedPiece{p, err})
		s.sends.mu.Unlock()
	}
	s.sent()
}

// acknowledged counts records that became durable. It may run on a goroutine of the sink,
// before the flight is finished.
func (f *flight) acknowledged(records []record.Record) {
	r, n := f.s.r, int64(len(records))
	if n == 0 {
		return
	}
	f.acked.Add(n)
	f.s.shown.acked.Add(n)
	f.s.shown.repeats.Add(n)
	r.board.Published.Add(n)
	r.board.LastEvent.Store(time.Now().UnixNano())
	r.board.SawTopics(records)
	if r.ev.RecordsAcknowledged != nil {
		r.ev.RecordsAcknowledged(records)
	}
}

// openRows are the rows at the end of a batch whose transaction goes on behind it.
func openRows(b *wal.Batch) int {
	n := len(b.Rows)
	switch {
	case !b.Open || n == 0:
		return 0
	case b.Rows[0].Txn == b.Rows[n-1].Txn:
		return n
	}
	for b.Rows[n-1].Txn == b.Rows[len(b.Rows)-1].Txn {
		n--
	}
	return len(b.Rows) - n
}

// sent counts a Send as answered and wakes B to look at what came of it.
func (s *session) sent() {
	s.sends.outstanding.Add(-1)
	select {
	case s.sends.wake <- struct{}{}:
	default:
	}
}

// finish counts one piece, or the routing, as done; the last one acknowledges
// the batch. It may run on a goroutine of the sink.
func (f *flight) finish() {
	if left := f.pending.Add(-1); left > 0 {
		f.partial(left)
		return
	}
	r := f.s.r
	now := time.Now()
	records := f.delivered()
	r.finished.Add(int64(len(records)))
	f.s.shown.acked.Add(-f.acked.Load())
	f.s.shown.repeats.Add(f.settled.Load() - f.acked.Load())
	if r.ev.BatchDelivered != nil {
		r.ev.BatchDelivered(f.batch, records, now.Sub(f.handed))
	}
	for _, reason := range f.letters {
		r.board.DeadLetters.Add(1)
		if r.ev.DeadLettered != nil {
			r.ev.DeadLettered(reason)
		}
	}
	r.board.Delivered(f.batch.Rows)
	f.ticket.Done()
	f.batch.Release()
	f.buf.Reset()
	f.s.sends.buffers.Put(f.buf)
}

// failedPiece is a Send of which some records are not durable.
type failedPiece struct {
	p   *piece
	err error
}

func (s *session) hasFailed() bool {
	s.sends.mu.Lock()
	defer s.sends.mu.Unlock()
	return len(s.sends.failed) > 0
}

// quiesce waits until every Send has called back: only then is it known what is
// durable.
func (s *session) quiesce(hard context.Context) error {
	for s.sends.outstanding.Load() > 0 {
		select {
		case <-s.sends.wake:
		case err := <-s.interrupts:
			return err
		case <-s.intake.lost:
			return s.intake.srcErr
		case <-hard.Done():
			return s.cut()
		}
	}
	return nil
}

// upTo confirms the transactions that lie wholly before a row of the batch, once
// everything before that row is durable. Without it a row that blocks for long
// would have its neighbours sent again at every start.
func (f *flight) upTo(row int) {
	guilty := f.batch.Rows[row].Txn
	for i := row - 1; i >= 0; i-- {
		if t := f.batch.Rows[i].Txn; t != guilty && t.End != 0 {
			f.ticket.Partial(t.End, f.commitOf(i+1))
			f.settle(i)
			return
		}
	}
}

// settle counts the records of rows up to the i-th as ones that no start repeats.
func (f *flight) settle(i int) {
	last, n := deadletter.RowOf(&f.batch.Rows[i]), int64(0)
	for _, rec := range f.buf.Records {
		if rec.Topic != "" && last.Compare(deadletter.RowOf(rec.Row)) >= 0 {
			n++
		}
	}
	f.s.shown.repeats.Add(f.settled.Swap(n) - n)
}

// upToRow is upTo for the row of the oldest record that is not durable.
func (f *flight) upToRow(row *wal.Row) {
	for i := range f.batch.Rows {
		if &f.batch.Rows[i] == row {
			f.upTo(i)
			return
		}
	}
}

func sortPieces(failed []failedPiece) {
	slices.SortFunc(failed, func(a, b failedPiece) int { return cmp.Compare(a.p.seq, b.p.seq) })
}

// commitOf is the commit of a row. A message outside any transaction has none: it counts
// from when it was read.
func (f *flight) commitOf(row int) checkpoint.Commit {
	r := &f.batch.Rows[row]
	commit, _ := r.Place()
	if r.Outside() {
		return checkpoint.Commit{At: commit, Time: f.read}
	}
	return checkpoint.Commit{At: commit, Time: r.Txn.Time}
}
