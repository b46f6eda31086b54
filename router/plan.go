package router

import (
	"bytes"
	"encoding/json"
	"slices"
	"strconv"

	"github.com/cdc-relay/cdc-relay/replication"
)

// plan is a mapping compiled for one relation: indices and converters, no names
// to look up. Its maps and fields are scratch of Route, so it has one owner.
type plan struct {
	relation *replication.Relation
	err      error // why there is no plan; everything below is then empty

	debezium *dbzPlan // in the place of everything below; nil without options of Debezium

	id        *source
	key       *source
	payload   *source
	timestamp *source // nil: the time of producing
	partition *source // nil: by the key
	trace     *source

	topic         *topicPlan
	headers       []headerPlan // behind id, in order
	configured    []string     // names of the headers that replace others
	idAs          *headerPlan  // replaces the event id in the header id; nil: nothing does
	headersColumn *headersColumn
	fields        []*valueField
	sources       []*source // every column that is read

	event     *eventPlan // nil but for the cloudevents formats
	format    string
	quoteKey  bool
	tombstone bool
	keys      map[string]string // header keys that came from rows
}

// headerPlan is one header: a column or a template.
type headerPlan struct {
	name     string
	source   *source
	template *template
	skipNull bool // no header for NULL, where others get a null value
}

type headersColumn struct {
	source *source
	values *source // the values of source's names; nil where source has both
}

// route appends the record of row to b. On an error the headers begun in b are
// still there.
func (p *plan) route(b *Buffer, row *replication.Row, scratch *[]byte) error {
	if p.debezium != nil {
		return p.debezium.route(b, row)
	}
	if row.Change != nil {
		return reject(ReasonSchema, "", "the change is no insert, and only debezium options make something of others")
	}
	if len(row.Values) != len(p.relation.Columns) {
		return reject(ReasonSchema, "", "the row has %d values, and its table %d columns; this is a defect of the relay, please report it", len(row.Values), len(p.relation.Columns))
	}
	if isMessages(p.relation) {
		if err := checkBody(row); err != nil {
			return err
		}
	}
	rec := Record{Partition: AutoPartition, Row: row}
	id, err := p.id.text(b, row)
	if err != nil {
		return err
	}
	if id == nil {
		return reject(ReasonMapping, p.id.column, "%s, the event id, is %s; have every writer set it, or map columns.id to what has a value in every row", p.id.called(), p.id.null())
	}
	if err = p.addID(b, row, id, scratch); err != nil {
		return err
	}
	if rec.Topic, err = p.topic.name(b, row, scratch); err != nil {
		return err
	}
	if rec.Key, err = p.recordKey(b, row, scratch); err != nil {
		return err
	}
	if p.timestamp != nil {
		if err = p.setTimestamp(&rec, b, row); err != nil {
			return err
		}
	}
	if p.event != nil {
		if err = p.readEvent(b, row, rec.Timestamp); err != nil {
			return err
		}
	}
	if rec.Value, err = p.value(b, row, scratch); err != nil {
		return err
	}
	if p.event != nil {
		if err = p.eventHeaders(b, row, rec.Value); err != nil {
			return err
		}
	}
	if err = p.addHeaders(b, row, scratch); err != nil {
		return err
	}
	if p.partition != nil {
		if err = p.setPartition(&rec, b, row); err != nil {
			return err
		}
	}
	rec.Headers = b.takeHeaders()
	b.Records = append(b.Records, rec)
	return nil
}

func (p *plan) recordKey(b *Buffer, row *replication.Row, scratch *[]byte) ([]byte, error) {
	key, err := p.key.bytes(b, row)
	if err != nil || key == nil || !p.quoteKey {
		return key, err
	}
	out, err := p.key.appendText((*scratch)[:0], key)
	*scratch = out
	if err != nil {
		return nil, err
	}
	return b.copy(out), nil
}

// replaces says of a header that the configuration gives it.
func (p *plan) replaces(name string) bool { return slices.Contains(p.configured, name) }

// given adds a header that a configured one of its name replaces.
func (p *plan) given(b *Buffer, name string, value []byte) {
	if len(p.configured) == 0 || !p.replaces(name) {
		b.header(name, value)
	}
}

// addID adds the header id. What replaces the event id does so where it is not NULL.
func (p *plan) addID(b *Buffer, row *replication.Row, id []byte, scratch *[]byte) error {
	if p.idAs != nil {
		other, err := p.idAs.value(b, row, scratch)
		if err != nil {
			return err
		}
		if other != nil {
			id = other
		}
	}
	b.header(idHeader, id)
	return nil
}

