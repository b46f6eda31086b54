package check

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/cdc-relay/cdc-relay/advice"
	"github.com/cdc-relay/cdc-relay/config"
	"github.com/cdc-relay/cdc-relay/explain"
	"github.com/cdc-relay/cdc-relay/fault"
	"github.com/cdc-relay/cdc-relay/postgres"
	"github.com/cdc-relay/cdc-relay/postgres/catalog"
	"github.com/cdc-relay/cdc-relay/postgres/preflight"
	"github.com/cdc-relay/cdc-relay/postgres/sample"
	"github.com/cdc-relay/cdc-relay/relay"
	"github.com/cdc-relay/cdc-relay/replication/wal"
	"github.com/cdc-relay/cdc-relay/router"
	"github.com/cdc-relay/cdc-relay/router/record"
	"github.com/cdc-relay/cdc-relay/router/resolve"
	"github.com/cdc-relay/cdc-relay/router/schemas"
)

// checkedRows is how many of a table's newest rows are routed on trial.
const checkedRows = 1000

// inBinary reports whether the relay would ask for the binary format, which it does for
// the whole stream or not at all.
func inBinary(ctx context.Context, cfg postgres.Config, routes *router.Router, tables []preflight.CheckedTable) bool {
	for _, table := range tables {
		if table.Relation == nil || !routes.BinarySafe(table.Relation) {
			return false
		}
	}
	for i := range cfg.Messages {
		if body, _, err := catalog.Describe(ctx, cfg, len(cfg.Tables)+i); err != nil || !routes.BinarySafe(body) {
			return false
		}
	}
	return true
}

// onReject says where relay.on_reject leaves a rejected row, and how serious that is.
func onReject(on relay.OnReject) (string, advice.Level) {
	switch on {
	case relay.DeadLetterOnReject:
		return "goes to the dead letters", advice.Warn
	case relay.SkipOnReject:
		return "is lost, as relay.on_reject is skip", advice.Fail
	case relay.StopOnReject:
	}
	return "blocks the relay", advice.Fail
}

// trial is what routing rows came to.
type trial struct {
	rows, nullKeys, rejected int
	rejections               map[rejectedRows]int
	topics                   map[string]int
}

// rejectedRows are those of one cause.
type rejectedRows struct {
	cause  string
	schema bool // the table's fault and not theirs: the relay blocks whatever relay.on_reject is
}

func newestRows(n int) string {
	if n == 1 {
		return "the newest row"
	}
	return fmt.Sprintf("the %d newest rows", n)
}

// tables compiles the mapping of each table and routes its newest rows.
func (d *checker) tables(ctx context.Context, tables []preflight.CheckedTable) {
	routes, err := resolve.New(d.settings.Router)
	if err != nil { // it was compiled when the configuration was checked
		d.add("table.mapping", advice.Fail, "correct the configuration", "%v", err)
		return
	}
	d.expected.Rejected(onReject(d.settings.OnReject))
	d.inText = !inBinary(ctx, d.settings.Replication, routes.Router, tables)
	for i, table := range tables {
		if table.Relation == nil {
			continue
		}
		d.unread = d.unread || !table.Readable
		if made := d.mapping(routes.Router, table.Table.String(), table.Relation); made != nil && table.Readable {
			d.rows(ctx, i, table, routes, made)
		}
	}
	// Messages are kept nowhere, so of them there is the mapping alone.
	for i, prefix := range d.settings.Replication.Messages {
		body, _, err := catalog.Describe(ctx, d.settings.Replication, len(d.settings.Replication.Tables)+i)
		if err != nil {
			d.add("table.mapping", advice.Fail, "correct the configuration", "messages %s: %v", prefix, err)
			continue
		}
		d.mapping(routes.Router, "messages "+prefix, body)
	}
}

