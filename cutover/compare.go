package cutover

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/cdc-relay/cdc-relay/backfill"
	"github.com/cdc-relay/cdc-relay/fault"
	"github.com/cdc-relay/cdc-relay/postgres/snapshot"
	"github.com/cdc-relay/cdc-relay/relay"
	"github.com/cdc-relay/cdc-relay/replication/wal"
	"github.com/cdc-relay/cdc-relay/router/record"
	"github.com/cdc-relay/cdc-relay/router/resolve"
	"github.com/cdc-relay/cdc-relay/sink/topics"
	"github.com/cdc-relay/cdc-relay/wording"
)

// comparison holds what the relay would send of published rows against what the publisher sent.
type comparison struct {
	rows     []comparedRow
	at       map[string][]int // indexes into rows, by event id
	since    time.Time        // no row is older
	open     bool             // some row has no time
	rejected int              // rows of which no record can be made
	topics   map[string]bool
}

// comparedRow is a published row and what came of it.
type comparedRow struct {
	name   string // where it stands
	record record.Record
	found  bool
	differ difference // of its last record
}

// difference says in what two records of a row differ. A person decides about the first four.
type difference struct {
	topic      string // that the publisher sent it to; empty: the same
	key, value bool
	form       bool     // the same JSON, written otherwise
	headers    []string // names, each with what is the matter
}

func (d *difference) decisive() bool { return d.topic != "" || d.key || d.value || d.form }

// compare reads the newest published rows of each table, and looks for their records in the topics
// that the mapping names. The records are known by the header id, or a member of their value.
func (w *work) compare(ctx context.Context) (*comparison, error) {
	c := &comparison{at: make(map[string][]int), topics: make(map[string]bool)}
	routes, err := resolve.New(w.Settings.Router)
	if err != nil {
		return nil, &relay.ConfigError{Err: err}
	}
	holder, err := snapshot.Open(ctx, w.Settings.Replication)
	if err != nil {
		return nil, err
	}
	defer holder.Close()
	if _, err := holder.Begin(ctx, ""); err != nil {
		return nil, err
	}
	for i := range w.tables {
		if err := holder.LockTables(ctx, w.tables[i].Table); err != nil {
			return nil, err
		}
		if err := c.read(ctx, holder, routes, &w.tables[i], w.Options.Compare); err != nil {
			return nil, err
		}
	}
	if len(c.rows) == 0 {
		return c, nil
	}
	since := c.since
	if c.open {
		since = time.Time{}
	}
	return c, backfill.ScanFor(ctx, w.Settings, since, slices.Sorted(maps.Keys(c.topics)), func(m *topics.Message) error {
		c.take(m, w.Options.IDField)
		return nil
	})
}

// read routes a table's newest published rows.
func (c *comparison) read(ctx context.Context, holder *snapshot.Holder, routes *resolve.Router, t *polled, n int) error {
	if len(t.marks) == 0 {
		return usage("--compare: table %s has no column that says which rows are published, so its publisher deletes them, and there is nothing to compare", t.Name)
	}
	order, err := t.Shape.Choose(nil)
	if err != nil {
		return err
	}
	asked := t.marks[0]
	newest := order.LastFirst()
	if strings.HasSuffix(asked.Where, " IS NULL") { // it has the time of publishing
		newest = " ORDER BY " + wal.QuoteIdentifier(asked.Column) + " DESC"
	}
	s := snapshot.Selection{Table: t.Table, Order: order, Beside: []string{"NULL"}}
	s.Where = fmt.Sprintf("(tableoid, ctid) IN (SELECT tableoid, ctid FROM %s WHERE NOT (%s)%s LIMIT %d)", t.From(), asked.Where, newest, n)
	if by, timed, err := t.Shape.TimeColumn(""); err == nil && timed {
		column := wal.QuoteIdentifier(by.Name)
		s.Beside = []string{"CASE WHEN pg_catalog.isfinite(" + column + ") THEN pg_catalog.date_part('epoch', " + column + ") END"}
	}
	reader, err := holder.Reader(ctx)
	if err != nil {
		return err
	}
	defer reader.Close() // also inside a reading
	rows := reader.Read(ctx, &s, nil, nil)
	for {
		columns, at := rows.Next()
		if columns == nil && at == nil {
			return t.classify(rows.Err())
		}
		if err := c.route(ctx, routes, &s, columns, at, rows.Beside()[0]); err != nil {
			return err
		}
	}
}

// route keeps what the relay would send of a row.
func (c *comparison) route(ctx context.Context, routes *resolve.Router, s *snapshot.Selection, columns, at [][]byte, created []byte) error {
	row := s.NewRow()
	snapshot.SetValues(row, columns)
	for i := range row.Values { // the record keeps them, and the reader goes on
		row.Values[i].Data = bytes.Clone(row.Values[i].Data)
	}
	var buf record.Buffer // of this row alone: its record is kept
	err := routes.Route(ctx, &buf, row)
	if _, rejected := errors.AsType[*record.RowError](err); rejected || err == nil && len(buf.Records) == 0 {
		c.rejected++
		return nil
	}
	if err != nil {
		return err
	}
	one := comparedRow{record: buf.Records[0], name: "table " + s.Name.String() + " at " + s.Order.Describe(snapshot.TupleOf(at))}
	id := ""
	for _, h := range one.record.Headers {
		if h.Key == record.IdHeader {
			id = string(h.Value)
		}
	}
	if len(buf.Records) > 1 || id == "" {
		t := polled{Table: s.Table}
		return t.refuse("leave out --compare", "is mapped to no single record with the header %s, by which records are found", record.IdHeader)
	}
	seconds, err := strconv.ParseFloat(string(created), 64)
	if err != nil {
		c.open = true
	} else if t := time.Unix(int64(seconds), 0); c.since.IsZero() || t.Before(c.since) {
		c.since = t
	}
	c.topics[one.record.Topic] = true
	c.at[id] = append(c.at[id], len(c.rows))
	c.rows = append(c.rows, one)
	return nil
}

