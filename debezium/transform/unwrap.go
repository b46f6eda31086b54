package transform

import (
	"github.com/cdc-relay/cdc-relay/debezium/connect"
	"github.com/cdc-relay/cdc-relay/debezium/connect/expand"
	"github.com/cdc-relay/cdc-relay/fault"
	"github.com/cdc-relay/cdc-relay/replication/wal"
	"github.com/cdc-relay/cdc-relay/router/column"
	"github.com/cdc-relay/cdc-relay/router/record"
)

// Transforms that make a row of a change or of a message: ExtractNewRecordState and
// DecodeLogicalDecodingMessageContent.

// unwrap is ExtractNewRecordState with its defaults.
type unwrap struct {
	deletes, tombstones bool // what is kept of a delete: itself as a tombstone, the tombstone after it
}

func newUnwrap(o *ownerOptions) transform {
	switch mode := o.word("delete.tombstone.handling.mode", "tombstone"); mode {
	case "drop":
		return &unwrap{}
	case "tombstone":
		return &unwrap{tombstones: true}
	case "delete-to-tombstone":
		return &unwrap{deletes: true}
	default:
		o.fail("delete.tombstone.handling.mode", "%q is not carried; tombstone, drop and delete-to-tombstone are", mode)
		return nil
	}
}

func (t *unwrap) apply(_ *Chain, r *Record) (bool, error) {
	if r.Source == nil {
		return !r.isNull() || t.tombstones, nil
	}
	switch r.Source.Op {
	case 't':
		return false, nil
	case 'd':
		r.Source, r.Value = nil, Field{}
		return t.deletes, nil
	}
	v, err := r.Source.RowStruct()
	if err != nil {
		return false, err
	}
	r.Source, r.Value = nil, v
	return true, nil
}

// decode is DecodeLogicalDecodingMessageContent: a message whose content is a JSON
// object goes on as if a row with its members had been inserted.
type decode struct {
	expander *expander
	row      *wal.Row // the message in hand
	content  []byte
	schema   *connect.Schema // that messages have
}

func newDecode(o *ownerOptions) transform {
	return &decode{expander: newExpander("", o.bool("fields.null.include", false), false)}
}

func (t *decode) apply(_ *Chain, r *Record) (bool, error) {
	if r.Source != nil || t.schema == nil || r.Value.Schema != t.schema {
		return true, nil
	}
	x := t.expander.Expand(connect.StringSchema, connect.TextValue(t.content))
	if x.Outcome != expand.Expanded {
		return false, record.Reject(fault.ReasonMapping, column.MessageBody, "the content of the logical message cannot be parsed as a JSON object: %v; message.prefix.include.list keeps messages of others out", x.Reason)
	}
	shape := &Shape{Fields: x.Schema.Fields, Name: t.schema.Name + ".Envelope"}
	items := x.Value.Items()
	r.Source = &Change{Op: 'c', Shape: shape, Row: t.row, After: func(i int) (connect.Value, error) { return items[i], nil }}
	r.Value, r.Key = Field{}, Field{}
	return true, nil
}

// Message names the logical message whose record, with a value of the given schema, is passed
// next.
func (c *Chain) Message(row *wal.Row, content []byte, schema *connect.Schema) {
	for i := range c.steps {
		if t, ok := c.steps[i].transform.(*decode); ok {
			t.row, t.content, t.schema = row, content, schema
		}
	}
}
