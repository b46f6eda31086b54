package outbox

import (
	"fmt"
	"strings"
)

// maxTopic is the longest name that Kafka takes.
const maxTopic = 249

// template is what the relay makes the topic of. A nil template is not checked.
type template []templatePart

type templatePart struct {
	text string
	role role // roleCount: the text
}

// parseTemplate reads a template of the relay's configuration. It is nil where only the
// relay can tell what comes out.
func parseTemplate(s string, columns *[roleCount]typed) (template, error) {
	var t template
	for s != "" {
		text, rest, found := strings.Cut(s, "${")
		if text != "" {
			t = append(t, templatePart{text, roleCount})
		}
		if !found {
			break
		}
		name, after, closed := strings.Cut(rest, "}")
		if !closed {
			return nil, fmt.Errorf("topic %q: a ${ is not closed", s)
		}
		r := named(name, columns)
		if r == roleCount {
			return nil, nil
		}
		t, s = append(t, templatePart{"", r}), after
	}
	return t, nil
}

// named is the role that a name of a template stands for; roleCount: none that is known here.
func named(name string, columns *[roleCount]typed) role {
	if name == "routedByValue" && columns[roleRoute].kind != kindNone {
		return roleRoute
	}
	for _, r := range []role{roleRoute, roleKey, roleTopic, roleType} {
		if columns[r].Name == name && columns[r].kind != kindNone {
			return r
		}
	}
	return roleCount
}

// check says what is wrong with the topic of an event, and with which of its fields.
func (t template) check(e *Event) (field role, reason string) {
	if t == nil {
		return 0, ""
	}
	length, dots, field := 0, true, roleRoute
	for _, p := range t {
		text := p.text
		if p.role != roleCount {
			text, field = e.text(p.role), p.role
			if text == "" {
				return field, "is empty, and the topic is made of it"
			}
		}
		for i := range len(text) {
			if !inTopic(text[i]) {
				return field, "gives a topic that Kafka does not allow: a name has only letters and digits of ASCII, dot, underscore and hyphen"
			}
			dots = dots && text[i] == '.'
		}
		length += len(text)
	}
	switch {
	case length > maxTopic:
		return field, fmt.Sprintf("gives a topic of %d characters; Kafka allows %d", length, maxTopic)
	case dots && length <= 2:
		return field, "gives a topic of dots alone, which Kafka does not allow"
	}
	return 0, ""
}

func inTopic(c byte) bool {
	return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || c == '.' || c == '_' || c == '-'
}

// text is the field for a role that is text.
func (e *Event) text(r role) string {
	switch r {
	case roleRoute:
		return e.AggregateType
	case roleKey:
		return e.AggregateID
	case roleTopic:
		return e.Topic
	case roleType:
		return e.Type
	case roleIdempotencyKey:
		return e.IdempotencyKey
	default:
		return ""
	}
}
