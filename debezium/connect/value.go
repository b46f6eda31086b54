package connect

import (
	"bytes"
	"math"
)

// Kind is what a Value holds: the Java class it stands for.
type Kind uint8

// The kinds.
const (
	KindNull Kind = iota
	KindBoolean
	KindInt8
	KindInt16
	KindInt32
	KindInt64
	KindFloat32
	KindFloat64
	KindString
	KindBuffer  // a byte buffer, as bytea is kept
	KindBytes   // a byte array, as bits and the bytes of structs are kept
	KindDecimal // plain decimal text and its scale
	KindDate    // java.util.Date: milliseconds since 1970
	KindArray
	KindMap
	KindStruct
)

var classNames = [...]string{KindNull: "null", KindBoolean: "class java.lang.Boolean", KindInt8: "class java.lang.Byte",
	KindInt16: "class java.lang.Short", KindInt32: "class java.lang.Integer", KindInt64: "class java.lang.Long",
	KindFloat32: "class java.lang.Float", KindFloat64: "class java.lang.Double", KindString: "class java.lang.String",
	KindBuffer: "class java.nio.HeapByteBuffer", KindBytes: "class [B", KindDecimal: "class java.math.BigDecimal",
	KindDate: "class java.util.Date", KindArray: "class java.util.ArrayList", KindMap: "class java.util.HashMap",
	KindStruct: "class org.apache.kafka.connect.data.Struct"}

// String is the Java class of the kind, as exceptions name it.
func (k Kind) String() string { return classNames[k] }

// Value is one Connect value. The zero Value is null.
type Value struct {
	kind Kind
	num  int64 // integers, booleans, dates, a decimal's scale, the bits of a float
	data []byte
	node *node
}

type node struct {
	schema *Schema // of a struct
	items  []Value // elements; fields in schema order; keys and values in turn
}

// Null is the null value.
var Null = Value{}

// BooleanValue makes a boolean.
func BooleanValue(b bool) Value {
	if b {
		return Value{kind: KindBoolean, num: 1}
	}
	return Value{kind: KindBoolean}
}

// Int8Value makes an INT8.
func Int8Value(n int8) Value { return Value{kind: KindInt8, num: int64(n)} }

// Int16Value makes an INT16.
func Int16Value(n int16) Value { return Value{kind: KindInt16, num: int64(n)} }

// Int32Value makes an INT32.
func Int32Value(n int32) Value { return Value{kind: KindInt32, num: int64(n)} }

// Int64Value makes an INT64.
func Int64Value(n int64) Value { return Value{kind: KindInt64, num: n} }

// IntegerValue makes an integer of one of the kinds of integers.
func IntegerValue(kind Kind, n int64) Value { return Value{kind: kind, num: n} }

// DecimalValue makes a decimal of its digits with point and sign, as PostgreSQL prints it, and
// the scale that it is written with.
func DecimalValue(text []byte, scale int) Value {
	return Value{kind: KindDecimal, num: int64(scale), data: text}
}

// Float32Value makes a FLOAT32.
func Float32Value(f float32) Value {
	return Value{kind: KindFloat32, num: int64(math.Float32bits(f))}
}

// Float64Value makes a FLOAT64.
func Float64Value(f float64) Value {
	return Value{kind: KindFloat64, num: int64(math.Float64bits(f))}
}

// StringValue makes a STRING of s.
func StringValue(s string) Value { return Value{kind: KindString, data: []byte(s)} }

// TextValue makes a STRING that aliases text.
func TextValue(text []byte) Value { return Value{kind: KindString, data: text} }

// BufferValue makes a BYTES value that aliases data.
func BufferValue(data []byte) Value { return Value{kind: KindBuffer, data: data} }

// BytesValue is BufferValue for what Java keeps as an array of bytes.
func BytesValue(data []byte) Value { return Value{kind: KindBytes, data: data} }

// DateValue makes a java.util.Date.
func DateValue(millis int64) Value { return Value{kind: KindDate, num: millis} }

// ArrayValue makes an ARRAY that keeps items.
func ArrayValue(items []Value) Value { return Value{kind: KindArray, node: &node{items: items}} }

// MapValue makes a MAP of keys and values in turn, in the order in which it is
// written.
func MapValue(entries []Value) Value { return Value{kind: KindMap, node: &node{items: entries}} }

// Kind says what v holds.
func (v Value) Kind() Kind { return v.kind }

// IsNull reports whether v is null.
func (v Value) IsNull() bool { return v.kind == KindNull }

// Int is an integer's, a boolean's or a date's number.
func (v Value) Int() int64 { return v.num }

// Float is the number of a FLOAT32 or FLOAT64.
func (v Value) Float() float64 {
	if v.kind == KindFloat32 {
		return float64(math.Float32frombits(uint32(v.num)))
	}
	return math.Float64frombits(uint64(v.num))
}

// Data is the text of a STRING and the bytes of a BYTES value.
func (v Value) Data() []byte { return v.data }

// Items are an array's elements, a struct's fields in schema order, or a map's
// keys and values in turn.
func (v Value) Items() []Value {
	if v.node == nil {
		return nil
	}
	return v.node.items
}

// StructSchema is the schema a struct was made with.
func (v Value) StructSchema() *Schema {
	if v.node == nil {
		return nil
	}
	return v.node.schema
}

// Get is a struct's field, with Connect's substitution of the default; false
// when there is no such field.
func (v Value) Get(field string) (Value, bool) {
	if v.kind != KindStruct {
		return Null, false
	}
	i := v.node.schema.Index(field)
	if i < 0 {
		return Null, false
	}
	return v.node.schema.Fields[i].Schema.Or(v.node.items[i]), true
}

func (v Value) equal(o Value) bool {
	if v.kind != o.kind || v.num != o.num || !bytes.Equal(v.data, o.data) || len(v.Items()) != len(o.Items()) {
		return false
	}
	for i, item := range v.Items() {
		if !item.equal(o.node.items[i]) {
			return false
		}
	}
	return true
}
