package router

import (
	"errors"
	"fmt"
	"strings"
)

// topic compiles the topic and returns its template with columns' names.
func (c *compiler) topic(s *shape) string {
	t := c.mapping.topic
	if t == nil {
		if t = c.presetTopic(s); t == nil {
			return ""
		}
	}
	plan := &topicPlan{regex: c.regex, known: make(map[string]string)}
	if c.regex != nil {
		if plan.route = c.route(s, "topic_regex"); plan.route == nil {
			return ""
		}
		plan.inputs = append(plan.inputs, plan.route)
	}
	bound, err := t.bind(func(name string) (*source, int, error) { return c.topicName(s, plan, name) })
	if err != nil {
		c.fail("topic", err)
		return ""
	}
	plan.template = bound
	if len(plan.inputs) == 0 {
		plan.constant = t.parts[0].literal
	}
	c.plan.topic = plan
	c.use("topic", nil, bound)
	return t.String()
}

// topicName resolves a name in a topic template: a group, else a column.
func (c *compiler) topicName(s *shape, plan *topicPlan, name string) (src *source, group int, err error) {
	if c.regex != nil {
		if group := c.regex.SubexpIndex(name); group > 0 {
			return nil, group, nil
		}
	}
	if name == routedByValue && columnIndex(c.rel, name) < 0 {
		if c.regex != nil {
			return nil, 0, errNoGroup
		}
		if name = s.columns[roleRoute]; name == "" {
			return nil, 0, advise(errors.New("${routedByValue} is the value of the route column, and none is mapped"), "set columns.route")
		}
	}
	src, err = newSource(c.rel, name)
	if err != nil {
		return nil, 0, err
	}
	if err := c.nameable(src); err != nil {
		return nil, 0, err
	}
	c.plan.sources = append(c.plan.sources, src)
	plan.inputs = append(plan.inputs, src)
	return src, 0, nil
}

// nameable refuses what is written with characters that no topic has: every row
// would be rejected.
func (c *compiler) nameable(s *source) error {
	if s.pointer != nil {
		return nil
	}
	way := "use another column"
	switch s.typ.form {
	case formJSON:
		way = fmt.Sprintf("point into it, as in ${%s#/kind}, or use another column", s.column)
	case formArray, formList, formHstore, formComposite, formOpaque:
	default:
		return nil
	}
	return &columnError{column: s.column, err: advise(fmt.Errorf("%s, which makes no topic name", s.described(c.rel)), way)}
}

// presetTopic is the preset's template, in which the names of roles are replaced
// by those of their columns.
func (c *compiler) presetTopic(s *shape) *template {
	if s.preset.tablePrefix != "" {
		return c.tableTopic(s.preset)
	}
	text := s.preset.topic
	if text == "" {
		block := c.given().block(c.rel)
		if s.preset.named() {
			block = fmt.Sprintf("outbox:\n  - table: %s\n    preset: %s\n    topic: events", c.Table, s.preset.name)
		}
		c.fail("topic", &Advised{What: fmt.Errorf("preset %s has no topic of its own", s.preset.name), Hint: "set topic", Block: block})
		return nil
	}
	if s.preset.topicElse != "" && s.columns[roleTopic] == "" {
		text = s.preset.topicElse
	}
	t, err := parseTemplate(text)
	if err != nil {
		panic(fmt.Sprintf("router: preset %s: %v", s.preset.name, err)) //nolint:forbidigo // presets are ours, and a test compiles each
	}
	for i := range t.parts {
		p := &t.parts[i]
		r := roleNamed(p.name)
		switch {
		case p.name == "":
			continue
		case p.name == routedByValue && c.regex != nil:
			continue
		case p.name == routedByValue:
			r = roleRoute
		}
		if p.name = s.columns[r]; p.name == "" {
			c.fail("topic", advise(fmt.Errorf("preset %s makes the topic of the %s column, and none is mapped", s.preset.name, r), "set topic or columns."+r.String()))
			return nil
		}
	}
	return t
}

// tableTopic is the topic that the name of the table tells.
func (c *compiler) tableTopic(p *preset) *template {
	name, found := strings.CutPrefix(c.rel.Name, p.tablePrefix)
	if !found {
		c.fail("topic", advise(fmt.Errorf("preset %s names the topic after the table, which begins with %s, and %s does not", p.name, p.tablePrefix, tableName(c.rel)), "set topic"))
		return nil
	}
	if err := checkTopic([]byte(name)); err != nil {
		c.fail("topic", advise(fmt.Errorf("preset %s makes topic %s of the table's name, which Kafka does not allow: a name %w", p.name, shown([]byte(name)), err), "set topic"))
		return nil
	}
	return &template{parts: []part{{literal: name}}}
}

// route is the column that key reads.
func (c *compiler) route(s *shape, key string) *source {
	if s.columns[roleRoute] == "" {
		c.fail(key, advise(errors.New("there is no route column to match against"), "set columns.route"))
		return nil
	}
	found := c.source("columns.route", s.columns[roleRoute])
	if found == nil {
		return nil
	}
	if err := c.nameable(found); err != nil {
		c.fail("columns.route", err)
		return nil
	}
	return found
}
