package debezium

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/cdc-relay/cdc-relay/debezium/connect"
	"github.com/cdc-relay/cdc-relay/debezium/javaregex"
	"github.com/cdc-relay/cdc-relay/replication/wal"
	"github.com/cdc-relay/cdc-relay/router"
	"github.com/cdc-relay/cdc-relay/router/column"
	"github.com/cdc-relay/cdc-relay/router/record"
)

// dbzPlan is a debezium configuration made ready for one relation.
type dbzPlan struct {
	d     *debezium
	rel   *wal.Relation
	shape *dbzShape
	cols  []dbzColumn // parallel to shape.fields
	key   []int       // positions in shape.fields, in the order of the primary key
	topic string      // of the table's own records: <prefix>.<schema>.<table>

	keySchema, rowSchema *connect.Schema
	envelope             *connect.Schema // nil until a record needs it

	row  *wal.Row    // in hand
	data []wal.Value // what the key of its record is made of
}

type dbzColumn struct {
	index int // into Row.Values
	codec *connect.Codec
}

// sourceTopic is where Debezium would put the rows of a table.
func sourceTopic(prefix, schema, table string) string {
	return strings.Map(func(r rune) rune {
		if isDigitOrLetter(r) || r == '.' || r == '_' || r == '-' {
			return r
		}
		return '_'
	}, prefix+"."+schema+"."+table)
}

func isDigitOrLetter(r rune) bool {
	return '0' <= r && r <= '9' || 'a' <= r && r <= 'z' || 'A' <= r && r <= 'Z'
}

// newDbzPlan makes the columns ready. The errors are those of the EventRouters
// that would be given this table's rows.
func newDbzPlan(d *debezium, rel *wal.Relation) (*dbzPlan, []string, []shapeError, error) {
	p := &dbzPlan{d: d, rel: rel, topic: sourceTopic(d.prefix, rel.Namespace, rel.Name)}
	name := d.modes.SchemaNames.SchemaName
	p.shape = &dbzShape{valueName: name(p.topic + ".Value"), router: map[*eventRouter]*routedShape{}, beyond: map[string]bool{}}
	var warnings []string
	left := map[string]string{}
	for i, c := range rel.Columns {
		field := d.modes.FieldNames.FieldName(c.Name)
		if why := d.leavesOut(rel, c.Name); why != "" {
			left[field] = why
			continue
		}
		codec, err := connect.NewCodec(d.connectColumn(rel, i), d.modes)
		switch {
		case errors.Is(err, connect.ErrAbsent):
			left[field] = fmt.Sprintf("is of type %s, which Debezium leaves out of the row (include.unknown.datatypes)", column.TypeName(c))
			continue
		case err != nil && d.passes():
			return nil, nil, nil, err // a record that passes has every column
		case err != nil:
			left[field], p.shape.beyond[field] = fmt.Sprintf("is left out: %v", err), true
			continue
		}
		if codec.Warning != "" {
			warnings = append(warnings, fmt.Sprintf("column %q: %s", c.Name, codec.Warning))
		}
		p.shape.fields = append(p.shape.fields, connect.Field{Name: field, Schema: codec.Schema})
		p.cols = append(p.cols, dbzColumn{index: i, codec: codec})
	}
	p.shape.missing = func(name string) error {
		if why := left[name]; why != "" {
			return &record.ColumnError{Column: name, Err: fmt.Errorf("%s is not a valid field name: column %q of table %s %s", name, name, column.TableName(rel), why)}
		}
		var none *record.ColumnError
		errors.As(column.Missing(rel, name), &none)
		return &record.ColumnError{Column: name, Err: fmt.Errorf("%s is not a valid field name: %w", name, none.Err)}
	}
	p.makeKey(name)
	p.rowSchema = &connect.Schema{Type: connect.Struct, Optional: true, Name: p.shape.valueName, Fields: p.shape.fields}
	return p, warnings, p.check(), nil
}

// renames says that the record's fields are not called like the columns.
func (p *dbzPlan) renames() bool {
	for i, c := range p.cols {
		if p.shape.fields[i].Name != p.rel.Columns[c.index].Name {
			return true
		}
	}
	return false
}

// makeKey finds the primary key.
func (p *dbzPlan) makeKey(name func(string) string) {
	if p.rel.Meta == nil {
		return
	}
	for i, c := range p.cols {
		if p.rel.Meta[c.index].Key > 0 {
			p.key = append(p.key, i)
		}
	}
	slices.SortFunc(p.key, func(a, b int) int {
		return p.rel.Meta[p.cols[a].index].Key - p.rel.Meta[p.cols[b].index].Key
	})
	if len(p.key) == 0 {
		return
	}
	p.keySchema = &connect.Schema{Type: connect.Struct, Name: name(p.topic + ".Key")}
	for _, i := range p.key {
		p.keySchema.Fields = append(p.keySchema.Fields, p.shape.fields[i])
	}
}

