package jsontext

import (
	"cmp"
	"slices"
	"strconv"
	"unicode/utf8"
)

// appendPythonJSON reads JSON as Python does and writes what Python would write. encoding/json
// does not fit: it replaces lone surrogates and reads all numbers as floats.
func appendPythonJSON(b, text []byte, depth int) ([]byte, error) {
	if !utf8.Valid(text) {
		return nil, errPythonUTF8
	}
	s := scanner{text: text}
	s.space()
	b, err := s.value(b, depth)
	if err != nil {
		return nil, err
	}
	s.space()
	if s.at != len(text) {
		return nil, errPythonJSON
	}
	return b, nil
}

type scanner struct {
	text []byte
	at   int
}

func (s *scanner) space() {
	for s.at < len(s.text) {
		switch s.text[s.at] {
		case ' ', '\t', '\n', '\r':
			s.at++
		default:
			return
		}
	}
}

// next is the next byte; 0 at the end, which no rule below takes.
func (s *scanner) next() byte {
	if s.at < len(s.text) {
		return s.text[s.at]
	}
	return 0
}

func (s *scanner) take(c byte) bool {
	if s.next() != c {
		return false
	}
	s.at++
	return true
}

func (s *scanner) value(b []byte, depth int) ([]byte, error) {
	if depth > pythonDepth {
		return nil, ErrDepth
	}
	switch c := s.next(); {
	case c == '{':
		return s.object(b, depth)
	case c == '[':
		return s.array(b, depth)
	case c == '"':
		text, err := s.str()
		if err != nil {
			return nil, err
		}
		return appendPythonString(b, text), nil
	case c == '-' || c >= '0' && c <= '9':
		return s.number(b)
	}
	for _, word := range []string{"null", "true", "false"} {
		if len(s.text)-s.at >= len(word) && string(s.text[s.at:s.at+len(word)]) == word {
			s.at += len(word)
			return append(b, word...), nil
		}
	}
	return nil, errPythonJSON
}

func (s *scanner) array(b []byte, depth int) ([]byte, error) {
	s.at++
	b = append(b, '[')
	s.space()
	if s.take(']') {
		return append(b, ']'), nil
	}
	for {
		var err error
		s.space()
		if b, err = s.value(b, depth+1); err != nil {
			return nil, err
		}
		s.space()
		switch {
		case s.take(']'):
			return append(b, ']'), nil
		case !s.take(','):
			return nil, errPythonJSON
		}
		b = append(b, ", "...)
	}
}

// member is one member of an object, written out: text[from:to] behind the object's start.
type member struct {
	name     string
	from, to int
}

// object writes the members at the end of b as they come, and then in their order.
func (s *scanner) object(b []byte, depth int) ([]byte, error) {
	s.at++
	start := len(b)
	members := make([]member, 0, 8)
	s.space()
	if s.take('}') {
		return append(b, "{}"...), nil
	}
	for {
		s.space()
		if s.next() != '"' {
			return nil, errPythonJSON
		}
		name, err := s.str()
		if err != nil {
			return nil, err
		}
		s.space()
		if !s.take(':') {
			return nil, errPythonJSON
		}
		s.space()
		from := len(b)
		b = append(appendPythonString(b, name), ": "...)
		if b, err = s.value(b, depth+1); err != nil {
			return nil, err
		}
		members = append(members, member{name, from, len(b)})
		s.space()
		if s.take('}') {
			return arrange(b, start, members), nil
		}
		if !s.take(',') {
			return nil, errPythonJSON
		}
	}
}

// arrange puts the members that stand in b[start:] into their order, by code point, which is
// the order of the bytes of UTF-8. Of equal names the last one stays.
func arrange(b []byte, start int, members []member) []byte {
	inOrder := true
	for i := 1; i < len(members) && inOrder; i++ {
		inOrder = members[i-1].name < members[i].name
	}
	if !inOrder {
		slices.SortStableFunc(members, func(a, b member) int { return cmp.Compare(a.name, b.name) })
	}
	end := len(b)
	b = append(b, '{')
	for i, m := range members {
		if i+1 < len(members) && members[i+1].name == m.name {
			continue
		}
		if len(b) > end+1 {
			b = append(b, ", "...)
		}
		b = append(b, b[m.from:m.to]...)
	}
	b = append(b, '}')
	n := copy(b[start:], b[end:])
	return b[:start+n]
}

