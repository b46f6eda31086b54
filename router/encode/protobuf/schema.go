package protobuf

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/cdc-relay/cdc-relay/advice"
	"github.com/cdc-relay/cdc-relay/router/encode/tape"
)

// Descriptors are read here and not by protodesc, which brings half a megabyte of reflection. Tests
// hold the outcome against it.

// Options say how payloads are read.
type Options struct {
	Drop    bool   // members that the schema does not have are left out
	Message string // full name; empty: the first one of the schema's file
}

// Compiler makes a schema ready.
type Compiler struct {
	o        Options
	messages map[string]*message
	enums    map[string]*enum
	pending  []pending
	first    *message // of the file that was read last
}

// pending is a field whose type is not looked up yet.
type pending struct {
	in       *message
	field    *field
	typeName string
	encoding uint64
}

// NewCompiler knows the well-known types alone.
func NewCompiler(o Options) *Compiler {
	c := &Compiler{o: o, messages: make(map[string]*message), enums: make(map[string]*enum)}
	c.addWellKnown()
	return c
}

var errDamaged = errors.New("the descriptor is damaged")

// each goes through the fields of a message. text is what has a length.
func each(b []byte, visit func(number int, value uint64, text []byte) error) error {
	for len(b) > 0 {
		number, typ, n := protowire.ConsumeTag(b)
		if n < 0 {
			return errDamaged
		}
		b = b[n:]
		var value uint64
		var text []byte
		switch typ {
		case protowire.VarintType:
			value, n = protowire.ConsumeVarint(b)
		case protowire.BytesType:
			text, n = protowire.ConsumeBytes(b)
		default:
			n = protowire.ConsumeFieldValue(number, typ, b)
		}
		if n < 0 {
			return errDamaged
		}
		b = b[n:]
		if err := visit(int(number), value, text); err != nil {
			return err
		}
	}
	return nil
}

// features are what syntax and edition decide, with the numbers of google.protobuf.FeatureSet.
type features struct{ presence, enums, repeated, encoding uint64 }

const (
	explicit, implicit, legacyRequired = 1, 2, 3
	open, closed                       = 1, 2
	packed, expanded                   = 1, 2
	lengthPrefixed, delimited          = 1, 2
)

// in applies the features among options, which have them under a number.
func (f features) in(options []byte, under int) (features, error) {
	err := each(options, func(number int, _ uint64, text []byte) error {
		if number != under {
			return nil
		}
		return each(text, func(number int, value uint64, _ []byte) error {
			switch number {
			case 1:
				f.presence = value
			case 2:
				f.enums = value
			case 3:
				f.repeated = value
			case 5:
				f.encoding = value
			}
			return nil
		})
	})
	return f, err
}

// syntax gives the features of a file.
func syntax(name string, edition uint64) (features, error) {
	switch {
	case name == "" || name == "proto2":
		return features{explicit, closed, expanded, lengthPrefixed}, nil
	case name == "proto3":
		return features{implicit, open, packed, lengthPrefixed}, nil
	case name == "editions" && (edition == 1000 || edition == 1001): // 2023, 2024
		return features{explicit, open, packed, lengthPrefixed}, nil
	}
	return features{}, advice.Give(fmt.Errorf("syntax %q with edition number %d is not known", name, edition), "use proto2, proto3, or edition 2023 or 2024")
}

// Set makes the encoder of a message of a descriptor set, whose last file is the schema's.
func (c *Compiler) Set(set []byte) (*Encoder, error) {
	files := 0
	err := each(set, func(number int, _ uint64, file []byte) error {
		if number != 1 {
			return errors.New("it is no descriptor set")
		}
		files++
		return c.File(file)
	})
	if err == nil && files == 0 {
		err = errors.New("it has no descriptors")
	}
	if err != nil {
		return nil, advice.Give(err, "write the file with protoc --include_imports --descriptor_set_out")
	}
	return c.make(false)
}

// Compile makes the encoder of a message of a file.
func (c *Compiler) Compile(file []byte) (*Encoder, error) {
	if err := c.File(file); err != nil {
		return nil, err
	}
	return c.make(true)
}

