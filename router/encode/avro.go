package encode

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	"github.com/cdc-relay/cdc-relay/advice"
	"github.com/twmb/avro"
)

// form is how a type is written.
type form byte

const (
	formNull form = iota
	formBoolean
	formInt
	formLong
	formFloat
	formDouble
	formString
	formBytes
	formFixed
	formEnum
	formArray
	formMap
	formRecord
	formUnion
	formDecimal // of bytes, or of fixed where there is a size
	formUUID    // of string, or of fixed where there is a size
	formDate
	formTime
	formTimestamp
)

// avroType is a type of a schema, ready to be walked along with a tape. A type that has a name is
// one value, however often the schema names it.
type avroType struct {
	form form
	name string // as messages and the tags of unions have it

	size     int   // of fixed
	base64   bool  // of bytes and fixed
	per      int64 // of times: units in a second
	local    bool  // of timestamps: without a zone
	scale    int   // of decimals
	digits   int   // of decimals
	symbols  map[string]int64
	inner    *avroType // of arrays and maps
	fields   []avroField
	index    map[string]int
	order    []int32 // of fields, as the members of the last record came
	branches []*avroType
	tags     map[string]int
	branch   [kinds]int // of unions: the one that takes a kind, or one of the two below
}

// What a union does with a kind of JSON value.
const (
	noBranch  = -1
	tagBranch = -2 // several take it: the value says which, as {"full.Name": …}
)

type avroField struct {
	name     string
	typ      *avroType
	fallback []byte // what is written where the member is missing; nil: it has to be there
}

// avroBody encodes by an Avro schema.
type avroBody struct {
	root    *avroType
	drop    bool
	seen    []int32 // the fields of the records that are open
	scratch []byte
	keys    map[string]struct{}
	library *avro.Schema // decodes
}

type avroCompiler struct {
	o     Options
	named map[string]*avroType
}

func compileAvro(s *Schema, o Options) (*avroBody, error) {
	var cache avro.SchemaCache
	for _, r := range s.References {
		if _, err := cache.Parse(r.Text); err != nil {
			return nil, fmt.Errorf("reference %s: %w", r.Name, err)
		}
	}
	parsed, err := cache.Parse(s.Text)
	if err != nil {
		return nil, err
	}
	c := &avroCompiler{o: o, named: make(map[string]*avroType)}
	root, err := c.compile(parsed.Root(), "")
	if err != nil {
		return nil, err
	}
	return &avroBody{root: root, drop: o.Drop, library: parsed}, nil
}

// simple are the types without parts.
var simple = map[string]form{
	"null": formNull, "boolean": formBoolean, "int": formInt, "long": formLong,
	"float": formFloat, "double": formDouble, "string": formString, "bytes": formBytes,
}

func (c *avroCompiler) compile(n *avro.SchemaNode, space string) (*avroType, error) {
	t := &avroType{name: n.Type, size: n.Size}
	if f, ok := simple[n.Type]; ok {
		t.form = f
		return t, c.logical(t, n)
	}
	var err error
	switch n.Type {
	case "array", "map":
		t.form = formArray
		items := n.Items
		if n.Type == "map" {
			t.form, items = formMap, n.Values
		}
		t.inner, err = c.compile(items, space)
		return t, err
	case "union":
		return t, c.union(t, n, space)
	case "record", "error", "enum", "fixed":
	default:
		return c.reference(n.Type, space)
	}
	t.name = full(n.Name, n.Namespace)
	c.named[t.name] = t
	switch n.Type {
	case "enum":
		t.form, t.symbols = formEnum, make(map[string]int64, len(n.Symbols))
		for i, s := range n.Symbols {
			t.symbols[s] = int64(i)
		}
	case "fixed":
		t.form = formFixed
		return t, c.logical(t, n)
	default:
		space := ""
		if i := strings.LastIndexByte(t.name, '.'); i >= 0 {
			space = t.name[:i]
		}
		return t, c.record(t, n, space)
	}
	return t, nil
}

func full(name, space string) string {
	if space == "" || strings.Contains(name, ".") {
		return name
	}
	return space + "." + name
}

func (c *avroCompiler) reference(name, space string) (*avroType, error) {
	if t, ok := c.named[full(name, space)]; ok {
		return t, nil
	}
	if t, ok := c.named[name]; ok {
		return t, nil
	}
	return nil, fmt.Errorf("type %q is not defined before it is named", name)
}

