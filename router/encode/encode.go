package encode

import (
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/cdc-relay/cdc-relay/advice"
	"github.com/cdc-relay/cdc-relay/router/encode/avro"
	"github.com/cdc-relay/cdc-relay/router/encode/protobuf"
	"github.com/cdc-relay/cdc-relay/router/encode/tape"
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

	Message  string // full name of a message of Protobuf; empty: the first of the schema
	Validate bool   // payloads are held against a schema of JSON, else they are sent as they are
}

// Ways in which a JSON string stands for bytes.
const (
	Base64 = avro.Base64
	Latin1 = "latin1"
)

// Mismatch is a payload that does not fit its schema. It has the place and the types, never the
// payload.
type Mismatch = tape.Mismatch

// prefixLength is that of the framing: a zero byte and the number of the schema.
const prefixLength = 5

// Encoder makes values by one schema. It has one owner.
type Encoder struct {
	Schema Schema // without its text

	prefix []byte
	body   body
}

// body encodes a payload behind the framing.
type body interface {
	Append(dst, payload []byte) ([]byte, error) // errors are *Mismatch
	Decode(src []byte) ([]byte, error)
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
	case JSONSchema:
		e.body, err = compileJSONSchema(&s, o)
	case Protobuf:
		e.body, err = compileProtobuf(&s, o)
	default:
		err = fmt.Errorf("there is no encoding of %s", s.Kind)
	}
	if err != nil {
		return nil, err
	}
	return e, nil
}

func compileAvro(s *Schema, o Options) (body, error) {
	c := avro.NewCompiler(avro.Options{Drop: o.Drop, Bytes: o.Bytes})
	for _, r := range s.References {
		if err := c.Reference(r.Text); err != nil {
			return nil, fmt.Errorf("reference %s: %w", r.Name, err)
		}
	}
	return c.Compile(s.Text)
}

// compileProtobuf takes a descriptor set of a file, and what a registry has: descriptors in base64.
func compileProtobuf(s *Schema, o Options) (body, error) {
	c := protobuf.NewCompiler(protobuf.Options{Drop: o.Drop, Message: o.Message})
	if s.File != "" {
		return c.Set([]byte(s.Text))
	}
	for _, r := range s.References {
		file, err := descriptor(r.Text)
		if err == nil {
			err = c.File(file)
		}
		if err != nil {
			return nil, fmt.Errorf("reference %s: %w", r.Name, err)
		}
	}
	file, err := descriptor(s.Text)
	if err != nil {
		return nil, err
	}
	return c.Compile(file)
}

func descriptor(text string) ([]byte, error) {
	file, err := base64.StdEncoding.DecodeString(text)
	if err != nil {
		return nil, advice.Give(errors.New("the registry gives Protobuf schemas as text, and not as descriptors (format=serialized)"), "set schema.file to a descriptor set, as protoc --include_imports --descriptor_set_out writes it, and schema.id")
	}
	return file, nil
}

// Append appends the value that a payload of JSON becomes. Its errors are *Mismatch.
func (e *Encoder) Append(dst, payload []byte) ([]byte, error) {
	out, err := e.body.Append(append(dst, e.prefix...), payload)
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
	return e.body.Decode(value[len(e.prefix):])
}