// take compares a record with the rows that it may be of. A record in the row's own topic counts more
// than one in another.
func (c *comparison) take(m *topics.Message, member string) {
	for _, id := range backfill.EventIDs(m, member) {
		for _, i := range c.at[id] {
			row := &c.rows[i]
			if row.found && row.differ.topic == "" && m.Topic != row.record.Topic {
				continue
			}
			row.found, row.differ = true, compared(&row.record, m)
		}
	}
}

// compared says in what the publisher's record differs from the relay's.
func compared(ours *record.Record, theirs *topics.Message) difference {
	var d difference
	if theirs.Topic != ours.Topic {
		d.topic = theirs.Topic
	}
	d.key = (ours.Key == nil) != (theirs.Key == nil) || !bytes.Equal(ours.Key, theirs.Key)
	if (ours.Value == nil) != (theirs.Value == nil) || !bytes.Equal(ours.Value, theirs.Value) {
		d.form = sameJSON(ours.Value, theirs.Value)
		d.value = !d.form
	}
	has := func(list []record.Header, h record.Header, sameValue bool) bool {
		return slices.ContainsFunc(list, func(o record.Header) bool { return o.Key == h.Key && (!sameValue || bytes.Equal(o.Value, h.Value)) })
	}
	for _, h := range ours.Headers {
		switch {
		case strings.HasPrefix(h.Key, record.OwnPrefix): // the position is not known here
		case !has(theirs.Headers, h, false):
			d.headers = append(d.headers, h.Key+" is sent only by the relay")
		case !has(theirs.Headers, h, true):
			d.headers = append(d.headers, h.Key+" has another value")
		}
	}
	for _, h := range theirs.Headers {
		if !has(ours.Headers, h, false) {
			d.headers = append(d.headers, h.Key+" is sent only by the publisher")
		}
	}
	return d
}

// sameJSON reports whether two values are the same except for spaces and the order of members.
func sameJSON(a, b []byte) bool {
	read := func(text []byte) (value any, ok bool) {
		d := json.NewDecoder(bytes.NewReader(text))
		d.UseNumber()
		return value, d.Decode(&value) == nil && !d.More()
	}
	one, ok := read(a)
	other, too := read(b)
	return ok && too && reflect.DeepEqual(one, other)
}

// lines say what was found, and how many rows a person has to decide about.
func (c *comparison) lines() (lines []string, undecided int) {
	kinds := []struct {
		text  string
		holds func(*comparedRow) bool
	}{
		{"without a record in the topic that the mapping names (topic, id, or the topic has removed it)", func(r *comparedRow) bool { return !r.found }},
		{"in another topic", func(r *comparedRow) bool { return r.differ.topic != "" }},
		{"with another key, so in another order and partition", func(r *comparedRow) bool { return r.differ.key }},
		{"with another value", func(r *comparedRow) bool { return r.differ.value }},
		{"with the same JSON, written otherwise (spaces, order of members)", func(r *comparedRow) bool { return r.differ.form }},
	}
	headers := make(map[string]int)
	for i := range c.rows {
		r := &c.rows[i]
		if !r.found || r.differ.decisive() {
			undecided++
		}
		for _, name := range r.differ.headers {
			headers[name]++
		}
	}
	lines = append(lines, fmt.Sprintf("compared with what the publisher sent: %s, %d alike in topic, key and value", wording.Count(len(c.rows), "published row"), len(c.rows)-undecided))
	for _, kind := range kinds {
		n, first := 0, ""
		for i := range c.rows {
			if kind.holds(&c.rows[i]) {
				if n++; n == 1 {
					first = c.rows[i].name
				}
			}
		}
		if n > 0 {
			lines = append(lines, fmt.Sprintf("  %d %s, the first: %s", n, kind.text, first))
		}
	}
	for _, name := range slices.Sorted(maps.Keys(headers)) {
		lines = append(lines, fmt.Sprintf("  header %s (%s)", name, wording.Count(headers[name], "row")))
	}
	if c.rejected > 0 {
		undecided += c.rejected
		lines = append(lines, fmt.Sprintf("  %s that the mapping makes no record of", wording.Count(c.rejected, "published row")))
	}
	return lines, undecided
}

// decideDifference shows a comparison, and refuses differences until a flag accepts them.
func (w *work) decideDifference(ctx context.Context) error {
	if w.Options.Compare == 0 {
		return nil
	}
	c, err := w.compare(ctx)
	if err != nil {
		return err
	}
	lines, n := c.lines()
	w.say("%s", strings.Join(lines, "\n"))
	if n == 0 || w.Options.AcceptDifference || !w.Options.Yes {
		return nil
	}
	return undecided(fault.ReasonRecordsDiffer, fmt.Errorf("the relay would send other records than the publisher did of %s", wording.Count(n, "published row")),
		"correct the mapping (`cdc-relay explain` shows what it makes), name with --id-field where the publisher's records have the event id, or add --accept-difference; then run the command again")
}
