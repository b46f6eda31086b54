package router

import (
	"strconv"

	"github.com/cdc-relay/cdc-relay/fault"
	"github.com/cdc-relay/cdc-relay/replication/wal"
	"github.com/cdc-relay/cdc-relay/router/column"
	"github.com/cdc-relay/cdc-relay/router/format"
	"github.com/cdc-relay/cdc-relay/router/preset"
	"github.com/cdc-relay/cdc-relay/router/record"
	"github.com/cdc-relay/cdc-relay/router/schemas"
	"github.com/cdc-relay/cdc-relay/router/template"
)

// plan is a mapping compiled for one relation: indices and converters, no names
// to look up. Its maps and fields are scratch of Route, so it has one owner.
type plan struct {
	relation *wal.Relation
	err      error         // why there is no plan; everything below is then empty
	shape    *preset.Shape // that it was compiled from; nil with a connector

	connector ConnectorPlan // in the place of everything below; nil for a mapping without a connector

	content format.Content // the value, and the headers that belong to it

	key       *column.Source
	timestamp *column.Source // nil: the time of producing
	partition *column.Source // nil: by the key

	topic    *topicPlan
	schema   *schemas.Bound // makes the value, or checks it; nil: neither
	headers  []headerPlan   // after id, in order
	idAs     *headerPlan    // replaces the event id in the header id; nil: nothing does
	idColumn record.IDColumn
	sources  []*column.Source // every column that is read
	quoteKey bool
}

// headerPlan is one header: a column or a template.
type headerPlan struct {
	name     string
	source   *column.Source
	template *template.Template
	skipNull bool // NULL gives no header; without it, a header with a null value
}

// value makes the record's value, by a schema where the mapping has one.
func (p *plan) value(b *record.Buffer, row *wal.Row, topic string, scratch *[]byte) ([]byte, error) {
	if p.schema == nil {
		return p.content.Value(b, row, scratch)
	}
	payload, err := p.content.Payload.Bytes(b, row)
	if err != nil || payload == nil || p.content.Tombstone && len(column.TrimBlank(payload)) == 0 {
		return nil, err
	}
	return p.schema.Value(b, row, p.content.Payload, payload, topic, scratch)
}

// route appends the records of row to b: one, or with a connector none or several. On an error the
// headers begun in b are still there.
func (p *plan) route(b *record.Buffer, row *wal.Row, scratch *[]byte) error {
	if p.connector != nil {
		return p.connector.Route(b, row)
	}
	if row.Change != nil {
		return record.Reject(fault.ReasonSchema, "", "the change is not an insert; only debezium options handle other changes")
	}
	if len(row.Values) != len(p.relation.Columns) {
		return record.Reject(fault.ReasonSchema, "", "the row has %d values, and its table %d columns; this is a defect of the relay, please report it", len(row.Values), len(p.relation.Columns))
	}
	if p.relation.IsMessages() {
		if err := column.CheckBody(row); err != nil {
			return err
		}
	}
	rec := record.Record{Partition: record.AutoPartition, Row: row}
	id, err := p.content.Id.Text(b, row)
	if err != nil {
		return err
	}
	if id == nil {
		return record.Reject(fault.ReasonMapping, p.content.Id.Column, "%s, the event id, is %s; have every writer set it, or map columns.id to a column that always has a value", p.content.Id.Called(), p.content.Id.Null())
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
	if p.content.Event != nil {
		if err = p.content.ReadEvent(b, row, rec.Timestamp); err != nil {
			return err
		}
	}
	if rec.Value, err = p.value(b, row, rec.Topic, scratch); err != nil {
		return err
	}
	if p.content.Event != nil {
		if err = p.content.EventHeaders(b, row, rec.Value); err != nil {
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
	rec.Headers = b.TakeHeaders()
	b.Records = append(b.Records, rec)
	return nil
}

func (p *plan) recordKey(b *record.Buffer, row *wal.Row, scratch *[]byte) ([]byte, error) {
	key, err := p.key.Bytes(b, row)
	if err != nil || key == nil || !p.quoteKey {
		return key, err
	}
	out, err := p.key.AppendText((*scratch)[:0], key)
	*scratch = out
	if err != nil {
		return nil, err
	}
	return b.Copy(out), nil
}

// addID adds the header id. What replaces the event id does so where it is not NULL.
func (p *plan) addID(b *record.Buffer, row *wal.Row, id []byte, scratch *[]byte) error {
	if p.idAs != nil {
		other, err := p.idAs.value(b, row, scratch)
		if err != nil {
			return err
		}
		if other != nil {
			id = other
		}
	}
	b.Header(record.IdHeader, id)
	return nil
}

func (h *headerPlan) value(b *record.Buffer, row *wal.Row, scratch *[]byte) ([]byte, error) {
	if h.template != nil {
		return h.template.Header(b, row, scratch)
	}
	return h.source.Bytes(b, row)
}

// addHeaders adds everything after id, in the order of the package's promise.
func (p *plan) addHeaders(b *record.Buffer, row *wal.Row, scratch *[]byte) error {
	for i := range p.headers {
		h := &p.headers[i]
		value, err := h.value(b, row, scratch)
		if err != nil {
			return err
		}
		if value != nil || !h.skipNull {
			b.Header(h.name, value)
		}
	}
	if p.content.HeadersColumn != nil {
		if err := p.content.AppendColumnHeaders(b, row); err != nil {
			return err
		}
	}
	if p.content.Trace != nil {
		return p.content.AddTrace(b, row)
	}
	return nil
}

func (p *plan) setTimestamp(rec *record.Record, b *record.Buffer, row *wal.Row) error {
	text, err := p.timestamp.Text(b, row)
	if err != nil || text == nil {
		return err
	}
	if rec.Timestamp, err = column.ParseTime(text); err != nil {
		return record.Reject(fault.ReasonMapping, p.timestamp.Column, "column %q, the record's timestamp, %v; correct the program that writes it, or remove columns.timestamp to use the time of producing", p.timestamp.Column, err)
	}
	return nil
}

func (p *plan) setPartition(rec *record.Record, b *record.Buffer, row *wal.Row) error {
	text, err := p.partition.Text(b, row)
	if err != nil || text == nil {
		return err
	}
	v, err := strconv.ParseInt(string(text), 10, 32)
	if err != nil || v < 0 {
		return record.Reject(fault.ReasonMapping, p.partition.Column, "column %q, the partition, is not a number from 0 to 2147483647; correct the program that writes it, or remove partition to choose it by the key", p.partition.Column)
	}
	rec.Partition = int32(v)
	return nil
}
