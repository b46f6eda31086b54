package audit

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"

	"github.com/cdc-relay/cdc-relay/audit/match"
	"github.com/cdc-relay/cdc-relay/postgres/snapshot"
	"github.com/cdc-relay/cdc-relay/replication/wal"
	"github.com/cdc-relay/cdc-relay/router/record"
)

// side is a table that is audited.
type side struct {
	snapshot.Selection
	index  int // of the configuration
	facts  match.Table
	id     record.IDColumn
	mapped bool // its records have a column's time
}

// look finds out about a table, and refuses what cannot be audited. It reads no row.
func (w *work) look(ctx context.Context, index int) (*side, error) {
	mapping := &w.settings.Router.Mappings[index]
	if mapping.Connector != nil {
		return nil, refuse(fmt.Errorf("table %s is mapped by `debezium:` options: what transforms make of a row may depend on when it was sent, and cannot be compared", w.settings.Replication.Tables[index]),
			"map it with the keys of outbox: alone, or audit the other tables with --table")
	}
	t, warnings, err := w.holder.Describe(ctx, index)
	if err != nil {
		return nil, err
	}
	for _, text := range warnings {
		w.Out.say(Line{What: "warning", Text: text})
	}
	explained, err := w.routes.Pin(t.Relation)
	if err != nil {
		return nil, err
	}
	s := &side{Selection: snapshot.Selection{Table: t, Where: w.Where}, index: index, id: explained.ID}
	s.mapped = explained.Roles["timestamp"] != ""
	if s.Order, err = t.Shape.Choose(w.Order); err != nil {
		return nil, usage("--order: table %s: %w", t.Name, err)
	}
	s.facts = match.Table{
		Ordered: s.Order.Basis == snapshot.Sequence && !w.ConcurrentWriters, OwnPartitions: mapping.Partition != "",
		NoOrder: s.Order.Basis == snapshot.Key || s.Order.Basis == snapshot.Place,
	}
	by, timed, err := t.Shape.TimeColumn(w.By)
	if err != nil {
		return nil, usage("--by: %w", err)
	}
	if err := w.holder.CheckSelection(ctx, &s.Selection); err != nil { // the operator's condition by itself
		return nil, err
	}
	if within := by.Within(w.since, w.until); within != "" {
		if !timed {
			return nil, usage("--since and --until: table %s has no column that is known to have the time of its rows; name it with --by, or say it with --where", t.Name)
		}
		if s.Where != "" {
			within = "(" + s.Where + "\n) AND " + within
		}
		s.Where = within
	}
	at := "NULL"
	if timed {
		column := wal.QuoteIdentifier(by.Name)
		at = "CASE WHEN pg_catalog.isfinite(" + column + ") AND " + column + " <= " + by.Now() + " THEN pg_catalog.date_part('epoch', " + column + ") END"
	}
	s.Beside = []string{"xmin", at}
	return s, w.holder.CheckSelection(ctx, &s.Selection)
}

// place is where a row is in the order of its table.
type place struct {
	number, rank uint64 // as in match.Row
}

// read visits the rows of a table as the stream would bring them. The row is good until the next.
func (s *side) read(ctx context.Context, holder *snapshot.Holder, visit func(at place, row *wal.Row, beside [][]byte) error) error {
	from, err := holder.Reader(ctx)
	if err != nil {
		return err
	}
	defer from.Close() // also inside a reading
	rows := from.Read(ctx, &s.Selection, nil, nil)
	row := s.NewRow()
	var at place
	var ranked [][]byte // what the latest row has in the columns that order the rows
	for {
		columns, order := rows.Next()
		if columns == nil && order == nil {
			return rows.Err()
		}
		at.number++
		if order = order[:s.Order.Ranks]; at.rank == 0 || !slices.EqualFunc(ranked, order, same) {
			at.rank = at.number
			ranked = ranked[:0]
			for _, value := range order {
				ranked = append(ranked, bytes.Clone(value))
			}
		}
		snapshot.SetValues(row, columns)
		if err := visit(at, row, rows.Beside()); err != nil {
			return err
		}
	}
}

// same reports whether two values are one; nil is NULL.
func same(a, b []byte) bool { return (a == nil) == (b == nil) && bytes.Equal(a, b) }

// eventID is the header id of a record.
func eventID(headers []record.Header) ([]byte, bool) {
	for i := range headers {
		if headers[i].Key == record.IdHeader {
			return headers[i].Value, headers[i].Value != nil
		}
	}
	return nil, false
}

// rows takes the rows of a table.
func (w *work) rows(ctx context.Context, table uint8, s *side) error {
	var buf record.Buffer
	return s.read(ctx, w.holder, func(at place, row *wal.Row, beside [][]byte) error {
		w.progress("rows read", w.read.Add(1))
		buf.Reset()
		err := w.routes.Route(ctx, &buf, row)
		if _, rejected := errors.AsType[*record.RowError](err); rejected || err == nil && len(buf.Records) == 0 {
			if w.sample == 1 { // of the others nobody knows which are in the sample
				w.match.Reject()
			}
			return nil
		}
		if err != nil {
			return err
		}
		if len(buf.Records) > 1 {
			return refuse(fmt.Errorf("the mapping of table %s makes several records of a row, which cannot be told apart by the event id", s.Name), "")
		}
		rec := &buf.Records[0]
		id, found := eventID(rec.Headers)
		if !found {
			return refuse(fmt.Errorf("the mapping of table %s makes a record without the header id, by which records are found", s.Name), "take the configured header of that name away")
		}
		entry := match.Row{ID: w.hasher.ID(id)}
		if !entry.ID.Sampled(w.sample) {
			return nil
		}
		entry.Content = w.hasher.Content(rec.Key, w.value(rec.Value), rec.Headers)
		if entry.Topic, err = w.topics.Of(rec.Topic); err != nil {
			return err
		}
		entry.Table, entry.Number, entry.Rank, entry.XID, entry.At = table, at.number, at.rank, number32(beside[0]), seconds(beside[1])
		return w.match.Row(&entry)
	})
}

func number32(text []byte) uint32 {
	n, err := strconv.ParseUint(string(text), 10, 32)
	if err != nil {
		return 0
	}
	return uint32(n)
}

// seconds is a time in Unix seconds, rounded up; zero without one.
func seconds(text []byte) uint32 {
	at, err := strconv.ParseFloat(string(text), 64)
	if err != nil || !(at > 0) {
		return 0
	}
	return uint32(min(math.Ceil(at), math.MaxUint32))
}

// name reads the rows of findings again, in the same snapshot, for the ids of their events.
func (w *work) name(ctx context.Context, found []Finding) error {
	for table, s := range w.sides {
		wanted := make(map[uint64][]*Finding)
		var last uint64
		for i := range found {
			if f := &found[i]; f.table == table {
				wanted[f.number] = append(wanted[f.number], f)
				last = max(last, f.number)
			}
		}
		if len(wanted) == 0 {
			continue
		}
		var buf record.Buffer
		err := s.read(ctx, w.holder, func(at place, row *wal.Row, _ [][]byte) error {
			if found := wanted[at.number]; found != nil {
				buf.Reset()
				if err := w.routes.Route(ctx, &buf, row); err != nil {
					return err
				}
				id, _ := eventID(buf.Records[0].Headers)
				for _, f := range found {
					f.name(id, w.ShowIDs)
				}
			}
			if at.number >= last {
				return errLast
			}
			return nil
		})
		if err != nil && !errors.Is(err, errLast) {
			return err
		}
	}
	return nil
}

var errLast = errors.New("all rows that were looked for are found")
