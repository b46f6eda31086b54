package transform

import (
	"errors"
	"fmt"
	"strings"

	"github.com/cdc-relay/cdc-relay/debezium/connect"
	"github.com/cdc-relay/cdc-relay/debezium/javaregex"
	"github.com/cdc-relay/cdc-relay/fault"
	"github.com/cdc-relay/cdc-relay/router/record"
)

// EventRouter is Debezium's EventRouter. One goroutine uses it.
type EventRouter struct {
	// Columns by role; Timestamp and Version may be empty.
	ID, Key, Payload, Timestamp, Version, Route string

	prefix string // of its options, for errors

	placements []placement
	ignore     bool // columns of placements that are not there
	envelope   bool // a placement is
	regex      *javaregex.Regex
	with       *javaregex.Replacement
	tombstone  bool
	invalid    string // table.op.invalid.behavior
	expand     bool
	expander   *expander

	topics    map[string]string          // by route value
	envelopes map[string]*connect.Schema // as first seen, by the payload's schema or the version
	wrapped   map[*connect.Schema]*connect.Schema
}

// payloadMember is the payload's name beside columns that are placed in the envelope.
const payloadMember = "payload"

// Topics are remembered by route value. The memory is bounded: a map that is full
// starts again, and long values are not remembered.
const (
	maxRoutes     = 4096
	maxRouteValue = 1024
)

// placement is one item of table.fields.additional.placement.
type placement struct {
	column, where, alias string
}

// Where a column may be placed.
const (
	placeHeader    = "header"
	placeEnvelope  = "envelope"
	placePartition = "partition"
)

func newEventRouter(o *ownerOptions) transform {
	t := &EventRouter{
		prefix:  o.prefix,
		ID:      o.text("table.field.event.id", "id"),
		Key:     o.text("table.field.event.key", "aggregateid"),
		Payload: o.text("table.field.event.payload", "payload"),
		Route:   o.text("route.by.field", "aggregatetype"),

		Timestamp: o.text("table.field.event.timestamp", ""),
		Version:   o.text("table.field.event.schema.version", ""),

		ignore:    o.word("table.field.additional.missing", "error") == "ignore",
		tombstone: o.bool("route.tombstone.on.empty.payload", false),
		invalid:   o.word("table.op.invalid.behavior", "warn"),
		expand:    o.bool("table.expand.json.payload", false),

		topics:    map[string]string{},
		envelopes: map[string]*connect.Schema{},
		wrapped:   map[*connect.Schema]*connect.Schema{},
	}
	t.expander = newExpander(t.Payload, o.word("table.json.payload.null.behavior", "ignore") == "optional_bytes",
		o.word("table.json.payload.empty.array.behavior", "ignore") == "optional_string")
	for _, name := range []string{"table.field.event.id", "table.field.event.key", "table.field.event.payload", "route.by.field"} {
		if v, given := o.names[name]; given && v == "" {
			o.fail(name, "is empty, and no column is named so: \"\" is not a valid field name")
		}
	}
	if list, given := o.names["table.fields.additional.placement"]; given {
		t.parsePlacements(o, list)
	}
	var err error
	if t.regex, err = javaregex.Compile(o.text("route.topic.regex", "(?<routedByValue>.*)"), false); err != nil {
		o.fail("route.topic.regex", "%w", err)
		return t
	}
	if t.with, err = javaregex.ParseReplacement(o.text("route.topic.replacement", "outbox.event.${routedByValue}"), t.regex.Anywhere); err != nil {
		o.fail("route.topic.replacement", "%w", err)
	}
	return t
}

// Topic is the template that topics are made by.
func (t *EventRouter) Topic() string { return t.with.Text }

// Columns are all that the options name.
func (t *EventRouter) Columns() []string {
	columns := []string{t.ID, t.Key, t.Route, t.Payload, t.Timestamp, t.Version}
	for _, p := range t.placements {
		columns = append(columns, p.column)
	}
	return columns
}

// Headers are those that columns are placed in, beside that of the id.
func (t *EventRouter) Headers() []string {
	var headers []string
	for _, p := range t.placements {
		if p.where == placeHeader {
			headers = append(headers, p.alias)
		}
	}
	return headers
}

