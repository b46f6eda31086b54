package connect

import (
	"slices"
	"sync/atomic"
)

// Type is a Connect schema type.
type Type uint8

// The types, in the order and with the names of Connect.
const (
	Int8 Type = iota + 1
	Int16
	Int32
	Int64
	Float32
	Float64
	Boolean
	String
	Bytes
	Array
	Map
	Struct
)

var typeNames = [...]string{Int8: "INT8", Int16: "INT16", Int32: "INT32", Int64: "INT64", Float32: "FLOAT32", Float64: "FLOAT64",
	Boolean: "BOOLEAN", String: "STRING", Bytes: "BYTES", Array: "ARRAY", Map: "MAP", Struct: "STRUCT"}

// String is the type as Connect's messages name it.
func (t Type) String() string {
	if int(t) < len(typeNames) && typeNames[t] != "" {
		return typeNames[t]
	}
	return "UNKNOWN"
}

// Names of logical types that change how a value is kept or written.
const (
	DecimalName   = "org.apache.kafka.connect.data.Decimal"
	DateName      = "org.apache.kafka.connect.data.Date"
	TimeName      = "org.apache.kafka.connect.data.Time"
	TimestampName = "org.apache.kafka.connect.data.Timestamp"

	DebeziumTimestamp      = "io.debezium.time.Timestamp"
	DebeziumMicroTimestamp = "io.debezium.time.MicroTimestamp"
	DebeziumNanoTimestamp  = "io.debezium.time.NanoTimestamp"

	VariableScaleName = "io.debezium.data.VariableScaleDecimal"
)

// Parameter is one parameter of a schema; their order is kept.
type Parameter struct{ Name, Value string }

// Field is a member of a struct.
type Field struct {
	Name   string
	Schema *Schema
}

// Schema describes values. A nil *Schema is Connect's missing schema. It must
// not be changed after its first use.
type Schema struct {
	Type       Type
	Optional   bool
	Name       string // "" for none
	Version    *int32 // nil for none
	Doc        string
	Parameters []Parameter
	Default    *Value  // nil for none
	Fields     []Field // of a struct
	Key        *Schema // of a map
	Elem       *Schema // elements of an array, values of a map

	encoded [2]atomic.Pointer[[]byte] // the schema as JSON, by decimal format
}

// VersionOf is for Schema.Version.
func VersionOf(n int32) *int32 { return &n }

// Clone is a copy that may be changed; nested schemas are shared.
func (s *Schema) Clone() *Schema {
	return &Schema{
		Type: s.Type, Optional: s.Optional, Name: s.Name, Version: s.Version, Doc: s.Doc,
		Parameters: slices.Clone(s.Parameters), Default: s.Default, Fields: slices.Clone(s.Fields), Key: s.Key, Elem: s.Elem,
	}
}

// Index is the position of a struct's field, or -1.
func (s *Schema) Index(field string) int {
	for i := range s.Fields {
		if s.Fields[i].Name == field {
			return i
		}
	}
	return -1
}

// Or is v, or the schema's default where v is null: what Connect's Struct.get
// answers. The getters for a named type do not substitute.
func (s *Schema) Or(v Value) Value {
	if v.kind == KindNull && s != nil && s.Default != nil {
		return *s.Default
	}
	return v
}

// Equal compares like Connect: everything but the pointers.
func (s *Schema) Equal(o *Schema) bool {
	if s == o {
		return true
	}
	if s == nil || o == nil || s.Type != o.Type || s.Optional != o.Optional || s.Name != o.Name || s.Doc != o.Doc {
		return false
	}
	if (s.Version == nil) != (o.Version == nil) || s.Version != nil && *s.Version != *o.Version {
		return false
	}
	if !slices.Equal(s.Parameters, o.Parameters) || len(s.Fields) != len(o.Fields) || !s.Key.Equal(o.Key) || !s.Elem.Equal(o.Elem) {
		return false
	}
	for i := range s.Fields {
		if s.Fields[i].Name != o.Fields[i].Name || !s.Fields[i].Schema.Equal(o.Fields[i].Schema) {
			return false
		}
	}
	if (s.Default == nil) != (o.Default == nil) {
		return false
	}
	return s.Default == nil || s.Default.equal(*o.Default)
}

// Parameter is the value of a parameter, "" when there is none.
func (s *Schema) Parameter(name string) string {
	for _, p := range s.Parameters {
		if p.Name == name {
			return p.Value
		}
	}
	return ""
}

// Schemas without a name, for headers and keys that come from no column.
var (
	StringSchema          = &Schema{Type: String}
	OptionalStringSchema  = &Schema{Type: String, Optional: true}
	OptionalBooleanSchema = &Schema{Type: Boolean, Optional: true}
	OptionalInt32Schema   = &Schema{Type: Int32, Optional: true}
	OptionalInt64Schema   = &Schema{Type: Int64, Optional: true}
	OptionalFloat64Schema = &Schema{Type: Float64, Optional: true}
	OptionalBytesSchema   = &Schema{Type: Bytes, Optional: true}
	Int32Schema           = &Schema{Type: Int32}
	Int64Schema           = &Schema{Type: Int64}
)
