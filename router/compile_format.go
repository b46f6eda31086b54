package router

import (
	"fmt"
	"net/url"
	"slices"
	"strings"

	"github.com/cdc-relay/cdc-relay/replication/wal"
)

// payload applies what the preset says about the payload column.
func (c *compiler) payload(s *shape) {
	p := c.plan.payload
	if p == nil {
		return
	}
	switch p.typ.form {
	case formLargeObject:
		c.fail("columns.payload", &columnError{column: p.column, err: advise(fmt.Errorf("%s, the number of a large object, whose bytes never reach the log", p.described(c.rel)), "write the payload to a bytea, jsonb or text column")})
	case formComposite:
		c.fail("columns.payload", &columnError{column: p.column, err: advise(fmt.Errorf("%s, a composite type, whose text form is PostgreSQL's own", p.described(c.rel)), "write the payload as jsonb, with to_jsonb(…), or as text")})
	case formBytes:
		if c.TombstoneOnEmpty && p.pointer == nil {
			c.fail("tombstone_on_empty", &columnError{column: p.column, err: advise(fmt.Errorf("%s, and bytes are sent as they are, also when there are none", p.described(c.rel)), "leave this out, and write NULL for a null value")})
		}
	default:
	}
	if c.Columns.Payload != "" {
		return
	}
	p.base64 = s.preset.base64
	if s.preset.payloadForms != nil && !slices.Contains(s.preset.payloadForms, p.typ.form) {
		c.fail("columns.payload", &columnError{column: p.column, err: fmt.Errorf("%s, which preset %s cannot send: %s", p.described(c.rel), s.preset.name, s.preset.payloadWhy)})
	}
}

// key refuses types whose text form is no key, and those of which the log has no
// more than a number. It warns of types in which equal keys may be written
// differently.
func (c *compiler) key(s *shape) {
	k := c.plan.key
	if k == nil || k.pointer != nil {
		return
	}
	if keyable(k.typ) {
		if why := severalTexts(k, c.rel); why != "" {
			s.warnings = append(s.warnings, fmt.Sprintf("the key: %s, in which %s are equal and two keys to Kafka, without order among them; have writers write one form, or map another column", k.described(c.rel), why))
		}
		return
	}
	way := "map another column"
	switch k.typ.form {
	case formJSON:
		way = fmt.Sprintf("point into it, as in %s#/customer/id, or map another column", k.column)
	case formComposite, formArray, formList, formHstore:
		way = "map another column, or write the part that orders rows to a column of its own"
	default:
	}
	c.fail("columns.key", &columnError{column: k.column, err: advise(fmt.Errorf("%s, which cannot be the key, by which Kafka keeps rows in order", k.described(c.rel)), way)})
}

// severalTexts gives an example of equal values of a column whose texts differ, or
// nothing. A numeric with a scale has one text for each value.
func severalTexts(k *source, rel *wal.Relation) string {
	col := rel.Columns[k.index]
	switch name := TypeName(col); {
	case slices.Contains(k.typ.names, "numeric") && col.TypeMod < 0 && !strings.Contains(name, "("):
		return "1.0 and 1.00"
	case name == "citext" || strings.HasSuffix(name, ".citext"):
		return "Key and key"
	}
	return ""
}

// event compiles what the cloudevents formats need.
func (c *compiler) event(s *shape) {
	if !isCloudEvents(c.plan.format) {
		return
	}
	e := &eventPlan{source: []byte(c.CloudEventsSource)}
	if c.CloudEventsSource == "" {
		e.source = []byte("/cdc-relay/" + url.PathEscape(plainName(c.rel)))
	}
	if s.columns[roleType] == "" {
		c.fail("columns.type", advise(fmt.Errorf("value format %s needs the event type, and no column of table %s is mapped to it", c.plan.format, tableName(c.rel)), "set columns.type"))
		return
	}
	e.typ = c.optional(s, roleType)
	// The key of a table without a key column is the id, and says nothing more.
	if key := c.plan.key; key != nil && s.columns[roleKey] != "" && (key.typ.form != formBytes || key.pointer != nil) {
		e.subject = key
	}
	c.plan.event = e
}

// eventuate checks what that value format needs.
func (c *compiler) eventuate() {
	if c.plan.format != FormatEventuate {
		return
	}
	h := c.plan.headersColumn
	if h == nil || h.values != nil || h.source != nil && h.source.typ.form != formJSON && h.source.typ.form != formText {
		c.fail("columns.headers", advise(fmt.Errorf("value format %s puts a JSON object of headers into the value, and table %s has no json, jsonb or text column for them", FormatEventuate, tableName(c.rel)), "set columns.headers"))
	}
}
