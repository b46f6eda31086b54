package router

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/cdc-relay/cdc-relay/advice"
	"github.com/cdc-relay/cdc-relay/replication/wal"
	"github.com/cdc-relay/cdc-relay/router/column"
	"github.com/cdc-relay/cdc-relay/router/format"
	"github.com/cdc-relay/cdc-relay/router/preset"
	"github.com/cdc-relay/cdc-relay/router/record"
	"github.com/cdc-relay/cdc-relay/router/template"
)

// Explanation says what the router made of a table.
type Explanation struct {
	Table   string            // schema.name
	Preset  string            // the preset that auto chose, or the configured one
	Roles   map[string]string // role → column or column#/pointer; the fallback is under "ROLE where that is empty"
	Topic   string            // template, with the names of columns
	Key     string            // format
	Value   string            // format
	Headers []string          // names in order; those of a headers column are not known
	Ignored []string          // columns that no record shows, in table order

	// Rekeyed is what makes the record's key when that is not the key's column alone.
	Rekeyed string

	// Uses is what else a column is read for: topic, header NAME and value field NAME,
	// the latter two as far as they are configured.
	Uses     map[string][]string
	Warnings []string

	ID record.IDColumn
}

// whereEmpty follows the name of a role in that of its fallback.
const whereEmpty = " where that is empty"

// KeyFallback is the role of the column that has the key where the key's own is NULL or empty.
const KeyFallback = "key" + whereEmpty

// compiler collects the sources and errors of one plan.
type compiler struct {
	of    *mapping
	rel   *wal.Relation
	plan  *plan
	regex *regexp.Regexp // the mapping's, else the preset's
	uses  map[string][]string
	errs  []error
}

// source finds spec for the configuration's key. It returns nil, and remembers
// the error, when there is no such column.
func (c *compiler) source(key, spec string) *column.Source {
	s, err := column.NewSource(c.rel, spec)
	if err != nil {
		c.fail(key, err)
		return nil
	}
	c.plan.sources = append(c.plan.sources, s)
	return s
}

// fail remembers err once for each key: a route column may be asked for twice.
func (c *compiler) fail(key string, err error) {
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		for _, inner := range joined.Unwrap() {
			c.fail(key, inner)
		}
		return
	}
	e := c.of.configError(key, err)
	if !slices.ContainsFunc(c.errs, func(other error) bool { return other.Error() == e.Error() }) {
		c.errs = append(c.errs, e)
	}
}

// optional is source for a role that may have no column.
func (c *compiler) optional(s *preset.Shape, r preset.Role) *column.Source {
	if s.Columns[r] == "" {
		return nil
	}
	found := c.source("columns."+r.String(), s.Columns[r])
	if other := c.fallback(s, r); found != nil && other != "" {
		found.Fallback = c.source("columns."+r.String(), other)
	}
	return found
}

// fallback is the column that stands in where the role's own is empty; a
// configured column has none.
func (c *compiler) fallback(s *preset.Shape, r preset.Role) string {
	other := s.Preset.Fallback[r]
	if other == "" || c.of.Columns.column(r) != "" || other == s.Columns[r] || !column.Has(c.rel, other) {
		return ""
	}
	return other
}

// compile turns the mapping into a plan for rel.
func (m *mapping) compile(rel *wal.Relation, at wal.Place) (*plan, *Explanation, error) {
	if m.connector != nil {
		return m.compileConnector(rel)
	}
	s, err := m.shapeOf(rel, at)
	if err != nil {
		key := "columns"
		if _, ok := errors.AsType[*preset.Error](err); ok {
			key = "preset"
		}
		return nil, nil, m.configError(key, err)
	}
	c := &compiler{of: m, rel: rel, plan: &plan{relation: rel, shape: s}, regex: m.regex, uses: make(map[string][]string)}
	if s.Preset.Regex != "" && m.regex == nil && m.topic == nil {
		c.regex = regexp.MustCompile(anchored(s.Preset.Regex))
	}
	p := c.plan
	p.content.Tombstone = m.TombstoneOnEmpty
	if p.content.Format = m.Value; p.content.Format == "" {
		p.content.Format = format.OrRaw(s.Preset.Value)
	}
	p.quoteKey = m.Key == format.JSONString

	c.columns(s)
	c.payload(s)
	c.key(s)
	topic := c.topic(s)
	c.schema()
	c.event(s)
	names := c.headers(s)
	c.fields()
	if c.plan.content.Event != nil {
		names = slices.Insert(names, 1, slices.DeleteFunc(c.plan.content.EventNames(), c.plan.content.Replaces)...) // behind id
	}
	c.partition()
	if len(c.errs) > 0 {
		return nil, nil, errors.Join(c.errs...)
	}
	p.idColumn = c.idColumn()
	return p, c.explain(s, topic, names), nil
}