func (c *avroCompiler) record(t *avroType, n *avro.SchemaNode, space string) error {
	t.form, t.index = formRecord, make(map[string]int, len(n.Fields))
	t.fields = make([]avroField, len(n.Fields))
	t.order = make([]int32, len(n.Fields))
	for i := range n.Fields {
		f := &n.Fields[i]
		typ, err := c.compile(&f.Type, space)
		if err != nil {
			return fmt.Errorf("field %s: %w", f.Name, err)
		}
		t.fields[i] = avroField{name: f.Name, typ: typ}
		t.index[f.Name], t.order[i] = i, int32(i)
	}
	for i := range n.Fields { // behind all types: a default may be of this record
		if f := &n.Fields[i]; f.HasDefault {
			made, err := appendDefault([]byte{}, t.fields[i].typ, f.Default, 0)
			if err != nil {
				return fmt.Errorf("default of field %s: %w", f.Name, err)
			}
			t.fields[i].fallback = made
		}
	}
	return nil
}

// logical applies the logical type of a simple type or of fixed. One that is not known, or does not
// belong there, is left out, as the specification has it.
func (c *avroCompiler) logical(t *avroType, n *avro.SchemaNode) error {
	per := map[string]int64{"millis": 1e3, "micros": 1e6, "nanos": 1e9}
	local, isLocal := strings.CutPrefix(n.LogicalType, "local-")
	unit, isStamp := strings.CutPrefix(local, "timestamp-")
	clock, isTime := strings.CutPrefix(n.LogicalType, "time-")
	switch {
	case n.LogicalType == "decimal" && n.Precision > 0 && (t.form == formBytes || t.form == formFixed):
		if n.Precision > maxPrecision || n.Scale < 0 {
			return fmt.Errorf("a decimal of %d digits with scale %d is not taken; at most %d digits are", n.Precision, n.Scale, maxPrecision)
		}
		t.form, t.digits, t.scale = formDecimal, n.Precision, n.Scale
		t.name = fmt.Sprintf("decimal(%d,%d)", n.Precision, n.Scale)
	case n.LogicalType == "uuid" && (t.form == formString || t.form == formFixed && n.Size == 16):
		t.form = formUUID
	case n.LogicalType == "date" && t.form == formInt:
		t.form = formDate
	case isTime && (t.form == formInt && clock == "millis" || t.form == formLong && clock == "micros"):
		t.form, t.per = formTime, per[clock]
	case isStamp && t.form == formLong && per[unit] > 0:
		t.form, t.per, t.local = formTimestamp, per[unit], isLocal
	}
	if t.form == formBytes || t.form == formFixed {
		if c.o.Bytes == "" {
			return advice.Give(fmt.Errorf("type %s takes bytes, and JSON has none", t.name), "set schema.bytes to base64 or latin1, whichever the payload's strings are")
		}
		t.base64 = c.o.Bytes == Base64
	}
	return nil
}

const maxPrecision = 1000

// takes are the kinds of JSON values that a type may be written from.
func (t *avroType) takes() []kind {
	switch t.form {
	case formNull:
		return []kind{null}
	case formBoolean:
		return []kind{boolean}
	case formInt, formLong, formFloat, formDouble:
		return []kind{number}
	case formString, formBytes, formFixed, formEnum, formUUID:
		return []kind{text}
	case formArray:
		return []kind{array}
	case formMap, formRecord:
		return []kind{object}
	default: // decimals and times
		return []kind{number, text}
	}
}

func (c *avroCompiler) union(t *avroType, n *avro.SchemaNode, space string) error {
	t.form, t.tags = formUnion, make(map[string]int, len(n.Branches))
	for k := range t.branch {
		t.branch[k] = noBranch
	}
	var names []string
	tagged, objects := false, 0
	for i := range n.Branches {
		b, err := c.compile(&n.Branches[i], space)
		if err != nil {
			return err
		}
		t.branches = append(t.branches, b)
		t.tags[tagOf(&n.Branches[i], b)] = i
		names = append(names, b.name)
		for _, k := range b.takes() {
			switch {
			case k == object:
				objects++
				fallthrough
			default:
				if t.branch[k] != noBranch {
					t.branch[k], tagged = tagBranch, true
				} else {
					t.branch[k] = i
				}
			}
		}
	}
	t.name = "one of " + strings.Join(names, ", ")
	if tagged && objects == 1 {
		return fmt.Errorf("the union of %s is ambiguous: a JSON object may be a %s, or name one of the other types", strings.Join(names, ", "), t.branches[t.branch[object]].name)
	}
	return nil
}

// tagOf is the name of a branch, as Avro's own JSON has it.
func tagOf(n *avro.SchemaNode, b *avroType) string {
	if _, ok := simple[n.Type]; ok || n.Type == "array" || n.Type == "map" {
		return n.Type
	}
	if n.Type == "fixed" { // its name may be that of its logical type
		return full(n.Name, n.Namespace)
	}
	return b.name
}

