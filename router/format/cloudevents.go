package format

import (
	"encoding/base64"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/cdc-relay/cdc-relay/fault"
	"github.com/cdc-relay/cdc-relay/replication/wal"
	"github.com/cdc-relay/cdc-relay/router/column"
	"github.com/cdc-relay/cdc-relay/router/jsontext"
	"github.com/cdc-relay/cdc-relay/router/record"
)

// CloudEvents 1.0.2 and its Kafka protocol binding. In structured mode the value
// is the event as JSON; in binary mode the attributes are headers beginning with
// ce_ and the value is the payload as it is.
const (
	ContentTypeHeader = "content-type"
	eventHeaderPrefix = "ce_"

	typeJSON  = "application/json"
	typeText  = "text/plain; charset=UTF-8"
	typeBytes = "application/octet-stream"
)

// Bytes of headers; nobody writes to them.
var (
	structuredType = []byte("application/cloudevents+json; charset=UTF-8")
	specVersion    = []byte("1.0")
	attributeTrue  = []byte("true")
	attributeFalse = []byte("false")
)

// EventAttributes are those that the formats set themselves.
var EventAttributes = []string{"specversion", "id", "source", "type", "subject", "time", "datacontenttype", "data", TraceParent, TraceState}

// ExtensionName is the specification's rule for names of attributes.
var ExtensionName = regexp.MustCompile(`^[a-z0-9]{1,20}$`)

// uriReference has the characters of RFC 3986; url.Parse alone takes others too.
var uriReference = regexp.MustCompile(`^[A-Za-z0-9\-._~:/?#\[\]@!$&'()*+,;=%]+$`)

// IsURIReference reports whether CloudEvents take s as a source.
func IsURIReference(s string) bool {
	_, err := url.Parse(s)
	return err == nil && uriReference.MatchString(s)
}

// IsCloudEvents reports whether a value format is one of the two of CloudEvents.
func IsCloudEvents(format string) bool {
	return format == CloudEvents || format == CloudEventsBinary
}

// Event is what the cloudevents formats need of a relation. The attributes
// are those of the row at hand, scratch of Route.
type Event struct {
	Source     []byte
	Typ        *column.Source
	Subject    *column.Source // nil: no attribute subject
	extensions []extension

	attributes []attribute
}

// extension is a column that becomes an attribute.
type extension struct {
	field  *Field
	header string
}

// attribute is one context attribute in its string form.
type attribute struct {
	name   string // as in JSON
	header string // as in binary mode
	value  []byte
	bare   bool // a boolean or an integer, which JSON writes without quotes
}

// Extend has the event show a column as an extension attribute.
func (e *Event) Extend(f *Field) {
	e.extensions = append(e.extensions, extension{field: f, header: eventHeaderPrefix + f.name})
}

func (e *Event) add(name, header string, value []byte) {
	e.attributes = append(e.attributes, attribute{name: name, header: header, value: value})
}

// ReadEvent collects the row's attributes in the specification's order. What is
// optional is left out when it is empty or not what the specification allows in
// a string; what is required rejects the row.
func (p *Content) ReadEvent(b *record.Buffer, row *wal.Row, at time.Time) error {
	e := p.Event
	e.attributes = e.attributes[:0]
	id, err := p.Id.Text(b, row)
	if err != nil {
		return err
	}
	typ, err := e.Typ.Bytes(b, row)
	if err != nil {
		return err
	}
	switch {
	case !isAttribute(id):
		return record.Reject(fault.ReasonEncode, p.Id.Column, "%s, the event id, is empty or not what CloudEvents allows in an attribute; write text without control characters, or map columns.id to another column", p.Id.Called())
	case !isAttribute(typ):
		return record.Reject(fault.ReasonEncode, e.Typ.Column, "%s, the event type, is %s, empty or not what CloudEvents allows in an attribute; write text without control characters, or map columns.type to another column", e.Typ.Called(), e.Typ.Null())
	}
	e.add("specversion", "ce_specversion", specVersion)
	e.add("id", "ce_id", id)
	e.add("source", "ce_source", e.Source)
	e.add("type", "ce_type", typ)
	if e.Subject != nil {
		subject, err := e.Subject.Bytes(b, row)
		if err != nil {
			return err
		}
		if isAttribute(subject) {
			e.add("subject", "ce_subject", subject)
		}
	}
	if at.IsZero() && row.Txn != nil {
		at = row.Txn.Time
	}
	if at = at.UTC(); !at.IsZero() && at.Year() >= 0 && at.Year() <= 9999 {
		e.add("time", "ce_time", b.Claim(at.AppendFormat(b.Tail(len(time.RFC3339Nano)), time.RFC3339Nano)))
	}
	return p.readExtensions(b, row)
}

func (p *Content) readExtensions(b *record.Buffer, row *wal.Row) error {
	if p.Trace != nil {
		parent, state, err := p.traceContext(b, row)
		if err != nil {
			return err
		}
		if isAttribute(parent) {
			p.Event.add(TraceParent, eventHeaderPrefix+TraceParent, parent)
			if isAttribute(state) {
				p.Event.add(TraceState, eventHeaderPrefix+TraceState, state)
			}
		}
	}
	for _, f := range p.Event.extensions {
		value, bare, err := attributeOf(f.field.source, b, row)
		if err != nil {
			return err
		}
		if isAttribute(value) {
			p.Event.add(f.field.name, f.header, value)
			p.Event.attributes[len(p.Event.attributes)-1].bare = bare
		}
	}
	return nil
}

