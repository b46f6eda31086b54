package format

import (
	"encoding/json"
	"fmt"

	"github.com/cdc-relay/cdc-relay/fault"
	"github.com/cdc-relay/cdc-relay/replication/wal"
	"github.com/cdc-relay/cdc-relay/router/column"
	"github.com/cdc-relay/cdc-relay/router/jsontext"
	"github.com/cdc-relay/cdc-relay/router/record"
)

// Field is a column that an envelope or merged value takes up.
type Field struct {
	name   string
	prefix []byte // the name as it is written: quoted, with its colon
	source *column.Source
	hidden bool // the payload at hand has a member of that name; merged only
}

// NewField is a column that a value takes up under a name.
func NewField(name string, s *column.Source) (*Field, error) {
	prefix, err := jsontext.AppendString(nil, []byte(name))
	if err != nil {
		return nil, err
	}
	return &Field{name: name, prefix: append(prefix, ':'), source: s}, nil
}

// Value makes the record's value. NULL is a null value in every format.
func (p *Content) Value(b *record.Buffer, row *wal.Row, scratch *[]byte) ([]byte, error) {
	payload, err := p.Payload.Bytes(b, row)
	if err != nil || payload == nil {
		return nil, err
	}
	if p.Tombstone && len(column.TrimBlank(payload)) == 0 {
		return nil, nil
	}
	if p.Format == Raw || p.Format == CloudEventsBinary {
		return payload, nil
	}
	out := (*scratch)[:0]
	switch p.Format {
	case JSONString:
		out, err = p.Payload.AppendText(out, payload)
	case Envelope:
		out, err = p.appendEnvelope(out, b, row, payload)
	case Merged:
		out, err = p.appendMerged(out, b, row, payload)
	case Eventuate:
		out, err = p.appendEventuate(out, b, row, payload)
	case CloudEvents:
		out, err = p.appendCloudEvent(out, b, row, payload)
	default:
		//nolint:forbidigo // a format of the table without a writer would send empty values
		panic(fmt.Sprintf("format: value format %q has no writer", p.Format))
	}
	*scratch = out
	if err != nil {
		return nil, err
	}
	return b.Copy(out), nil
}

// appendEnvelope writes {"payload":…,"field":…}, EventRouter's shape. A json or
// jsonb payload stands in it as it is, and so does the text of a JSON object or
// array; any other text is a string, so that a text's type never depends on
// whether it happens to look like a number.
func (p *Content) appendEnvelope(dst []byte, b *record.Buffer, row *wal.Row, payload []byte) ([]byte, error) {
	dst = append(dst, `{"payload":`...)
	var err error
	switch {
	case p.Payload.Pointer != nil && !p.Payload.Base64:
		dst, err = p.Payload.AppendJSON(dst, b, row)
	case p.Payload.Whole(), isComposite(payload):
		dst = append(dst, payload...)
	default:
		dst, err = p.Payload.AppendText(dst, payload)
	}
	if err != nil {
		return dst, err
	}
	for _, f := range p.Fields {
		dst = append(append(dst, ','), f.prefix...)
		if dst, err = f.source.AppendJSON(dst, b, row); err != nil {
			return dst, err
		}
	}
	return append(dst, '}'), nil
}

// isComposite reports whether text is a JSON object or array.
func isComposite(text []byte) bool {
	i := jsontext.SkipSpace(text, 0)
	return i < len(text) && (text[i] == '{' || text[i] == '[') && json.Valid(text)
}

// appendMerged writes the chosen columns in front of the payload's members, whose
// bytes it keeps. On a clash the payload's own member stays and the column goes.
func (p *Content) appendMerged(dst []byte, b *record.Buffer, row *wal.Row, payload []byte) ([]byte, error) {
	if !p.Payload.Whole() && !json.Valid(payload) {
		return dst, p.notMergeable()
	}
	e, ok := jsontext.OpenElements(payload, '{', '}')
	if !ok {
		return dst, p.notMergeable()
	}
	for _, f := range p.Fields {
		f.hidden = false
	}
	start, empty := e.At, true
	for name, _, ok := e.Next(); ok; name, _, ok = e.Next() {
		empty = false
		for _, f := range p.Fields {
			f.hidden = f.hidden || jsontext.SameName(name, f.name)
		}
	}
	if e.Bad {
		return dst, p.notMergeable()
	}
	dst = append(dst, '{')
	comma := false
	for _, f := range p.Fields {
		if f.hidden {
			continue
		}
		if comma {
			dst = append(dst, ',')
		}
		comma = true
		var err error
		if dst, err = f.source.AppendJSON(append(dst, f.prefix...), b, row); err != nil {
			return dst, err
		}
	}
	if comma && !empty {
		dst = append(dst, ',')
	}
	return append(append(dst, payload[start:e.At]...), '}'), nil
}

func (p *Content) notMergeable() error {
	return record.Reject(fault.ReasonEncode, p.Payload.Column, "payload column %q holds no JSON object, and value format %s adds members to one; write an object, or set value: envelope", p.Payload.Column, Merged)
}
