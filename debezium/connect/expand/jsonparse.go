package expand

import (
	"errors"
	"math"
	"strconv"
	"unicode/utf8"

	"github.com/cdc-relay/cdc-relay/debezium/connect/java"
)

// jsonKind is what an element of JSON text is, numbers by what Jackson reads
// them into.
type jsonKind uint8

const (
	jsonNull jsonKind = iota
	jsonFalse
	jsonTrue
	jsonString
	jsonInt32
	jsonInt64
	jsonBigInt
	jsonDouble
	jsonArray
	jsonObject
)

// family groups kinds the way Jackson's node types do.
func (k jsonKind) family() jsonKind {
	switch k {
	case jsonTrue:
		return jsonFalse
	case jsonInt64, jsonBigInt, jsonDouble:
		return jsonInt32
	default:
		return k
	}
}

// jsonNode is one element of a tree kept in a slice. Children are chained in
// document order; 0 ends a chain, for the root is nobody's child.
type jsonNode struct {
	kind  jsonKind
	num   int64  // an integer, or the bits of a double
	text  []byte // of a string
	name  []byte // of a member
	first int32
	next  int32
	count int32
}

// The limits of Jackson's reader; text beyond them is not JSON to it.
const (
	maxJSONDepth  = 1000
	maxJSONNumber = 1000
	maxJSONName   = 50_000
	maxJSONString = 20_000_000
)

var errJSON = errors.New("not JSON")

// jsonParser reads one JSON value as Jackson does by default and leaves what
// follows it alone.
type jsonParser struct {
	text  []byte
	at    int
	nodes []jsonNode
}

// parse reads text into nodes, the root first.
func (p *jsonParser) parse(text []byte) error {
	p.text, p.at, p.nodes = text, 0, append(p.nodes[:0], jsonNode{})
	return p.value(0, 0)
}

func (p *jsonParser) space() {
	for p.at < len(p.text) {
		switch p.text[p.at] {
		case ' ', '\t', '\n', '\r':
			p.at++
		default:
			return
		}
	}
}

// peek skips white space and returns the next byte, 0 at the end.
func (p *jsonParser) peek() byte {
	p.space()
	if p.at == len(p.text) {
		return 0
	}
	return p.text[p.at]
}

func (p *jsonParser) value(node int32, depth int) error {
	switch b := p.peek(); {
	case depth == maxJSONDepth && (b == '{' || b == '['):
		return errJSON
	case b == '{':
		return p.object(node, depth+1)
	case b == '[':
		return p.array(node, depth+1)
	case b == '"':
		text, err := p.string(maxJSONString)
		p.nodes[node].kind, p.nodes[node].text = jsonString, text
		return err
	case b == '-' || b >= '0' && b <= '9':
		return p.number(node)
	}
	for _, word := range [...]struct {
		text string
		kind jsonKind
	}{{"true", jsonTrue}, {"false", jsonFalse}, {"null", jsonNull}} {
		if end := p.at + len(word.text); end <= len(p.text) && string(p.text[p.at:end]) == word.text {
			p.at, p.nodes[node].kind = end, word.kind
			return nil
		}
	}
	return errJSON
}

// child adds a node at the end of a chain.
func (p *jsonParser) child(parent, last int32) int32 {
	p.nodes = append(p.nodes, jsonNode{})
	at := int32(len(p.nodes) - 1)
	if last == 0 {
		p.nodes[parent].first = at
	} else {
		p.nodes[last].next = at
	}
	p.nodes[parent].count++
	return at
}

func (p *jsonParser) array(node int32, depth int) error {
	p.nodes[node].kind = jsonArray
	p.at++
	if p.peek() == ']' {
		p.at++
		return nil
	}
	for last := int32(0); ; {
		last = p.child(node, last)
		if err := p.value(last, depth); err != nil {
			return err
		}
		switch p.peek() {
		case ',':
			p.at++
		case ']':
			p.at++
			return nil
		default:
			return errJSON
		}
	}
}

// object keeps the last value of a name that comes twice at the place of the first.
func (p *jsonParser) object(node int32, depth int) error {
	p.nodes[node].kind = jsonObject
	p.at++
	if p.peek() == '}' {
		p.at++
		return nil
	}
	var seen map[string]int32
	for last := int32(0); ; {
		if p.peek() != '"' {
			return errJSON
		}
		name, err := p.string(maxJSONName)
		if err != nil {
			return err
		}
		if p.peek() != ':' {
			return errJSON
		}
		p.at++
		var at int32
		if at, seen = p.member(node, name, seen); at == 0 {
			at = p.child(node, last)
			last = at
			if seen != nil {
				seen[string(name)] = at
			}
		}
		p.nodes[at] = jsonNode{name: name, next: p.nodes[at].next}
		if err := p.value(at, depth); err != nil {
			return err
		}
		switch p.peek() {
		case ',':
			p.at++
		case '}':
			p.at++
			return nil
		default:
			return errJSON
		}
	}
}

