package expand

import (
	"encoding/binary"
	"errors"
	"math"

	"github.com/cdc-relay/cdc-relay/debezium/connect"
)

// Outcome is what happened to a payload under table.expand.json.payload.
type Outcome uint8

// The outcomes.
const (
	// Untouched: null, or not a string; nothing to expand and nothing to say.
	Untouched Outcome = iota
	// Expanded: the value is a struct of the inferred schema.
	Expanded
	// Kept: not a JSON object or array, or none that has a schema. The original
	// string and its schema go on, and Debezium warns.
	Kept
	// Poison: the schema was inferred and the value does not fit it. The original
	// string goes on under the new schema, which JsonConverter and an envelope
	// refuse and StringConverter does not see.
	Poison
)

// Expansion is the result of Expand.
type Expansion struct {
	Outcome Outcome
	Schema  *connect.Schema // nil for a Poison that has none: an empty array
	Value   connect.Value
	Reason  error // of Kept and Poison; holds no value of the row
}

// Options are the options of the EventRouter that the expansion knows.
type Options struct {
	Root          string           // the payload column's name: the struct's name
	NullBytes     bool             // table.json.payload.null.behavior=optional_bytes
	EmptyAsString bool             // table.json.payload.empty.array.behavior=optional_string
	Names         connect.NameMode // field.name.adjustment.mode
}

// Expander turns JSON text into structs. It keeps the schemas it inferred, so
// rows of one shape share one *Schema. It is not safe for concurrent use.
type Expander struct {
	options Options
	parser  jsonParser
	shape   []byte
	known   map[string]inferred
}

type inferred struct {
	schema *connect.Schema
	err    error
}

// The shapes whose schemas are kept; a shape with a longer description is not.
const (
	maxKnownShapes = 10_000
	maxShapeBytes  = 16 << 10
)

// New makes an Expander.
func New(o Options) *Expander {
	return &Expander{options: o, known: map[string]inferred{}}
}

var (
	errGate       = errors.New("the payload does not begin with { or [")
	errEmptyName  = errors.New("a member has an empty name")
	errMixedArray = errors.New("an array has elements of different types")
	errNoElement  = errors.New("an array has no element from which a type follows")
	errTopArray   = errors.New("the payload is an array, not an object")
	errFit        = errors.New("a value does not fit the type that was inferred for its place")
)

// Expand expands v, whose schema is s. The result aliases v.
func (e *Expander) Expand(s *connect.Schema, v connect.Value) Expansion {
	if v.Kind() != connect.KindString {
		return Expansion{Schema: s, Value: v}
	}
	kept := func(err error) Expansion { return Expansion{Outcome: Kept, Schema: s, Value: v, Reason: err} }
	if len(v.Data()) == 0 || v.Data()[0] != '{' && v.Data()[0] != '[' {
		return kept(errGate)
	}
	if err := e.parser.parse(v.Data()); err != nil {
		return kept(err)
	}
	schema, err := e.schemaOf()
	if err != nil {
		return kept(err)
	}
	if e.parser.nodes[0].kind == jsonArray {
		return Expansion{Outcome: Poison, Schema: schema, Value: v, Reason: errTopArray}
	}
	out, err := e.structOf(0, schema)
	if err != nil {
		return Expansion{Outcome: Poison, Schema: schema, Value: v, Reason: err}
	}
	return Expansion{Outcome: Expanded, Schema: schema, Value: out}
}

// schemaOf infers the schema of the parsed text, once for each shape of it.
func (e *Expander) schemaOf() (*connect.Schema, error) {
	e.shape = e.appendShape(e.shape[:0], 0)
	if found, ok := e.known[string(e.shape)]; ok {
		return found.schema, found.err
	}
	schema, err := e.infer(0, e.options.Root)
	if len(e.shape) <= maxShapeBytes {
		if len(e.known) >= maxKnownShapes {
			clear(e.known)
		}
		e.known[string(e.shape)] = inferred{schema, err}
	}
	return schema, err
}

