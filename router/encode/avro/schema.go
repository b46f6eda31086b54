package avro

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/cdc-relay/cdc-relay/advice"

	"github.com/cdc-relay/cdc-relay/router/encode/tape"
)

// The schema is read here and not by a library, which brings encoders and decoders for Go's types
// that nothing of the relay uses. Tests hold the outcome against github.com/twmb/avro.

// Options say how payloads are read.
type Options struct {
	Drop  bool   // members that the schema does not have are left out
	Bytes string // how a JSON string stands for bytes: Base64, or a character a byte
}

// Base64 is one of Options.Bytes.
const Base64 = "base64"

// Compiler makes a schema ready.
type Compiler struct {
	o        Options
	named    map[string]*avroType
	defaults int // bytes
	tries    int // of branches, for defaults
}

// NewCompiler has no types yet.
func NewCompiler(o Options) *Compiler {
	return &Compiler{o: o, named: make(map[string]*avroType)}
}

// Reference takes up the types of a schema that later ones name.
func (c *Compiler) Reference(text string) error {
	_, err := c.text(text)
	return err
}

// Compile makes the encoder of a schema.
func (c *Compiler) Compile(text string) (*Encoder, error) {
	root, err := c.text(text)
	return &Encoder{root: root, drop: c.o.Drop}, err
}

func (c *Compiler) text(text string) (*avroType, error) {
	d := json.NewDecoder(strings.NewReader(text))
	d.UseNumber()
	var v any
	if err := d.Decode(&v); err != nil {
		return nil, errors.New("the schema is not JSON")
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return nil, errors.New("the schema has something behind its end")
	}
	return c.compile(v, "", 0)
}

// simple are the types without parts.
var simple = map[string]form{
	"null": formNull, "boolean": formBoolean, "int": formInt, "long": formLong,
	"float": formFloat, "double": formDouble, "string": formString, "bytes": formBytes,
}

// compile makes a schema ready that stands in a namespace.
func (c *Compiler) compile(v any, space string, depth int) (*avroType, error) {
	if depth > tape.MaxDepth {
		return nil, errors.New("the schema lies deeper than 256 levels")
	}
	switch v := v.(type) {
	case string:
		if f, ok := simple[v]; ok {
			t := &avroType{form: f, name: v}
			return t, c.logical(t, nil)
		}
		return c.reference(v, space)
	case []any:
		t := &avroType{}
		return t, c.union(t, v, space, depth)
	case map[string]any:
		return c.object(v, space, depth)
	}
	return nil, errors.New("a schema is a name, an object or an array")
}

func (c *Compiler) object(n map[string]any, space string, depth int) (*avroType, error) {
	kind, ok := n["type"].(string)
	if !ok {
		return c.compile(n["type"], space, depth+1)
	}
	t := &avroType{name: kind}
	var err error
	switch kind {
	case "array":
		t.form = formArray
		t.inner, err = c.compile(n["items"], space, depth+1)
		return t, err
	case "map":
		t.form = formMap
		t.inner, err = c.compile(n["values"], space, depth+1)
		return t, err
	case "record", "error", "enum", "fixed":
	default:
		if f, ok := simple[kind]; ok {
			t.form = f
			return t, c.logical(t, n)
		}
		return c.reference(kind, space)
	}
	if t.name, space, err = nameOf(n, space); err != nil {
		return nil, err
	}
	if c.named[t.name] != nil {
		return nil, fmt.Errorf("type %s is defined twice", t.name)
	}
	c.named[t.name] = t
	switch kind {
	case "enum":
		return t, t.enum(n)
	case "fixed":
		size, ok := number32(n["size"])
		if !ok || size < 1 || size > maxSize {
			return nil, fmt.Errorf("type %s has no size from 1 to %d", t.name, maxSize)
		}
		t.form, t.size = formFixed, size
		return t, c.logical(t, n)
	}
	fields, ok := n["fields"].([]any)
	if !ok {
		return nil, fmt.Errorf("record %s has no fields", t.name)
	}
	return t, c.record(t, fields, space, depth)
}

func number32(v any) (int, bool) {
	n, ok := v.(json.Number)
	if !ok {
		return 0, false
	}
	i, ok := tape.Integer([]byte(n))
	return int(i), ok && i >= 0 && i < 1<<31
}

// nameOf is the full name of a definition, and the namespace of what stands in it.
func nameOf(n map[string]any, space string) (name, inside string, err error) {
	name, _ = n["name"].(string)
	if given, ok := n["namespace"].(string); ok {
		space = given
	}
	name = full(name, space)
	for part := range strings.SplitSeq(name, ".") {
		if !isName(part) {
			return "", "", fmt.Errorf("%q is no name", shortName(name))
		}
	}
	if i := strings.LastIndexByte(name, '.'); i >= 0 {
		return name, name[:i], nil
	}
	return name, "", nil
}

func shortName(name string) string {
	if len(name) > 80 {
		return name[:80] + "…"
	}
	return name
}

func isName(s string) bool {
	for i, c := range []byte(s) {
		if (c < 'a' || 'z' < c) && (c < 'A' || 'Z' < c) && c != '_' && (c < '0' || '9' < c || i == 0) {
			return false
		}
	}
	return s != ""
}

func full(name, space string) string {
	if space == "" || strings.Contains(name, ".") {
		return name
	}
	return space + "." + name
}

