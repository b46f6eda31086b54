package template

import (
	"errors"
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/cdc-relay/cdc-relay/replication/wal"
	"github.com/cdc-relay/cdc-relay/router/column"
	"github.com/cdc-relay/cdc-relay/router/jsontext"
	"github.com/cdc-relay/cdc-relay/router/record"
)

// Template is text with `${name}` in it. A name is a column, `column#/pointer`,
// or, in a topic, a group of topic_regex; filters follow it in order, each after
// a bar: `lower`, `upper`, `topic` (a hyphen for each character that no topic may
// have), `default:text` (for NULL and for empty). `$${` stands for `${`; a dollar
// before anything else stands for itself.
type Template struct {
	Parts []Part
}

// Part is literal text, or a name with filters.
type Part struct {
	Literal string
	Name    string
	Filters []Filter

	// Bound to one relation: a column, or, when that is nil, a group.
	Source *column.Source
	group  int
}

// Filter changes the value that stands in for a name.
type Filter struct {
	Name string // lower, upper, topic or default
	Text string // of default
}

var errEmptyTemplate = errors.New("is empty; write a name, ${column}, or both")

// Parse reads a template; Bind makes it ready for a relation.
func Parse(s string) (*Template, error) {
	if strings.TrimSpace(s) == "" {
		return nil, errEmptyTemplate
	}
	t := &Template{}
	var literal strings.Builder
	flush := func() {
		if literal.Len() > 0 {
			t.Parts = append(t.Parts, Part{Literal: literal.String()})
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
				return nil, fmt.Errorf("%q is not closed by a brace; `$${` means a literal `${`", s)
			}
			p, err := parsePart(s[2:end])
			if err != nil {
				return nil, err
			}
			flush()
			t.Parts = append(t.Parts, p)
			s = s[end+1:]
		default:
			literal.WriteByte(s[0])
			s = s[1:]
		}
	}
	flush()
	return t, nil
}

func parsePart(inner string) (Part, error) {
	name, rest, more := strings.Cut(inner, "|")
	p := Part{Name: strings.TrimSpace(name), group: -1}
	if p.Name == "" {
		return p, fmt.Errorf("`${%s}` names no column; write one, as in `${event_type}`", inner)
	}
	if _, pointer := column.SplitPointer(p.Name); pointer != "" {
		if _, err := jsontext.ParsePointer(pointer); err != nil {
			return p, fmt.Errorf("`${%s}`: %w", inner, err)
		}
	}
	for more {
		var text string
		text, rest, more = strings.Cut(rest, "|")
		f := Filter{Name: strings.TrimSpace(text)}
		if value, ok := strings.CutPrefix(strings.TrimLeft(text, " "), "default:"); ok {
			f = Filter{Name: "default", Text: value}
		}
		switch f.Name {
		case "lower", "upper", "topic":
		case "default":
			if f.Text == "" {
				return p, fmt.Errorf("`${%s}`: filter default needs a text, as in default:other", inner)
			}
		default:
			return p, fmt.Errorf("`${%s}`: there is no filter %q; there are lower, upper, topic and default:text", inner, f.Name)
		}
		p.Filters = append(p.Filters, f)
	}
	return p, nil
}

// Is distinguishes a template from the name of a column.
func Is(s string) bool { return strings.Contains(s, "${") }

// Names are those that the template uses, in order.
func (t *Template) Names() []string {
	var names []string
	for _, p := range t.Parts {
		if p.Name != "" {
			names = append(names, p.Name)
		}
	}
	return names
}

// Bind gives a copy of which every name is resolved.
func (t *Template) Bind(resolve func(name string) (s *column.Source, group int, err error)) (*Template, error) {
	bound := &Template{Parts: make([]Part, len(t.Parts))}
	var errs []error
	for i, p := range t.Parts {
		if p.Name != "" {
			var err error
			if p.Source, p.group, err = resolve(p.Name); err != nil {
				errs = append(errs, err)
			}
		}
		bound.Parts[i] = p
	}
	return bound, errors.Join(errs...)
}

// AppendTo appends one part; null when it is a column that is NULL and that no
// Filter gives a default.
func (p *Part) AppendTo(dst []byte, b *record.Buffer, row *wal.Row, groups [][]byte) (out []byte, null bool, err error) {
	if p.Name == "" {
		return append(dst, p.Literal...), false, nil
	}
	var value []byte
	if p.Source == nil {
		value = groups[p.group]
	} else if value, err = p.Source.Bytes(b, row); err != nil {
		return dst, false, err
	}
	null = value == nil && p.Source != nil
	start := len(dst)
	dst = append(dst, value...)
	for _, f := range p.Filters {
		switch f.Name {
		case "default":
			if len(dst) == start {
				dst, null = append(dst, f.Text...), false
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
func (t *Template) String() string {
	var s strings.Builder
	for _, p := range t.Parts {
		if p.Name == "" {
			s.WriteString(strings.ReplaceAll(p.Literal, "${", "$${"))
			continue
		}
		s.WriteString("${" + p.Name)
		for _, f := range p.Filters {
			s.WriteString("|" + f.Name)
			if f.Name == "default" {
				s.WriteString(":" + f.Text)
			}
		}
		s.WriteString("}")
	}
	return s.String()
}

// topicRune is r, or a hyphen where no topic may have r. A byte that is no UTF-8
// counts as a character.
func topicRune(r rune) rune {
	if record.InTopic(r) {
		return r
	}
	return '-'
}

// Header gives the value of a header template. A column that is NULL and has no
// default makes the whole value null.
func (t *Template) Header(b *record.Buffer, row *wal.Row, scratch *[]byte) ([]byte, error) {
	out := (*scratch)[:0]
	for i := range t.Parts {
		var null bool
		var err error
		out, null, err = t.Parts[i].AppendTo(out, b, row, nil)
		*scratch = out
		if err != nil || null {
			return nil, err
		}
	}
	return b.Copy(out), nil
}

// RegexError says which dialect it is when expr is written in another.
func RegexError(expr string, err error) error {
	for _, java := range []string{"(?=", "(?!", "(?<=", "(?<!", "(?>", "++", "*+", "?+", `\1`} {
		if strings.Contains(expr, java) {
			return fmt.Errorf("%w (the syntax is RE2's, which has no look-around, no possessive quantifiers and no back-references)", err)
		}
	}
	return err
}
