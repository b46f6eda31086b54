package debezium

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/cdc-relay/cdc-relay/debezium/connect"
	"github.com/cdc-relay/cdc-relay/debezium/connect/codec"
	"github.com/cdc-relay/cdc-relay/debezium/javaregex"
	"github.com/cdc-relay/cdc-relay/debezium/transform"
	"github.com/cdc-relay/cdc-relay/replication/wal"
	"github.com/cdc-relay/cdc-relay/router"
	"github.com/cdc-relay/cdc-relay/router/column"
	"github.com/cdc-relay/cdc-relay/router/record"
)

// plan is a debezium configuration made ready for one relation.
type plan struct {
	d     *connector
	rel   *wal.Relation
	shape *transform.Shape
	cols  []planColumn // parallel to shape.Fields
	key   []int        // positions in shape.Fields, in the order of the primary key
	topic string       // of the table's own records: <prefix>.<schema>.<table>

	keySchema, rowSchema *connect.Schema
	envelope             *connect.Schema // nil until a record needs it

	row  *wal.Row    // in hand
	data []wal.Value // what the key of its record is made of
}

type planColumn struct {
	index int // into Row.Values
	codec *codec.Codec
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

// newPlan makes the columns ready. The errors are those of the EventRouters
// that would be given this table's rows.
func newPlan(d *connector, rel *wal.Relation) (*plan, []string, []transform.ShapeError, error) {
	p := &plan{d: d, rel: rel, topic: sourceTopic(d.prefix, rel.Namespace, rel.Name)}
	name := d.modes.SchemaNames.SchemaName
	p.shape = &transform.Shape{Name: name(p.topic + ".Value"), Beyond: map[string]bool{}}
	var warnings []string
	left := map[string]string{}
	for i, c := range rel.Columns {
		field := d.modes.FieldNames.FieldName(c.Name)
		if why := d.leavesOut(rel, c.Name); why != "" {
			left[field] = why
			continue
		}
		made, err := codec.New(d.connectColumn(rel, i), d.modes)
		switch {
		case errors.Is(err, connect.ErrAbsent):
			left[field] = fmt.Sprintf("is of type %s, which Debezium leaves out of the row (include.unknown.datatypes)", column.TypeName(c))
			continue
		case err != nil && d.chain.Passes():
			return nil, nil, nil, err // a record that passes has every column
		case err != nil:
			left[field], p.shape.Beyond[field] = fmt.Sprintf("is left out: %v", err), true
			continue
		}
		if made.Warning != "" {
			warnings = append(warnings, fmt.Sprintf("column %q: %s", c.Name, made.Warning))
		}
		p.shape.Fields = append(p.shape.Fields, connect.Field{Name: field, Schema: made.Schema})
		p.cols = append(p.cols, planColumn{index: i, codec: made})
	}
	p.shape.Missing = func(name string) error {
		if why := left[name]; why != "" {
			return &record.ColumnError{Column: name, Err: fmt.Errorf("%s is not a valid field name: column %q of table %s %s", name, name, column.TableName(rel), why)}
		}
		var none *record.ColumnError
		errors.As(column.Missing(rel, name), &none)
		return &record.ColumnError{Column: name, Err: fmt.Errorf("%s is not a valid field name: %w", name, none.Err)}
	}
	p.makeKey(name)
	p.rowSchema = &connect.Schema{Type: connect.Struct, Optional: true, Name: p.shape.Name, Fields: p.shape.Fields}
	return p, warnings, d.chain.Check(p.topic, p.shape), nil
}

// renames reports whether the record's fields are not called like the columns.
func (p *plan) renames() bool {
	for i, c := range p.cols {
		if p.shape.Fields[i].Name != p.rel.Columns[c.index].Name {
			return true
		}
	}
	return false
}

// makeKey finds the primary key.
func (p *plan) makeKey(name func(string) string) {
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
		p.keySchema.Fields = append(p.keySchema.Fields, p.shape.Fields[i])
	}
}

