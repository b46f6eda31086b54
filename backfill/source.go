package backfill

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/cdc-relay/cdc-relay/backfill/progress"
	"github.com/cdc-relay/cdc-relay/fault"
	"github.com/cdc-relay/cdc-relay/postgres"
	"github.com/cdc-relay/cdc-relay/postgres/snapshot"
	"github.com/cdc-relay/cdc-relay/replication/wal"
)

const (
	batchRows  = 1024
	batchBytes = 512 << 10

	writeEvery = time.Second           // the progress
	lookEvery  = 50 * time.Millisecond // at what is acknowledged, once all rows are read
)

// errSlotsLost ends a replay at once.
var errSlotsLost = errors.New("the connection that kept relays from streaming was lost")

// errAborted is what a source's Run returns after Abort.
var errAborted = errors.New("read old rows: aborted")

// reading is one session's stream of old rows, a relay.Source.
//
// The number of a row is good for one call: the next one may find fewer rows before it. The
// ordinal is good for all: it is the number and the microsecond in which counting began, so what
// a later call gives is higher and never the same. Dead letters name rows by it, and consumers
// may compare it.
type reading struct {
	w     *work
	start wal.LSN
	since uint64 // what the rows' ordinals begin with
	slabs *wal.SlabPool

	ends     context.Context // with Abort or Close
	abort    context.CancelFunc
	allRead  chan struct{}
	complete sync.Once
}

// open begins a session where the last one was confirmed.
func (w *work) open(context.Context) (*reading, error) {
	if err := w.holds(); err != nil {
		return nil, err
	}
	if w.since == 0 || !w.total() { // in an order that is not total a number is another row's in each session
		w.since = uint64(time.Now().UnixMicro())
	}
	ends, abort := context.WithCancel(context.Background())
	return &reading{
		w: w, start: progress.Position(w.track.Now().Rows), since: w.since, slabs: wal.NewSlabPool(batchRows, batchBytes),
		ends: ends, abort: abort, allRead: make(chan struct{}),
	}, nil
}

// StartLSN and the rest implement relay.Source. Positions are numbers of rows: see position.
func (r *reading) StartLSN() wal.LSN       { return r.start }
func (r *reading) ServerProcess() int      { return 0 }
func (r *reading) Received() wal.LSN       { return r.start }
func (r *reading) ServerEnd() wal.LSN      { return 0 } // not known
func (r *reading) Silent() time.Duration   { return 0 }
func (r *reading) Abort()                  { r.abort() }
func (r *reading) Tables() []*wal.Relation { return r.w.relations() }

// Lost is closed when a replay has lost the slot by which it kept relays from streaming. Nobody
// else can have the rows of a backfill.
func (r *reading) Lost() <-chan struct{} {
	if r.w.replay == nil {
		return nil
	}
	return r.w.replay.lost
}

// Origin is the server's, without forks: a row's number is past none.
func (r *reading) Origin() wal.Origin {
	return wal.Origin{SystemID: r.w.progress.System, Database: r.w.holder.Origin().Database, Timeline: r.w.progress.Timeline}
}

// Run sends the rows after the present place, and returns nil when intake ends. Once all rows
// are acknowledged it reports that to the work, which ends intake.
func (r *reading) Run(intake context.Context, out chan<- *wal.Batch, confirmed func() wal.LSN) error {
	r.w.track.Begin(r.w.track.Now())
	ctx, cancel := context.WithCancel(intake)
	defer cancel()
	defer context.AfterFunc(r.ends, cancel)()
	var keeping sync.WaitGroup
	keeping.Go(func() { r.followProgress(ctx, confirmed) })
	err := r.send(ctx, out)
	if err == nil {
		close(r.allRead)
		<-ctx.Done()
	}
	cancel()
	keeping.Wait()
	return r.ended(intake, err)
}

// ended is what Run returns.
func (r *reading) ended(intake context.Context, err error) error {
	if r.ends.Err() != nil {
		return errAborted
	}
	select {
	case <-r.Lost(): // and what is on its way would land after newer rows
		return &fault.Error{Kind: fault.KindRetry, Reason: fault.ReasonNetwork, Op: "read old rows", Err: errSlotsLost}
	default:
	}
	if intake.Err() != nil {
		err = nil // what was cut off is read by the next attempt
	}
	return err
}

// followProgress writes the progress, and says when all rows are acknowledged.
func (r *reading) followProgress(ctx context.Context, confirmed func() wal.LSN) {
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	written, allRead := time.Now(), r.allRead
	read := false
	for {
		select {
		case <-tick.C:
		case <-allRead:
			allRead, read = nil, true
		case <-ctx.Done():
			return
		}
		r.w.track.Confirm(progress.RowsBefore(confirmed()))
		if read && r.w.track.Now().Rows == r.w.read.Load() {
			r.complete.Do(r.w.end.complete)
		}
		if time.Since(written) >= writeEvery {
			r.w.write(ctx)
			written = time.Now()
		}
	}
}

// Close writes the last place. The relay has settled everything before.
func (r *reading) Close(ctx context.Context, confirmed wal.LSN) error {
	r.abort()
	r.w.track.Confirm(progress.RowsBefore(confirmed))
	r.w.write(ctx)
	return nil
}