func (t *EventRouter) parsePlacements(o *ownerOptions, list string) {
	const option = "table.fields.additional.placement"
	envelope := map[string]bool{}
	for item := range strings.SplitSeq(list, ",") {
		parts := strings.Split(item, ":")
		for i := range parts {
			parts[i] = strings.TrimSpace(parts[i])
		}
		if len(parts) < 2 || len(parts) > 3 {
			o.fail(option, "%q is invalid: a comma-separated list of column:placement or column:placement:alias is expected", strings.TrimSpace(item))
			continue
		}
		p := placement{column: parts[0], where: strings.ToLower(parts[1]), alias: parts[0]}
		if len(parts) == 3 {
			p.alias = parts[2]
		}
		switch p.where {
		case placeHeader, placePartition:
		case placeEnvelope:
			t.envelope = true
			switch {
			case p.alias == payloadMember:
				o.fail(option, "column %q cannot be placed as %s: the payload has that name already; cannot create field because of field name duplication payload", p.column, p.alias)
			case envelope[p.alias]:
				o.fail(option, "column %q cannot be placed as %s, which is there twice: cannot create field because of field name duplication %s", p.column, p.alias, p.alias)
			}
			envelope[p.alias] = true
		default:
			o.fail(option, "%q is no placement; there are header, envelope and partition", parts[1])
			continue
		}
		t.placements = append(t.placements, p)
	}
}

// routedShape is the EventRouter made ready for one row schema. The columns are
// positions in it; -1: there is none.
type routedShape struct {
	shape *Shape
	err   error // the first that Debezium would run into

	timestamp, id, payload, key, route, version int

	placements []placedColumn
}

type placedColumn struct {
	*placement
	index int
}

// ShapeError is one thing that a table lacks, with the option that wants it.
type ShapeError struct {
	Option string // with the transform's prefix
	Err    error
}

// compile looks up every column, in the order in which Debezium does.
func (t *EventRouter) compile(shape *Shape) (*routedShape, []ShapeError) {
	s := &routedShape{shape: shape, timestamp: -1, version: -1}
	var errs []ShapeError
	fail := func(option string, err error) {
		if s.err == nil {
			s.err = err
		}
		errs = append(errs, ShapeError{t.prefix + option, err})
	}
	find := func(option, column string) int {
		i := shape.index(column)
		if i < 0 {
			fail(option, noField(shape, column))
		}
		return i
	}
	typed := func(option string, i int, want connect.Type) {
		if i < 0 {
			return
		}
		if f := shape.Fields[i]; f.Schema.Type != want {
			fail(option, &record.ColumnError{Column: f.Name, Err: fmt.Errorf("field '%s' is not of type %s: its type becomes Connect's %s", f.Name, want, f.Schema.Type)})
		}
	}
	s.payload = find("table.field.event.payload", t.Payload)
	if t.Timestamp != "" {
		s.timestamp = find("table.field.event.timestamp", t.Timestamp)
		typed("table.field.event.timestamp", s.timestamp, connect.Int64)
	}
	s.id = find("table.field.event.id", t.ID)
	if t.envelope && t.Version != "" {
		s.version = find("table.field.event.schema.version", t.Version)
		typed("table.field.event.schema.version", s.version, connect.Int32)
	}
	for i := range t.placements {
		p := &t.placements[i]
		index := shape.index(p.column)
		if index < 0 && (!t.ignore || shape.Beyond[p.column]) {
			fail("table.fields.additional.placement", noField(shape, p.column))
		}
		if index < 0 {
			continue
		}
		if p.where == placePartition {
			typed("table.fields.additional.placement", index, connect.Int32)
		}
		s.placements = append(s.placements, placedColumn{p, index})
	}
	s.key = find("table.field.event.key", t.Key)
	s.route = find("route.by.field", t.Route)
	typed("route.by.field", s.route, connect.String)
	return s, errs
}

