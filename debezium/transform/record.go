package transform

import (
	"fmt"

	"github.com/cdc-relay/cdc-relay/debezium/connect"
	"github.com/cdc-relay/cdc-relay/fault"
	"github.com/cdc-relay/cdc-relay/replication/wal"
	"github.com/cdc-relay/cdc-relay/router/record"
)

// Record is a record on its way through the transforms.
type Record struct {
	Topic        string
	Key, Value   Field
	Headers      []Header
	Partition    int32
	HasPartition bool
	Time         int64 // milliseconds; without one the producer's clock applies
	HasTime      bool

	// Source is the change that Value shows, as long as nobody has looked at the
	// value: most records never need the envelope that Debezium wraps rows in.
	Source *Change

	// processed stands for the time of processing, which Debezium gives an event
	// without a timestamp: transforms see it, the record gets the producer's clock.
	processed    int64
	hasProcessed bool

	poison error // why the payload's text does not fit the schema that its expansion gave it
}

// Field is a key, a value, or a member of one. Without a schema it is null.
type Field struct {
	Schema *connect.Schema
	Value  connect.Value
}

// Header is a header of a record.
type Header struct {
	Key    string
	Schema *connect.Schema
	Value  connect.Value
}

// Change is one change of a row, or a decoded message, as the connector's
// envelope has it.
type Change struct {
	Op    byte // c, u, d, t
	Shape *Shape
	After func(i int) (connect.Value, error) // a column of the row, by shape; nil: there is none
	Row   *wal.Row
	Table Table // nil for a message
}

// Table makes the value that a change of one of its rows has before any transform.
type Table interface {
	// RowSchema is that of a row, within the envelope and without it.
	RowSchema() *connect.Schema
	Envelope(c *Change) (Field, error)
}

// RowStruct is the row after the change, under the schema of its table.
func (c *Change) RowStruct() (Field, error) {
	s := &connect.Schema{Type: connect.Struct, Name: c.Shape.Name, Fields: c.Shape.Fields}
	if c.Table != nil {
		s = c.Table.RowSchema()
	}
	values := make([]connect.Value, len(c.Shape.Fields))
	for i := range values {
		v, err := c.After(i)
		if err != nil {
			return Field{}, err
		}
		values[i] = v
	}
	return StructOf(s, values...)
}

// processed stands for the time at which Debezium processes a row.
func (c *Change) processed() (ms int64, ok bool) {
	if c.Row == nil || c.Row.Txn == nil || c.Row.Txn.Time.IsZero() {
		return 0, false
	}
	return c.Row.Txn.Time.UnixMilli(), true
}

// Shape is the row's schema: what EventRouter and others look names up in.
type Shape struct {
	Fields  []connect.Field
	Name    string                  // of the row's schema: <prefix>.<schema>.<table>.Value
	Missing func(name string) error // why there is no such column
	Beyond  map[string]bool         // columns that Debezium would have here, and this program cannot write

	routed map[*EventRouter]*routedShape
}

func (s *Shape) index(name string) int {
	for i := range s.Fields {
		if s.Fields[i].Name == name {
			return i
		}
	}
	return -1
}

// remember keeps what the router made of this shape.
func (s *Shape) remember(t *EventRouter, routed *routedShape) {
	if s.routed == nil {
		s.routed = map[*EventRouter]*routedShape{}
	}
	s.routed[t] = routed
}

// at is the time that transforms see.
func (r *Record) at() (ms int64, ok bool) {
	if r.HasTime {
		return r.Time, true
	}
	return r.processed, r.hasProcessed
}

// isNull tells a tombstone.
func (r *Record) isNull() bool { return r.Source == nil && r.Value.Value.IsNull() }

// Reveal makes the value that Source stands for, for those who look into it.
func (r *Record) Reveal() error {
	c := r.Source
	if c == nil {
		return nil
	}
	var v Field
	var err error
	if c.Table != nil {
		v, err = c.Table.Envelope(c)
	} else {
		v, err = c.RowStruct()
	}
	if err != nil {
		return err
	}
	r.Value, r.Source = v, nil
	return nil
}

func (r *Record) addHeader(h Header) { r.Headers = append(r.Headers, h) }

// Reset empties r but keeps its memory.
func (r *Record) Reset() {
	clear(r.Headers)
	*r = Record{Headers: r.Headers[:0]}
}

// Explained adds what went wrong before, where a converter or an envelope refuses
// an expanded payload.
func (r *Record) Explained(err error) error {
	if r.poison == nil {
		return err
	}
	return fmt.Errorf("%w: table.expand.json.payload inferred a schema for the payload that its value does not fit: %w", err, r.poison)
}

// StructOf makes a struct; what Connect would refuse is refused.
func StructOf(s *connect.Schema, values ...connect.Value) (Field, error) {
	v, err := connect.NewStruct(s, values)
	if err != nil {
		return Field{}, record.Reject(fault.ReasonEncode, "", "%v", err)
	}
	return Field{Schema: s, Value: v}, nil
}

// field finds a member of a struct.
func (f *Field) field(name string) (Field, error) {
	if f.Value.Kind() != connect.KindStruct {
		return Field{}, record.Reject(fault.ReasonMapping, "", "only Struct objects are supported, found: %s", f.Value.Kind())
	}
	s := f.Value.StructSchema()
	i := s.Index(name)
	if i < 0 {
		return Field{}, record.Reject(fault.ReasonMapping, "", "%s is not a valid field name", name)
	}
	v, _ := f.Value.Get(name)
	return Field{Schema: s.Fields[i].Schema, Value: v}, nil
}

func fieldNames(s *Shape) string {
	names := ""
	for i, f := range s.Fields {
		if i > 0 {
			names += ", "
		}
		names += f.Name
	}
	if names == "" {
		return "nothing"
	}
	return names
}

func noField(shape *Shape, name string) error {
	if shape.Missing != nil {
		if err := shape.Missing(name); err != nil {
			return err
		}
	}
	return &record.ColumnError{Column: name, Err: fmt.Errorf("%s is not a valid field name: there is %s", name, fieldNames(shape))}
}
