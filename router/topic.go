package router

import (
	"encoding/binary"
	"errors"
	"fmt"
	"regexp"
	"slices"

	"github.com/cdc-relay/cdc-relay/fault"
	"github.com/cdc-relay/cdc-relay/replication/wal"
	"github.com/cdc-relay/cdc-relay/router/column"
	"github.com/cdc-relay/cdc-relay/router/record"
	"github.com/cdc-relay/cdc-relay/router/template"
)

// Names are remembered by the values that they are made of, so that a row
// whose topic has been seen costs one map lookup. The memory is bounded: a map
// that is full starts again, and long values are not remembered.
const (
	maxTopics     = 4096
	maxTopicInput = 1024
)

// topicPlan makes topic names for one relation.
type topicPlan struct {
	template *template.Template
	route    *column.Source   // read by regex; nil without one
	regex    *regexp.Regexp   // anchored at both ends
	inputs   []*column.Source // everything that the name depends on
	constant string           // the whole name, when inputs is empty
	known    map[string]string
}

// name gives the topic of a row. Scratch is memory that may be overwritten.
func (t *topicPlan) name(b *record.Buffer, row *wal.Row, scratch *[]byte) (string, error) {
	if len(t.inputs) == 0 {
		return t.constant, nil
	}
	key := (*scratch)[:0]
	for _, in := range t.inputs {
		value, err := in.Bytes(b, row)
		if err != nil {
			return "", err
		}
		if value == nil {
			key = append(key, 0)
			continue
		}
		key = binary.AppendUvarint(key, uint64(len(value))+1)
		key = append(key, value...)
	}
	*scratch = key
	if topic, ok := t.known[string(key)]; ok {
		return topic, nil
	}
	name, err := t.build(b, row)
	if err != nil {
		return "", err
	}
	if err := record.CheckTopicName(name); err != nil {
		return "", record.Reject(fault.ReasonRoute, t.inputs[0].Column, "the row gives topic %s, which Kafka does not allow: a name %v; %s", record.ShowTopic(name), err, t.remedy(b, row, err))
	}
	topic := string(name)
	if len(key) <= maxTopicInput {
		if len(t.known) >= maxTopics {
			clear(t.known)
		}
		t.known[string(key)] = topic
	}
	return topic, nil
}

// build makes the name, whether or not it is remembered.
func (t *topicPlan) build(b *record.Buffer, row *wal.Row) ([]byte, error) {
	var dst []byte
	var groups [][]byte
	if t.regex != nil {
		value, err := t.route.Bytes(b, row)
		if err != nil {
			return nil, err
		}
		if len(value) == 0 {
			return nil, emptyMatch(t.route, value == nil)
		}
		if groups = t.regex.FindSubmatch(value); groups == nil {
			return value, nil // Debezium's rule: the value is the topic
		}
	}
	for i := range t.template.Parts {
		p := &t.template.Parts[i]
		start := len(dst)
		var null bool
		var err error
		if dst, null, err = p.AppendTo(dst, b, row, groups); err != nil {
			return nil, err
		}
		if p.Source != nil && len(dst) == start {
			return nil, emptyRoute(p, null)
		}
	}
	return dst, nil
}

// remedy is what to configure so that a row with an illegal name gets a legal one.
func (t *topicPlan) remedy(b *record.Buffer, row *wal.Row, illegal error) string {
	const otherwise = "use topic_regex to give such rows another topic"
	if !errors.Is(illegal, record.ErrTopicBytes) {
		return otherwise
	}
	if t.regex != nil {
		if value, err := t.route.Bytes(b, row); err != nil || !t.regex.Match(value) {
			return "topic_regex does not match the value, so the value itself is the topic: let topic_regex match it, and clean the name with the filter topic"
		}
	}
	cleaned := &topicPlan{template: &template.Template{}, regex: t.regex, route: t.route}
	for _, p := range t.template.Parts {
		if p.Name != "" && !slices.ContainsFunc(p.Filters, func(f template.Filter) bool { return f.Name == "topic" }) {
			p.Filters = append(slices.Clone(p.Filters), template.Filter{Name: "topic"})
		}
		cleaned.template.Parts = append(cleaned.template.Parts, p)
	}
	name, err := cleaned.build(b, row)
	if err != nil || record.CheckTopicName(name) != nil {
		return otherwise
	}
	return fmt.Sprintf("`topic: %s` puts a hyphen in place of every other character, which gives %s", cleaned.template, record.ShowTopic(name))
}

// emptyRoute rejects a row without a value for its topic. The advice keeps the column's filters.
func emptyRoute(p *template.Part, null bool) error {
	s := p.Source
	advised := template.Part{Name: s.Spec, Filters: append(slices.Clone(p.Filters), template.Filter{Name: "default", Text: "other"})}
	return record.Reject(fault.ReasonRoute, s.Column, "%s, which the topic is made of, is %s; `%s` gives such rows a topic", s.Called(), s.Nothing(null), &template.Template{Parts: []template.Part{advised}})
}

// emptyMatch is emptyRoute for the column that topic_regex is matched against.
func emptyMatch(s *column.Source, null bool) error {
	return record.Reject(fault.ReasonRoute, s.Column, "%s, which topic_regex is matched against, is %s; have every writer set it, or map columns.route to a column that always has a value", s.Called(), s.Nothing(null))
}