// member finds a name among an object's members, by a map once there are many.
func (p *jsonParser) member(node int32, name []byte, seen map[string]int32) (int32, map[string]int32) {
	if seen != nil {
		return seen[string(name)], seen
	}
	n := &p.nodes[node]
	if n.count == 16 {
		seen = make(map[string]int32, 64)
	}
	found := int32(0)
	for at := n.first; at != 0; at = p.nodes[at].next {
		if string(p.nodes[at].name) == string(name) {
			found = at
		}
		if seen != nil {
			seen[string(p.nodes[at].name)] = at
		}
	}
	return found, seen
}

func (p *jsonParser) number(node int32) error {
	start := p.at
	if p.text[p.at] == '-' {
		p.at++
	}
	whole := p.digits()
	if whole == 0 || whole > 1 && p.text[p.at-whole] == '0' {
		return errJSON
	}
	integer := true
	if p.at < len(p.text) && p.text[p.at] == '.' {
		p.at++
		if integer = false; p.digits() == 0 {
			return errJSON
		}
	}
	if p.at < len(p.text) && p.text[p.at]|0x20 == 'e' {
		p.at++
		if p.at < len(p.text) && (p.text[p.at] == '+' || p.text[p.at] == '-') {
			p.at++
		}
		if integer = false; p.digits() == 0 {
			return errJSON
		}
	}
	text := p.text[start:p.at]
	if len(text) > maxJSONNumber {
		return errJSON
	}
	n := &p.nodes[node]
	if !integer {
		f, _ := strconv.ParseFloat(string(text), 64) // out of range is an infinity, as in Java
		n.kind, n.num = jsonDouble, int64(math.Float64bits(f))
		return nil
	}
	i, err := strconv.ParseInt(string(text), 10, 64)
	switch {
	case err != nil:
		n.kind = jsonBigInt
	case i == int64(int32(i)):
		n.kind, n.num = jsonInt32, i
	default:
		n.kind, n.num = jsonInt64, i
	}
	return nil
}

func (p *jsonParser) digits() int {
	start := p.at
	for p.at < len(p.text) && p.text[p.at] >= '0' && p.text[p.at] <= '9' {
		p.at++
	}
	return p.at - start
}

// string reads a string at its opening quote. Without escapes it aliases the
// text. A lone surrogate, which \u can spell, is kept in three bytes.
func (p *jsonParser) string(limit int) ([]byte, error) {
	p.at++
	start := p.at
	var out []byte
	for p.at < len(p.text) {
		switch b := p.text[p.at]; {
		case b == '"':
			if out == nil {
				out = p.text[start:p.at:p.at]
			} else {
				out = append(out, p.text[start:p.at]...)
			}
			p.at++
			if len(out) > limit && utf8.RuneCount(out) > limit {
				return nil, errJSON
			}
			return out, nil
		case b < ' ':
			return nil, errJSON
		case b == '\\':
			if out == nil {
				out = make([]byte, 0, p.at-start+32)
			}
			out = append(out, p.text[start:p.at]...)
			var ok bool
			if out, ok = p.escape(out); !ok {
				return nil, errJSON
			}
			start = p.at
		default:
			p.at++
		}
	}
	return nil, errJSON
}

func (p *jsonParser) escape(out []byte) ([]byte, bool) {
	p.at++
	if p.at == len(p.text) {
		return nil, false
	}
	b := p.text[p.at]
	p.at++
	switch b {
	case '"', '\\', '/':
		return append(out, b), true
	case 'b':
		return append(out, '\b'), true
	case 'f':
		return append(out, '\f'), true
	case 'n':
		return append(out, '\n'), true
	case 'r':
		return append(out, '\r'), true
	case 't':
		return append(out, '\t'), true
	case 'u':
		u, ok := p.hex4()
		if !ok {
			return nil, false
		}
		if u >= java.SurrogateFirst && u < 0xdc00 && p.at+1 < len(p.text) && p.text[p.at] == '\\' && p.text[p.at+1] == 'u' {
			before := p.at
			p.at += 2
			if low, ok := p.hex4(); ok && low >= 0xdc00 && low <= java.SurrogateLast {
				return utf8.AppendRune(out, 0x10000+(u-java.SurrogateFirst)<<10+(low-0xdc00)), true
			}
			p.at = before
		}
		if u >= java.SurrogateFirst && u <= java.SurrogateLast {
			return append(out, 0xed, byte(0x80|u>>6&0x3f), byte(0x80|u&0x3f)), true
		}
		return utf8.AppendRune(out, u), true
	default:
		return nil, false
	}
}

func (p *jsonParser) hex4() (rune, bool) {
	if p.at+4 > len(p.text) {
		return 0, false
	}
	u, err := strconv.ParseUint(string(p.text[p.at:p.at+4]), 16, 16)
	if err != nil {
		return 0, false
	}
	p.at += 4
	return rune(u), true
}
