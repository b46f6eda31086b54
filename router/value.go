package router

import (
	"encoding/json"

	"github.com/cdc-relay/cdc-relay/replication/wal"
)

// valueField is a column that an envelope or merged value takes up.
type valueField struct {
	name   string
	prefix []byte // the name as it is written: quoted, with its colon
	source *source
	hidden bool // the payload at hand has a member of that name; merged only
}

func newValueField(name string, s *source) (*valueField, error) {
	prefix, err := appendString(nil, []byte(name))
	if err != nil {
		return nil, err
	}
	return &valueField{name: name, prefix: append(prefix, ':'), source: s}, nil
}

// value makes the record's value. NULL is a null value in every format.
func (p *content) value(b *Buffer, row *wal.Row, scratch *[]byte) ([]byte, error) {
	payload, err := p.payload.bytes(b, row)
	if err != nil || payload == nil {
		return nil, err
	}
	if p.tombstone && len(trimBlank(payload)) == 0 {
		return nil, nil
	}
	if p.format == FormatRaw || p.format == FormatCloudEventsBinary {
		return payload, nil
	}
	out := (*scratch)[:0]
	switch p.format {
	case FormatJSONString:
		out, err = p.payload.appendText(out, payload)
	case FormatEnvelope:
		out, err = p.appendEnvelope(out, b, row, payload)
	case FormatMerged:
		out, err = p.appendMerged(out, b, row, payload)
	case FormatEventuate:
		out, err = p.appendEventuate(out, b, row, payload)
	case FormatCloudEvents:
		out, err = p.appendCloudEvent(out, b, row, payload)
	}
	*scratch = out
	if err != nil {
		return nil, err
	}
	return b.copy(out), nil
}

// appendEnvelope writes {"payload":…,"field":…}, EventRouter's shape. A json or
// jsonb payload stands in it as it is, and so does the text of a JSON object or
// array; any other text is a string, so that a text's type never depends on
// whether it happens to look like a number.
func (p *content) appendEnvelope(dst []byte, b *Buffer, row *wal.Row, payload []byte) ([]byte, error) {
	dst = append(dst, `{"payload":`...)
	var err error
	switch {
	case p.payload.pointer != nil && !p.payload.base64:
		dst, err = p.payload.appendJSON(dst, b, row)
	case p.payload.whole(), isComposite(payload):
		dst = append(dst, payload...)
	default:
		dst, err = p.payload.appendText(dst, payload)
	}
	if err != nil {
		return dst, err
	}
	for _, f := range p.fields {
		dst = append(append(dst, ','), f.prefix...)
		if dst, err = f.source.appendJSON(dst, b, row); err != nil {
			return dst, err
		}
	}
	return append(dst, '}'), nil
}

// isComposite tells whether text is a JSON object or array.
func isComposite(text []byte) bool {
	i := skipSpace(text, 0)
	return i < len(text) && (text[i] == '{' || text[i] == '[') && json.Valid(text)
}

// appendMerged writes the chosen columns in front of the payload's members, whose
// bytes it keeps. On a clash the payload's own member stays and the column goes.
func (p *content) appendMerged(dst []byte, b *Buffer, row *wal.Row, payload []byte) ([]byte, error) {
	if !p.payload.whole() && !json.Valid(payload) {
		return dst, p.notMergeable()
	}
	e, ok := openElements(payload, '{', '}')
	if !ok {
		return dst, p.notMergeable()
	}
	for _, f := range p.fields {
		f.hidden = false
	}
	start, empty := e.at, true
	for name, _, ok := e.next(); ok; name, _, ok = e.next() {
		empty = false
		for _, f := range p.fields {
			f.hidden = f.hidden || sameName(name, f.name)
		}
	}
	if e.bad {
		return dst, p.notMergeable()
	}
	dst = append(dst, '{')
	comma := false
	for _, f := range p.fields {
		if f.hidden {
			continue
		}
		if comma {
			dst = append(dst, ',')
		}
		comma = true
		var err error
		if dst, err = f.source.appendJSON(append(dst, f.prefix...), b, row); err != nil {
			return dst, err
		}
	}
	if comma && !empty {
		dst = append(dst, ',')
	}
	return append(append(dst, payload[start:e.at]...), '}'), nil
}

func (p *content) notMergeable() error {
	return reject(ReasonEncode, p.payload.column, "payload column %q holds no JSON object, and value format %s adds members to one; write an object, or set value: envelope", p.payload.column, FormatMerged)
}