// mapping compiles what is configured for a table, or for a prefix of messages. It
// gives nil when it does not fit.
func (d *checker) mapping(routes *router.Router, name string, rel *wal.Relation) *router.Explanation {
	made, err := routes.Pin(rel)
	if err != nil {
		d.unmapped(err)
		return nil
	}
	d.mapped = true
	d.ok("table.mapping", "%s: preset %s, topic %s, key %s", name, made.Preset, made.Topic, made.Roles["key"])
	for _, warning := range made.Warnings {
		d.add("table.mapping", advice.Warn, "`cdc-relay explain` shows every column's role", "%s: %s", name, warning)
	}
	if !strings.Contains(made.Topic, "${") {
		d.expected.Topic(made.Topic)
	}
	return made
}

// unmapped reports each thing that is wrong with a table's mapping. A
// block to paste does not fit on a line; explain prints it.
func (d *checker) unmapped(err error) {
	fail := func(seen string, err error) {
		next := "correct the entry in outbox; `cdc-relay explain` shows the role of each column"
		if advised, ok := errors.AsType[*advice.Error](err); ok && advised.Next != "" {
			seen, next = strings.Replace(seen, advised.Error(), advised.Cause.Error(), 1), advised.Next
			if advised.Block != "" {
				next += ": `cdc-relay explain` prints a block to paste"
			}
		}
		d.add("table.mapping", advice.Fail, next, "%s", seen)
	}
	located, ok := errors.AsType[*config.Errors](d.cfg.Locate(err))
	if !ok {
		fail(err.Error(), err)
		return
	}
	for _, one := range located.List {
		fail(one.Text(), one)
	}
}

func (d *checker) rows(ctx context.Context, i int, table preflight.CheckedTable, routes *resolve.Router, made *router.Explanation) {
	rows, err := sample.NewestRows(ctx, d.settings.Replication, i, checkedRows)
	if err != nil {
		d.add("table.rows", advice.Warn, "run works without this check; it needs SELECT and an index that finds the newest rows", "%s: its rows could not be read: %v", table.Table, err)
		return
	}
	if len(rows) == 0 {
		d.ok("table.rows", "%s is empty (normal if rows are deleted right after the insert)", table.Table)
		return
	}
	t := &trial{rows: len(rows), rejections: make(map[rejectedRows]int), topics: make(map[string]int)}
	var buf record.Buffer
	for n, row := range rows {
		buf.Reset()
		err := routes.Route(ctx, &buf, row)
		if unmet, ok := errors.AsType[*schemas.Unmet](err); ok {
			d.unmet(i, table, unmet)
			return
		}
		if err != nil {
			t.rejected++
			refused, ok := errors.AsType[*record.RowError](err)
			t.rejections[rejectedRows{explain.Rejection(err), ok && refused.Reason == fault.ReasonSchema}]++
			continue
		}
		if len(buf.Records) == 0 {
			continue // debezium options may drop a row
		}
		record := &buf.Records[0]
		d.expected.Record(record)
		t.topics[strings.Clone(record.Topic)]++
		if record.Key == nil {
			t.nullKeys++
		}
		if n == 0 {
			d.schema(i, table, routes.Router, record.Value)
		}
		if n == 0 && d.options.ShowRecords {
			d.show(table, record)
		}
	}
	d.outcome(table, t)
	d.measure(ctx, table, made, slices.Sorted(maps.Keys(t.topics)))
}

// unmet tells what keeps the schema of a table's rows from being used.
func (d *checker) unmet(i int, table preflight.CheckedTable, unmet *schemas.Unmet) {
	failure, ok := errors.AsType[*fault.Error](unmet)
	if !ok {
		d.add("registry.connection", advice.Fail, "run the check again", "%s: %v", table.Table, unmet)
		return
	}
	check := "registry.connection"
	switch failure.Reason {
	case fault.ReasonRegistryRefused:
		check = "registry.auth"
	case fault.ReasonUnknownSubject:
		check = "registry.subject"
	case fault.ReasonSchemaUnusable:
		check = "registry.schema"
	}
	seen, next := failure.Apart()
	if schema := d.settings.Router.Mappings[i].Schema.Register; schema != nil && failure.Reason == fault.ReasonUnknownSubject {
		next = "run `cdc-relay setup`, which registers schema " + schema.File + " under subject " + schema.Subject
	}
	d.add(check, advice.Fail, next, "%s: %s; its rows would wait (reason %s)", table.Table, seen, failure.Reason)
}

