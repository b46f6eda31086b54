package router

import (
	"errors"
	"fmt"
	"strings"

	"github.com/cdc-relay/cdc-relay/advice"
	"github.com/cdc-relay/cdc-relay/router/column"
	"github.com/cdc-relay/cdc-relay/router/preset"
	"github.com/cdc-relay/cdc-relay/router/record"
	"github.com/cdc-relay/cdc-relay/router/template"
)

// topic compiles the topic and returns its template with columns' names.
func (c *compiler) topic(s *preset.Shape) string {
	t := c.of.topic
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
	bound, err := t.Bind(func(name string) (*column.Source, int, error) { return c.topicName(s, plan, name) })
	if err != nil {
		c.fail("topic", err)
		return ""
	}
	plan.template = bound
	if len(plan.inputs) == 0 {
		plan.constant = t.Parts[0].Literal
	}
	c.plan.topic = plan
	c.use("topic", nil, bound)
	return t.String()
}

// topicName resolves a name in a topic template: a group, else a column.
func (c *compiler) topicName(s *preset.Shape, plan *topicPlan, name string) (src *column.Source, group int, err error) {
	if c.regex != nil {
		if group := c.regex.SubexpIndex(name); group > 0 {
			return nil, group, nil
		}
	}
	if name == preset.RoutedByValue && column.Index(c.rel, name) < 0 {
		if c.regex != nil {
			return nil, 0, errNoGroup
		}
		if name = s.Columns[preset.RoleRoute]; name == "" {
			return nil, 0, advice.Give(errors.New("${routedByValue} is the value of the route column, and none is mapped"), "set columns.route")
		}
	}
	src, err = column.NewSource(c.rel, name)
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
func (c *compiler) nameable(s *column.Source) error {
	if s.Pointer != nil {
		return nil
	}
	way := "use another column"
	switch s.Typ.Form {
	case column.FormJSON:
		way = fmt.Sprintf("point into it, as in ${%s#/kind}, or use another column", s.Column)
	case column.FormArray, column.FormList, column.FormHstore, column.FormComposite, column.FormOpaque:
	default:
		return nil
	}
	return &record.ColumnError{Column: s.Column, Err: advice.Give(fmt.Errorf("%s, which cannot be a topic name", s.Described(c.rel)), way)}
}

// presetTopic is the preset's template, in which the names of roles are replaced
// by those of their columns.
func (c *compiler) presetTopic(s *preset.Shape) *template.Template {
	if s.Preset.TablePrefix != "" {
		return c.tableTopic(s.Preset)
	}
	text := s.Preset.Topic
	if text == "" {
		block := c.of.given().Block(c.rel)
		if s.Preset.Named() {
			block = fmt.Sprintf("outbox:\n  - table: %s\n    preset: %s\n    topic: events", c.of.Table, s.Preset.Name)
		}
		c.fail("topic", &advice.Error{Cause: fmt.Errorf("preset %s has no topic of its own", s.Preset.Name), Next: "set topic", Block: block})
		return nil
	}
	if s.Preset.TopicElse != "" && s.Columns[preset.RoleTopic] == "" {
		text = s.Preset.TopicElse
	}
	t, err := template.Parse(text)
	if err != nil {
		panic(fmt.Sprintf("router: preset %s: %v", s.Preset.Name, err)) //nolint:forbidigo // presets are ours, and a test compiles each
	}
	for i := range t.Parts {
		p := &t.Parts[i]
		r := preset.RoleNamed(p.Name)
		switch {
		case p.Name == "":
			continue
		case p.Name == preset.RoutedByValue && c.regex != nil:
			continue
		case p.Name == preset.RoutedByValue:
			r = preset.RoleRoute
		}
		if p.Name = s.Columns[r]; p.Name == "" {
			c.fail("topic", advice.Give(fmt.Errorf("preset %s makes the topic of the %s column, and none is mapped", s.Preset.Name, r), "set topic or columns."+r.String()))
			return nil
		}
	}
	return t
}

// tableTopic is the topic that is made of the table's name.
func (c *compiler) tableTopic(p *preset.Preset) *template.Template {
	name, found := strings.CutPrefix(c.rel.Name, p.TablePrefix)
	if !found {
		c.fail("topic", advice.Give(fmt.Errorf("preset %s names the topic after the table, which begins with %s, and %s does not", p.Name, p.TablePrefix, column.TableName(c.rel)), "set topic"))
		return nil
	}
	if err := record.CheckTopicName([]byte(name)); err != nil {
		c.fail("topic", advice.Give(fmt.Errorf("preset %s makes topic %s of the table's name, which Kafka does not allow: a name %w", p.Name, record.ShowTopic([]byte(name)), err), "set topic"))
		return nil
	}
	return &template.Template{Parts: []template.Part{{Literal: name}}}
}

// route is the column that key reads.
func (c *compiler) route(s *preset.Shape, key string) *column.Source {
	if s.Columns[preset.RoleRoute] == "" {
		c.fail(key, advice.Give(errors.New("there is no route column to match against"), "set columns.route"))
		return nil
	}
	found := c.source("columns.route", s.Columns[preset.RoleRoute])
	if found == nil {
		return nil
	}
	if err := c.nameable(found); err != nil {
		c.fail("columns.route", err)
		return nil
	}
	return found
}
