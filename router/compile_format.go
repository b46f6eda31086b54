package router

import (
	"fmt"
	"net/url"
	"slices"

	"github.com/cdc-relay/cdc-relay/advice"
	"github.com/cdc-relay/cdc-relay/router/column"
	"github.com/cdc-relay/cdc-relay/router/format"
	"github.com/cdc-relay/cdc-relay/router/preset"
	"github.com/cdc-relay/cdc-relay/router/record"
)

// payload applies what the preset says about the payload column.
func (c *compiler) payload(s *preset.Shape) {
	p := c.plan.content.Payload
	if p == nil {
		return
	}
	switch p.Typ.Form {
	case column.FormLargeObject:
		c.fail("columns.payload", &record.ColumnError{Column: p.Column, Err: advice.Give(fmt.Errorf("%s, the number of a large object, whose bytes never reach the log", p.Described(c.rel)), "write the payload to a bytea, jsonb or text column")})
	case column.FormComposite:
		c.fail("columns.payload", &record.ColumnError{Column: p.Column, Err: advice.Give(fmt.Errorf("%s, a composite type, whose text form is PostgreSQL's own", p.Described(c.rel)), "write the payload as jsonb, with to_jsonb(…), or as text")})
	case column.FormBytes:
		if c.of.TombstoneOnEmpty && p.Pointer == nil {
			c.fail("tombstone_on_empty", &record.ColumnError{Column: p.Column, Err: advice.Give(fmt.Errorf("%s, and bytes are sent as they are, also when there are none", p.Described(c.rel)), "leave this out, and write NULL for a null value")})
		}
	default:
	}
	if c.of.Columns.Payload != "" {
		return
	}
	p.Base64 = s.Preset.Base64
	if s.Preset.PayloadForms != nil && !slices.Contains(s.Preset.PayloadForms, p.Typ.Form) {
		c.fail("columns.payload", &record.ColumnError{Column: p.Column, Err: fmt.Errorf("%s, which preset %s cannot send: %s", p.Described(c.rel), s.Preset.Name, s.Preset.PayloadWhy)})
	}
}

// key refuses types whose text form is no key, and those of which the log has no
// more than a number. It warns of types in which equal keys may be written
// differently.
func (c *compiler) key(s *preset.Shape) {
	k := c.plan.key
	if k == nil || k.Pointer != nil {
		return
	}
	if column.Keyable(k.Typ) {
		if why := k.SeveralTexts(c.rel); why != "" {
			s.Warnings = append(s.Warnings, fmt.Sprintf("the key: %s, in which %s are equal and two keys to Kafka, without order among them; have writers write one form, or map another column", k.Described(c.rel), why))
		}
		return
	}
	way := "map another column"
	switch k.Typ.Form {
	case column.FormJSON:
		way = fmt.Sprintf("point into it, as in %s#/customer/id, or map another column", k.Column)
	case column.FormComposite, column.FormArray, column.FormList, column.FormHstore:
		way = "map another column, or write the part that orders rows to a column of its own"
	default:
	}
	c.fail("columns.key", &record.ColumnError{Column: k.Column, Err: advice.Give(fmt.Errorf("%s, which cannot be the key, by which Kafka keeps rows in order", k.Described(c.rel)), way)})
}

// event compiles what the cloudevents formats need.
func (c *compiler) event(s *preset.Shape) {
	if !format.IsCloudEvents(c.plan.content.Format) {
		return
	}
	e := &format.Event{Source: []byte(c.of.CloudEventsSource)}
	if c.of.CloudEventsSource == "" {
		e.Source = []byte("/cdc-relay/" + url.PathEscape(c.rel.Qualified()))
	}
	if s.Columns[preset.RoleType] == "" {
		c.fail("columns.type", advice.Give(fmt.Errorf("value format %s needs the event type, and no column of table %s is mapped to it", c.plan.content.Format, column.TableName(c.rel)), "set columns.type"))
		return
	}
	e.Typ = c.optional(s, preset.RoleType)
	// The key of a table without a key column is the id, and says nothing more.
	if key := c.plan.key; key != nil && s.Columns[preset.RoleKey] != "" && (key.Typ.Form != column.FormBytes || key.Pointer != nil) {
		e.Subject = key
	}
	c.plan.content.Event = e
}

// eventuate checks what that value format needs.
func (c *compiler) eventuate() {
	if c.plan.content.Format != format.Eventuate {
		return
	}
	h := c.plan.content.HeadersColumn
	if h == nil || h.Values != nil || h.Source != nil && h.Source.Typ.Form != column.FormJSON && h.Source.Typ.Form != column.FormText {
		c.fail("columns.headers", advice.Give(fmt.Errorf("value format %s puts a JSON object of headers into the value, and table %s has no json, jsonb or text column for them", format.Eventuate, column.TableName(c.rel)), "set columns.headers"))
	}
}