// schema tells by which schema the newest row is encoded.
func (d *checker) schema(i int, table preflight.CheckedTable, routes *router.Router, value []byte) {
	if value == nil {
		return
	}
	if schema, _, err := routes.Decode(i, value); err == nil && schema != "" {
		d.ok("registry.schema", "%s: %s", table.Table, schema)
	}
}

// show keeps a record beyond the buffer that it was made in.
func (d *checker) show(table preflight.CheckedTable, rec *record.Record) {
	kept := *rec
	kept.Key, kept.Value = slices.Clone(rec.Key), slices.Clone(rec.Value)
	kept.Headers = nil
	for _, h := range rec.Headers {
		kept.Headers = append(kept.Headers, record.Header{Key: h.Key, Value: slices.Clone(h.Value)})
	}
	d.records = append(d.records, explain.NewRecord("the newest row of "+table.Table.String(), &kept).WithPositions(d.settings.Router.PositionHeaders))
}

func (d *checker) outcome(table preflight.CheckedTable, t *trial) {
	causes := slices.SortedFunc(maps.Keys(t.rejections), func(a, b rejectedRows) int { return strings.Compare(a.cause, b.cause) })
	for _, r := range causes {
		on := d.settings.OnReject
		if r.schema {
			on = relay.StopOnReject
		}
		becomes, level := onReject(on)
		d.add("table.rows", level, "correct the mapping, or the program that writes such rows: each of them "+becomes,
			"%s: %d of %s would be rejected: %s", table.Table, t.rejections[r], newestRows(t.rows), r.cause)
	}
	if t.nullKeys > 0 {
		d.add("table.keys", advice.Warn, "map columns.key to a column that is NOT NULL: without a key a record goes to any partition, and its order is lost",
			"%s: %d of %s without a key", table.Table, t.nullKeys, newestRows(t.rows))
	}
	if t.rejected == t.rows {
		return
	}
	const most = 5
	names := slices.Sorted(maps.Keys(t.topics))
	shown := strings.Join(names[:min(most, len(names))], ", ")
	if len(names) > most {
		shown += fmt.Sprintf(" and %d more", len(names)-most)
	}
	routed := newestRows(t.rows)
	if t.rejected > 0 {
		routed = fmt.Sprintf("%d of %s", t.rows-t.rejected, routed)
	}
	d.ok("table.rows", "%s: %s routed on trial, to %s", table.Table, routed, shown)
}

// measure finds the largest payload of the whole table, where that is quick. The
// topics are those of its newest rows.
func (d *checker) measure(ctx context.Context, table preflight.CheckedTable, made *router.Explanation, topics []string) {
	column, _, part := strings.Cut(made.Roles["payload"], "#/")
	if column == "" {
		return
	}
	size, complete, err := sample.LargestValue(ctx, d.settings.Replication, table.Relation, column)
	switch {
	case err != nil:
		d.add("table.payload_size", advice.Warn, "run the check again", "%s: the largest payload could not be found: %v", table.Table, err)
		return
	case !complete:
		d.ok("table.payload_size", "%s is too large to be measured; of the newest rows the sizes are known", table.Table)
		return
	}
	if !part { // else the column is more than the payload, and its size no measure of the record
		d.expected.Payload(size, topics...)
	}
	sent, as := size, ""
	if d.inText && slices.ContainsFunc(table.Relation.Columns, func(c wal.Column) bool { return c.Name == column && c.TypeName == "bytea" }) {
		sent = int64(len(`\x`)) + 2*size
		as = fmt.Sprintf(", which the server sends as %d hexadecimal ones", sent)
	}
	if limit := d.settings.Stream.MaxRowBytes; sent > int64(limit) {
		d.add("table.payload_size", advice.Fail, "raise relay.max_row_bytes, or store less in the row: such a row blocks the relay, whatever relay.on_reject is",
			"%s: the largest payload has %d bytes%s, and rows over %d are not read (relay.max_row_bytes)", table.Table, size, as, limit)
		return
	}
	d.ok("table.payload_size", "%s: the largest payload has %d bytes", table.Table, size)
}