func (s *scanner) number(b []byte) ([]byte, error) {
	start := s.at
	s.take('-')
	digits := s.at
	if !s.take('0') {
		s.digits()
	}
	if s.at == digits {
		return nil, errPythonJSON
	}
	whole := s.at
	if s.next() == '.' {
		s.at++
		if s.digits() == 0 {
			return nil, errPythonJSON
		}
	}
	if c := s.next(); c == 'e' || c == 'E' {
		s.at++
		if c := s.next(); c == '+' || c == '-' {
			s.at++
		}
		if s.digits() == 0 {
			return nil, errPythonJSON
		}
	}
	text := s.text[start:s.at]
	switch {
	case s.at != whole:
		f, _ := strconv.ParseFloat(string(text), 64) // out of range is an infinity, as in Python
		return appendPythonFloat(b, f)
	case whole-digits > pythonDigits:
		return nil, errPythonDigits
	case string(text) == "-0":
		return append(b, '0'), nil
	}
	return append(b, text...), nil
}

func (s *scanner) digits() int {
	start := s.at
	for c := s.next(); c >= '0' && c <= '9'; c = s.next() {
		s.at++
	}
	return s.at - start
}

// str reads a string. Lone surrogates are kept.
func (s *scanner) str() (string, error) {
	s.at++
	start := s.at
	for s.at < len(s.text) {
		switch c := s.text[s.at]; {
		case c == '"':
			s.at++
			return string(s.text[start : s.at-1]), nil
		case c == '\\':
			return s.escaped(append(make([]byte, 0, 64), s.text[start:s.at]...))
		case c < ' ':
			return "", errPythonJSON
		}
		s.at++
	}
	return "", errPythonJSON
}

// escaped goes on at the first backslash of a string.
func (s *scanner) escaped(b []byte) (string, error) {
	for s.at < len(s.text) {
		c := s.text[s.at]
		s.at++
		switch {
		case c == '"':
			return string(b), nil
		case c < ' ':
			return "", errPythonJSON
		case c != '\\':
			b = append(b, c)
			continue
		}
		c = s.next()
		s.at++
		switch c {
		case '"', '\\', '/':
			b = append(b, c)
		case 'b':
			b = append(b, '\b')
		case 'f':
			b = append(b, '\f')
		case 'n':
			b = append(b, '\n')
		case 'r':
			b = append(b, '\r')
		case 't':
			b = append(b, '\t')
		case 'u':
			r, ok := s.unit()
			if !ok {
				return "", errPythonJSON
			}
			b = appendRune(b, s.pair(r))
		default:
			return "", errPythonJSON
		}
	}
	return "", errPythonJSON
}

// pair joins a high surrogate with a low one that follows.
func (s *scanner) pair(high rune) rune {
	if high < 0xd800 || high > 0xdbff || len(s.text)-s.at < 6 || s.text[s.at] != '\\' || s.text[s.at+1] != 'u' {
		return high
	}
	ahead := scanner{s.text, s.at + 2}
	low, ok := ahead.unit()
	if !ok || low < 0xdc00 || low > 0xdfff {
		return high
	}
	s.at = ahead.at
	return 0x10000 + (high-0xd800)<<10 | (low - 0xdc00)
}

// unit reads the four digits of a \u.
func (s *scanner) unit() (rune, bool) {
	if len(s.text)-s.at < 4 {
		return 0, false
	}
	var r rune
	for _, c := range s.text[s.at : s.at+4] {
		switch {
		case c >= '0' && c <= '9':
			c -= '0'
		case c >= 'a' && c <= 'f':
			c -= 'a' - 10
		case c >= 'A' && c <= 'F':
			c -= 'A' - 10
		default:
			return 0, false
		}
		r = r<<4 | rune(c)
	}
	s.at += 4
	return r, true
}