var errDefault = errors.New("is not of the field's type")

// appendDefault writes a default, which the library has read and checked.
func appendDefault(dst []byte, t *avroType, v any, depth int) ([]byte, error) {
	if depth > maxDepth {
		return dst, errors.New("lies deeper than 256 levels")
	}
	if t.form == formUnion {
		for i, b := range t.branches {
			if out, err := appendDefault(appendLong(dst, int64(i)), b, v, depth+1); err == nil {
				return out, nil
			}
		}
		return dst, errDefault
	}
	switch v := v.(type) {
	case nil:
		if t.form == formNull {
			return dst, nil
		}
	case bool:
		if t.form == formBoolean {
			return appendBool(dst, v), nil
		}
	case int32:
		if t.form == formInt || t.form == formDate || t.form == formTime && t.per == 1e3 {
			return appendLong(dst, int64(v)), nil
		}
	case int64:
		if t.form == formLong || t.form == formTimestamp || t.form == formTime && t.per == 1e6 {
			return appendLong(dst, v), nil
		}
	case float32:
		if t.form == formFloat {
			return appendFloat(dst, v), nil
		}
	case float64:
		if t.form == formDouble {
			return appendDouble(dst, v), nil
		}
	case string:
		if symbol, ok := t.symbols[v]; ok && t.form == formEnum {
			return appendLong(dst, symbol), nil
		}
		if t.form == formString || t.form == formUUID && t.size == 0 {
			return append(appendLong(dst, int64(len(v))), v...), nil
		}
	case []byte:
		if t.size == len(v) && t.size > 0 {
			return append(dst, v...), nil
		}
		if t.size == 0 && (t.form == formBytes || t.form == formDecimal) {
			return append(appendLong(dst, int64(len(v))), v...), nil
		}
	case []any:
		if t.form == formArray {
			return appendDefaults(dst, t.inner, v, depth)
		}
	case map[string]any:
		return appendDefaultMembers(dst, t, v, depth)
	}
	return dst, errDefault
}

func appendDefaults(dst []byte, t *avroType, v []any, depth int) (_ []byte, err error) {
	if len(v) > 0 {
		dst = appendLong(dst, int64(len(v)))
	}
	for _, one := range v {
		if dst, err = appendDefault(dst, t, one, depth+1); err != nil {
			return dst, err
		}
	}
	return append(dst, 0), nil
}

func appendDefaultMembers(dst []byte, t *avroType, v map[string]any, depth int) (_ []byte, err error) {
	switch t.form {
	case formMap:
		if len(v) > 0 {
			dst = appendLong(dst, int64(len(v)))
		}
		for _, key := range slices.Sorted(maps.Keys(v)) {
			dst = append(appendLong(dst, int64(len(key))), key...)
			if dst, err = appendDefault(dst, t.inner, v[key], depth+1); err != nil {
				return dst, err
			}
		}
		return append(dst, 0), nil
	case formRecord:
		for i := range t.fields {
			f := &t.fields[i]
			one, ok := v[f.name]
			switch {
			case ok:
				if dst, err = appendDefault(dst, f.typ, one, depth+1); err != nil {
					return dst, err
				}
			case f.fallback != nil:
				dst = append(dst, f.fallback...)
			default:
				return dst, errDefault
			}
		}
		return dst, nil
	}
	return dst, errDefault
}

func appendBool(dst []byte, v bool) []byte {
	if v {
		return append(dst, 1)
	}
	return append(dst, 0)
}

// appendLong writes the zigzag form of Avro's int and long.
func appendLong(dst []byte, v int64) []byte {
	u := uint64(v)<<1 ^ uint64(v>>63)
	for u >= 0x80 {
		dst = append(dst, byte(u)|0x80)
		u >>= 7
	}
	return append(dst, byte(u))
}

func appendFloat(dst []byte, v float32) []byte {
	u := math.Float32bits(v)
	return append(dst, byte(u), byte(u>>8), byte(u>>16), byte(u>>24))
}

func appendDouble(dst []byte, v float64) []byte {
	u := math.Float64bits(v)
	return append(dst, byte(u), byte(u>>8), byte(u>>16), byte(u>>24), byte(u>>32), byte(u>>40), byte(u>>48), byte(u>>56))
}

// decode gives plain JSON, as payloads have it.
func (b *avroBody) decode(src []byte) ([]byte, error) {
	var v any
	rest, err := b.library.Decode(src, &v)
	switch {
	case err != nil:
		return nil, err
	case len(rest) > 0:
		return nil, fmt.Errorf("%d bytes are behind the record", len(rest))
	}
	return b.library.EncodeJSON(v)
}
