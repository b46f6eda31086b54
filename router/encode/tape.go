package encode

import (
	"unicode/utf16"
	"unicode/utf8"

	"github.com/cdc-relay/cdc-relay/router/jsontext"
)

// kind is what a JSON value is.
type kind byte

const (
	null kind = iota
	boolean
	number
	text
	array
	object
	kinds int = iota
)

// named is how messages call a value of the kind.
var named = [kinds]string{"null", "a boolean", "a number", "a string", "an array", "an object"}

// node is one value of a tape, or the name of a member.
type node struct {
	kind       kind
	escaped    bool   // a text with escapes
	start, end uint32 // where it is written; of a text without its quotes
	next       uint32 // index of the node behind the value and all that is in it
	count      uint32 // elements, or members
}

// tape is JSON as the list of its values in the order in which they are written. A member is two
// nodes, its name and its value. Reading is strict, takes one pass, and needs no memory once the
// tape has grown.
type tape struct {
	text  []byte
	nodes []node
	open  []uint32 // containers that are not closed
	at    int
}

// maxDepth bounds how deep values may lie in each other.
const maxDepth = 256

// fault is why text is not taken.
type fault struct {
	what string
	at   int
}

func (t *tape) fail(what string) *fault { return &fault{what, t.at} }

// read takes the place of what the tape had before.
func (t *tape) read(src []byte) *fault {
	t.text, t.nodes, t.open, t.at = src, t.nodes[:0], t.open[:0], 0
	if len(src) > 1<<31-1 {
		return t.fail("is longer than 2 GiB")
	}
	if !utf8.Valid(src) {
		return t.fail("is not UTF-8 text")
	}
	for {
		if f := t.value(); f != nil {
			return f
		}
		done, f := t.behind()
		if f != nil {
			return f
		}
		if done {
			return nil
		}
	}
}

// behind goes on behind a value, to the next one or to the end.
func (t *tape) behind() (done bool, f *fault) {
	for {
		t.space()
		if len(t.open) == 0 {
			if t.at < len(t.text) {
				return false, t.fail("has something behind its end")
			}
			return true, nil
		}
		top := &t.nodes[t.open[len(t.open)-1]]
		c := t.peek()
		switch {
		case c == ',' && top.count > 0:
			t.at++
			top.count++
			if top.kind == object {
				return false, t.name()
			}
			return false, nil
		case c == ']' && top.kind == array, c == '}' && top.kind == object:
			t.at++
			top.end, top.next = uint32(t.at), uint32(len(t.nodes))
			t.open = t.open[:len(t.open)-1]
		default:
			return false, t.fail("is not JSON")
		}
	}
}

func (t *tape) peek() byte {
	if t.at < len(t.text) {
		return t.text[t.at]
	}
	return 0
}

func (t *tape) space() {
	for t.at < len(t.text) {
		switch t.text[t.at] {
		case ' ', '\n', '\t', '\r':
			t.at++
		default:
			return
		}
	}
}

// value reads a value that is no container, or opens containers down to one that is empty or to
// such a value.
func (t *tape) value() *fault {
	for {
		t.space()
		start := t.at
		switch c := t.peek(); {
		case c == '"':
			return t.string()
		case c == '-' || '0' <= c && c <= '9':
			return t.number()
		case c == '{' || c == '[':
			empty, f := t.container(c)
			if f != nil || empty {
				return f
			}
		case t.word("null"):
			t.leaf(null, start)
			return nil
		case t.word("true"), t.word("false"):
			t.leaf(boolean, start)
			return nil
		default:
			return t.fail("is not JSON")
		}
	}
}

// container opens one. Where it has elements the first one is next.
func (t *tape) container(c byte) (empty bool, f *fault) {
	if len(t.open) == maxDepth {
		return false, t.fail("lies deeper than 256 levels")
	}
	n := node{kind: array, start: uint32(t.at)}
	closing := byte(']')
	if c == '{' {
		n.kind, closing = object, '}'
	}
	t.at++
	t.space()
	if t.peek() == closing { // behind closes it
		t.open, t.nodes = append(t.open, uint32(len(t.nodes))), append(t.nodes, n)
		return true, nil
	}
	n.count = 1
	t.open, t.nodes = append(t.open, uint32(len(t.nodes))), append(t.nodes, n)
	if c == '{' {
		return false, t.name()
	}
	return false, nil
}