// leavesOut explains why a column is kept from the records.
func (d *connector) leavesOut(rel *wal.Relation, column string) string {
	full := rel.Qualified() + "." + column
	switch {
	case d.columnsIn != nil && !javaregex.MatchesAny(d.columnsIn, full):
		return "is not in column.include.list"
	case d.columnsOut != nil && javaregex.MatchesAny(d.columnsOut, full):
		return "is in column.exclude.list"
	}
	return ""
}

// connectColumn is a column as connect wants to know it.
func (d *connector) connectColumn(rel *wal.Relation, i int) codec.Column {
	c := rel.Columns[i]
	out := codec.Column{
		Name:   c.Name,
		Type:   codec.TypeInfo{OID: c.Type, Name: c.TypeName, TypeMod: c.TypeMod},
		Source: javaregex.MatchesAny(d.sourceTypes, rel.Qualified()+"."+c.Name),
	}
	if rel.Meta == nil {
		return out
	}
	m := rel.Meta[i]
	var labels []string
	if m.Labels != "" {
		labels = strings.Split(m.Labels, ",")
	}
	base := codec.TypeInfo{OID: m.Base, Name: m.TypeName, TypeMod: m.BaseMod}
	switch {
	case m.Elem != 0:
		base.Elem = &codec.TypeInfo{OID: m.Elem, Name: m.ElemName, TypeMod: -1}
		switch m.ElemKind {
		case 'e':
			base.Elem.Labels = labels
		case 'd':
			base.Elem.Base = &codec.TypeInfo{TypeMod: -1}
		}
	case m.TypeKind == 'e':
		base.Labels = labels
	}
	out.Type = base
	if m.Base != c.Type {
		out.Type = codec.TypeInfo{OID: c.Type, Name: m.TypeName, TypeMod: -1, Base: &base}
	}
	out.NotNull = m.NotNull
	out.Default = m.Default
	return out
}

// Compile makes the options ready for rel.
func (d *connector) Compile(m *router.Mapping, rel *wal.Relation) (router.ConnectorPlan, *router.Explanation, error) {
	if rel.IsMessages() {
		p := &plan{d: d, rel: rel, topic: d.prefix + ".message"}
		return p, d.explainMessages(p), nil
	}
	p, warnings, missing, err := newPlan(d, rel)
	if err != nil {
		return nil, nil, configError(m, "debezium", err)
	}
	if len(missing) > 0 {
		var errs []error
		for _, e := range missing {
			errs = append(errs, configError(m, "debezium."+writtenName(d.bare, e.Option), e.Err))
		}
		return nil, nil, errors.Join(errs...)
	}
	e := d.explain(p)
	e.Warnings = append(e.Warnings, warnings...)
	return p, e, nil
}

// presetDebezium is what an explanation names in the place of a preset.
const presetDebezium = "debezium options"

func (d *connector) explain(p *plan) *router.Explanation {
	t := d.router
	e := &router.Explanation{
		Table: column.TableName(p.rel), Preset: presetDebezium, Key: d.classes[0], Value: d.classes[1],
		Roles: map[string]string{"id": t.ID, "key": t.Key, "route": t.Route, "payload": t.Payload},
		Topic: t.Topic(), Rekeyed: d.chain.Rekeyed(),
	}
	if t.Timestamp != "" {
		e.Roles["timestamp"] = t.Timestamp
	}
	for _, h := range d.context {
		e.Headers = append(e.Headers, h.Key)
	}
	e.Headers = append(append(e.Headers, record.IdHeader), t.Headers()...)
	used := t.Columns()
	for _, c := range p.rel.Columns {
		if !slices.Contains(used, c.Name) {
			e.Ignored = append(e.Ignored, c.Name)
		}
	}
	return e
}

// explainMessages is explain for logical messages. The EventRouter lets them pass:
// they have neither its topic nor its key nor its headers.
func (d *connector) explainMessages(p *plan) *router.Explanation {
	return &router.Explanation{
		Table: column.TableName(p.rel), Preset: presetDebezium, Key: d.classes[0], Value: d.classes[1], Topic: p.topic,
		Roles: map[string]string{"key": messageKeyMember, "payload": column.MessageBody},
	}
}

// messageKeyMember is what the key of a logical message has: no part of its body.
const messageKeyMember = "prefix"