// make looks up what is pending, and chooses the message. With own it has to be the last file's.
func (c *Compiler) make(own bool) (*Encoder, error) {
	for i := range c.pending {
		if err := c.resolve(&c.pending[i]); err != nil {
			return nil, err
		}
	}
	root := c.first
	if c.o.Message != "" {
		root = c.messages[strings.TrimPrefix(c.o.Message, ".")]
	}
	switch {
	case root == nil && c.o.Message != "":
		return nil, advice.Give(fmt.Errorf("there is no message %s", c.o.Message), "set schema.message to a full name, with the package")
	case root == nil:
		return nil, errors.New("the schema has no message")
	case root.path == nil || own && (c.first == nil || root.file != c.first.file) || root.entry:
		return nil, fmt.Errorf("message %s is not one of the schema itself, whose messages are numbered in each value", root.name)
	case root.vague:
		return nil, advice.Give(fmt.Errorf("message %s stands behind a map in the message around it, and clients count it differently", root.name), "move it to the top of the file")
	}
	e := &Encoder{root: root, drop: c.o.Drop}
	if len(root.path) == 1 && root.path[0] == 0 {
		e.index = []byte{0}
		return e, nil
	}
	e.index = protowire.AppendVarint(nil, protowire.EncodeZigZag(int64(len(root.path))))
	for _, i := range root.path {
		e.index = protowire.AppendVarint(e.index, protowire.EncodeZigZag(int64(i)))
	}
	return e, nil
}

// File takes up the types of a file.
func (c *Compiler) File(file []byte) error {
	var name, space, syn string
	var edition uint64
	var options []byte
	var messages, enums [][]byte
	err := each(file, func(number int, value uint64, text []byte) error {
		switch number {
		case 1:
			name = string(text)
		case 2:
			space = string(text)
		case 4:
			messages = append(messages, text)
		case 5:
			enums = append(enums, text)
		case 8:
			options = text
		case 12:
			syn = string(text)
		case 14:
			edition = value
		}
		return nil
	})
	if err != nil {
		return err
	}
	f, err := syntax(syn, edition)
	if err == nil {
		f, err = f.in(options, 50)
	}
	c.first = nil
	for i := 0; i < len(messages) && err == nil; i++ {
		var m *message
		m, err = c.message(messages[i], &scope{file: name, name: space, features: f}, []int{i})
		if c.first == nil {
			c.first = m
		}
	}
	for i := 0; i < len(enums) && err == nil; i++ {
		err = c.enum(enums[i], space, f)
	}
	return err
}

// scope is what a definition stands in.
type scope struct {
	file, name string
	features   features
	vague      bool
}

func join(space, name string) string {
	if space == "" {
		return name
	}
	return space + "." + name
}