func (h *headerPlan) value(b *Buffer, row *replication.Row, scratch *[]byte) ([]byte, error) {
	if h.template != nil {
		return h.template.header(b, row, scratch)
	}
	return h.source.bytes(b, row)
}

// addHeaders adds everything behind id, in the order of the package's promise.
func (p *plan) addHeaders(b *Buffer, row *replication.Row, scratch *[]byte) error {
	for i := range p.headers {
		h := &p.headers[i]
		value, err := h.value(b, row, scratch)
		if err != nil {
			return err
		}
		if value != nil || !h.skipNull {
			b.header(h.name, value)
		}
	}
	if p.headersColumn != nil {
		if err := p.appendColumnHeaders(b, row); err != nil {
			return err
		}
	}
	if p.trace != nil {
		return p.addTrace(b, row)
	}
	return nil
}

// header gives the value of a header template. A column that is NULL and has no
// default makes the whole value null.
func (t *template) header(b *Buffer, row *replication.Row, scratch *[]byte) ([]byte, error) {
	out := (*scratch)[:0]
	for i := range t.parts {
		var null bool
		var err error
		out, null, err = t.parts[i].appendTo(out, b, row, nil)
		*scratch = out
		if err != nil || null {
			return nil, err
		}
	}
	return b.copy(out), nil
}

// The W3C trace context's headers.
const (
	traceParent = "traceparent"
	traceState  = "tracestate"
)

// addTrace adds the trace context as headers.
func (p *plan) addTrace(b *Buffer, row *replication.Row) error {
	parent, state, err := p.traceContext(b, row)
	if err != nil {
		return err
	}
	if len(parent) > 0 {
		p.given(b, traceParent, parent)
	}
	if len(state) > 0 {
		p.given(b, traceState, state)
	}
	return nil
}

// traceContext reads the trace column: its text is the traceparent; a JSON
// object, also in a text column, may hold tracestate as well, and so may text of
// java.util.Properties. NULL and empty give nothing.
func (p *plan) traceContext(b *Buffer, row *replication.Row) (parent, state []byte, err error) {
	text, err := p.trace.headerText(b, row)
	if err != nil {
		return nil, nil, err
	}
	text = trimBlank(text)
	structured := p.trace.json() || p.trace.pointer != nil
	switch {
	case len(text) == 0, structured && (string(text) == "null" || string(text) == `""`):
		return nil, nil, nil
	case text[0] == '{':
	case !structured && bytes.IndexByte(text, '=') >= 0: // which no traceparent has
		return property(b, text, traceParent), property(b, text, traceState), nil
	case !structured:
		return text, nil, nil
	case text[0] == '"':
		parent, err = p.trace.unquote(b, text)
		return parent, nil, err
	default:
		return nil, nil, reject(ReasonMapping, p.trace.column, "trace column %q holds neither a string nor an object; "+wayOfTrace, p.trace.column)
	}
	if !structured && !json.Valid(text) {
		return nil, nil, reject(ReasonMapping, p.trace.column, "trace column %q %v; "+wayOfTrace, p.trace.column, errNotJSON)
	}
	if parent, err = p.traceMember(b, text, traceParent); err != nil {
		return nil, nil, err
	}
	state, err = p.traceMember(b, text, traceState)
	return parent, state, err
}

const wayOfTrace = "write a traceparent, an object that has it, or NULL"

func (p *plan) traceMember(b *Buffer, object []byte, name string) ([]byte, error) {
	found, err := child(object, name)
	if err == nil && len(found) > 0 {
		found, err = scalar(b, found)
	}
	if err != nil {
		return nil, reject(ReasonMapping, p.trace.column, "trace column %q %v; "+wayOfTrace, p.trace.column, err)
	}
	return found, nil
}

func (p *plan) setTimestamp(rec *Record, b *Buffer, row *replication.Row) error {
	text, err := p.timestamp.text(b, row)
	if err != nil || text == nil {
		return err
	}
	if rec.Timestamp, err = parseTime(text); err != nil {
		return reject(ReasonMapping, p.timestamp.column, "column %q, the record's timestamp, %v; correct what writes it, or leave columns.timestamp out for the time of producing", p.timestamp.column, err)
	}
	return nil
}

func (p *plan) setPartition(rec *Record, b *Buffer, row *replication.Row) error {
	text, err := p.partition.text(b, row)
	if err != nil || text == nil {
		return err
	}
	v, err := strconv.ParseInt(string(text), 10, 32)
	if err != nil || v < 0 {
		return reject(ReasonMapping, p.partition.column, "column %q, the partition, is not a number from 0 to 2147483647; correct what writes it, or leave partition out for that of the key", p.partition.column)
	}
	rec.Partition = int32(v)
	return nil
}
