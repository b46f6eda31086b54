package delivery

import (
	"cmp"
	"context"
	"slices"
	"sync/atomic"
	"time"

	"github.com/cdc-relay/cdc-relay/checkpoint"
	"github.com/cdc-relay/cdc-relay/replication/wal"
	"github.com/cdc-relay/cdc-relay/router/record"
	"github.com/cdc-relay/cdc-relay/tracing"
)

// InFlight is a batch between the source and its acknowledgement.
type InFlight struct {
	delivery      *Delivery
	batch         *wal.Batch
	buf           *record.Buffer
	ticket        checkpoint.Ticket
	read          time.Time         // when the deliverer took the batch
	routed        int               // rows that were routed
	sent          int               // records that were handed to the sink
	ackedUpTo     int               // records up to which sendFirst found all acknowledged
	waitedFor     int               // the last row for which sendFirst waited; -1: none
	letterReasons []string          // reasons of the records that became dead letters
	skipped       bool              // there are records without a topic, which are not sent
	handed        time.Time         // first hand-over to the sink
	acked         atomic.Int64      // records that are durable
	confirmable   atomic.Int64      // those of acked whose transaction may be confirmed
	pending       atomic.Int64      // sends that are not durable; plus one while rows are still to be routed, or held
	through       atomic.Uint64     // while rows are held: what may be confirmed once the others are durable
	remaining     checkpoint.Commit // of the first held row; written before through
}

// send is the part of an in-flight batch that one Send of the sink got.
type send struct {
	inFlight *InFlight
	seq      uint64
	records  []record.Record
	spans    []*tracing.Span // of the buffer; the deliverer may add to those
	left     int             // records not durable; the deliverer's once the send failed
}

// Take makes an in-flight batch of a batch that has rows. Route is next.
func (d *Delivery) Take(b *wal.Batch) *InFlight {
	f := &InFlight{delivery: d, batch: b, buf: d.sends.buffers.Get().(*record.Buffer), read: time.Now(), waitedFor: -1}
	f.pending.Store(1)
	f.buf.Reserve(len(b.Rows))
	return f
}

// Entry is the tracker's entry of a routed batch.
func (d *Delivery) Entry(f *InFlight) checkpoint.Entry {
	rows := f.batch.Rows
	return checkpoint.Entry{
		Rows: len(rows), Open: f.batch.OpenRows(), Through: f.batch.Through,
		Bytes: f.batch.Bytes + f.buf.Size() + d.sink.Overhead(len(f.buf.Records)),
		First: f.commitOf(0), Last: f.commitOf(len(rows) - 1), Read: f.read,
	}
}

// Admit takes the ticket of a batch that the window has room for.
func (f *InFlight) Admit(ticket checkpoint.Ticket) { f.ticket = ticket }

// sendRecords gives the sink the next records of a batch. Records of parked keys were replaced.
func (d *Delivery) sendRecords(f *InFlight, records []record.Record) {
	f.sent += len(records)
	s := &send{inFlight: f, seq: d.sends.count, records: records, spans: f.buf.Spans}
	d.sends.count++
	f.pending.Add(1)
	if f.handed.IsZero() {
		f.handed = time.Now()
	}
	d.shared.traces.HandOver(s.spans, records)
	d.produce(records, func(err error) { d.done(s, err) })
}

// produce has the sink send records. The deliverer does nothing else while Send waits for brokers.
func (d *Delivery) produce(records []record.Record, done func(error)) {
	d.sends.outstanding.Add(1)
	d.shown.waits.Set(time.Now())
	d.sink.Send(d.session.Sending(), records, done)
	d.shown.waits.Clear()
}

// done runs on a goroutine of the sink, once for each Send.
func (d *Delivery) done(s *send, err error) {
	if err == nil {
		s.acknowledged(s.records)
		s.inFlight.countDown()
	} else {
		d.sends.mu.Lock()
		d.sends.failed = append(d.sends.failed, failedSend{s, err})
		d.sends.mu.Unlock()
	}
	d.answered()
}

// acknowledged counts records that became durable. It may run on a goroutine of the sink,
// before the batch is finished.
func (s *send) acknowledged(records []record.Record) {
	f := s.inFlight
	shared, n := f.delivery.shared, int64(len(records))
	if n == 0 {
		return
	}
	f.acked.Add(n)
	f.delivery.shown.acked.Add(n)
	f.delivery.shown.unconfirmed.Add(n)
	shared.monitor.Published.Add(n)
	shared.monitor.LastEvent.Store(time.Now().UnixNano())
	shared.monitor.SawTopics(records)
	if shared.ev.RecordsAcknowledged != nil {
		shared.ev.RecordsAcknowledged(records)
	}
	shared.traces.Acknowledged(s.spans, records)
}

