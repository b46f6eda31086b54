package avro

import (
	"math"

	"github.com/cdc-relay/cdc-relay/router/encode/tape"
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
	tag  string // where unions have another name; else empty

	size     int   // of fixed
	base64   bool  // of bytes and fixed
	per      int64 // of times: units in a second
	local    bool  // of timestamps: without a zone
	scale    int   // of decimals
	digits   int   // of decimals
	symbols  map[string]int64
	ordered  []string  // symbols
	inner    *avroType // of arrays and maps
	fields   []field
	index    map[string]int
	order    []int32 // of fields, as the members of the last record came
	branches []*avroType
	tags     map[string]int
	branch   [tape.Kinds]int // of unions: the one that takes a kind, or one of the two below
}

// What a union does with a kind of JSON value.
const (
	noBranch  = -1
	tagBranch = -2 // several take it: the value says which, as {"full.Name": …}
)

type field struct {
	name     string
	typ      *avroType
	fallback []byte // what is written where the member is missing; nil: it has to be there
}

// Encoder encodes by a schema. It has one owner.
type Encoder struct {
	root    *avroType
	drop    bool
	seen    []int32 // the fields of the records that are open
	scratch []byte
	keys    map[string]struct{}
	tape    tape.Tape
}

// takes are the kinds of JSON values that a type may be written from.
func (t *avroType) takes() []tape.Kind {
	switch t.form {
	case formNull:
		return []tape.Kind{tape.Null}
	case formBoolean:
		return []tape.Kind{tape.Boolean}
	case formInt, formLong, formFloat, formDouble:
		return []tape.Kind{tape.Number}
	case formString, formBytes, formFixed, formEnum, formUUID:
		return []tape.Kind{tape.Text}
	case formArray:
		return []tape.Kind{tape.Array}
	case formMap, formRecord:
		return []tape.Kind{tape.Object}
	default: // decimals and times
		return []tape.Kind{tape.Number, tape.Text}
	}
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
