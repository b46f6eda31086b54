package router

import (
	"errors"
	"fmt"
	"regexp"
	"slices"

	"github.com/cdc-relay/cdc-relay/replication/wal"
)

// Explanation says what the router made of a table.
type Explanation struct {
	Table   string            // schema.name
	Preset  string            // the preset that auto chose, or the configured one
	Roles   map[string]string // role → column or column#/pointer; more words follow a role that takes two columns
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
}

// compiler collects the sources and errors of one plan.
type compiler struct {
	*mapping
	rel   *wal.Relation
	plan  *plan
	regex *regexp.Regexp // the mapping's, else the preset's
	uses  map[string][]string
	errs  []error
}

// source finds spec for the configuration's key. It returns nil, and remembers
// the error, when there is no such column.
func (c *compiler) source(key, spec string) *source {
	s, err := newSource(c.rel, spec)
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
	e := c.configError(key, err)
	if !slices.ContainsFunc(c.errs, func(other error) bool { return other.Error() == e.Error() }) {
		c.errs = append(c.errs, e)
	}
}

// optional is source for a role that may have no column.
func (c *compiler) optional(s *shape, r role) *source {
	if s.columns[r] == "" {
		return nil
	}
	found := c.source("columns."+r.String(), s.columns[r])
	if other := c.otherwise(s, r); found != nil && other != "" {
		found.otherwise = c.source("columns."+r.String(), other)
	}
	return found
}

// otherwise is the column that stands in where the role's own is empty; a
// configured column has none.
func (c *compiler) otherwise(s *shape, r role) string {
	other := s.preset.otherwise[r]
	if other == "" || c.Columns.column(r) != "" || other == s.columns[r] || !has(c.rel, other) {
		return ""
	}
	return other
}

// compile turns the mapping into a plan for rel.
func (m *mapping) compile(rel *wal.Relation, at position) (*plan, *Explanation, error) {
	if m.connector != nil {
		return m.compileConnector(rel)
	}
	s, err := m.shapeOf(rel, at)
	if err != nil {
		key := "columns"
		if _, ok := errors.AsType[*presetError](err); ok {
			key = "preset"
		}
		return nil, nil, m.configError(key, err)
	}
	c := &compiler{mapping: m, rel: rel, plan: &plan{relation: rel}, regex: m.regex, uses: make(map[string][]string)}
	if s.preset.regex != "" && m.regex == nil && m.topic == nil {
		c.regex = regexp.MustCompile(anchored(s.preset.regex))
	}
	p := c.plan
	p.tombstone = m.TombstoneOnEmpty
	if p.format = m.Value; p.format == "" {
		p.format = orRaw(s.preset.value)
	}
	p.quoteKey = m.Key == FormatJSONString

	p.id = c.optional(s, roleID)
	p.key = c.optional(s, roleKey)
	p.payload = c.optional(s, rolePayload)
	p.timestamp = c.optional(s, roleTimestamp)
	if s.columns[roleKey] == "" {
		p.key = p.id
		s.warnings = append(s.warnings, noKey(rel))
	}
	for _, r := range []role{roleRoute, roleType} {
		// A configured column that this preset has no use for still has to exist.
		if spec := m.Columns.column(r); spec != "" {
			if _, err := newSource(rel, spec); err != nil {
				c.fail(r.key(), err)
			}
		}
	}
	if p.timestamp != nil && !slices.Contains(timeForms, p.timestamp.typ.form) {
		c.fail("columns.timestamp", &columnError{column: p.timestamp.column, err: advise(fmt.Errorf("%s, which cannot hold a time", p.timestamp.described(rel)), "there are timestamptz, timestamp, date, integers since 1970 and ISO 8601 text")})
	}
	c.payload(s)
	c.key(s)
	topic := c.topic(s)
	c.event(s)
	names := c.headers(s)
	c.fields()
	if c.plan.event != nil {
		names = slices.Insert(names, 1, slices.DeleteFunc(c.plan.eventNames(), c.plan.replaces)...)
	}
	c.partition()
	if len(c.errs) > 0 {
		return nil, nil, errors.Join(c.errs...)
	}
	return p, c.explain(s, topic, names), nil
}

// timeForms are those of which parseTime may make something.
var timeForms = []form{formText, formScalar, formInteger, formNumber, formJSON}

func orRaw(name string) string {
	if name == "" {
		return FormatRaw
	}
	return name
}

// headers compiles all headers behind id and returns the names that are known. What is
// configured replaces what is given otherwise under the same name, but for the entries
// of a headers column.
func (c *compiler) headers(s *shape) []string {
	for _, h := range c.Headers {
		c.plan.configured = append(c.plan.configured, h.Name)
	}
	names := append([]string{idHeader}, c.presetHeaders(s)...)
	names = append(names, c.configuredHeaders(s)...)
	c.headersColumn(s)
	if c.plan.trace = c.optional(s, roleTrace); c.plan.trace != nil && !c.plan.replaces(traceParent) {
		names = append(names, traceParent)
	}
	c.eventuate()
	return names
}