// appendShape describes all that inference looks at: kinds and names. Of equal
// neighbours in an array one is enough.
func (e *Expander) appendShape(dst []byte, at int32) []byte {
	n := &e.parser.nodes[at]
	dst = append(dst, byte(n.kind))
	switch n.kind {
	case jsonTrue:
		dst[len(dst)-1] = byte(jsonFalse)
	case jsonObject:
		for at := n.first; at != 0; at = e.parser.nodes[at].next {
			name := e.parser.nodes[at].name
			dst = append(binary.AppendUvarint(append(dst, 'm'), uint64(len(name))), name...)
			dst = e.appendShape(dst, at)
		}
		dst = append(dst, '}')
	case jsonArray:
		last := len(dst)
		for at := n.first; at != 0; at = e.parser.nodes[at].next {
			start := len(dst)
			dst = e.appendShape(dst, at)
			if string(dst[start:]) == string(dst[last:start]) {
				dst = dst[:start]
			} else {
				last = start
			}
		}
		dst = append(dst, ']')
	default: // the kind says it all
	}
	return dst
}

// infer is the schema of a node, nil for one that has none.
func (e *Expander) infer(at int32, name string) (*connect.Schema, error) {
	n := &e.parser.nodes[at]
	switch n.kind {
	case jsonNull:
		if e.options.NullBytes {
			return connect.OptionalBytesSchema, nil
		}
		return nil, nil
	case jsonFalse, jsonTrue:
		return connect.OptionalBooleanSchema, nil
	case jsonString:
		return connect.OptionalStringSchema, nil
	case jsonInt32:
		return connect.OptionalInt32Schema, nil
	case jsonInt64:
		return connect.OptionalInt64Schema, nil
	case jsonBigInt, jsonDouble:
		return connect.OptionalFloat64Schema, nil
	case jsonArray:
		return e.inferArray(at, name)
	default:
		return e.inferObject(at, name)
	}
}

func (e *Expander) inferObject(at int32, name string) (*connect.Schema, error) {
	s := &connect.Schema{Type: connect.Struct, Optional: true, Name: name}
	s.Fields = make([]connect.Field, 0, e.parser.nodes[at].count)
	var seen map[string]bool // only a name that was adjusted can come twice
	if e.options.Names != connect.NamesAsIs {
		seen = map[string]bool{}
	}
	for at := e.parser.nodes[at].first; at != 0; at = e.parser.nodes[at].next {
		member := e.options.Names.FieldName(string(e.parser.nodes[at].name))
		path := member
		if name != "" {
			path = name + "." + member
		}
		inner, err := e.infer(at, path)
		switch {
		case err != nil:
			return nil, err
		case inner == nil || seen[member]:
			continue
		case member == "":
			return nil, errEmptyName
		}
		if seen != nil {
			seen[member] = true
		}
		s.Fields = append(s.Fields, connect.Field{Name: member, Schema: inner})
	}
	return s, nil
}

func (e *Expander) inferArray(at int32, name string) (*connect.Schema, error) {
	nodes := e.parser.nodes
	if nodes[at].count == 0 {
		if e.options.EmptyAsString {
			return &connect.Schema{Type: connect.Array, Optional: true, Elem: connect.OptionalStringSchema}, nil
		}
		return nil, nil
	}
	sample, err := e.sample(at)
	if err != nil {
		return nil, err
	}
	var elem *connect.Schema
	if sample != 0 && nodes[sample].kind == jsonObject {
		elem, err = e.merge(at, name)
	} else if sample != 0 {
		elem, err = e.infer(sample, "")
	} else if e.options.NullBytes {
		elem = connect.OptionalBytesSchema
	}
	switch {
	case err != nil:
		return nil, err
	case elem == nil:
		return nil, errNoElement
	}
	return &connect.Schema{Type: connect.Array, Optional: true, Elem: elem}, nil
}

// sample is the first element of an array that is not null, 0 when there is
// none. All must be of one kind; numbers, of one type.
func (e *Expander) sample(at int32) (int32, error) {
	nodes := e.parser.nodes
	sample := int32(0)
	for at := nodes[at].first; at != 0; at = nodes[at].next {
		switch {
		case nodes[at].kind == jsonNull:
		case sample == 0:
			sample = at
		case nodes[at].kind.family() != nodes[sample].kind.family():
			return 0, errMixedArray
		case nodes[at].kind.family() == jsonInt32 && numberType(nodes[at].kind) != numberType(nodes[sample].kind):
			return 0, errMixedArray
		}
	}
	return sample, nil
}

