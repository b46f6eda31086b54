package router

import (
	"errors"
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/cdc-relay/cdc-relay/replication/wal"
)

// template is text with `${name}` in it. A name is a column, `column#/pointer`,
// or, in a topic, a group of topic_regex; filters follow it in order, each behind
// a bar: `lower`, `upper`, `topic` (a hyphen for each character that no topic may
// have), `default:text` (for NULL and for empty). `$${` stands for `${`; a dollar
// before anything else stands for itself.
type template struct {
	parts []part
}

// part is literal text, or a name with filters.
type part struct {
	literal string
	name    string
	filters []filter

	// Bound to one relation: a column, or, when that is nil, a group.
	source *source
	group  int
}

type filter struct {
	name string // lower, upper, topic or default
	text string // of default
}

var errEmptyTemplate = errors.New("is empty; write a name, ${column}, or both")

func parseTemplate(s string) (*template, error) {
	if strings.TrimSpace(s) == "" {
		return nil, errEmptyTemplate
	}
	t := &template{}
	var literal strings.Builder
	flush := func() {
		if literal.Len() > 0 {
			t.parts = append(t.parts, part{literal: literal.String()})
			literal.Reset()
		}
	}
	for s != "" {
		switch {
		case strings.HasPrefix(s, "$${"):
			literal.WriteString("${")
			s = s[3:]
		case strings.HasPrefix(s, "${"):
			end := strings.IndexByte(s, '}')
			if end < 0 {
				return nil, fmt.Errorf("%q is not closed by a brace; `$${` stands for a literal `${`", s)
			}
			p, err := parsePart(s[2:end])
			if err != nil {
				return nil, err
			}
			flush()
			t.parts = append(t.parts, p)
			s = s[end+1:]
		default:
			literal.WriteByte(s[0])
			s = s[1:]
		}
	}
	flush()
	return t, nil
}

func parsePart(inner string) (part, error) {
	name, rest, more := strings.Cut(inner, "|")
	p := part{name: strings.TrimSpace(name), group: -1}
	if p.name == "" {
		return p, fmt.Errorf("`${%s}` names no column; write one, as in `${event_type}`", inner)
	}
	if _, pointer := splitPointer(p.name); pointer != "" {
		if _, err := parsePointer(pointer); err != nil {
			return p, fmt.Errorf("`${%s}`: %w", inner, err)
		}
	}
	for more {
		var text string
		text, rest, more = strings.Cut(rest, "|")
		f := filter{name: strings.TrimSpace(text)}
		if value, ok := strings.CutPrefix(strings.TrimLeft(text, " "), "default:"); ok {
			f = filter{name: "default", text: value}
		}
		switch f.name {
		case "lower", "upper", "topic":
		case "default":
			if f.text == "" {
				return p, fmt.Errorf("`${%s}`: filter default needs a text, as in default:other", inner)
			}
		default:
			return p, fmt.Errorf("`${%s}`: there is no filter %q; there are lower, upper, topic and default:text", inner, f.name)
		}
		p.filters = append(p.filters, f)
	}
	return p, nil
}

// isTemplate tells a template from the name of a column.
func isTemplate(s string) bool { return strings.Contains(s, "${") }

// names are those that the template uses, in order.
func (t *template) names() []string {
	var names []string
	for _, p := range t.parts {
		if p.name != "" {
			names = append(names, p.name)
		}
	}
	return names
}

// bind gives a copy of which every name is resolved.
func (t *template) bind(resolve func(name string) (s *source, group int, err error)) (*template, error) {
	bound := &template{parts: make([]part, len(t.parts))}
	var errs []error
	for i, p := range t.parts {
		if p.name != "" {
			var err error
			if p.source, p.group, err = resolve(p.name); err != nil {
				errs = append(errs, err)
			}
		}
		bound.parts[i] = p
	}
	return bound, errors.Join(errs...)
}

// appendTo appends one part; null when it is a column that is NULL and that no
// filter gives a default.
func (p *part) appendTo(dst []byte, b *Buffer, row *wal.Row, groups [][]byte) (out []byte, null bool, err error) {
	if p.name == "" {
		return append(dst, p.literal...), false, nil
	}
	var value []byte
	if p.source == nil {
		value = groups[p.group]
	} else if value, err = p.source.bytes(b, row); err != nil {
		return dst, false, err
	}
	null = value == nil && p.source != nil
	start := len(dst)
	dst = append(dst, value...)
	for _, f := range p.filters {
		switch f.name {
		case "default":
			if len(dst) == start {
				dst, null = append(dst, f.text...), false
			}
		case "lower":
			dst = mapTail(dst, start, unicode.ToLower)
		case "upper":
			dst = mapTail(dst, start, unicode.ToUpper)
		case "topic":
			dst = mapTail(dst, start, topicRune)
		}
	}
	return dst, null, nil
}

// mapTail applies f to the runes of b from start on; in place while all is ASCII.
func mapTail(b []byte, start int, f func(rune) rune) []byte {
	for i := start; i < len(b); i++ {
		if b[i] >= utf8.RuneSelf {
			tail := string(b[i:])
			b = b[:i]
			for _, r := range tail {
				b = utf8.AppendRune(b, f(r))
			}
			return b
		}
		b[i] = byte(f(rune(b[i])))
	}
	return b
}

// String writes the template as the configuration does.
func (t *template) String() string {
	var s strings.Builder
	for _, p := range t.parts {
		if p.name == "" {
			s.WriteString(strings.ReplaceAll(p.literal, "${", "$${"))
			continue
		}
		s.WriteString("${" + p.name)
		for _, f := range p.filters {
			s.WriteString("|" + f.name)
			if f.name == "default" {
				s.WriteString(":" + f.text)
			}
		}
		s.WriteString("}")
	}
	return s.String()
}

// topicRune is r, or a hyphen where no topic may have r. A byte that is no UTF-8
// counts as a character.
func topicRune(r rune) rune {
	if inTopic(r) {
		return r
	}
	return '-'
}

// header gives the value of a header template. A column that is NULL and has no
// default makes the whole value null.
func (t *template) header(b *Buffer, row *wal.Row, scratch *[]byte) ([]byte, error) {
	out := (*scratch)[:0]
	for i := range t.parts {
		var null bool
		var err error
		out, null, err = t.parts[i].appendTo(out, b, row, nil)
		*scratch = out
		if err != nil || null {
			return nil, err
		}
	}
	return b.copy(out), nil
}
