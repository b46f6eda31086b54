package codec

import (
	"github.com/cdc-relay/cdc-relay/debezium/connect"
)

// TypeInfo is a PostgreSQL type as the catalog has it.
type TypeInfo struct {
	OID     uint32
	Name    string    // pg_type.typname, such as int4, varchar, _text, mood
	TypeMod int32     // -1 for none; an array's applies to its elements
	Labels  []string  // of an enum, in its order; nil for other types
	Base    *TypeInfo // of a domain: the type it is over, with the domain's modifier
	Elem    *TypeInfo // of an array
}

// Column is one column of the table.
type Column struct {
	Name    string
	Type    TypeInfo
	NotNull bool   // NOT NULL, or part of the primary key
	Default string // the default expression as the server prints it; "" for none
	Comment string // becomes the schema's doc: include.schema.comments
	Source  bool   // describe the column's type in parameters: column.propagate.source.type
}

// Codec turns a column's text form into a value.
type Codec struct {
	Schema *connect.Schema

	// Warning says that the default expression could not be read, so that null
	// stays null; "" when there is nothing to say.
	Warning string

	column  string
	typ     string
	failure FailureMode
	decode  decoder
}

// decoder reads a value's text form. The reason of an error never holds the
// value.
type decoder func(text []byte) (connect.Value, error)

// Decode reads the text form of a value that is not NULL. The Value aliases
// text. An error is a *ConvertError; when it is tolerated the Value is null, as
// in Debezium, and the row continues.
func (c *Codec) Decode(text []byte) (connect.Value, error) {
	v, err := c.decode(text)
	if err == nil {
		return v, nil
	}
	return c.failed(err)
}