// name reads the name of a member and its colon.
func (t *tape) name() *fault {
	t.space()
	if t.peek() != '"' {
		return t.fail("is not JSON")
	}
	if f := t.string(); f != nil {
		return f
	}
	t.space()
	if t.peek() != ':' {
		return t.fail("is not JSON")
	}
	t.at++
	return nil
}

func (t *tape) word(w string) bool {
	if len(t.text)-t.at < len(w) || string(t.text[t.at:t.at+len(w)]) != w {
		return false
	}
	t.at += len(w)
	return true
}

func (t *tape) leaf(k kind, start int) {
	t.nodes = append(t.nodes, node{kind: k, start: uint32(start), end: uint32(t.at), next: uint32(len(t.nodes) + 1)})
}

func (t *tape) digits() bool {
	from := t.at
	for t.at < len(t.text) && '0' <= t.text[t.at] && t.text[t.at] <= '9' {
		t.at++
	}
	return t.at > from
}

func (t *tape) number() *fault {
	start := t.at
	if t.peek() == '-' {
		t.at++
	}
	zero := t.peek() == '0'
	from := t.at
	if !t.digits() || zero && t.at > from+1 {
		return t.fail("is not JSON")
	}
	if t.peek() == '.' {
		t.at++
		if !t.digits() {
			return t.fail("is not JSON")
		}
	}
	if c := t.peek(); c == 'e' || c == 'E' {
		t.at++
		if c := t.peek(); c == '+' || c == '-' {
			t.at++
		}
		if !t.digits() {
			return t.fail("is not JSON")
		}
	}
	t.leaf(number, start)
	return nil
}

// string reads a text, whose escapes it checks.
func (t *tape) string() *fault {
	t.at++
	n := node{kind: text, start: uint32(t.at), next: uint32(len(t.nodes) + 1)}
	for t.at < len(t.text) {
		switch c := t.text[t.at]; {
		case c == '"':
			n.end = uint32(t.at)
			t.at++
			t.nodes = append(t.nodes, n)
			return nil
		case c == '\\':
			n.escaped = true
			if f := t.escape(); f != nil {
				return f
			}
		case c < ' ':
			return t.fail("is not JSON")
		default:
			t.at++
		}
	}
	return t.fail("is not JSON")
}

func (t *tape) escape() *fault {
	if t.at+1 == len(t.text) {
		return t.fail("is not JSON")
	}
	switch t.text[t.at+1] {
	case '"', '\\', '/', 'b', 'f', 'n', 'r', 't':
		t.at += 2
		return nil
	case 'u':
	default:
		return t.fail("is not JSON")
	}
	r, ok := t.unit(t.at)
	switch {
	case !ok:
		return t.fail("is not JSON")
	case !utf16.IsSurrogate(r):
		t.at += 6
		return nil
	}
	if second, ok := t.unit(t.at + 6); !ok || utf16.DecodeRune(r, second) == utf8.RuneError {
		return t.fail("has half of a surrogate pair")
	}
	t.at += 12
	return nil
}

// unit is the value of an escape such as \u00e9 at a place.
func (t *tape) unit(at int) (r rune, ok bool) {
	if len(t.text) < at+6 || t.text[at] != '\\' || t.text[at+1] != 'u' {
		return 0, false
	}
	for _, c := range t.text[at+2 : at+6] {
		d, ok := jsontext.HexDigit(c)
		if !ok {
			return 0, false
		}
		r = r<<4 | rune(d)
	}
	return r, true
}

// raw is the value as it is written; of a text what lies between the quotes.
func (t *tape) raw(n *node) []byte { return t.text[n.start:n.end] }

// plain is a text without escapes, in dst where it has some.
func (t *tape) plain(dst []byte, n *node) []byte {
	if !n.escaped {
		return t.raw(n)
	}
	out, err := jsontext.AppendUnescaped(dst, t.raw(n))
	if err != nil {
		return t.raw(n) // cannot be: the escapes were checked
	}
	return out
}
