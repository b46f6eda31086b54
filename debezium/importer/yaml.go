package importer

import (
	"fmt"
	"regexp"
	"strings"
)

// node is one key of the YAML that is written: a text, a list of mappings, or a
// mapping.
type node struct {
	key      string
	text     string // rendered; empty for a mapping
	comments []string
	children []*node
	item     bool // first line of an entry of a list
}

// child finds or appends the key.
func (n *node) child(key string) *node {
	for _, c := range n.children {
		if c.key == key {
			return c
		}
	}
	c := &node{key: key}
	n.children = append(n.children, c)
	return c
}

// at finds or makes a key by its path.
func (n *node) at(path ...string) *node {
	for _, key := range path {
		n = n.child(key)
	}
	return n
}

func (n *node) find(path ...string) *node {
next:
	for _, key := range path {
		for _, c := range n.children {
			if c.key == key {
				n = c
				continue next
			}
		}
		return nil
	}
	return n
}

func (n *node) set(text string, comments ...string) *node {
	n.text = text
	n.comments = append(n.comments, comments...)
	return n
}

func (n *node) write(b *strings.Builder, indent string) {
	first, margin := indent, indent
	if n.item {
		margin = indent[:len(indent)-2]
		first = margin + "- "
	}
	for _, comment := range n.comments {
		writeComment(b, margin, comment)
	}
	switch {
	case len(n.children) > 0:
		fmt.Fprintf(b, "%s%s:%s\n", first, yamlKey(n.key), pad(n.text))
		for _, c := range n.children {
			if c.key == "" { // an entry of a list
				for _, member := range c.children {
					member.write(b, indent+"    ")
				}
				continue
			}
			c.write(b, indent+"  ")
		}
	default:
		fmt.Fprintf(b, "%s%s:%s\n", first, yamlKey(n.key), pad(n.text))
	}
}

func pad(text string) string {
	if text == "" {
		return ""
	}
	return " " + text
}

const commentWidth = 110

// writeComment folds a comment. The lines after the first are indented.
func writeComment(b *strings.Builder, indent, comment string) {
	line, empty := indent+"#", true
	for word := range strings.FieldsSeq(comment) {
		if len(line)+1+len(word) > commentWidth && !empty {
			b.WriteString(line + "\n")
			line = indent + "#  "
		}
		line += " " + word
		empty = false
	}
	b.WriteString(line + "\n")
}

var (
	plainScalar = regexp.MustCompile(`^[A-Za-z0-9_./$\\(][A-Za-z0-9_./@%+$=,()\\:*<>?|^~;-]*$`)
	wholeNumber = regexp.MustCompile(`^(?:0|-?[1-9][0-9]{0,14})$`)
	looksTyped  = regexp.MustCompile(`^(?i:true|false|yes|no|on|off|null|~|[-+.0-9][-+.0-9_a-fx:]*|\.inf|\.nan)$`)
)

// scalar writes text so that YAML gives it back: plain when that is beyond doubt.
func scalar(text string) string {
	plain := plainScalar.MatchString(text) && !looksTyped.MatchString(text) && !strings.HasSuffix(text, ":")
	if plain || wholeNumber.MatchString(text) || text == "true" || text == "false" {
		return text
	}
	if strings.Contains(text, `"`) && !strings.Contains(text, "'") && oneLine(text) == text {
		return "'" + text + "'"
	}
	var b strings.Builder
	b.WriteByte('"')
	for _, r := range text {
		switch {
		case r == '"' || r == '\\':
			b.WriteByte('\\')
			b.WriteRune(r)
		case r == '\n':
			b.WriteString(`\n`)
		case r == '\t':
			b.WriteString(`\t`)
		case r == '\r':
			b.WriteString(`\r`)
		case r < ' ' || r == 0x7f || r == 0x85 || r == 0xa0 || r == 0x2028 || r == 0x2029 || r == 0xfeff:
			fmt.Fprintf(&b, `\u%04X`, r)
		default:
			b.WriteRune(r)
		}
	}
	b.WriteByte('"')
	return b.String()
}

func yamlKey(key string) string {
	if plainScalar.MatchString(key) && !strings.ContainsAny(key, ":#") && !looksTyped.MatchString(key) {
		return key
	}
	return scalar(key)
}

// literal is text in which the loader expands nothing.
func literal(text string) string { return strings.ReplaceAll(text, "${", "$${") }

// oneLine makes a text from the input fit into a comment.
func oneLine(text string) string {
	return strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f || r == 0x85 || r == 0x2028 || r == 0x2029 || r == 0xfeff {
			return ' '
		}
		return r
	}, text)
}