func (c *Compiler) reference(name, space string) (*avroType, error) {
	if t, ok := c.named[full(name, space)]; ok {
		return t, nil
	}
	if t, ok := c.named[name]; ok {
		return t, nil
	}
	return nil, fmt.Errorf("type %q is not defined before it is named", shortName(name))
}

func (t *avroType) enum(n map[string]any) error {
	symbols, ok := n["symbols"].([]any)
	if !ok || len(symbols) == 0 {
		return fmt.Errorf("enum %s has no symbols", t.name)
	}
	t.form, t.symbols = formEnum, make(map[string]int64, len(symbols))
	for i, v := range symbols {
		s, _ := v.(string)
		if _, twice := t.symbols[s]; twice || !isName(s) {
			return fmt.Errorf("symbol %d of enum %s is no name, or there twice", i+1, t.name)
		}
		t.symbols[s], t.ordered = int64(i), append(t.ordered, s)
	}
	return nil
}

func (c *Compiler) record(t *avroType, fields []any, space string, depth int) error {
	t.form, t.index = formRecord, make(map[string]int, len(fields))
	t.fields = make([]field, len(fields))
	t.order = make([]int32, len(fields))
	for i, v := range fields {
		f, _ := v.(map[string]any)
		name, _ := f["name"].(string)
		if _, twice := t.index[name]; twice || !isName(name) {
			return fmt.Errorf("field %d of record %s has no name, or that of another one", i+1, t.name)
		}
		typ, err := c.compile(f["type"], space, depth+1)
		if err != nil {
			return fmt.Errorf("field %s: %w", name, err)
		}
		t.fields[i] = field{name: name, typ: typ}
		t.index[name], t.order[i] = i, int32(i)
	}
	for i, v := range fields { // behind all types: a default may be of this record
		if given, has := v.(map[string]any)["default"]; has {
			made, err := c.appendDefault([]byte{}, t.fields[i].typ, given, 0)
			if c.defaults += len(made); err == nil && c.defaults > maxDefaults {
				err = errLarge
			}
			if c.tries > maxTries { // err names a wrong type then, because no further branch was tried
				err = errTries
			}
			if err != nil {
				return fmt.Errorf("default of field %s: %w", t.fields[i].name, err)
			}
			t.fields[i].fallback = made
		}
	}
	return nil
}

const maxPrecision = 1000

// maxSize bounds fixed.
const maxSize = 1 << 20

// logical applies the logical type of a simple type or of fixed. One that is not known, or does not
// belong there, is left out, as the specification has it.
func (c *Compiler) logical(t *avroType, n map[string]any) error {
	per := map[string]int64{"millis": 1e3, "micros": 1e6, "nanos": 1e9}
	logical, _ := n["logicalType"].(string)
	local, isLocal := strings.CutPrefix(logical, "local-")
	unit, isStamp := strings.CutPrefix(local, "timestamp-")
	clock, isTime := strings.CutPrefix(logical, "time-")
	switch {
	case logical == "decimal" && (t.form == formBytes || t.form == formFixed):
		if err := t.decimal(n); err != nil {
			return err
		}
	case logical == "uuid" && (t.form == formString || t.form == formFixed && t.size == 16):
		t.form = formUUID
	case logical == "date" && t.form == formInt:
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

// decimal leaves a type as it is whose precision and scale make no sense: the specification takes
// such a logical type for none.
func (t *avroType) decimal(n map[string]any) error {
	precision, ok := number32(n["precision"])
	scale := 0
	if given, has := n["scale"]; has {
		var whole bool
		scale, whole = number32(given)
		ok = ok && whole
	}
	switch {
	case !ok || precision < 1 || scale > precision:
		return nil
	case precision > maxPrecision:
		return fmt.Errorf("a decimal of %d digits is not taken; at most %d digits are", precision, maxPrecision)
	}
	t.tag = t.name
	t.form, t.digits, t.scale = formDecimal, precision, scale
	t.name = fmt.Sprintf("decimal(%d,%d)", precision, scale)
	return nil
}

func (c *Compiler) union(t *avroType, branches []any, space string, depth int) error {
	t.form, t.tags = formUnion, make(map[string]int, len(branches))
	for k := range t.branch {
		t.branch[k] = noBranch
	}
	var names []string
	tagged, objects := false, 0
	for i, v := range branches {
		b, err := c.compile(v, space, depth+1)
		switch {
		case err != nil:
			return err
		case b.form == formUnion:
			return errors.New("a union stands in a union")
		}
		t.branches = append(t.branches, b)
		names = append(names, b.name)
		tag := b.tag
		if tag == "" {
			tag = b.name
		}
		if _, twice := t.tags[tag]; twice {
			return fmt.Errorf("the union of %s has one of them twice", strings.Join(names, ", "))
		}
		t.tags[tag] = i
		for _, k := range b.takes() {
			if k == tape.Object {
				objects++
			}
			if t.branch[k] != noBranch {
				t.branch[k], tagged = tagBranch, true
			} else {
				t.branch[k] = i
			}
		}
	}
	t.name = "one of " + strings.Join(names, ", ")
	if tagged && objects == 1 {
		return fmt.Errorf("the union of %s is ambiguous: a JSON object may be a %s, or name one of the other types", strings.Join(names, ", "), t.branches[t.branch[tape.Object]].name)
	}
	return nil
}
