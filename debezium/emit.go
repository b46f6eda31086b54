package debezium

import (
	"time"

	"github.com/cdc-relay/cdc-relay/debezium/connect"
	"github.com/cdc-relay/cdc-relay/debezium/connect/converter"
	"github.com/cdc-relay/cdc-relay/debezium/transform"
	"github.com/cdc-relay/cdc-relay/fault"
	"github.com/cdc-relay/cdc-relay/replication/wal"
	"github.com/cdc-relay/cdc-relay/router/record"
)

// emit converts the record and appends it to b. Connect converts headers, key and
// value in this order, and the first failure counts.
func (d *connector) emit(b *record.Buffer, r *transform.Record, row *wal.Row) error {
	if err := r.Reveal(); err != nil {
		return err
	}
	out := record.Record{Topic: r.Topic, Partition: record.AutoPartition, Row: row}
	for i := range r.Headers {
		h := &r.Headers[i]
		value, err := convert(b, d.header, h.Schema, h.Value)
		if err != nil {
			return record.Reject(fault.ReasonEncode, "", "header %q cannot be written with %s: %v", h.Key, d.classes[2], err)
		}
		b.Header(h.Key, value)
	}
	var err error
	if out.Key, err = convert(b, d.key, r.Key.Schema, r.Key.Value); err != nil {
		return record.Reject(fault.ReasonEncode, "", "the key cannot be written with %s: %v", d.classes[0], err)
	}
	if out.Value, err = convert(b, d.value, r.Value.Schema, r.Value.Value); err != nil {
		return record.Reject(fault.ReasonEncode, "", "the value cannot be written with %s: %v", d.classes[1], r.Explained(err))
	}
	if r.HasPartition {
		if r.Partition < 0 {
			return record.Reject(fault.ReasonMapping, "", "invalid partition: %d is negative", r.Partition)
		}
		out.Partition = r.Partition
	}
	switch {
	case r.HasTime && r.Time >= 0:
		out.Timestamp = time.UnixMilli(r.Time).UTC()
	case r.HasTime && r.Time < -1: // -1 is Connect's word for none
		return record.Reject(fault.ReasonMapping, "", "invalid record timestamp %d: it is before 1970", r.Time)
	}
	if err := record.CheckTopicName([]byte(r.Topic)); err != nil {
		return record.Reject(fault.ReasonRoute, "", "invalid topic: the row gives topic %s, which Kafka does not allow: a name %v", record.ShowTopic([]byte(r.Topic)), err)
	}
	out.Headers = b.TakeHeaders()
	b.Records = append(b.Records, out)
	return nil
}

func convert(b *record.Buffer, c converter.Converter, s *connect.Schema, v connect.Value) ([]byte, error) {
	out, null, err := c.Append(b.Tail(0), s, v)
	if err != nil || null {
		return nil, err
	}
	return b.Claim(out), nil
}