// attributeOf gives the value of s in the specification's canonical string form; bare
// for its types Boolean and Integer, which has 32 bits.
func attributeOf(s *column.Source, b *record.Buffer, row *wal.Row) (value []byte, bare bool, err error) {
	if s.Pointer != nil && !s.Base64 {
		fragment, err := s.Fragment(b, row)
		if err == nil && (string(fragment) == "true" || string(fragment) == "false" || isInt32(fragment)) {
			return fragment, true, nil
		}
		if err != nil {
			return nil, false, err
		}
	}
	if value, err = s.Bytes(b, row); err != nil || s.Pointer != nil || value == nil {
		return value, false, err
	}
	switch s.Typ.Form {
	case column.FormInteger:
		return value, isInt32(value), nil
	case column.FormBool:
		if string(value) == "t" {
			return attributeTrue, true, nil
		}
		return attributeFalse, true, nil
	default:
		return value, false, nil
	}
}

// isInt32 reports whether text is an integer of 32 bits as one is always written.
func isInt32(text []byte) bool {
	if len(text) == 0 || len(text) > len("-2147483648") {
		return false
	}
	v, err := strconv.ParseInt(string(text), 10, 32)
	return err == nil && strconv.FormatInt(v, 10) == string(text)
}

// isAttribute applies the specification's rules for strings: UTF-8 without
// controls and noncharacters; empty ones mean that the attribute is absent.
func isAttribute(text []byte) bool {
	if len(text) == 0 {
		return false
	}
	for i := 0; i < len(text); {
		r, size := utf8.DecodeRune(text[i:])
		switch {
		case r == utf8.RuneError && size == 1, // not UTF-8; surrogates are not either
			r < ' ', r >= 0x7F && r <= 0x9F,
			r >= 0xFDD0 && r <= 0xFDEF, r&0xFFFE == 0xFFFE:
			return false
		}
		i += size
	}
	return true
}

// EventHeaders adds the format's headers. An event without data has no type of
// it, and a null value is no event in structured mode.
func (p *Content) EventHeaders(b *record.Buffer, row *wal.Row, value []byte) error {
	if p.Format == CloudEvents {
		if value != nil {
			p.given(b, ContentTypeHeader, structuredType)
		}
		return nil
	}
	for _, a := range p.Event.attributes {
		p.given(b, a.header, a.value)
	}
	if value == nil {
		return nil
	}
	_, contentType, err := p.eventData(b, row, value)
	if err != nil {
		return err
	}
	p.given(b, ContentTypeHeader, b.Claim(append(b.Tail(len(contentType)), contentType...)))
	return nil
}

// eventData gives the payload's media type, and, when that is JSON, the JSON. A
// text is JSON only as an object or an array, so that its type never depends on
// whether it happens to look like a number.
func (p *Content) eventData(b *record.Buffer, row *wal.Row, payload []byte) (json []byte, contentType string, err error) {
	s := p.Payload
	if s.Pointer != nil && !s.Base64 {
		fragment, err := s.Fragment(b, row)
		if err == nil && len(fragment) > 0 && fragment[0] != '"' {
			return fragment, typeJSON, nil
		}
		return nil, typeText, err
	}
	switch {
	case s.Whole(), isComposite(payload):
		return payload, typeJSON, nil
	case s.Base64, s.Typ.Form == column.FormBytes:
		return nil, typeBytes, nil
	}
	return nil, typeText, nil
}

// appendCloudEvent writes the event in JSON. Bytes that are no JSON become
// data_base64.
func (p *Content) appendCloudEvent(dst []byte, b *record.Buffer, row *wal.Row, payload []byte) ([]byte, error) {
	data, contentType, err := p.eventData(b, row, payload)
	if err != nil {
		return dst, err
	}
	dst = append(dst, '{')
	for _, a := range p.Event.attributes {
		dst = append(append(append(dst, '"'), a.name...), `":`...)
		if a.bare {
			dst = append(dst, a.value...)
		} else if dst, err = jsontext.AppendString(dst, a.value); err != nil {
			return dst, err
		}
		dst = append(dst, ',')
	}
	dst = append(append(append(dst, `"datacontenttype":"`...), contentType...), '"')
	switch contentType {
	case typeJSON:
		dst = append(append(dst, `,"data":`...), data...)
	case typeBytes:
		dst = base64.StdEncoding.AppendEncode(append(dst, `,"data_base64":"`...), payload)
		dst = append(dst, '"')
	default:
		if dst, err = p.Payload.AppendText(append(dst, `,"data":`...), payload); err != nil {
			return dst, err
		}
	}
	return append(dst, '}'), nil
}

// EventNames are the headers of the format, for Explanation.
func (p *Content) EventNames() []string {
	if p.Format == CloudEvents {
		return []string{ContentTypeHeader}
	}
	names := []string{"ce_specversion", "ce_id", "ce_source", "ce_type"}
	if p.Event.Subject != nil {
		names = append(names, "ce_subject")
	}
	names = append(names, "ce_time")
	if p.Trace != nil {
		names = append(names, "ce_traceparent")
	}
	for _, f := range p.Event.extensions {
		names = append(names, f.header)
	}
	return append(names, ContentTypeHeader)
}

// ownHeader reports whether the relay alone sets the header: no headers column can
// add to it.
func (p *Content) ownHeader(key []byte) bool {
	if string(key) == record.IdHeader || len(key) >= len(record.OwnPrefix) && string(key[:len(record.OwnPrefix)]) == record.OwnPrefix {
		return true
	}
	return p.Event != nil && (strings.EqualFold(string(key), ContentTypeHeader) || len(key) > 2 && string(key[:3]) == eventHeaderPrefix)
}

// IsEventHeader is ownHeader for the names in a configuration, where ce_ and the
// name of an extension is a way to add one.
func IsEventHeader(name string) bool {
	attribute, found := strings.CutPrefix(name, eventHeaderPrefix)
	return strings.EqualFold(name, ContentTypeHeader) || found && slices.Contains(EventAttributes, attribute)
}