func numberType(k jsonKind) jsonKind {
	if k == jsonBigInt {
		return jsonDouble
	}
	return k
}

// merge is the union of the members of an array's objects in the order in which
// they are met. Java's order is that of a set of identity hashes. The first
// schema of a name stays, except the bytes that a null became.
func (e *Expander) merge(at int32, name string) (*connect.Schema, error) {
	var merged *connect.Schema
	index := map[string]int{}
	for at := e.parser.nodes[at].first; at != 0; at = e.parser.nodes[at].next {
		if e.parser.nodes[at].kind != jsonObject {
			continue
		}
		s, err := e.inferObject(at, name)
		if err != nil {
			return nil, err
		}
		if merged == nil {
			merged = s
			for i, f := range s.Fields {
				index[f.Name] = i
			}
			continue
		}
		for _, f := range s.Fields {
			i, known := index[f.Name]
			switch {
			case !known:
				index[f.Name] = len(merged.Fields)
				merged.Fields = append(merged.Fields, f)
			case merged.Fields[i].Schema.Type == connect.Bytes && f.Schema.Type != connect.Bytes:
				merged.Fields[i] = f
			}
		}
	}
	return merged, nil
}

// structOf reads the members that the schema names; what is not there is null.
func (e *Expander) structOf(at int32, s *connect.Schema) (connect.Value, error) {
	items := make([]connect.Value, len(s.Fields))
	next := 0
	if e.parser.nodes[at].kind == jsonObject {
		for at := e.parser.nodes[at].first; at != 0; at = e.parser.nodes[at].next {
			i := fieldFrom(s, next, e.parser.nodes[at].name)
			if i < 0 {
				continue
			}
			v, err := e.valueOf(at, s.Fields[i].Schema)
			if err != nil {
				return connect.Null, err
			}
			items[i], next = v, i+1
		}
	}
	return connect.StructOf(s, items), nil
}

// fieldFrom finds a field, most likely the next one.
func fieldFrom(s *connect.Schema, next int, name []byte) int {
	if next < len(s.Fields) && s.Fields[next].Name == string(name) {
		return next
	}
	for i := range s.Fields {
		if s.Fields[i].Name == string(name) {
			return i
		}
	}
	return -1
}

// valueOf reads a node as the schema wants it. Nothing is widened: an INT32 in
// the place of an INT64 does not fit.
func (e *Expander) valueOf(at int32, s *connect.Schema) (connect.Value, error) {
	n := &e.parser.nodes[at]
	var v connect.Value
	switch n.kind {
	case jsonNull:
		return connect.Null, nil
	case jsonFalse, jsonTrue:
		v = connect.BooleanValue(n.kind == jsonTrue)
	case jsonString:
		v = connect.TextValue(n.text)
	case jsonInt32:
		v = connect.Int32Value(int32(n.num))
	case jsonInt64:
		v = connect.Int64Value(n.num)
	case jsonDouble:
		v = connect.Float64Value(math.Float64frombits(uint64(n.num)))
	case jsonBigInt: // Java has a decimal here, which no schema of the inference takes
		return connect.Null, errFit
	case jsonArray:
		return e.arrayOf(at, s)
	case jsonObject:
		if s.Type != connect.Struct {
			return connect.Null, errFit
		}
		return e.structOf(at, s)
	}
	if !s.Type.Fits(v.Kind()) {
		return connect.Null, errFit
	}
	return v, nil
}

func (e *Expander) arrayOf(at int32, s *connect.Schema) (connect.Value, error) {
	if s.Type != connect.Array {
		return connect.Null, errFit
	}
	items := make([]connect.Value, 0, e.parser.nodes[at].count)
	for at := e.parser.nodes[at].first; at != 0; at = e.parser.nodes[at].next {
		v, err := e.valueOf(at, s.Elem)
		if err != nil {
			return connect.Null, err
		}
		items = append(items, v)
	}
	return connect.ArrayValue(items), nil
}
