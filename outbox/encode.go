package outbox

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/cdc-relay/cdc-relay/outbox/internal/jsontext"
)

// row is an event made ready for the table: the text of each role's column.
type row struct {
	id    UUID
	cells [roleCount]Text
	bytes int
}

// recordBytes is what a record takes beside its key, value and headers, somewhat more.
const recordBytes = 192

// encoder makes rows of the events of one Write.
type encoder struct {
	w             *Writer
	parent, state string // the trace context
	event         *Event
	row           row
}

func (w *Writer) encoder(ctx context.Context) encoder {
	c := encoder{w: w}
	if w.cfg.Trace != nil {
		w.cfg.Trace(ctx, func(key, value string) {
			switch strings.ToLower(key) {
			case "traceparent":
				c.parent = value
			case "tracestate":
				c.state = value
			}
		})
	}
	return c
}

// refusal is an EventError without its place.
type refusal struct {
	role   role
	reason string
	err    error
}

func (r *refusal) at(index int) *EventError {
	return &EventError{Index: index, Field: fields[r.role], Reason: r.reason, Err: r.err}
}

// encode fills c.row.
func (c *encoder) encode(e *Event) *refusal {
	c.event = e
	c.row = row{id: e.ID, bytes: recordBytes + len(e.AggregateID) + len(e.Type) + len(e.IdempotencyKey)}
	if r := c.identify(); r != nil {
		return r
	}
	for _, r := range []role{roleRoute, roleKey, roleTopic, roleType, roleIdempotencyKey} {
		if refused := c.text(r); refused != nil {
			return refused
		}
	}
	if field, reason := c.w.topic.check(e); reason != "" {
		return &refusal{role: field, reason: reason}
	}
	if r := c.headers(); r != nil {
		return r
	}
	if r := c.payload(); r != nil {
		return r
	}
	if c.row.bytes > c.w.maxBytes {
		return &refusal{role: rolePayload, reason: fmt.Sprintf("the record has %d bytes, of %d that are allowed; send less, or raise kafka.max_message_bytes of the relay, the topic's max.message.bytes and Config.MaxBytes", c.row.bytes, c.w.maxBytes)}
	}
	return nil
}

func (c *encoder) identify() *refusal {
	if c.w.columns[roleID].Generated {
		if c.row.id != (UUID{}) {
			return &refusal{role: roleID, reason: "is set, and the database makes the ids of this table; leave it zero"}
		}
		return nil
	}
	if c.row.id == (UUID{}) {
		c.row.id = NewUUID()
	}
	c.row.cells[roleID].String = c.row.id.String()
	return nil
}

// text checks and fills a column that holds a field as it is.
func (c *encoder) text(r role) *refusal {
	text, column := c.event.text(r), &c.w.columns[r]
	refuse := func(reason string) *refusal { return &refusal{role: r, reason: reason} }
	if column.kind == kindNone {
		if text != "" {
			return refuse("is set, and the table has no column for it")
		}
		return nil
	}
	if text == "" {
		if !column.Nullable {
			return refuse("is empty")
		}
		c.row.cells[r].Null = true
		return nil
	}
	switch {
	case !validText(text):
		return refuse("is not UTF-8, or has a zero byte")
	case column.limit > 0 && utf8.RuneCountInString(text) > column.limit:
		return refuse(fmt.Sprintf("has more than the %d characters of its column", column.limit))
	case column.kind == kindUUID:
		u, err := ParseUUID(text)
		if err != nil {
			return refuse("is " + err.Error() + ": its column is a uuid")
		}
		text = u.String()
	case column.kind == kindInteger:
		if _, err := strconv.ParseInt(text, 10, 64); err != nil {
			return refuse("is no integer, and its column is one")
		}
	}
	c.row.cells[r].String = text
	return nil
}

// headers fills the columns of headers and trace context.
func (c *encoder) headers() *refusal {
	headers, trace := &c.w.columns[roleHeaders], &c.w.columns[roleTrace]
	for name, value := range c.event.Headers {
		switch {
		case headers.kind == kindNone:
			return &refusal{role: roleHeaders, reason: "are set, and the table has no column for them"}
		case !validText(name) || !validText(value):
			return &refusal{role: roleHeaders, reason: "are not UTF-8, or have a zero byte"}
		case name == "id":
			return &refusal{role: roleHeaders, reason: "have one called id, which is the event's own id"}
		}
		c.row.bytes += len(name) + len(value) + 8
	}
	if !validText(c.parent) || !validText(c.state) {
		return &refusal{role: roleTrace, reason: "is not UTF-8, or has a zero byte"}
	}
	c.row.bytes += len(c.parent) + len(c.state)
	if trace.kind != kindNone {
		c.row.cells[roleTrace] = c.traceText(trace)
		if trace.limit > 0 && utf8.RuneCountInString(c.row.cells[roleTrace].String) > trace.limit {
			return &refusal{role: roleTrace, reason: fmt.Sprintf("has more than the %d characters of its column", trace.limit)}
		}
	}
	if headers.kind != kindNone {
		c.row.cells[roleHeaders] = c.headersText(headers, trace.kind == kindNone)
	}
	return nil
}