// columns finds the columns of id, key, payload and timestamp.
func (c *compiler) columns(s *preset.Shape) {
	p := c.plan
	p.content.Id = c.optional(s, preset.RoleID)
	p.key = c.optional(s, preset.RoleKey)
	p.content.Payload = c.optional(s, preset.RolePayload)
	p.timestamp = c.optional(s, preset.RoleTimestamp)
	if s.Columns[preset.RoleKey] == "" {
		p.key = p.content.Id
		s.Warnings = append(s.Warnings, preset.NoKey(c.rel))
	}
	for _, r := range []preset.Role{preset.RoleRoute, preset.RoleType} {
		// A configured column that this preset has no use for still has to exist.
		if spec := c.of.Columns.column(r); spec != "" {
			if _, err := column.NewSource(c.rel, spec); err != nil {
				c.fail(r.Key(), err)
			}
		}
	}
	if p.timestamp != nil && !slices.Contains(timeForms, p.timestamp.Typ.Form) {
		c.fail("columns.timestamp", &record.ColumnError{Column: p.timestamp.Column, Err: advice.Give(fmt.Errorf("%s, which cannot hold a time", p.timestamp.Described(c.rel)), "use timestamptz, timestamp, date, an integer since 1970 or ISO 8601 text")})
	}
}

// idColumn is the column that the header id is the text of, whatever the row.
func (c *compiler) idColumn() record.IDColumn {
	id := c.plan.content.Id
	if id == nil || id.Pointer != nil || id.Fallback != nil || slices.ContainsFunc(c.of.Headers, func(h HeaderMapping) bool { return strings.EqualFold(h.Name, record.IdHeader) }) {
		return record.IDColumn{}
	}
	return record.IDColumn{Name: id.Column, Type: c.rel.Columns[id.Index].Type}
}

// timeForms are those of which column.ParseTime may make something.
var timeForms = []column.Form{column.FormText, column.FormScalar, column.FormInteger, column.FormNumber, column.FormJSON}

// headers compiles all headers after id and returns the names that are known. What is
// configured replaces what is given otherwise under the same name, except the entries
// of a headers column.
func (c *compiler) headers(s *preset.Shape) []string {
	for _, h := range c.of.Headers {
		c.plan.content.Configured = append(c.plan.content.Configured, h.Name)
	}
	names := append([]string{record.IdHeader}, c.presetHeaders(s)...)
	names = append(names, c.configuredHeaders(s)...)
	c.headersColumn(s)
	if c.plan.content.Trace = c.optional(s, preset.RoleTrace); c.plan.content.Trace != nil && !c.plan.content.Replaces(format.TraceParent) {
		names = append(names, format.TraceParent)
	}
	c.eventuate()
	return names
}

func (c *compiler) presetHeaders(s *preset.Shape) (names []string) {
	for _, h := range s.Preset.Headers {
		if c.plan.content.Event != nil && h.Name == format.ContentTypeHeader {
			continue // the format says what the value is
		}
		if c.plan.content.Replaces(h.Name) {
			continue
		}
		spec := s.Columns[h.Role]
		if h.Column != "" {
			spec = h.ColumnIn(c.rel)
		}
		if spec == "" {
			continue
		}
		key := "columns"
		if h.Column == "" {
			key += "." + h.Role.String()
		}
		plan := headerPlan{name: h.Name, source: c.source(key, spec), skipNull: true}
		if other := c.fallback(s, h.Role); h.Column == "" && other != "" && plan.source != nil {
			plan.source.Fallback = c.source(key, other)
		}
		c.plan.headers = append(c.plan.headers, plan)
		names = append(names, h.Name)
	}
	return names
}

// configuredHeaders returns the names except id, which stands first in every record.
func (c *compiler) configuredHeaders(s *preset.Shape) (names []string) {
	for i, h := range c.of.Headers {
		key := "headers." + h.Name
		plan := headerPlan{name: h.Name}
		if t := c.of.headers[i]; t != nil {
			plan.template = c.headerTemplate(key, t)
		} else {
			plan.source = c.source(key, h.Source)
		}
		c.use("header "+h.Name, plan.source, plan.template)
		if h.Name == record.IdHeader {
			s.Warnings = append(s.Warnings, "headers.id replaces the event id in the header id, by which consumers detect repeated events; columns.id sets both")
			c.plan.idAs = &plan
			continue
		}
		c.plan.headers = append(c.plan.headers, plan)
		names = append(names, h.Name)
	}
	return names
}

