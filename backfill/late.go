package backfill

import (
	"context"
	"fmt"

	"github.com/cdc-relay/cdc-relay/backfill/handover"
	"github.com/cdc-relay/cdc-relay/backfill/progress"
	"github.com/cdc-relay/cdc-relay/postgres"
	"github.com/cdc-relay/cdc-relay/postgres/snapshot"
	"github.com/cdc-relay/cdc-relay/replication/wal"
)

// maxLate bounds the places that are kept.
const maxLate = 1_000_000

// late are the places of rows that the slot has too. Nil has none.
type late map[spot]struct{}

// spot is a place in one of the tables: those of two may have the same values.
type spot struct {
	table int
	at    string // see progress.Key
}

func (l late) has(table int, order [][]byte) bool {
	if len(l) == 0 {
		return false
	}
	_, ok := l[spot{table, progress.Key(order)}]
	return ok
}

// findLate reads the slot from its beginning to the present end of the WAL, confirms nothing, and
// keeps the places of those rows that the rest of the backfill would read as well. It has to come
// after the new snapshot: what that sees is in the WAL before this end. So every row that is read
// and lies in the slot is found, and the stream sends it.
func (w *work) findLate(ctx context.Context) error {
	end, err := w.holder.WALInserted(ctx)
	if err != nil {
		return err
	}
	reader, err := w.holder.Reader(ctx)
	if err != nil {
		return err
	}
	defer reader.Close()
	f := &finding{w: w, ctx: ctx, reader: reader, found: make(late), waiting: make([][]snapshot.Tuple, len(w.tables))}
	for i, shard := range w.settings.Replication.Shards() {
		if w.online != nil {
			w.online.filter.Streamed = w.progress.Online.Shards[i]
		}
		if err := f.stream(shard, end); err != nil {
			return err
		}
	}
	w.skip.late = f.found
	return nil
}

type finding struct {
	w       *work
	ctx     context.Context
	reader  *snapshot.Reader
	found   late
	waiting [][]snapshot.Tuple // by table, not compared yet
}

// stream reads what one shard's publication lets through.
func (f *finding) stream(shard postgres.Config, end wal.LSN) error {
	if err := handover.Peek(f.ctx, f.w.temporary(shard), f.w.settings.Stream.MaxRowBytes, end, f.take); err != nil {
		return err
	}
	return f.compare(0)
}

// take notes the places of a batch's rows.
func (f *finding) take(b *wal.Batch) error {
	for i := range b.Rows {
		row := &b.Rows[i]
		if row.Change != nil {
			continue
		}
		if o := f.w.online; o != nil {
			late, err := o.filter.Late(&o.taken, row)
			if err != nil {
				return err
			}
			if !late {
				continue
			}
		}
		for n := range f.w.tables {
			if t := &f.w.tables[n]; t.OID == row.Relation.OID || t.Relation.Table == row.Relation.Table {
				at, err := placeOf(&t.Order, row)
				if err != nil {
					return err
				}
				f.waiting[n] = append(f.waiting[n], at)
			}
		}
	}
	return f.compare(batchRows)
}

// placeOf is a row's values in the columns of an order.
func placeOf(o *snapshot.Order, row *wal.Row) (snapshot.Tuple, error) {
	at := make(snapshot.Tuple, len(o.By))
	for i, by := range o.By {
		found := false
		for n, c := range row.Relation.Columns {
			if c.Name != by.Name {
				continue
			}
			found = true
			if v := row.Values[n]; v.Kind == wal.Text {
				text := string(v.Data)
				at[i] = &text
			}
		}
		if !found {
			return nil, fmt.Errorf("the stream has no column %q", by.Name)
		}
	}
	return at, nil
}

// compare keeps those places, of tables with more than so many, that are still to be read.
func (f *finding) compare(more int) error {
	for n, places := range f.waiting {
		if len(places) <= more || len(places) == 0 {
			continue
		}
		f.waiting[n] = nil
		place := f.w.track.Now()
		if n < place.Table || f.w.progress.Tables[n].Last == nil {
			continue
		}
		var after snapshot.Tuple
		if n == place.Table {
			after = place.Done
		}
		within, err := f.reader.PlacesWithin(f.ctx, &f.w.tables[n].Order, places, after, f.w.progress.Tables[n].Last)
		if err != nil {
			return err
		}
		for i, is := range within {
			if is {
				f.found[spot{n, progress.KeyOf(places[i])}] = struct{}{}
			}
		}
	}
	if len(f.found) > maxLate {
		return progress.Refuse(fmt.Errorf("more than %d rows that are still to be sent are in the slot as well", maxLate), "use --restart to start from the beginning and send all rows again")
	}
	return nil
}