func (c *compiler) presetHeaders(s *shape) (names []string) {
	for _, h := range s.preset.headers {
		if c.plan.event != nil && h.name == contentTypeHeader {
			continue // the format says what the value is
		}
		if c.plan.replaces(h.name) {
			continue
		}
		spec := s.columns[h.role]
		if h.column != "" {
			spec = h.find(c.rel)
		}
		if spec == "" {
			continue
		}
		key := "columns"
		if h.column == "" {
			key += "." + h.role.String()
		}
		plan := headerPlan{name: h.name, source: c.source(key, spec), skipNull: true}
		if other := c.otherwise(s, h.role); h.column == "" && other != "" && plan.source != nil {
			plan.source.otherwise = c.source(key, other)
		}
		c.plan.headers = append(c.plan.headers, plan)
		names = append(names, h.name)
	}
	return names
}

// configuredHeaders returns the names but that of the header id, which stands first
// whoever gives it.
func (c *compiler) configuredHeaders(s *shape) (names []string) {
	for i, h := range c.Headers {
		key := "headers." + h.Name
		plan := headerPlan{name: h.Name}
		if t := c.mapping.headers[i]; t != nil {
			plan.template = c.headerTemplate(key, t)
		} else {
			plan.source = c.source(key, h.Source)
		}
		c.use("header "+h.Name, plan.source, plan.template)
		if h.Name == idHeader {
			s.warnings = append(s.warnings, "headers.id replaces the event id in the header id, by which consumers know what comes twice; columns.id sets both")
			c.plan.idAs = &plan
			continue
		}
		c.plan.headers = append(c.plan.headers, plan)
		names = append(names, h.Name)
	}
	return names
}

func (c *compiler) headersColumn(s *shape) {
	h := c.optional(s, roleHeaders)
	if h == nil {
		return
	}
	c.plan.headersColumn = &headersColumn{source: h}
	if s.preset.headerValues != "" && c.Columns.Headers == "" {
		c.plan.headersColumn.values = c.source("columns.headers", s.preset.headerValues)
	}
	if !slices.Contains([]form{formText, formJSON, formHstore, formArray}, h.typ.form) {
		c.fail("columns.headers", &columnError{column: h.column, err: advise(fmt.Errorf("headers are read from json, jsonb, hstore, text[] or text, and %s", h.described(c.rel)), "map another column")})
	}
}

// use notes for Explanation what the configuration reads a column for, beside
// roles: a source, or all that a template names.
func (c *compiler) use(what string, s *source, t *template) {
	var read []*source
	if t != nil {
		for _, p := range t.parts {
			read = append(read, p.source)
		}
	} else {
		read = append(read, s)
	}
	for _, s := range read {
		if s != nil && !slices.Contains(c.uses[s.column], what) {
			c.uses[s.column] = append(c.uses[s.column], what)
		}
	}
}

func (c *compiler) headerTemplate(key string, t *template) *template {
	bound, err := t.bind(func(name string) (*source, int, error) {
		s, err := newSource(c.rel, name)
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
	for _, f := range c.ValueFields {
		s := c.source("value_fields."+f.Name, f.Column)
		if s == nil {
			continue
		}
		c.use("value field "+f.Name, s, nil)
		field, err := newValueField(f.Name, s)
		if err != nil {
			c.fail("value_fields", advise(errors.New("a field's name is not UTF-8 text"), "choose another name"))
			continue
		}
		if c.plan.event != nil {
			c.plan.event.extend(field)
			continue
		}
		c.plan.fields = append(c.plan.fields, field)
	}
}

func (c *compiler) partition() {
	if c.Partition == "" {
		return
	}
	s := c.source("partition", c.Partition)
	if s != nil && s.pointer == nil && s.typ.form != formInteger {
		c.fail("partition", &columnError{column: s.column, err: advise(fmt.Errorf("the partition is an integer, and %s", s.described(c.rel)), "name an integer column, or leave it out for the partition of the key")})
	}
	c.plan.partition = s
}

func (c *compiler) explain(s *shape, topic string, headers []string) *Explanation {
	e := &Explanation{
		Table:    tableName(c.rel),
		Preset:   s.preset.name,
		Roles:    make(map[string]string),
		Topic:    topic,
		Key:      orRaw(c.Key),
		Value:    c.plan.format,
		Headers:  headers,
		Uses:     c.uses,
		Warnings: s.warnings,
	}
	for r, spec := range s.columns {
		switch {
		case spec == "":
		case c.reads(spec):
			e.Roles[role(r).String()] = spec
			if other := c.otherwise(s, role(r)); other != "" {
				e.Roles[role(r).String()+" where that is empty"] = other
			}
		case isMessages(c.rel) && spec == memberOf(role(r)):
			// where the member would be; nobody has set it
		case c.Columns.column(role(r)) != "":
			e.Warnings = append(e.Warnings, fmt.Sprintf("columns.%s is set, and preset %s with this configuration makes nothing of it", role(r), s.preset.name))
		}
	}
	if s.columns[roleKey] == "" {
		e.Roles[roleKey.String()] = s.columns[roleID]
	}
	if c.Partition != "" {
		e.Roles["partition"] = c.Partition
	}
	if h := c.plan.headersColumn; h != nil && h.values != nil {
		e.Roles["header values"] = h.values.column
	}
	for i, col := range c.rel.Columns {
		if !slices.ContainsFunc(c.plan.sources, func(s *source) bool { return s.index == i }) {
			e.Ignored = append(e.Ignored, col.Name)
		}
	}
	return e
}

// reads tells whether the plan uses what spec names.
func (c *compiler) reads(spec string) bool {
	want, err := newSource(c.rel, spec)
	return err == nil && slices.ContainsFunc(c.plan.sources, func(s *source) bool {
		return s.index == want.index && slices.Equal(s.pointer, want.pointer)
	})
}