func (c *compiler) headersColumn(s *preset.Shape) {
	h := c.optional(s, preset.RoleHeaders)
	if h == nil {
		return
	}
	c.plan.content.HeadersColumn = &format.HeadersColumn{Source: h}
	if s.Preset.HeaderValues != "" && c.of.Columns.Headers == "" {
		c.plan.content.HeadersColumn.Values = c.source("columns.headers", s.Preset.HeaderValues)
	}
	if !slices.Contains([]column.Form{column.FormText, column.FormJSON, column.FormHstore, column.FormArray}, h.Typ.Form) {
		c.fail("columns.headers", &record.ColumnError{Column: h.Column, Err: advice.Give(fmt.Errorf("headers are read from json, jsonb, hstore, text[] or text, and %s", h.Described(c.rel)), "map another column")})
	}
}

// use notes for Explanation what the configuration reads a column for, beside
// roles: a source, or all that a template names.
func (c *compiler) use(what string, s *column.Source, t *template.Template) {
	var read []*column.Source
	if t != nil {
		for _, p := range t.Parts {
			read = append(read, p.Source)
		}
	} else {
		read = append(read, s)
	}
	for _, s := range read {
		if s != nil && !slices.Contains(c.uses[s.Column], what) {
			c.uses[s.Column] = append(c.uses[s.Column], what)
		}
	}
}

func (c *compiler) headerTemplate(key string, t *template.Template) *template.Template {
	bound, err := t.Bind(func(name string) (*column.Source, int, error) {
		s, err := column.NewSource(c.rel, name)
		if err == nil {
			c.plan.sources = append(c.plan.sources, s)
		}
		return s, 0, err
	})
	if err != nil {
		c.fail(key, err)
	}
	return bound
}

func (c *compiler) fields() {
	for _, f := range c.of.ValueFields {
		s := c.source("value_fields."+f.Name, f.Column)
		if s == nil {
			continue
		}
		c.use("value field "+f.Name, s, nil)
		field, err := format.NewField(f.Name, s)
		if err != nil {
			c.fail("value_fields", advice.Give(errors.New("a field's name is not UTF-8 text"), "choose another name"))
			continue
		}
		if c.plan.content.Event != nil {
			c.plan.content.Event.Extend(field)
			continue
		}
		c.plan.content.Fields = append(c.plan.content.Fields, field)
	}
}

func (c *compiler) partition() {
	if c.of.Partition == "" {
		return
	}
	s := c.source("partition", c.of.Partition)
	if s != nil && s.Pointer == nil && s.Typ.Form != column.FormInteger {
		c.fail("partition", &record.ColumnError{Column: s.Column, Err: advice.Give(fmt.Errorf("the partition is an integer, and %s", s.Described(c.rel)), "name an integer column, or leave it out for the partition of the key")})
	}
	c.plan.partition = s
}

func (c *compiler) explain(s *preset.Shape, topic string, headers []string) *Explanation {
	e := &Explanation{
		Table:    column.TableName(c.rel),
		Preset:   s.Preset.Name,
		Roles:    make(map[string]string),
		Topic:    topic,
		Key:      format.OrRaw(c.of.Key),
		Value:    c.plan.content.Format,
		Headers:  headers,
		Uses:     c.uses,
		Warnings: s.Warnings,
		ID:       c.plan.idColumn,
	}
	for r, spec := range s.Columns {
		switch {
		case spec == "":
		case c.reads(spec):
			e.Roles[preset.Role(r).String()] = spec
			if other := c.fallback(s, preset.Role(r)); other != "" {
				e.Roles[preset.Role(r).String()+whereEmpty] = other
			}
		case c.rel.IsMessages() && spec == memberOf(preset.Role(r)):
			// where the member would be; nobody has set it
		case c.of.Columns.column(preset.Role(r)) != "":
			e.Warnings = append(e.Warnings, fmt.Sprintf("columns.%s is set, but preset %s does not use it in this configuration", preset.Role(r), s.Preset.Name))
		}
	}
	if s.Columns[preset.RoleKey] == "" {
		e.Roles[preset.RoleKey.String()] = s.Columns[preset.RoleID]
	}
	if c.of.Partition != "" {
		e.Roles["partition"] = c.of.Partition
	}
	if h := c.plan.content.HeadersColumn; h != nil && h.Values != nil {
		e.Roles["header values"] = h.Values.Column
	}
	for i, col := range c.rel.Columns {
		if !slices.ContainsFunc(c.plan.sources, func(s *column.Source) bool { return s.Index == i }) {
			e.Ignored = append(e.Ignored, col.Name)
		}
	}
	return e
}

// reads reports whether the plan uses what spec names.
func (c *compiler) reads(spec string) bool {
	want, err := column.NewSource(c.rel, spec)
	return err == nil && slices.ContainsFunc(c.plan.sources, func(s *column.Source) bool {
		return s.Index == want.Index && slices.Equal(s.Pointer, want.Pointer)
	})
}