// answered notes the answer to a Send, and wakes the deliverer.
func (d *Delivery) answered() {
	d.sends.outstanding.Add(-1)
	select {
	case d.sends.wake <- struct{}{}:
	default:
	}
}

// countDown counts one send, or the routing, as done. The last one acknowledges the batch, and
// with its ticket the confirmed position may move. It may run on a goroutine of the sink.
func (f *InFlight) countDown() {
	if left := f.pending.Add(-1); left > 0 {
		f.confirmBeforeHeld(left)
		return
	}
	shared := f.delivery.shared
	now := time.Now()
	records := f.withoutSkipped()
	shared.finished.Add(int64(len(records)))
	f.delivery.shown.acked.Add(-f.acked.Load())
	f.delivery.shown.unconfirmed.Add(f.confirmable.Load() - f.acked.Load())
	if shared.ev.BatchDelivered != nil {
		shared.ev.BatchDelivered(f.batch, records, now.Sub(f.handed))
	}
	for _, reason := range f.letterReasons {
		shared.monitor.DeadLetters.Add(1)
		if shared.ev.DeadLettered != nil {
			shared.ev.DeadLettered(reason)
		}
	}
	shared.monitor.Delivered(f.batch.Rows)
	f.ticket.Done()
	f.batch.Release()
	f.buf.Reset()
	f.delivery.sends.buffers.Put(f.buf)
}

// failedSend is a Send of which some records are not durable.
type failedSend struct {
	send *send
	err  error
}

// takeFailed returns what failed in the order of the stream, and forgets it.
func (d *Delivery) takeFailed() []failedSend {
	d.sends.mu.Lock()
	failed := d.sends.failed
	d.sends.failed = nil
	d.sends.mu.Unlock()
	slices.SortFunc(failed, func(a, b failedSend) int { return cmp.Compare(a.send.seq, b.send.seq) })
	return failed
}

// quiesce waits until every Send is answered: only then is it known which records are durable.
func (d *Delivery) quiesce(deliveryCtx context.Context) error {
	for d.Outstanding() {
		if err := d.session.Wait(deliveryCtx, d.sends.wake); err != nil {
			return err
		}
	}
	return nil
}

// settle makes everything durable that was sent.
func (d *Delivery) settle(ctx, deliveryCtx context.Context) error {
	if err := d.quiesce(deliveryCtx); err != nil {
		return err
	}
	return d.Recover(ctx, deliveryCtx)
}

// confirmBefore confirms the transactions that lie wholly before a row of the batch, once
// everything before that row is sent and durable. Without it every start would send these
// transactions again while a row blocks for long.
func (f *InFlight) confirmBefore(row int) {
	own := f.batch.Rows[row].Txn
	for i := row - 1; i >= 0; i-- {
		if t := f.batch.Rows[i].Txn; t != own && t.End != 0 && f.sentUpTo(i) {
			f.ticket.Partial(t.End, f.commitOf(i+1))
			f.countConfirmable(i)
			return
		}
	}
}

// sentUpTo reports whether the sink was given every record of the rows up to the i-th.
func (f *InFlight) sentUpTo(i int) bool {
	return f.sent == len(f.buf.Records) ||
		f.buf.Records[f.sent].Row.Place().Compare(f.batch.Rows[i].Place()) > 0
}

// countConfirmable counts the records of rows up to the i-th as ones that no start repeats.
func (f *InFlight) countConfirmable(i int) {
	last, n := f.batch.Rows[i].Place(), int64(0)
	for _, rec := range f.buf.Records {
		if rec.Topic != "" && last.Compare(rec.Row.Place()) >= 0 {
			n++
		}
	}
	f.delivery.shown.unconfirmed.Add(f.confirmable.Swap(n) - n)
}

// confirmBeforeRow is confirmBefore for the row of the oldest record that is not durable.
func (f *InFlight) confirmBeforeRow(row *wal.Row) {
	for i := range f.batch.Rows {
		if &f.batch.Rows[i] == row {
			f.confirmBefore(i)
			return
		}
	}
}

// commitOf is the commit of a row. A message outside any transaction has none: it counts
// from when it was read.
func (f *InFlight) commitOf(row int) checkpoint.Commit {
	r := &f.batch.Rows[row]
	if r.Outside() {
		return checkpoint.Commit{At: r.Place().Commit, Time: f.read}
	}
	return checkpoint.Commit{At: r.Place().Commit, Time: r.Txn.Time}
}
