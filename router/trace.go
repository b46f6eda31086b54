package router

import (
	"bytes"
	"encoding/json"

	"github.com/cdc-relay/cdc-relay/replication/wal"
)

// The W3C trace context's headers.
const (
	traceParent = "traceparent"
	traceState  = "tracestate"
)

// addTrace adds the trace context as headers.
func (p *content) addTrace(b *Buffer, row *wal.Row) error {
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
func (p *content) traceContext(b *Buffer, row *wal.Row) (parent, state []byte, err error) {
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

func (p *content) traceMember(b *Buffer, object []byte, name string) ([]byte, error) {
	found, err := child(object, name)
	if err == nil && len(found) > 0 {
		found, err = scalar(b, found)
	}
	if err != nil {
		return nil, reject(ReasonMapping, p.trace.column, "trace column %q %v; "+wayOfTrace, p.trace.column, err)
	}
	return found, nil
}