// message takes up a message with all that is defined in it.
func (c *Compiler) message(b []byte, in *scope, path []int) (*message, error) {
	if len(path) > tape.MaxDepth {
		return nil, errors.New("the schema lies deeper than 256 levels")
	}
	m := &message{index: make(map[string]int32), file: in.file, path: path, vague: in.vague}
	var options []byte
	var fields, nested, enums [][]byte
	err := each(b, func(number int, _ uint64, text []byte) error {
		switch number {
		case 1:
			m.name = join(in.name, string(text))
		case 2:
			fields = append(fields, text)
		case 3:
			nested = append(nested, text)
		case 4:
			enums = append(enums, text)
		case 7:
			options = text
		case 8:
			m.oneofs = append(m.oneofs, 0)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	if known := c.messages[m.name]; known != nil {
		if known.path == nil { // well-known
			return known, nil
		}
		return nil, fmt.Errorf("message %s is defined twice", m.name)
	}
	c.messages[m.name] = m
	here := &scope{file: in.file, name: m.name, vague: in.vague}
	if here.features, err = in.features.in(options, 12); err != nil {
		return nil, err
	}
	if err := c.options(m, options); err != nil {
		return nil, err
	}
	inside := 0
	for _, one := range nested {
		made, err := c.message(one, here, append(slices.Clip(path), inside))
		switch {
		case err != nil:
			return nil, err
		case made.entry:
			here.vague = true // some clients count the entries of maps, others do not
		default:
			inside++
		}
	}
	for _, one := range enums {
		if err := c.enum(one, m.name, here.features); err != nil {
			return nil, err
		}
	}
	if err := c.fields(m, fields, here.features); err != nil {
		return nil, err
	}
	if m.entry && !m.isEntry() {
		return nil, errDamaged
	}
	return m, nil
}

func (c *Compiler) options(m *message, options []byte) error {
	return each(options, func(number int, value uint64, _ []byte) error {
		switch {
		case number == 1 && value != 0:
			return fmt.Errorf("message %s is a message set, which is not offered", m.name)
		case number == 7:
			m.entry = value != 0
		}
		return nil
	})
}

func (c *Compiler) fields(m *message, fields [][]byte, f features) error {
	for _, b := range fields {
		if err := c.field(m, b, f); err != nil {
			return err
		}
	}
	slices.SortFunc(m.fields, func(a, b *field) int { return int(a.number - b.number) })
	for i := 1; i < len(m.fields); i++ {
		if m.fields[i-1].number == m.fields[i].number {
			return fmt.Errorf("message %s has field %d twice", m.name, m.fields[i].number)
		}
	}
	return m.nameFields()
}

// nameFields makes the index of names. Where two fields claim a name, the one whose JSON name it is has it.
func (m *message) nameFields() error {
	for i := range m.fields {
		f := m.fields[i]
		if f.required {
			m.required++
		}
		if _, twice := m.index[f.name]; twice {
			return fmt.Errorf("message %s has two fields with the JSON name %s", m.name, f.name)
		}
		m.addName(f.name, i)
	}
	for i := range m.fields {
		f := m.fields[i]
		if _, taken := m.index[f.original]; !taken {
			m.addName(f.original, i)
		}
	}
	m.order = make([]int32, len(m.fields))
	return nil
}

func (m *message) addName(name string, field int) {
	m.index[name] = int32(len(m.names))
	m.names = append(m.names, named{name, int32(field)})
}

// isEntry reports whether an entry of a map has a key and a value.
func (m *message) isEntry() bool {
	if len(m.fields) != 2 || m.fields[0].number != 1 || m.fields[1].number != 2 || m.fields[0].repeated || m.fields[1].repeated {
		return false
	}
	switch m.fields[0].form {
	case 0, formDouble, formFloat, formBytes, formEnum, formMessage, formGroup:
		return false
	default:
		return true
	}
}

// fieldText is what a descriptor says of a field.
type fieldText struct {
	label, form, packed, oneof uint64
	hasOneof, hasPacked, alone bool // alone: an optional of proto3, in a oneof of its own
	number                     uint64
	name, jsonName, typeName   string
	options                    []byte
}

func readField(b []byte) (t fieldText, err error) {
	err = each(b, func(number int, value uint64, text []byte) error {
		switch number {
		case 1:
			t.name = string(text)
		case 3:
			t.number = value
		case 4:
			t.label = value
		case 5:
			t.form = value
		case 6:
			t.typeName = string(text)
		case 8:
			t.options = text
		case 9:
			t.oneof, t.hasOneof = value, true
		case 10:
			t.jsonName = string(text)
		case 17:
			t.alone = value != 0
		}
		return nil
	})
	if err != nil {
		return t, err
	}
	return t, each(t.options, func(number int, value uint64, _ []byte) error {
		if number == 2 {
			t.packed, t.hasPacked = value, true
		}
		return nil
	})
}

// field adds a field to a message from its descriptor.
func (c *Compiler) field(m *message, b []byte, f features) error {
	t, err := readField(b)
	if err == nil {
		f, err = f.in(t.options, 21)
	}
	if err != nil {
		return err
	}
	if t.number < 1 || t.number > uint64(protowire.MaxValidNumber) || t.name == "" || t.form > uint64(formSint64) || t.hasOneof && t.oneof >= uint64(len(m.oneofs)) {
		return errDamaged
	}
	const required, repeated = 2, 3
	made := &field{
		name: t.jsonName, original: t.name, number: protowire.Number(t.number), form: form(t.form), oneof: -1,
		repeated: t.label == repeated, required: t.label == required || f.presence == legacyRequired && t.label != repeated && !t.hasOneof,
		packed: f.repeated == packed,
		always: t.alone || t.hasOneof || t.label == required || f.presence != implicit,
	}
	if made.name == "" {
		made.name = camel(t.name)
	}
	if t.hasOneof && !t.alone {
		made.oneof = int32(t.oneof)
	}
	if t.hasPacked {
		made.packed = t.packed != 0
	}
	if t.typeName != "" {
		c.pending = append(c.pending, pending{in: m, field: made, typeName: t.typeName, encoding: f.encoding})
	} else if made.form == 0 || made.form == formEnum || made.form == formMessage || made.form == formGroup {
		return fmt.Errorf("field %s of message %s has no type", t.name, m.name)
	}
	made.decidePacked()
	m.fields = append(m.fields, made)
	return nil
}

// decidePacked says whether the field is packed, once its type is known.
func (f *field) decidePacked() {
	f.packed = f.packed && f.repeated && f.form.wire() != protowire.BytesType && f.form.wire() != protowire.StartGroupType
}

// resolve looks up the type of a field, from the inside to the outside.
func (c *Compiler) resolve(p *pending) error {
	f := p.field
	name, absolute := strings.CutPrefix(p.typeName, ".")
	for space := p.in.name; f.message == nil && f.enum == nil; {
		if absolute {
			space = ""
		}
		f.message, f.enum = c.messages[join(space, name)], c.enums[join(space, name)]
		if space == "" {
			break
		}
		space, _, _ = cutLast(space)
	}
	switch {
	case f.message != nil && (f.form == 0 || f.form == formMessage):
		f.form = formMessage
		if p.encoding == delimited && !f.message.entry && !p.in.entry {
			f.form = formGroup
		}
	case f.enum != nil && (f.form == 0 || f.form == formEnum):
		f.form = formEnum
	case f.message != nil && f.form == formGroup:
	case f.message == nil && f.enum == nil:
		return advice.Give(fmt.Errorf("type %s of field %s.%s is not defined", p.typeName, p.in.name, f.original), "name the schema that defines it in the schema's references, or set schema.file to a descriptor set with all imports")
	default:
		return errDamaged
	}
	f.decidePacked()
	return nil
}

// cutLast takes the last part off a name.
func cutLast(name string) (before, last string, found bool) {
	i := strings.LastIndexByte(name, '.')
	if i < 0 {
		return "", name, false
	}
	return name[:i], name[i+1:], true
}

// camel is the JSON name of a field that has no other.
func camel(name string) string {
	out := make([]byte, 0, len(name))
	up := false
	for i := range len(name) {
		c := name[i]
		switch {
		case c == '_':
			up = true
			continue
		case up && 'a' <= c && c <= 'z':
			c -= 'a' - 'A'
		}
		up = false
		out = append(out, c)
	}
	return string(out)
}

// enum takes up the numbers of an enum.
func (c *Compiler) enum(b []byte, space string, f features) error {
	made := &enum{numbers: make(map[string]int32), names: make(map[int32]string)}
	var options []byte
	err := each(b, func(number int, _ uint64, text []byte) error {
		switch number {
		case 1:
			made.name = join(space, string(text))
		case 2:
			return made.value(text)
		case 3:
			options = text
		}
		return nil
	})
	if err == nil {
		f, err = f.in(options, 7)
	}
	if err != nil {
		return err
	}
	if known := c.enums[made.name]; known != nil {
		if known.null {
			return nil
		}
		return fmt.Errorf("enum %s is defined twice", made.name)
	}
	made.closed = f.enums == closed
	c.enums[made.name] = made
	return nil
}

func (e *enum) value(b []byte) error {
	var name string
	var number int32
	err := each(b, func(n int, value uint64, text []byte) error {
		switch n {
		case 1:
			name = string(text)
		case 2:
			number = int32(value)
		}
		return nil
	})
	e.numbers[name] = number
	if _, has := e.names[number]; !has {
		e.names[number] = name
	}
	return err
}
