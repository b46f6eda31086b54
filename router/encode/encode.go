package encode

import (
	"encoding/binary"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/cdc-relay/cdc-relay/advice"
)

// Kind is a language of schemas, as registries call it.
type Kind string

// The languages.
const (
	Avro       Kind = "AVRO"
	JSONSchema Kind = "JSON"
	Protobuf   Kind = "PROTOBUF"
)

// Schema is one version of a subject.
type Schema struct {
	Subject string // empty: the schema is a file
	File    string // for messages
	Version int
	ID      uint32
	Kind    Kind
	Text    string

	// References are the schemas that the text names, each behind those that it names itself.
	References []Reference
}

// Reference is a schema that another one names.
type Reference struct {
	Name string // as the other one writes it
	Text string
}

// MaxSchema bounds a schema with its references, in bytes.
const MaxSchema = 1 << 20

// String names the schema in messages.
func (s *Schema) String() string {
	if s.Subject == "" {
		return fmt.Sprintf("schema %s, id %d", s.File, s.ID)
	}
	return fmt.Sprintf("subject %s, version %d, id %d", s.Subject, s.Version, s.ID)
}

// Options say how payloads are read.
type Options struct {
	Kind  Kind
	Drop  bool   // members that the schema does not have are left out; else they refuse the payload
	Bytes string // Base64 or Latin1: how a JSON string stands for bytes
}

// Ways in which a JSON string stands for bytes.
const (
	Base64 = "base64"
	Latin1 = "latin1"
)

// prefixLength is that of the framing: a zero byte and the number of the schema.
const prefixLength = 5

// Encoder makes values by one schema. It has one owner.
type Encoder struct {
	Schema Schema // without its text

	prefix []byte
	tape   tape
	body   body
}

// body encodes a payload behind the framing.
type body interface {
	append(dst []byte, t *tape) ([]byte, error)
	decode(src []byte) ([]byte, error)
}

// Compile makes a schema ready. Its errors say what about the schema is not taken.
func Compile(s Schema, o Options) (*Encoder, error) {
	size := len(s.Text)
	for _, r := range s.References {
		size += len(r.Text)
	}
	if size > MaxSchema {
		return nil, fmt.Errorf("the schema has %d bytes with its references; %d are taken", size, MaxSchema)
	}
	if s.Kind != o.Kind {
		return nil, advice.Give(fmt.Errorf("the schema is %s, and the table is encoded as %s", s.Kind, o.Kind), "set value to the language of the subject's schema, or name another subject")
	}
	e := &Encoder{Schema: s, prefix: binary.BigEndian.AppendUint32([]byte{0}, s.ID)}
	e.Schema.Text, e.Schema.References = "", nil
	var err error
	switch s.Kind {
	case Avro:
		e.body, err = compileAvro(&s, o)
	default:
		err = fmt.Errorf("there is no encoding of %s", s.Kind)
	}
	if err != nil {
		return nil, err
	}
	return e, nil
}

// Append appends the value that a payload of JSON becomes. Its errors are *Mismatch.
func (e *Encoder) Append(dst, payload []byte) ([]byte, error) {
	if f := e.tape.read(payload); f != nil {
		return dst, &Mismatch{Schema: &e.Schema, What: fmt.Sprintf("the payload %s (byte %d)", f.what, f.at)}
	}
	out, err := e.body.append(append(dst, e.prefix...), &e.tape)
	if err != nil {
		if m, ok := errors.AsType[*Mismatch](err); ok {
			m.Schema = &e.Schema
		}
		return dst, err
	}
	return out, nil
}

// Decode gives the JSON that a value of this schema stands for.
func (e *Encoder) Decode(value []byte) ([]byte, error) {
	if len(value) < len(e.prefix) || string(value[:prefixLength]) != string(e.prefix[:prefixLength]) {
		return nil, fmt.Errorf("the value is not one of %s", e.Schema.String())
	}
	return e.body.decode(value[len(e.prefix):])
}

// Mismatch is a payload that does not fit its schema. It has the place and the types, never the
// payload.
type Mismatch struct {
	Schema *Schema
	What   string

	path []string // from the inside to the outside
	at   bool     // there is a path
}

// mismatch is one at the value at hand; in has the way to it added.
func mismatch(format string, args ...any) error {
	return &Mismatch{What: fmt.Sprintf(format, args...), at: true}
}

// in adds a step to the way to the value that does not fit.
func in(err error, step string) error {
	if m, ok := err.(*Mismatch); ok { //nolint:errorlint // made by mismatch, and not wrapped on its way
		m.path = append(m.path, step)
	}
	return err
}

// maxPath bounds the steps of a path in a message.
const maxPath = 16

func (m *Mismatch) Error() string {
	var b strings.Builder
	if m.at {
		b.WriteByte('$')
		for i := len(m.path) - 1; i >= 0; i-- {
			if n := len(m.path) - 1 - i; n == maxPath {
				b.WriteString("…")
				break
			}
			b.WriteString(m.path[i])
		}
		b.WriteString(": ")
	}
	b.WriteString(m.What)
	if m.Schema != nil {
		b.WriteString(" (" + m.Schema.String() + ")")
	}
	return b.String()
}

// member is the step to a member. A name is shortened: who writes maps may have data in it.
func member(name string) string {
	const most = 40
	if len(name) > most {
		name = name[:most] + "…"
	}
	for i, c := range name {
		if (c < 'a' || 'z' < c) && (c < 'A' || 'Z' < c) && c != '_' && (c < '0' || '9' < c || i == 0) {
			return "[" + strconv.QuoteToASCII(name) + "]"
		}
	}
	return "." + name
}

func element(i int) string { return "[" + strconv.Itoa(i) + "]" }

// entry is the step to an entry of a map, whose key is data.
const entry = "[*]"