// check compiles the EventRouters that take this table's rows: those without a
// predicate, and those whose predicate its topic decides.
func (p *dbzPlan) check() []shapeError {
	r := dbzRecord{topic: p.topic, source: &dbzChange{op: 'c', shape: p.shape}}
	var errs []shapeError
	for i := range p.d.chain {
		s := &p.d.chain[i]
		taken := true
		if s.predicate != nil {
			if _, byTopic := s.predicate.(topicMatches); !byTopic {
				continue
			}
			taken = s.predicate.test(&r) != s.negate
		}
		switch t := s.transform.(type) {
		case *unwrap:
			if taken {
				return errs
			}
		case *regexRouter:
			if taken {
				r.topic = t.regex.ReplaceFirst(r.topic, t.with)
			}
		case *eventRouter:
			if !taken {
				continue
			}
			routed, found := t.compile(p.shape)
			p.shape.router[t] = routed
			errs = append(errs, found...)
			return errs // a second one finds no envelope
		}
	}
	return errs
}

// leavesOut tells why a column is kept from the records.
func (d *debezium) leavesOut(rel *wal.Relation, column string) string {
	full := rel.Namespace + "." + rel.Name + "." + column
	switch {
	case d.columnsIn != nil && !javaregex.MatchesAny(d.columnsIn, full):
		return "is not in column.include.list"
	case d.columnsOut != nil && javaregex.MatchesAny(d.columnsOut, full):
		return "is in column.exclude.list"
	}
	return ""
}

// connectColumn is a column as connect wants to know it.
func (d *debezium) connectColumn(rel *wal.Relation, i int) connect.Column {
	c := rel.Columns[i]
	out := connect.Column{
		Name:   c.Name,
		Type:   connect.TypeInfo{OID: c.Type, Name: c.TypeName, TypeMod: c.TypeMod},
		Source: javaregex.MatchesAny(d.sourceTypes, rel.Namespace+"."+rel.Name+"."+c.Name),
	}
	if rel.Meta == nil {
		return out
	}
	m := rel.Meta[i]
	var labels []string
	if m.Labels != "" {
		labels = strings.Split(m.Labels, ",")
	}
	base := connect.TypeInfo{OID: m.Base, Name: m.TypeName, TypeMod: m.BaseMod}
	switch {
	case m.Elem != 0:
		base.Elem = &connect.TypeInfo{OID: m.Elem, Name: m.ElemName, TypeMod: -1}
		switch m.ElemKind {
		case 'e':
			base.Elem.Labels = labels
		case 'd':
			base.Elem.Base = &connect.TypeInfo{TypeMod: -1}
		}
	case m.TypeKind == 'e':
		base.Labels = labels
	}
	out.Type = base
	if m.Base != c.Type {
		out.Type = connect.TypeInfo{OID: c.Type, Name: m.TypeName, TypeMod: -1, Base: &base}
	}
	out.NotNull = m.NotNull
	out.Default = m.Default
	return out
}

// Compile makes the options ready for rel.
func (d *debezium) Compile(m *router.Mapping, rel *wal.Relation) (router.ConnectorPlan, *router.Explanation, error) {
	if column.IsMessages(rel) {
		p := &dbzPlan{d: d, rel: rel, topic: d.prefix + ".message"}
		return p, d.explainMessages(p), nil
	}
	p, warnings, missing, err := newDbzPlan(d, rel)
	if err != nil {
		return nil, nil, configError(m, "debezium", err)
	}
	if len(missing) > 0 {
		var errs []error
		for _, e := range missing {
			errs = append(errs, configError(m, "debezium."+e.option, e.err))
		}
		return nil, nil, errors.Join(errs...)
	}
	e := d.explain(p)
	e.Warnings = append(e.Warnings, warnings...)
	return p, e, nil
}

// presetDebezium is what an explanation names in the place of a preset.
const presetDebezium = "debezium options"

func (d *debezium) explain(p *dbzPlan) *router.Explanation {
	t := d.router
	e := &router.Explanation{
		Table: column.TableName(p.rel), Preset: presetDebezium, Key: d.classes[0], Value: d.classes[1],
		Roles: map[string]string{"id": t.id, "key": t.key, "route": t.route, "payload": t.payload},
		Topic: t.with.Text, Rekeyed: d.rekeyed(),
	}
	if t.timestamp != "" {
		e.Roles["timestamp"] = t.timestamp
	}
	for _, h := range d.context {
		e.Headers = append(e.Headers, h.key)
	}
	e.Headers = append(e.Headers, record.IdHeader)
	used := []string{t.id, t.key, t.route, t.payload, t.timestamp, t.version}
	for _, placed := range t.placements {
		used = append(used, placed.column)
		if placed.where == placeHeader {
			e.Headers = append(e.Headers, placed.alias)
		}
	}
	for _, c := range p.rel.Columns {
		if !slices.Contains(used, c.Name) {
			e.Ignored = append(e.Ignored, c.Name)
		}
	}
	return e
}

