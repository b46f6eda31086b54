package router

import (
	"encoding/binary"
	"errors"
	"fmt"
	"regexp"
	"slices"

	"github.com/cdc-relay/cdc-relay/replication/wal"
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
	template *template
	route    *source        // read by regex; nil without one
	regex    *regexp.Regexp // anchored at both ends
	inputs   []*source      // everything that the name depends on
	constant string         // the whole name, when inputs is empty
	known    map[string]string
}

// name gives the topic of a row. Scratch is memory that may be overwritten.
func (t *topicPlan) name(b *Buffer, row *wal.Row, scratch *[]byte) (string, error) {
	if len(t.inputs) == 0 {
		return t.constant, nil
	}
	key := (*scratch)[:0]
	for _, in := range t.inputs {
		value, err := in.bytes(b, row)
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
	if err := checkTopic(name); err != nil {
		return "", reject(ReasonRoute, t.inputs[0].column, "the row gives topic %s, which Kafka does not allow: a name %v; %s", shown(name), err, t.remedy(b, row, err))
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

// build makes the name without looking at what is known.
func (t *topicPlan) build(b *Buffer, row *wal.Row) ([]byte, error) {
	var dst []byte
	var groups [][]byte
	if t.regex != nil {
		value, err := t.route.bytes(b, row)
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
	for i := range t.template.parts {
		p := &t.template.parts[i]
		start := len(dst)
		var null bool
		var err error
		if dst, null, err = p.appendTo(dst, b, row, groups); err != nil {
			return nil, err
		}
		if p.source != nil && len(dst) == start {
			return nil, emptyRoute(p.source, null)
		}
	}
	return dst, nil
}

// remedy is what to configure so that a row with an illegal name gets a legal one.
func (t *topicPlan) remedy(b *Buffer, row *wal.Row, illegal error) string {
	const otherwise = "use topic_regex to give such rows another topic"
	if !errors.Is(illegal, errTopicBytes) {
		return otherwise
	}
	if t.regex != nil {
		if value, err := t.route.bytes(b, row); err != nil || !t.regex.Match(value) {
			return "topic_regex does not match the value, which is the topic then: have it match, and clean the name with filter topic"
		}
	}
	cleaned := &topicPlan{template: &template{}, regex: t.regex, route: t.route}
	for _, p := range t.template.parts {
		if p.name != "" && !slices.ContainsFunc(p.filters, func(f filter) bool { return f.name == "topic" }) {
			p.filters = append(slices.Clone(p.filters), filter{name: "topic"})
		}
		cleaned.template.parts = append(cleaned.template.parts, p)
	}
	name, err := cleaned.build(b, row)
	if err != nil || checkTopic(name) != nil {
		return otherwise
	}
	return fmt.Sprintf("`topic: %s` puts a hyphen in place of every other character, which gives %s", cleaned.template, shown(name))
}

func emptyRoute(s *source, null bool) error {
	return reject(ReasonRoute, s.column, "%s, which the topic is made of, is %s; `${%s|default:other}` gives such rows a topic", s.called(), s.nothing(null), s.spec)
}

// emptyMatch is emptyRoute for what topic_regex matches, before any template.
func emptyMatch(s *source, null bool) error {
	return reject(ReasonRoute, s.column, "%s, which topic_regex is matched against, is %s; have every writer set it, or map columns.route to what has a value in every row", s.called(), s.nothing(null))
}
