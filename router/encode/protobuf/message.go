package protobuf

import (
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/cdc-relay/cdc-relay/router/encode/tape"
)

// form is the type of a field, with the numbers of descriptors.
type form byte

const (
	formDouble form = iota + 1
	formFloat
	formInt64
	formUint64
	formInt32
	formFixed64
	formFixed32
	formBool
	formString
	formGroup
	formMessage
	formBytes
	formUint32
	formEnum
	formSfixed32
	formSfixed64
	formSint32
	formSint64
)

// written is how messages call a form.
var written = [...]string{
	"", "double", "float", "int64", "uint64", "int32", "fixed64", "fixed32", "bool", "string", "group", "message", "bytes", "uint32",
	"enum", "sfixed32", "sfixed64", "sint32", "sint64",
}

// wire is how a form stands behind its tag.
func (f form) wire() protowire.Type {
	switch f {
	case formDouble, formFixed64, formSfixed64:
		return protowire.Fixed64Type
	case formFloat, formFixed32, formSfixed32:
		return protowire.Fixed32Type
	case formString, formBytes, formMessage:
		return protowire.BytesType
	case formGroup:
		return protowire.StartGroupType
	default:
		return protowire.VarintType
	}
}

// message is a type, ready to be walked along with a tape. It is one value, however often it is named.
type message struct {
	name     string // with its package
	special  special
	entry    bool     // an entry of a map
	fields   []*field // by number
	names    []named  // as payloads may write them
	index    map[string]int32
	order    []int32  // of names, as the members of the last object came
	oneofs   []uint64 // the object in which each was seen last
	required int

	file  string // that defines it
	path  []int  // where it stands there
	vague bool   // clients disagree about that
}

// named is a name of a field.
type named struct {
	name  string
	field int32
}

type field struct {
	name     string // in JSON
	original string
	number   protowire.Number
	form     form
	message  *message // of messages, groups and maps
	enum     *enum
	repeated bool
	packed   bool
	always   bool // written though it is zero
	required bool
	oneof    int32 // -1: none
}

// enum is a type of named numbers.
type enum struct {
	name    string
	closed  bool // takes no other number
	null    bool // google.protobuf.NullValue
	numbers map[string]int32
	names   map[int32]string
}

// isMap reports whether a field is one, of which its message is the entry.
func (f *field) isMap() bool { return f.repeated && f.message != nil && f.message.entry }

// takesNull reports whether null is a value of the field. For others it is as good as no member.
func (f *field) takesNull() bool {
	return f.message != nil && f.message.special == anyValue || f.enum != nil && f.enum.null
}

// typeName is how messages call the field's type.
func (f *field) typeName() string {
	switch {
	case f.message != nil:
		return f.message.name
	case f.enum != nil:
		return f.enum.name
	}
	return written[f.form]
}

// unlike is the mismatch of a value of another kind.
func unlike(name string, k tape.Kind) error {
	return tape.Unfit("the schema wants %s, the payload has %s", name, tape.Named[k])
}