// explainMessages is explain for logical messages. The EventRouter lets them pass:
// they have neither its topic nor its key nor its headers.
func (d *debezium) explainMessages(p *dbzPlan) *router.Explanation {
	return &router.Explanation{
		Table: column.TableName(p.rel), Preset: presetDebezium, Key: d.classes[0], Value: d.classes[1], Topic: p.topic,
		Roles: map[string]string{"key": messageKeyMember, "payload": column.MessageBody},
	}
}

// messageKeyMember is what the key of a logical message has: no part of its body.
const messageKeyMember = "prefix"

// Route appends the records that Debezium would write for a row: none, one, or
// more where the row passes the EventRouter unrouted.
func (p *dbzPlan) Route(b *record.Buffer, row *wal.Row) error {
	records := len(b.Records)
	p.row = row
	err := p.send(b, row)
	if err != nil {
		clear(b.Records[records:])
		b.Records = b.Records[:records]
	}
	p.row, p.data = nil, nil
	return err
}

func (p *dbzPlan) send(b *record.Buffer, row *wal.Row) error {
	d := p.d
	if column.IsMessages(p.rel) {
		return p.message(b, row)
	}
	if row.Change != nil && row.Change.Op == wal.Commit {
		return d.transactions.end(b, d, row)
	}
	if row.Change == nil && len(row.Values) != len(p.rel.Columns) {
		return record.Reject(record.ReasonSchema, "", "the row has %d values, and its table %d columns", len(row.Values), len(p.rel.Columns))
	}
	if err := d.transactions.begin(b, d, row); err != nil {
		return err
	}
	var err error
	switch {
	case row.Change == nil:
		err = p.created(b, row, row.Values, nil)
	case row.Change.Op == wal.Update:
		err = p.updated(b, row)
	case row.Change.Op == wal.Delete:
		err = p.deleted(b, row, row.Change.Old, nil)
	case row.Change.Op == wal.Truncate:
		err = p.change(b, row, 't', nil, nil, nil)
	default:
		err = record.Reject(record.ReasonSchema, "", "change %q is not one that Debezium knows", byte(row.Change.Op))
	}
	if err != nil {
		return err
	}
	d.transactions.count(row)
	return nil
}

// Headers of the two halves of an update that changed the primary key.
const (
	newKeyHeader = "__debezium.newkey"
	oldKeyHeader = "__debezium.oldkey"
)

func (p *dbzPlan) created(b *record.Buffer, row *wal.Row, values []wal.Value, first *dbzHeader) error {
	return p.change(b, row, 'c', values, values, first)
}

// updated is an update, or a delete and an insert when the primary key changed.
func (p *dbzPlan) updated(b *record.Buffer, row *wal.Row) error {
	if old := row.Change.Old; old != nil && p.keyChanged(old, row.Values) {
		oldKey, err := p.keyOf(old)
		if err != nil {
			return err
		}
		newKey, err := p.keyOf(row.Values)
		if err != nil {
			return err
		}
		if err := p.deleted(b, row, old, &dbzHeader{newKeyHeader, newKey.schema, newKey.value}); err != nil {
			return err
		}
		return p.created(b, row, row.Values, &dbzHeader{oldKeyHeader, oldKey.schema, oldKey.value})
	}
	return p.change(b, row, 'u', row.Values, row.Values, nil)
}

// keyChanged compares the columns of the primary key. An identity that does not
// hold them says nothing about them.
func (p *dbzPlan) keyChanged(old, values []wal.Value) bool {
	for _, i := range p.key {
		was, is := old[p.cols[i].index], values[p.cols[i].index]
		if was.Kind != wal.Null && (was.Kind != is.Kind || string(was.Data) != string(is.Data)) {
			return true
		}
	}
	return false
}

// deleted is a delete with the tombstone behind it.
func (p *dbzPlan) deleted(b *record.Buffer, row *wal.Row, old []wal.Value, first *dbzHeader) error {
	if err := p.change(b, row, 'd', old, nil, first); err != nil {
		return err
	}
	return p.pass(b, p.begin(old, first), row)
}

// begin starts a record of this table, with its key and headers and no value.
func (p *dbzPlan) begin(key []wal.Value, first *dbzHeader) *dbzRecord {
	r := &p.d.scratch
	r.reset()
	r.topic = p.topic
	if first != nil {
		r.headers = append(r.headers, *first)
	}
	r.headers = append(r.headers, p.d.context...)
	p.data = key
	return r
}

