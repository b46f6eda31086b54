package router

import (
	"encoding/base64"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/cdc-relay/cdc-relay/replication/wal"
)

// CloudEvents 1.0.2 and its Kafka protocol binding. In structured mode the value
// is the event as JSON; in binary mode the attributes are headers beginning with
// ce_ and the value is the payload as it is.
const (
	contentTypeHeader = "content-type"
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

// eventAttributes are those that the formats set themselves.
var eventAttributes = []string{"specversion", "id", "source", "type", "subject", "time", "datacontenttype", "data", traceParent, traceState}

// extensionName is the specification's rule for names of attributes.
var extensionName = regexp.MustCompile(`^[a-z0-9]{1,20}$`)

// uriReference has the characters of RFC 3986; url.Parse alone takes others too.
var uriReference = regexp.MustCompile(`^[A-Za-z0-9\-._~:/?#\[\]@!$&'()*+,;=%]+$`)

func isURIReference(s string) bool {
	_, err := url.Parse(s)
	return err == nil && uriReference.MatchString(s)
}

func isCloudEvents(format string) bool {
	return format == FormatCloudEvents || format == FormatCloudEventsBinary
}

// eventPlan is what the cloudevents formats need of a relation. The attributes
// are those of the row at hand, scratch of Route.
type eventPlan struct {
	source     []byte
	typ        *source
	subject    *source // nil: no attribute subject
	extensions []extension

	attributes []attribute
}

// extension is a column that becomes an attribute.
type extension struct {
	field  *valueField
	header string
}

// attribute is one context attribute in its string form.
type attribute struct {
	name   string // as in JSON
	header string // as in binary mode
	value  []byte
	bare   bool // a boolean or an integer, which JSON writes without quotes
}

// extend has the event show a column as an extension attribute.
func (e *eventPlan) extend(f *valueField) {
	e.extensions = append(e.extensions, extension{field: f, header: eventHeaderPrefix + f.name})
}

func (e *eventPlan) add(name, header string, value []byte) {
	e.attributes = append(e.attributes, attribute{name: name, header: header, value: value})
}

// readEvent collects the row's attributes in the specification's order. What is
// optional is left out when it is empty or not what the specification allows in
// a string; what is required rejects the row.
func (p *content) readEvent(b *Buffer, row *wal.Row, at time.Time) error {
	e := p.event
	e.attributes = e.attributes[:0]
	id, err := p.id.text(b, row)
	if err != nil {
		return err
	}
	typ, err := e.typ.bytes(b, row)
	if err != nil {
		return err
	}
	switch {
	case !isAttribute(id):
		return reject(ReasonEncode, p.id.column, "%s, the event id, is empty or not what CloudEvents allows in an attribute; write text without control characters, or map columns.id to another column", p.id.called())
	case !isAttribute(typ):
		return reject(ReasonEncode, e.typ.column, "%s, the event type, is %s, empty or not what CloudEvents allows in an attribute; write text without control characters, or map columns.type to another column", e.typ.called(), e.typ.null())
	}
	e.add("specversion", "ce_specversion", specVersion)
	e.add("id", "ce_id", id)
	e.add("source", "ce_source", e.source)
	e.add("type", "ce_type", typ)
	if e.subject != nil {
		subject, err := e.subject.bytes(b, row)
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
		e.add("time", "ce_time", b.keep(at.AppendFormat(b.tail(len(time.RFC3339Nano)), time.RFC3339Nano)))
	}
	return p.readExtensions(b, row)
}

func (p *content) readExtensions(b *Buffer, row *wal.Row) error {
	if p.trace != nil {
		parent, state, err := p.traceContext(b, row)
		if err != nil {
			return err
		}
		if isAttribute(parent) {
			p.event.add(traceParent, eventHeaderPrefix+traceParent, parent)
			if isAttribute(state) {
				p.event.add(traceState, eventHeaderPrefix+traceState, state)
			}
		}
	}
	for _, f := range p.event.extensions {
		value, bare, err := attributeOf(f.field.source, b, row)
		if err != nil {
			return err
		}
		if isAttribute(value) {
			p.event.add(f.field.name, f.header, value)
			p.event.attributes[len(p.event.attributes)-1].bare = bare
		}
	}
	return nil
}

// attributeOf gives the value of s in the specification's canonical string form; bare
// for its types Boolean and Integer, which has 32 bits.
func attributeOf(s *source, b *Buffer, row *wal.Row) (value []byte, bare bool, err error) {
	if s.pointer != nil && !s.base64 {
		fragment, err := s.fragment(b, row)
		if err == nil && (string(fragment) == "true" || string(fragment) == "false" || isInt32(fragment)) {
			return fragment, true, nil
		}
		if err != nil {
			return nil, false, err
		}
	}
	if value, err = s.bytes(b, row); err != nil || s.pointer != nil || value == nil {
		return value, false, err
	}
	switch s.typ.form {
	case formInteger:
		return value, isInt32(value), nil
	case formBool:
		if string(value) == "t" {
			return attributeTrue, true, nil
		}
		return attributeFalse, true, nil
	default:
		return value, false, nil
	}
}

// isInt32 tells whether text is an integer of 32 bits as one is always written.
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

// eventHeaders adds the format's headers. An event without data has no type of
// it, and a null value is no event in structured mode.
func (p *content) eventHeaders(b *Buffer, row *wal.Row, value []byte) error {
	if p.format == FormatCloudEvents {
		if value != nil {
			p.given(b, contentTypeHeader, structuredType)
		}
		return nil
	}
	for _, a := range p.event.attributes {
		p.given(b, a.header, a.value)
	}
	if value == nil {
		return nil
	}
	_, contentType, err := p.eventData(b, row, value)
	if err != nil {
		return err
	}
	p.given(b, contentTypeHeader, b.keep(append(b.tail(len(contentType)), contentType...)))
	return nil
}

// eventData gives the payload's media type, and, when that is JSON, the JSON. A
// text is JSON only as an object or an array, so that its type never depends on
// whether it happens to look like a number.
func (p *content) eventData(b *Buffer, row *wal.Row, payload []byte) (json []byte, contentType string, err error) {
	s := p.payload
	if s.pointer != nil && !s.base64 {
		fragment, err := s.fragment(b, row)
		if err == nil && len(fragment) > 0 && fragment[0] != '"' {
			return fragment, typeJSON, nil
		}
		return nil, typeText, err
	}
	switch {
	case s.whole(), isComposite(payload):
		return payload, typeJSON, nil
	case s.base64, s.typ.form == formBytes:
		return nil, typeBytes, nil
	}
	return nil, typeText, nil
}

// appendCloudEvent writes the event in JSON. Bytes that are no JSON become
// data_base64.
func (p *content) appendCloudEvent(dst []byte, b *Buffer, row *wal.Row, payload []byte) ([]byte, error) {
	data, contentType, err := p.eventData(b, row, payload)
	if err != nil {
		return dst, err
	}
	dst = append(dst, '{')
	for _, a := range p.event.attributes {
		dst = append(append(append(dst, '"'), a.name...), `":`...)
		if a.bare {
			dst = append(dst, a.value...)
		} else if dst, err = appendString(dst, a.value); err != nil {
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
		if dst, err = p.payload.appendText(append(dst, `,"data":`...), payload); err != nil {
			return dst, err
		}
	}
	return append(dst, '}'), nil
}

// eventNames are the headers of the format, for Explanation.
func (p *content) eventNames() []string {
	if p.format == FormatCloudEvents {
		return []string{contentTypeHeader}
	}
	names := []string{"ce_specversion", "ce_id", "ce_source", "ce_type"}
	if p.event.subject != nil {
		names = append(names, "ce_subject")
	}
	names = append(names, "ce_time")
	if p.trace != nil {
		names = append(names, "ce_traceparent")
	}
	for _, f := range p.event.extensions {
		names = append(names, f.header)
	}
	return append(names, contentTypeHeader)
}

// ownHeader tells whether the relay alone sets the header: no headers column can
// add to it.
func (p *content) ownHeader(key []byte) bool {
	if string(key) == idHeader {
		return true
	}
	return p.event != nil && (strings.EqualFold(string(key), contentTypeHeader) || len(key) > 2 && string(key[:3]) == eventHeaderPrefix)
}

// isEventHeader is ownHeader for the names in a configuration, where ce_ and the
// name of an extension is a way to add one.
func isEventHeader(name string) bool {
	attribute, found := strings.CutPrefix(name, eventHeaderPrefix)
	return strings.EqualFold(name, contentTypeHeader) || found && slices.Contains(eventAttributes, attribute)
}