// traceText is a traceparent, or an object where there is a tracestate or the column is JSON.
// A tracestate that the column has no room for is left out, as the W3C allows.
func (c *encoder) traceText(column *typed) Text {
	switch {
	case c.parent == "" && (column.Nullable || column.kind == kindText):
		return Text{Null: column.Nullable}
	case c.state == "" && column.kind == kindText:
		return Text{String: c.parent}
	}
	object := string(appendObject(nil, c.traceHeaders()))
	if column.limit > 0 && utf8.RuneCountInString(object) > column.limit {
		return Text{String: c.parent}
	}
	return Text{String: object}
}

func (c *encoder) traceHeaders() map[string]string {
	m := map[string]string{}
	if c.parent != "" {
		m["traceparent"] = c.parent
		if c.state != "" {
			m["tracestate"] = c.state
		}
	}
	return m
}

func (c *encoder) headersText(column *typed, traced bool) Text {
	all := c.event.Headers
	if traced && c.parent != "" {
		all = c.traceHeaders()
		for name, value := range c.event.Headers {
			all[name] = value
		}
	}
	if len(all) == 0 && column.Nullable {
		return Text{Null: true}
	}
	if len(all) == 0 {
		return Text{String: "{}"}
	}
	return Text{String: string(appendObject(nil, all))}
}

// appendObject writes an object of strings, in the order of its names.
func appendObject(b []byte, m map[string]string) []byte {
	b = append(b, '{')
	for i, name := range slices.Sorted(maps.Keys(m)) {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(appendQuoted(b, name), ':')
		b = appendQuoted(b, m[name])
	}
	return append(b, '}')
}

// appendQuoted writes a string of UTF-8. Unlike encoding/json, it leaves <, > and & alone.
func appendQuoted(b []byte, s string) []byte {
	b = append(b, '"')
	for i := range len(s) {
		switch c := s[i]; {
		case c == '"' || c == '\\':
			b = append(b, '\\', c)
		case c < ' ':
			b = fmt.Appendf(b, `\u%04x`, c)
		default:
			b = append(b, c)
		}
	}
	return append(b, '"')
}

func (c *encoder) payload() *refusal {
	column := &c.w.columns[rolePayload]
	if c.event.Payload == nil {
		if !column.Nullable {
			return &refusal{role: rolePayload, reason: "is nil, and its column is NOT NULL"}
		}
		c.row.cells[rolePayload].Null = true
		return nil
	}
	b, err := c.w.marshal(c.event.Payload)
	if err != nil {
		// The words of an encoder may have values in them.
		return &refusal{role: rolePayload, reason: fmt.Sprintf("Encode refuses a value of type %T", c.event.Payload), err: err}
	}
	size, reason := len(b), ""
	switch column.kind {
	case kindJSON, kindJSONB:
		size, reason = jsontext.Check(b, column.kind == kindJSONB)
	case kindBytes:
		c.row.bytes += size
		text := make([]byte, 2, 2+2*len(b))
		copy(text, `\x`)
		c.row.cells[rolePayload].String = string(hex.AppendEncode(text, b))
		return nil
	default:
		if !utf8.Valid(b) || strings.IndexByte(string(b), 0) >= 0 {
			reason = "is not UTF-8, or has a zero byte; its column is text"
		} else if column.limit > 0 && utf8.RuneCount(b) > column.limit {
			reason = fmt.Sprintf("has more than the %d characters of its column", column.limit)
		}
	}
	if reason != "" {
		return &refusal{role: rolePayload, reason: reason}
	}
	c.row.bytes += size
	c.row.cells[rolePayload].String = string(b)
	return nil
}

func (w *Writer) marshal(payload any) ([]byte, error) {
	switch p := payload.(type) {
	case []byte:
		return p, nil
	case json.RawMessage:
		return p, nil
	}
	if w.cfg.Encode != nil {
		return w.cfg.Encode(payload)
	}
	return json.Marshal(payload)
}
