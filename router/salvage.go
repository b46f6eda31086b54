package router

import (
	"github.com/cdc-relay/cdc-relay/replication/wal"
	"github.com/cdc-relay/cdc-relay/router/record"
)

// The parts of a record, as Salvage names those that it could not make.
const (
	PartTopic     = "topic"
	PartKey       = "key"
	PartValue     = "value"
	PartHeaders   = "headers"
	PartTimestamp = "timestamp"
	PartPartition = "partition"
)

// Salvage gives what can be had of the record of a row that Route refuses, and the
// names of the parts that are not as the record would have them. A value that
// cannot be put into its format is the payload column's own bytes; other parts are
// empty, a partition AutoPartition. Like that of Route, the record refers to row, its batch and buf. It
// appends nothing to buf.Records.
func (r *Router) Salvage(buf *record.Buffer, row *wal.Row) (record.Record, []string) {
	rec := record.Record{Partition: record.AutoPartition, Row: row}
	p := r.planFor(row)
	if p.err == nil && p.connector != nil {
		return p.connector.Salvage(buf, row), []string{PartTopic, PartKey, PartValue, PartHeaders}
	}
	if p.err != nil || len(row.Values) != len(p.relation.Columns) {
		return rec, []string{PartTopic, PartKey, PartValue, PartHeaders}
	}
	missing := p.salvage(buf, row, &rec, &r.scratch)
	if r.reserved.Check(rec.Topic) != nil {
		rec.Topic, missing = "", append(missing, PartTopic)
	}
	rec.Headers = buf.TakeHeaders()
	if r.extras != nil {
		one := []record.Record{rec}
		r.extras.Add(buf, one, row, true)
		rec = one[0]
	}
	return rec, missing
}

// Payload is the payload column of a row, as Salvage gives it for a value that cannot be
// put into its format; nil where there is none. It refers to row, its batch and buf.
func (r *Router) Payload(buf *record.Buffer, row *wal.Row) []byte {
	p := r.planFor(row)
	switch {
	case p.err != nil || len(row.Values) != len(p.relation.Columns):
		return nil
	case p.connector != nil:
		return p.connector.Salvage(buf, row).Value
	case p.content.Payload == nil:
		return nil
	}
	payload, err := p.content.Payload.Bytes(buf, row)
	if err != nil {
		return nil
	}
	return payload
}

func (p *plan) salvage(b *record.Buffer, row *wal.Row, rec *record.Record, scratch *[]byte) (missing []string) {
	whole := true // the headers
	id, err := p.content.Id.Text(b, row)
	if err != nil || id == nil {
		whole = false
	} else if p.addID(b, row, id, scratch) != nil {
		b.Header(record.IdHeader, id)
		whole = false
	}
	if rec.Topic, err = p.topic.name(b, row, scratch); err != nil {
		rec.Topic, missing = "", append(missing, PartTopic)
	}
	if rec.Key, err = p.recordKey(b, row, scratch); err != nil {
		rec.Key, missing = nil, append(missing, PartKey)
	}
	if p.timestamp != nil && p.setTimestamp(rec, b, row) != nil {
		missing = append(missing, PartTimestamp)
	}
	var bad error // of the value
	if p.content.Event != nil {
		bad = p.content.ReadEvent(b, row, rec.Timestamp)
	}
	if bad == nil {
		rec.Value, bad = p.value(b, row, rec.Topic, scratch)
	}
	if bad != nil {
		missing, rec.Value = append(missing, PartValue), nil
		if p.content.Payload != nil {
			if rec.Value, err = p.content.Payload.Bytes(b, row); err != nil {
				rec.Value = nil
			}
		}
	} else if p.content.Event != nil {
		whole = p.content.EventHeaders(b, row, rec.Value) == nil && whole
	}
	if p.addHeaders(b, row, scratch) != nil || !whole {
		missing = append(missing, PartHeaders)
	}
	if p.partition != nil && p.setPartition(rec, b, row) != nil {
		missing = append(missing, PartPartition)
	}
	return missing
}
