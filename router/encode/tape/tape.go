package tape

import (
	"encoding/json"
	"fmt"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/cdc-relay/cdc-relay/router/jsontext"
)

// Kind is what a JSON value is.
type Kind byte

const (
	Null Kind = iota
	Boolean
	Number
	Text
	Array
	Object
	Kinds int = iota
)

// Named is how messages call a value of the kind.
var Named = [Kinds]string{"null", "a boolean", "a number", "a string", "an array", "an object"}

// Node is one value of a tape, or the name of a member.
type Node struct {
	Kind       Kind
	Escaped    bool   // a text with escapes
	Start, End uint32 // where it is written; of a text without its quotes
	Next       uint32 // index of the node behind the value and all that is in it
	Count      uint32 // elements, or members
}

// Tape is JSON as the list of its values in the order in which they are written. A member is two
// nodes, its name and its value. Reading is strict, takes one pass, and needs no memory once the
// tape has grown.
type Tape struct {
	Text  []byte
	Nodes []Node
	open  []uint32 // containers that are not closed
	at    int
}

// MaxDepth bounds how deep values may lie in each other.
const MaxDepth = 256

// fault is why text is not taken.
type fault struct {
	what string
	at   int
}

func (t *Tape) fail(what string) *fault { return &fault{what, t.at} }

// kept is how many nodes a tape keeps room for, 1.5 MB, when a payload comes that needs fewer.
const kept = 1 << 16

// Read takes the place of what the tape had before. Its errors are *Mismatch.
func (t *Tape) Read(src []byte) error {
	if cap(t.Nodes) > kept && len(src) < cap(t.Nodes) {
		t.Nodes = nil
	}
	if f := t.read(src); f != nil {
		return &Mismatch{What: fmt.Sprintf("the payload %s (byte %d)", f.what, f.at)}
	}
	return nil
}

func (t *Tape) read(src []byte) *fault {
	t.Text, t.Nodes, t.open, t.at = src, t.Nodes[:0], t.open[:0], 0
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
func (t *Tape) behind() (done bool, f *fault) {
	for {
		t.space()
		if len(t.open) == 0 {
			if t.at < len(t.Text) {
				return false, t.fail("has something behind its end")
			}
			return true, nil
		}
		top := &t.Nodes[t.open[len(t.open)-1]]
		c := t.peek()
		switch {
		case c == ',' && top.Count > 0:
			t.at++
			top.Count++
			if top.Kind == Object {
				return false, t.name()
			}
			return false, nil
		case c == ']' && top.Kind == Array, c == '}' && top.Kind == Object:
			t.at++
			top.End, top.Next = uint32(t.at), uint32(len(t.Nodes))
			t.open = t.open[:len(t.open)-1]
		default:
			return false, t.fail("is not JSON")
		}
	}
}

func (t *Tape) peek() byte {
	if t.at < len(t.Text) {
		return t.Text[t.at]
	}
	return 0
}

func (t *Tape) space() {
	for t.at < len(t.Text) {
		switch t.Text[t.at] {
		case ' ', '\n', '\t', '\r':
			t.at++
		default:
			return
		}
	}
}

// value reads a value that is no container, or opens containers down to one that is empty or to
// such a value.
func (t *Tape) value() *fault {
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
			t.leaf(Null, start)
			return nil
		case t.word("true"), t.word("false"):
			t.leaf(Boolean, start)
			return nil
		default:
			return t.fail("is not JSON")
		}
	}
}

// container opens one. Where it has elements the first one is next.
func (t *Tape) container(c byte) (empty bool, f *fault) {
	if len(t.open) == MaxDepth {
		return false, t.fail("lies deeper than 256 levels")
	}
	n := Node{Kind: Array, Start: uint32(t.at)}
	closing := byte(']')
	if c == '{' {
		n.Kind, closing = Object, '}'
	}
	t.at++
	t.space()
	if t.peek() == closing { // behind closes it
		t.open, t.Nodes = append(t.open, uint32(len(t.Nodes))), append(t.Nodes, n)
		return true, nil
	}
	n.Count = 1
	t.open, t.Nodes = append(t.open, uint32(len(t.Nodes))), append(t.Nodes, n)
	if c == '{' {
		return false, t.name()
	}
	return false, nil
}

// name reads the name of a member and its colon.
func (t *Tape) name() *fault {
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

func (t *Tape) word(w string) bool {
	if len(t.Text)-t.at < len(w) || string(t.Text[t.at:t.at+len(w)]) != w {
		return false
	}
	t.at += len(w)
	return true
}

func (t *Tape) leaf(k Kind, start int) {
	t.Nodes = append(t.Nodes, Node{Kind: k, Start: uint32(start), End: uint32(t.at), Next: uint32(len(t.Nodes) + 1)})
}

func (t *Tape) digits() bool {
	from := t.at
	for t.at < len(t.Text) && '0' <= t.Text[t.at] && t.Text[t.at] <= '9' {
		t.at++
	}
	return t.at > from
}

func (t *Tape) number() *fault {
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
	t.leaf(Number, start)
	return nil
}

// string reads a text, whose escapes it checks.
func (t *Tape) string() *fault {
	t.at++
	n := Node{Kind: Text, Start: uint32(t.at), Next: uint32(len(t.Nodes) + 1)}
	for t.at < len(t.Text) {
		switch c := t.Text[t.at]; {
		case c == '"':
			n.End = uint32(t.at)
			t.at++
			t.Nodes = append(t.Nodes, n)
			return nil
		case c == '\\':
			n.Escaped = true
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

func (t *Tape) escape() *fault {
	if t.at+1 == len(t.Text) {
		return t.fail("is not JSON")
	}
	switch t.Text[t.at+1] {
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
func (t *Tape) unit(at int) (r rune, ok bool) {
	if len(t.Text) < at+6 || t.Text[at] != '\\' || t.Text[at+1] != 'u' {
		return 0, false
	}
	for _, c := range t.Text[at+2 : at+6] {
		d, ok := jsontext.HexDigit(c)
		if !ok {
			return 0, false
		}
		r = r<<4 | rune(d)
	}
	return r, true
}

// Raw is the value as it is written; of a text what lies between the quotes.
func (t *Tape) Raw(n *Node) []byte { return t.Text[n.Start:n.End] }

// Plain is a text without escapes, in dst where it has some.
func (t *Tape) Plain(dst []byte, n *Node) []byte {
	if !n.Escaped {
		return t.Raw(n)
	}
	out, err := jsontext.AppendUnescaped(dst, t.Raw(n))
	if err != nil {
		return t.Raw(n) // cannot be: the escapes were checked
	}
	return out
}

// Quoted appends text as a JSON string.
func Quoted(dst []byte, text string) []byte {
	out, err := json.Marshal(text)
	if err != nil {
		return append(dst, `""`...) // cannot be: any text can be marshalled
	}
	return append(dst, out...)
}
