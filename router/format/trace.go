package format

import (
	"bytes"
	"encoding/json"

	"github.com/cdc-relay/cdc-relay/fault"
	"github.com/cdc-relay/cdc-relay/replication/wal"
	"github.com/cdc-relay/cdc-relay/router/column"
	"github.com/cdc-relay/cdc-relay/router/jsontext"
	"github.com/cdc-relay/cdc-relay/router/record"
)

// The W3C trace context's headers.
const (
	TraceParent = record.TraceParent
	TraceState  = record.TraceState
)

// AddTrace adds the trace context as headers.
func (p *Content) AddTrace(b *record.Buffer, row *wal.Row) error {
	parent, state, err := p.traceContext(b, row)
	if err != nil {
		return err
	}
	if len(parent) > 0 {
		p.given(b, TraceParent, parent)
	}
	if len(state) > 0 {
		p.given(b, TraceState, state)
	}
	return nil
}

// traceContext reads the trace column: its text is the traceparent; a JSON
// object, also in a text column, may hold tracestate as well, and so may text of
// java.util.Properties. NULL and empty give nothing.
func (p *Content) traceContext(b *record.Buffer, row *wal.Row) (parent, state []byte, err error) {
	text, err := p.Trace.HeaderText(b, row)
	if err != nil {
		return nil, nil, err
	}
	text = column.TrimBlank(text)
	structured := p.Trace.Json() || p.Trace.Pointer != nil
	switch {
	case len(text) == 0, structured && (string(text) == "null" || string(text) == `""`):
		return nil, nil, nil
	case text[0] == '{':
	case !structured && bytes.IndexByte(text, '=') >= 0: // which no traceparent has
		return property(b, text, TraceParent), property(b, text, TraceState), nil
	case !structured:
		return text, nil, nil
	case text[0] == '"':
		parent, err = p.Trace.Unquote(b, text)
		return parent, nil, err
	default:
		return nil, nil, record.Reject(fault.ReasonMapping, p.Trace.Column, "trace column %q holds neither a string nor an object; "+wayOfTrace, p.Trace.Column)
	}
	if !structured && !json.Valid(text) {
		return nil, nil, record.Reject(fault.ReasonMapping, p.Trace.Column, "trace column %q %v; "+wayOfTrace, p.Trace.Column, jsontext.ErrNotJSON)
	}
	if parent, err = p.traceMember(b, text, TraceParent); err != nil {
		return nil, nil, err
	}
	state, err = p.traceMember(b, text, TraceState)
	return parent, state, err
}

const wayOfTrace = "write a traceparent, an object that has it, or NULL"

func (p *Content) traceMember(b *record.Buffer, object []byte, name string) ([]byte, error) {
	found, err := jsontext.Child(object, name)
	if err == nil && len(found) > 0 {
		found, err = scalar(b, found)
	}
	if err != nil {
		return nil, record.Reject(fault.ReasonMapping, p.Trace.Column, "trace column %q %v; "+wayOfTrace, p.Trace.Column, err)
	}
	return found, nil
}