func (t *EventRouter) apply(chain *Chain, r *Record) (bool, error) {
	c := r.Source
	switch {
	case r.isNull():
		return false, nil
	case c == nil:
		return true, nil
	case c.Op == 'd':
		return false, nil
	case c.Op == 'u':
		return false, t.update(chain, c)
	case c.After == nil:
		return false, record.Reject(fault.ReasonMapping, "", "only Struct objects are supported for a row, and a truncate has none; leave t in skipped.operations")
	}
	s := c.Shape.routed[t]
	if s == nil {
		s, _ = t.compile(c.Shape)
		c.Shape.remember(t, s)
	}
	if s.err != nil {
		return false, s.err
	}
	return true, t.event(r, c, s)
}

// update is an update that leaves the primary key alone.
func (t *EventRouter) update(chain *Chain, c *Change) error {
	if t.invalid != "fatal" {
		chain.Warn(c.Row, "", "the row was updated, and an event must not change: the update is not sent (table.op.invalid.behavior="+t.invalid+")")
		return nil
	}
	return record.Reject(fault.ReasonMapping, "", "unexpected update message received: table.op.invalid.behavior is fatal, and an event must not change")
}

// event makes the outbox event of a row.
func (t *EventRouter) event(r *Record, c *Change, s *routedShape) error {
	field := func(i int) (Field, error) { // as Struct.get reads it
		v, err := c.After(i)
		schema := s.shape.Fields[i].Schema
		return Field{schema, schema.Or(v)}, err
	}
	if err := t.setTime(r, c, s); err != nil {
		return err
	}
	id, err := field(s.id)
	if err != nil {
		return err
	}
	payload, err := field(s.payload)
	if err != nil {
		return err
	}
	r.addHeader(Header{record.IdHeader, id.Schema, id.Value})
	if t.expand && !payload.Value.IsNull() {
		payload, r.poison = t.expander.expand(payload)
	}
	r.Source = nil
	r.Value = payload
	if t.envelope {
		if err := t.wrap(r, c, s, payload, field); err != nil {
			return err
		}
	} else if err := t.applyPlacements(r, c, s, field); err != nil {
		return err
	}
	if t.tombstone && payload.Value.IsBlank() {
		r.Value = Field{}
	}
	if r.Key, err = field(s.key); err != nil {
		return err
	}
	return t.setTopic(r, c, s)
}

// applyPlacements applies header and partition placements.
func (t *EventRouter) applyPlacements(r *Record, c *Change, s *routedShape, field func(int) (Field, error)) error {
	for _, p := range s.placements {
		switch p.where {
		case placeHeader:
			v, err := field(p.index)
			if err != nil {
				return err
			}
			r.addHeader(Header{p.alias, v.Schema, v.Value})
		case placePartition:
			v, err := c.After(p.index)
			if err != nil {
				return err
			}
			r.HasPartition = !v.IsNull()
			r.Partition = int32(v.Int())
		}
	}
	return nil
}

// maxEnvelopes bounds the schemas that are remembered, as Debezium's cache does.
const maxEnvelopes = 10000

// wrap makes the envelope around the payload.
func (t *EventRouter) wrap(r *Record, c *Change, s *routedShape, payload Field, field func(int) (Field, error)) error {
	if payload.Schema == nil {
		return record.Reject(fault.ReasonEncode, t.Payload, "the payload has no schema that an envelope could take up")
	}
	schema, err := t.envelopeSchema(c, s, payload.Schema)
	if err != nil {
		return err
	}
	values := make([]connect.Value, len(schema.Fields))
	put := func(name string, v connect.Value) error {
		i := schema.Index(name)
		if i < 0 {
			return record.Reject(fault.ReasonEncode, "", "%s is not a valid field name of the envelope, whose schema another table made first", name)
		}
		if err := connect.Validate(name, schema.Fields[i].Schema, v); err != nil {
			return record.Reject(fault.ReasonEncode, name, "%v", r.Explained(err))
		}
		values[i] = v
		return nil
	}
	if err := put(payloadMember, payload.Value); err != nil {
		return err
	}
	for _, p := range s.placements {
		if p.where != placeEnvelope {
			continue
		}
		v, err := field(p.index)
		if err == nil {
			err = put(p.alias, v.Value)
		}
		if err != nil {
			return err
		}
	}
	if err := t.applyPlacements(r, c, s, field); err != nil {
		return err
	}
	r.Value, err = StructOf(schema, values...)
	return err
}

