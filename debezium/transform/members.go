package transform

import (
	"cmp"
	"slices"
	"strconv"
	"strings"

	"github.com/cdc-relay/cdc-relay/debezium/connect"
	"github.com/cdc-relay/cdc-relay/debezium/options"
	"github.com/cdc-relay/cdc-relay/fault"
	"github.com/cdc-relay/cdc-relay/router/record"
)

// Transforms of what a key or a value holds: InsertField, HoistField, ExtractField,
// ReplaceField, ValueToKey, SetSchemaMetadata.

// rebuild makes a struct of the members that keep lets through, under the names
// that it gives them.
func (f *Field) rebuild(keep func(name string) (string, bool)) error {
	old := f.Value.StructSchema()
	s := old.Clone()
	s.Fields = nil
	var values []connect.Value
	for i, member := range old.Fields {
		if name, ok := keep(member.Name); ok {
			s.Fields = append(s.Fields, connect.Field{Name: name, Schema: member.Schema})
			values = append(values, f.Value.Items()[i])
		}
	}
	var err error
	*f, err = StructOf(s, values...)
	return err
}

// insert adds or replaces a member.
func (f *Field) insert(name string, schema *connect.Schema, v connect.Value) error {
	if f.Value.Kind() != connect.KindStruct {
		return record.Reject(fault.ReasonMapping, "", "only Struct objects are supported for field insertion, found: %s", f.Value.Kind())
	}
	old := f.Value.StructSchema()
	if old.Index(name) >= 0 {
		return record.Reject(fault.ReasonMapping, "", "cannot create field because of field name duplication %s", name)
	}
	s := old.Clone()
	s.Fields = append(s.Fields, connect.Field{Name: name, Schema: schema})
	var err error
	*f, err = StructOf(s, append(slices.Clone(f.Value.Items()), v)...)
	return err
}

type insertField struct {
	side                   fieldOf
	topic, partition, time string
	static, value          string
	optional               map[string]bool
}

// newInsertField takes the names as Connect writes them: `!` behind a name makes
// the member required, `?` optional, which is the default.
func newInsertField(o *ownerOptions, side bool) transform {
	t := &insertField{side: fieldOf(side), optional: map[string]bool{}, value: o.names["static.value"]}
	for option, into := range map[string]*string{"topic.field": &t.topic, "partition.field": &t.partition, "timestamp.field": &t.time, "static.field": &t.static} {
		spec := o.names[option]
		name := strings.TrimRight(spec, "!?")
		*into = name
		t.optional[name] = !strings.HasSuffix(spec, "!")
	}
	if t.topic+t.partition+t.time+t.static == "" {
		o.fail("type", "InsertField has nothing to insert; set static.field, topic.field, partition.field or timestamp.field")
	}
	if _, given := o.names["static.value"]; (t.static != "") != given {
		o.fail("static.value", "static.field and static.value go together")
	}
	return t
}

func (t *insertField) apply(_ *Chain, r *Record) (bool, error) {
	f, err := t.side.revealed(r)
	if err != nil || f.Value.IsNull() {
		return true, err
	}
	add := func(name string, schema *connect.Schema, v connect.Value) {
		if err == nil && name != "" {
			schema.Optional = t.optional[name]
			err = f.insert(name, schema, v)
		}
	}
	add(t.topic, &connect.Schema{Type: connect.String}, connect.StringValue(r.Topic))
	partition, at := connect.Null, connect.Null
	if r.HasPartition {
		partition = connect.Int32Value(r.Partition)
	}
	if ms, ok := r.at(); ok {
		at = connect.DateValue(ms)
	}
	add(t.partition, &connect.Schema{Type: connect.Int32}, partition)
	add(t.time, &connect.Schema{Type: connect.Int64, Name: connect.TimestampName, Version: connect.VersionOf(1)}, at)
	add(t.static, &connect.Schema{Type: connect.String}, connect.StringValue(t.value))
	return true, err
}

type hoistField struct {
	side fieldOf
	name string
}