// change sends one change record through the chain.
func (p *dbzPlan) change(b *record.Buffer, row *wal.Row, op byte, key, after []wal.Value, first *dbzHeader) error {
	r := p.begin(key, first)
	c := &dbzChange{op: op, shape: p.shape, row: row, table: p}
	if after != nil {
		c.after = func(i int) (connect.Value, error) { return p.value(after, i) }
	}
	r.source = c
	return p.pass(b, r, row)
}

// pass runs the chain. The table's own key, which an EventRouter replaces, is made
// only for a chain that may not reach one.
func (p *dbzPlan) pass(b *record.Buffer, r *dbzRecord, row *wal.Row) error {
	if p.keySchema != nil && p.data != nil && p.d.needsKey() {
		key, err := p.keyOf(p.data)
		if err != nil {
			return err
		}
		r.key = key
	}
	keep, err := p.d.pass(r)
	if err != nil || !keep {
		return err
	}
	return p.d.emit(b, r, row)
}

// needsKey tells whether a record may keep the key of its table.
func (d *debezium) needsKey() bool {
	first := &d.chain[0]
	_, routed := first.transform.(*eventRouter)
	return !routed || first.predicate != nil
}

// keyOf is the struct of the primary key's columns; nothing for a table without.
func (p *dbzPlan) keyOf(values []wal.Value) (dbzField, error) {
	if p.keySchema == nil || values == nil {
		return dbzField{}, nil
	}
	items := make([]connect.Value, len(p.key))
	for n, i := range p.key {
		v, err := p.value(values, i)
		if err != nil {
			return dbzField{}, err
		}
		items[n] = v
	}
	return structOf(p.keySchema, items...)
}

// value decodes one column of a row. Debezium writes null for what it cannot
// convert, as event.converting.failure.handling.mode says.
func (p *dbzPlan) value(values []wal.Value, i int) (connect.Value, error) {
	c := &p.cols[i]
	v := values[c.index]
	switch v.Kind {
	case wal.Null:
		return connect.Null, nil
	case wal.Text:
	case wal.Unchanged:
		return p.placeholder(i)
	default:
		return connect.Null, record.RejectBinary(p.rel.Columns[c.index].Name)
	}
	out, err := c.codec.Decode(v.Data)
	if err != nil {
		if e, ok := errors.AsType[*connect.ConvertError](err); ok && e.Tolerated {
			if !c.codec.Quiet() {
				p.d.noticed(p.row, p.rel.Columns[c.index].Name, "the value is none that can be converted and is sent as null, as Debezium sends it (event.converting.failure.handling.mode)")
			}
			return out, nil
		}
		return connect.Null, record.Reject(record.ReasonEncode, p.rel.Columns[c.index].Name, "%v", err)
	}
	return out, nil
}

// placeholder stands for a value that the log does not have.
func (p *dbzPlan) placeholder(i int) (connect.Value, error) {
	switch s := p.shape.fields[i].Schema; {
	case s.Type == connect.String:
		return connect.StringValue(p.d.modes.Placeholder), nil
	case s.Type == connect.Bytes && s.Name == "":
		return connect.BufferValue([]byte(p.d.modes.Placeholder)), nil
	}
	name := p.shape.fields[i].Name
	return connect.Null, record.Reject(record.ReasonMapping, name, "column %q is not in the log: the update left its TOASTed value alone; ALTER TABLE %s REPLICA IDENTITY FULL makes the log hold it", name, column.TableName(p.rel))
}

func millis(ms int64) time.Time { return time.UnixMilli(ms).UTC() }

// commitMillis stands for the time at which Debezium processes a row.
func commitMillis(row *wal.Row) (int64, bool) {
	if row == nil || row.Txn == nil || row.Txn.Time.IsZero() {
		return 0, false
	}
	return row.Txn.Time.UnixMilli(), true
}

// ReadsAll tells whether a record may have every column of its row.
func (p *dbzPlan) ReadsAll() bool { return p.d.passes() || p.renames() }

// Salvage gives the bytes of key and payload as PostgreSQL prints them.
func (p *dbzPlan) Salvage(b *record.Buffer, row *wal.Row) record.Record {
	rec := record.Record{Partition: record.AutoPartition, Row: row}
	text := func(name string) []byte {
		i := column.Index(p.rel, name)
		if i < 0 || i >= len(row.Values) || row.Values[i].Kind != wal.Text {
			return nil
		}
		return row.Values[i].Data
	}
	if column.IsMessages(p.rel) {
		rec.Value = text(column.MessageBody)
		return rec
	}
	rec.Key, rec.Value = text(p.d.router.key), text(p.d.router.payload)
	b.Header(record.IdHeader, text(p.d.router.id))
	rec.Headers = b.TakeHeaders()
	return rec
}
