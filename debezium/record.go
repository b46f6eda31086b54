package debezium

import (
	"fmt"

	"github.com/cdc-relay/cdc-relay/debezium/connect"
	"github.com/cdc-relay/cdc-relay/replication/wal"
	"github.com/cdc-relay/cdc-relay/router/record"
)

// dbzRecord is a record on its way through the transforms.
type dbzRecord struct {
	topic        string
	key, value   dbzField
	headers      []dbzHeader
	partition    int32
	hasPartition bool
	time         int64 // milliseconds; without one the producer's clock applies
	hasTime      bool

	// processed stands for the time of processing, which Debezium gives an event
	// without a timestamp: transforms see it, the record gets the producer's clock.
	processed    int64
	hasProcessed bool

	poison error // why the payload's text does not fit the schema that its expansion gave it

	// source is the change that value shows, as long as nobody has looked at the
	// value: most records never need the envelope that Debezium wraps rows in.
	source *dbzChange
}

type dbzField struct {
	schema *connect.Schema
	value  connect.Value
}

type dbzHeader struct {
	key    string
	schema *connect.Schema
	value  connect.Value
}

// dbzChange is one change of a row, or a decoded message, as the connector's
// envelope has it.
type dbzChange struct {
	op    byte // c, u, d, t
	shape *dbzShape
	after func(i int) (connect.Value, error) // a column of the row, by shape; nil: there is none
	row   *wal.Row
	table *dbzPlan // nil for a message
}

// dbzShape is the row's schema: what EventRouter and others look names up in.
type dbzShape struct {
	fields    []connect.Field
	valueName string                  // of the row's schema: <prefix>.<schema>.<table>.Value
	missing   func(name string) error // why there is no such column
	beyond    map[string]bool         // columns that Debezium would have here, and this program cannot write
	router    map[*eventRouter]*routedShape
}

func (s *dbzShape) index(name string) int {
	for i := range s.fields {
		if s.fields[i].Name == name {
			return i
		}
	}
	return -1
}

// at is the time that transforms see.
func (r *dbzRecord) at() (ms int64, ok bool) {
	if r.hasTime {
		return r.time, true
	}
	return r.processed, r.hasProcessed
}

// isNull tells a tombstone.
func (r *dbzRecord) isNull() bool { return r.source == nil && r.value.value.IsNull() }

// reveal makes the value that source stands for, for those who look into it.
func (r *dbzRecord) reveal(d *debezium) error {
	if r.source == nil {
		return nil
	}
	v, err := d.envelope(r.source)
	if err != nil {
		return err
	}
	r.value, r.source = v, nil
	return nil
}

func (r *dbzRecord) addHeader(h dbzHeader) { r.headers = append(r.headers, h) }

// reset empties r but keeps its memory.
func (r *dbzRecord) reset() {
	clear(r.headers)
	*r = dbzRecord{headers: r.headers[:0]}
}

// emit converts the record and appends it to b. Connect converts headers, key and
// value in this order, and the first failure counts.
func (d *debezium) emit(b *record.Buffer, r *dbzRecord, row *wal.Row) error {
	if err := r.reveal(d); err != nil {
		return err
	}
	out := record.Record{Topic: r.topic, Partition: record.AutoPartition, Row: row}
	for i := range r.headers {
		h := &r.headers[i]
		value, err := convert(b, d.header, h.schema, h.value)
		if err != nil {
			return record.Reject(record.ReasonEncode, "", "header %q cannot be written with %s: %v", h.key, d.classes[2], err)
		}
		b.Header(h.key, value)
	}
	var err error
	if out.Key, err = convert(b, d.key, r.key.schema, r.key.value); err != nil {
		return record.Reject(record.ReasonEncode, "", "the key cannot be written with %s: %v", d.classes[0], err)
	}
	if out.Value, err = convert(b, d.value, r.value.schema, r.value.value); err != nil {
		return record.Reject(record.ReasonEncode, "", "the value cannot be written with %s: %v", d.classes[1], r.explained(err))
	}
	if r.hasPartition {
		if r.partition < 0 {
			return record.Reject(record.ReasonMapping, "", "invalid partition: %d is negative", r.partition)
		}
		out.Partition = r.partition
	}
	switch {
	case r.hasTime && r.time >= 0:
		out.Timestamp = millis(r.time)
	case r.hasTime && r.time < -1: // -1 is Connect's word for none
		return record.Reject(record.ReasonMapping, "", "invalid record timestamp %d: it is before 1970", r.time)
	}
	if err := record.CheckTopicName([]byte(r.topic)); err != nil {
		return record.Reject(record.ReasonRoute, "", "invalid topic: the row gives topic %s, which Kafka does not allow: a name %v", record.ShowTopic([]byte(r.topic)), err)
	}
	out.Headers = b.TakeHeaders()
	b.Records = append(b.Records, out)
	return nil
}

// explained adds what went wrong before, where a converter or an envelope refuses
// an expanded payload.
func (r *dbzRecord) explained(err error) error {
	if r.poison == nil {
		return err
	}
	return fmt.Errorf("%w: table.expand.json.payload inferred a schema for the payload that its value does not fit: %w", err, r.poison)
}

func convert(b *record.Buffer, c connect.Converter, s *connect.Schema, v connect.Value) ([]byte, error) {
	out, null, err := c.Append(b.Tail(0), s, v)
	if err != nil || null {
		return nil, err
	}
	return b.Keep(out), nil
}

// structOf makes a struct; what Connect would refuse is refused.
func structOf(s *connect.Schema, values ...connect.Value) (dbzField, error) {
	v, err := connect.NewStruct(s, values)
	if err != nil {
		return dbzField{}, record.Reject(record.ReasonEncode, "", "%v", err)
	}
	return dbzField{schema: s, value: v}, nil
}

// field finds a member of a struct.
func (f *dbzField) field(name string) (dbzField, error) {
	if f.value.Kind() != connect.KindStruct {
		return dbzField{}, record.Reject(record.ReasonMapping, "", "only Struct objects are supported, found: %s", f.value.Kind())
	}
	s := f.value.StructSchema()
	i := s.Index(name)
	if i < 0 {
		return dbzField{}, record.Reject(record.ReasonMapping, "", "%s is not a valid field name", name)
	}
	v, _ := f.value.Get(name)
	return dbzField{schema: s.Fields[i].Schema, value: v}, nil
}

func fieldNames(s *dbzShape) string {
	names := ""
	for i, f := range s.fields {
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

func noField(shape *dbzShape, name string) error {
	if shape.missing != nil {
		if err := shape.missing(name); err != nil {
			return err
		}
	}
	return &record.ColumnError{Column: name, Err: fmt.Errorf("%s is not a valid field name: there is %s", name, fieldNames(shape))}
}