// envelopeSchema is the one that the first event of its kind made: its name holds
// that event's route value.
func (t *EventRouter) envelopeSchema(c *Change, s *routedShape, payload *connect.Schema) (*connect.Schema, error) {
	var key string
	var version *int32
	if t.Version != "" {
		v, err := c.After(s.version)
		if err != nil {
			return nil, err
		}
		key = "null"
		if !v.IsNull() {
			version = connect.VersionOf(int32(v.Int()))
			key = fmt.Sprint(v.Int())
		}
	} else {
		if known := t.wrapped[payload]; known != nil {
			return known, nil
		}
		key = string(payload.JSON())
	}
	if known := t.envelopes[key]; known != nil {
		t.remember(payload, known)
		return known, nil
	}
	route, err := c.After(s.route)
	if err != nil {
		return nil, err
	}
	fields := []connect.Field{{Name: payloadMember, Schema: payload}}
	for _, p := range s.placements {
		if p.where == placeEnvelope {
			fields = append(fields, connect.Field{Name: p.alias, Schema: s.shape.Fields[p.index].Schema})
		}
	}
	schema, err := connect.NewStructSchema(routedName(s.shape.Name, string(route.Data())), fields)
	if err != nil {
		return nil, record.Reject(fault.ReasonEncode, "", "%v", err)
	}
	schema.Version = version
	if len(t.envelopes) >= maxEnvelopes {
		clear(t.envelopes)
	}
	t.envelopes[key] = schema
	t.remember(payload, schema)
	return schema, nil
}

// remember saves describing the payload's schema for the next row.
func (t *EventRouter) remember(payload, schema *connect.Schema) {
	if t.Version != "" {
		return
	}
	if len(t.wrapped) >= maxEnvelopes {
		clear(t.wrapped)
	}
	t.wrapped[payload] = schema
}

// routedName puts the route value before the last part of a schema's name.
func routedName(name, route string) string {
	i := strings.LastIndexByte(name, '.')
	if i < 0 {
		return route
	}
	return name[:i] + "." + route + name[i:]
}

// setTime reads the event's timestamp.
func (t *EventRouter) setTime(r *Record, c *Change, s *routedShape) error {
	r.processed, r.hasProcessed = c.processed()
	if s.timestamp < 0 {
		return nil
	}
	v, err := c.After(s.timestamp)
	if err != nil || v.IsNull() {
		return err
	}
	schema := s.shape.Fields[s.timestamp].Schema
	if v.Kind() != connect.KindInt64 {
		return &record.ColumnError{Column: t.Timestamp, Err: fmt.Errorf("time.precision.mode=connect makes it a %s, which cannot be cast to the java.lang.Long that an event timestamp is", v.Kind())}
	}
	switch schema.Name {
	case connect.DebeziumTimestamp:
		r.Time = v.Int()
	case connect.DebeziumMicroTimestamp:
		r.Time = v.Int() / 1e3
	case connect.DebeziumNanoTimestamp:
		r.Time = v.Int() / 1e6
	case "":
		return &record.ColumnError{Column: t.Timestamp, Err: errors.New("unsupported field type INT64 (without logical schema name) for event timestamp: it takes a timestamp without time zone")}
	default:
		return &record.ColumnError{Column: t.Timestamp, Err: fmt.Errorf("unsupported field type %s for event timestamp: it takes a timestamp without time zone", schema.Name)}
	}
	r.HasTime = true
	return nil
}

func (t *EventRouter) setTopic(r *Record, c *Change, s *routedShape) error {
	v, err := c.After(s.route)
	if err != nil {
		return err
	}
	if v.IsNull() {
		return record.Reject(fault.ReasonRoute, t.Route, "column %q, which the topic is made of, is NULL; Debezium puts no default in its place here", t.Route)
	}
	value := v.Data()
	topic, known := t.topics[string(value)]
	if !known {
		topic = t.regex.ReplaceFirst(string(value), t.with)
		if len(t.topics) >= maxRoutes {
			clear(t.topics)
		}
		if len(value) <= maxRouteValue {
			t.topics[string(value)] = topic
		}
	}
	r.Topic = topic
	return nil
}