// send reads the tables one after the other.
func (r *reading) send(ctx context.Context, out chan<- *wal.Batch) error {
	place := r.w.track.Now()
	r.w.read.Store(place.Rows)
	reader, err := r.w.holder.Reader(ctx)
	if postgres.Reason(err) == fault.ReasonLockTimeout { // as long as the snapshot is held
		r.w.fail(err)
	}
	if err != nil {
		return err
	}
	defer reader.Close()
	after := place.Done
	for i := place.Table; i < len(r.w.tables); i++ {
		if err := r.table(ctx, reader, i, after, out); err != nil {
			return err
		}
		after = nil
	}
	return nil
}

func (r *reading) table(ctx context.Context, reader *snapshot.Reader, i int, after snapshot.Tuple, out chan<- *wal.Batch) error {
	t := &r.w.tables[i]
	upTo := r.w.progress.Tables[i].Last
	if r.w.bounded() && upTo == nil && t.Order.Total {
		return nil // the first snapshot had no row of it
	}
	rows := reader.Read(ctx, t, after, r.w.bound(upTo))
	p := r.newPacket(i)
	for {
		columns, order := rows.Next()
		if columns == nil && order == nil {
			break
		}
		if r.w.skip.late.has(i, order) || r.w.skip.present.has(i, order) {
			continue
		}
		if err := p.add(columns, order); err != nil {
			return errors.Join(p.hand(ctx, out), err)
		}
		if p.full() {
			if err := p.hand(ctx, out); err != nil {
				return err
			}
			p = r.newPacket(i)
		}
	}
	if err := rows.Err(); err != nil {
		p.batch.Release()
		p.slab.Release()
		return err
	}
	return p.hand(ctx, out)
}

// packet is a batch that is being filled.
type packet struct {
	r     *reading
	table *snapshot.Selection
	batch *wal.Batch
	slab  *wal.Slab
	spot  *progress.Spot
}

func (r *reading) newPacket(i int) *packet {
	p := &packet{r: r, table: &r.w.tables[i], batch: wal.NewBatch(), slab: r.slabs.Get(), spot: &progress.Spot{Table: i, First: r.w.read.Load() + 1}}
	p.batch.Attach(p.slab)
	return p
}

func (p *packet) full() bool {
	return p.slab.Full() || p.batch.Bytes >= batchBytes || p.batch.Count() >= p.r.w.batchLimit()
}

// add copies a row, which is a transaction of its own.
func (p *packet) add(columns, order [][]byte) error {
	size := 0
	for _, c := range columns {
		size += len(c)
	}
	w := p.r.w
	number := w.read.Load() + 1
	if limit := w.settings.Stream.MaxRowBytes; limit > 0 && size > limit {
		one := &progress.Spot{First: number}
		one.Add(order)
		return &fault.Error{
			Kind: fault.KindRefused, Reason: fault.ReasonRowTooLarge, Op: "read a row of", Subject: "table " + p.table.Name.String(), LSN: progress.Position(number),
			Err:  fmt.Errorf("the row at %s has %d bytes, and relay.max_row_bytes is %d", p.table.Order.Describe(one.At(number)), size, limit),
			Hint: "raise it, or leave the row out with --where",
		}
	}
	data, values := p.slab.Bytes(size), p.slab.Columns(len(columns))
	at := 0
	for i, c := range columns {
		values[i] = wal.Value{Kind: wal.Null}
		if c != nil {
			n := copy(data[at:], c)
			values[i] = wal.Value{Kind: wal.Text, Data: data[at : at+n : at+n]}
			at += n
		}
	}
	p.batch.Bytes += p.slab.Claim(data, values) + wal.TxnSize
	txn := p.slab.Stamp(wal.Txn{Commit: wal.LSN(number), End: progress.Position(number), Time: w.progress.Started})
	row := p.slab.Add(wal.Row{Txn: txn, LSN: wal.LSN(number), Ordinal: p.r.since + number, Relation: p.table.Relation, Values: values})
	if w.online != nil {
		if err := w.online.check(row, p.table, order); err != nil {
			w.fail(err)
			return err
		}
	}
	p.spot.Add(order)
	p.batch.Received += size
	w.read.Store(number)
	return nil
}

// hand gives the batch to the relay, at the rate that is allowed.
func (p *packet) hand(ctx context.Context, out chan<- *wal.Batch) error {
	n := p.batch.Count()
	p.batch.Seal()
	p.slab.Release()
	if n == 0 {
		p.batch.Release()
		return nil
	}
	p.batch.Through, p.batch.Transactions, p.batch.Backlog = progress.Position(p.spot.Last()), n, true
	p.batch.ThroughTime = p.r.w.progress.Started
	if err := p.r.w.pace(ctx, n); err != nil {
		p.batch.Release()
		return err
	}
	p.r.w.track.Fly(p.spot)
	select {
	case out <- p.batch:
		return nil
	case <-ctx.Done():
		p.batch.Release()
		return context.Cause(ctx)
	}
}

func (w *work) batchLimit() int { return w.paced.Limit(batchRows) }

// pace waits until n rows may go.
func (w *work) pace(ctx context.Context, n int) error {
	wait := time.Until(w.paced.After(time.Now(), n))
	if wait <= 0 {
		return nil
	}
	t := time.NewTimer(wait)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