func (t *hoistField) apply(_ *Chain, r *Record) (bool, error) {
	f, err := t.side.revealed(r)
	if err != nil {
		return false, err
	}
	if f.Schema == nil {
		return false, record.Reject(fault.ReasonEncode, "", "HoistField finds a value without a schema")
	}
	s, err := connect.NewStructSchema("", []connect.Field{{Name: t.name, Schema: f.Schema}})
	if err != nil {
		return false, record.Reject(fault.ReasonEncode, "", "%v", err)
	}
	*f, err = StructOf(s, f.Value)
	return true, err
}

type extractField struct {
	side fieldOf
	name string
	raw  bool
}

func (t *extractField) apply(_ *Chain, r *Record) (bool, error) {
	f, err := t.side.revealed(r)
	if err != nil || f.Value.IsNull() {
		return true, err
	}
	v, err := f.field(t.name)
	if err != nil {
		return false, err
	}
	if t.raw {
		v.Value = f.Value.Items()[f.Value.StructSchema().Index(t.name)]
	}
	*f = v
	return true, nil
}

type replaceField struct {
	side             fieldOf
	include, exclude []string
	renames          map[string]string
}

func newReplaceField(o *ownerOptions, side bool) transform {
	t := &replaceField{side: fieldOf(side), include: options.List(o.names["include"]), exclude: options.List(o.names["exclude"]), renames: map[string]string{}}
	for _, pair := range options.List(o.names["renames"]) {
		from, to, found := strings.Cut(pair, ":")
		if !found || from == "" || to == "" {
			o.fail("renames", "%q is no pair; a list of from:to is expected", pair)
		}
		t.renames[from] = to
	}
	return t
}

func (t *replaceField) apply(_ *Chain, r *Record) (bool, error) {
	f, err := t.side.revealed(r)
	if err != nil || f.Value.IsNull() {
		return true, err
	}
	if f.Value.Kind() != connect.KindStruct {
		return false, record.Reject(fault.ReasonMapping, "", "only Struct objects are supported for field replacement, found: %s", f.Value.Kind())
	}
	return true, f.rebuild(func(name string) (string, bool) {
		keep := !slices.Contains(t.exclude, name) && (len(t.include) == 0 || slices.Contains(t.include, name))
		return cmp.Or(t.renames[name], name), keep
	})
}

type valueToKey struct{ fields []string }

func (t *valueToKey) apply(_ *Chain, r *Record) (bool, error) {
	if err := r.Reveal(); err != nil {
		return false, err
	}
	s := &connect.Schema{Type: connect.Struct}
	var values []connect.Value
	for _, name := range t.fields {
		v, err := r.Value.field(name)
		if err != nil {
			return false, err
		}
		s.Fields = append(s.Fields, connect.Field{Name: name, Schema: v.Schema})
		values = append(values, v.Value)
	}
	var err error
	r.Key, err = StructOf(s, values...)
	return true, err
}

type setSchema struct {
	side    fieldOf
	name    string
	version *int32
}

func newSetSchema(o *ownerOptions, side bool) transform {
	t := &setSchema{side: fieldOf(side), name: o.names["schema.name"]}
	if text, given := o.names["schema.version"]; given {
		n, err := strconv.ParseInt(strings.TrimSpace(text), 10, 32)
		if err != nil {
			o.fail("schema.version", "%q is not a whole number", text)
		}
		t.version = connect.VersionOf(int32(n))
	}
	if t.name == "" && t.version == nil {
		o.fail("type", "SetSchemaMetadata has nothing to set; give schema.name or schema.version")
	}
	return t
}

func (t *setSchema) apply(_ *Chain, r *Record) (bool, error) {
	f, err := t.side.revealed(r)
	if err != nil {
		return false, err
	}
	if f.Schema == nil {
		if f.Value.IsNull() {
			return true, nil
		}
		return false, record.Reject(fault.ReasonEncode, "", "SetSchemaMetadata finds a value without a schema")
	}
	s := f.Schema.Clone()
	s.Name = cmp.Or(t.name, s.Name)
	if t.version != nil {
		s.Version = t.version
	}
	f.Schema = s
	if f.Value.Kind() == connect.KindStruct {
		*f, err = StructOf(s, f.Value.Items()...)
	}
	return true, err
}
