package jsontext

import (
	"encoding/json"
	"unicode/utf8"
)

// What the type numeric holds, which jsonb's numbers are.
const (
	maxWhole    = 131072 // digits before the point
	maxFraction = 16383  // digits behind it
)

// Check looks at a payload before PostgreSQL does. size is the length of the text that
// PostgreSQL makes of it, or somewhat more: jsonb puts a space behind each comma and colon, and
// writes numbers out.
func Check(text []byte, binary bool) (size int, reason string) {
	if !utf8.Valid(text) {
		return 0, "is not UTF-8"
	}
	if !json.Valid(text) {
		return 0, "is not JSON; []byte is written as it is, give a Go value to have JSON made of it"
	}
	if !binary {
		return len(text), ""
	}
	size = len(text)
	for i := 0; i < len(text); {
		switch c := text[i]; {
		case c == '"':
			end, what := jsonString(text, i+1)
			if what != "" {
				return 0, what
			}
			i = end
		case c == ',' || c == ':':
			size++
			i++
		case c == '-' || c >= '0' && c <= '9':
			end, more := jsonNumber(text, i)
			if more < 0 {
				return 0, "has a number that jsonb cannot hold"
			}
			size += more
			i = end
		default:
			i++
		}
	}
	return size, ""
}

// jsonString goes to the end of a string of valid JSON.
func jsonString(text []byte, i int) (end int, reason string) {
	for ; text[i] != '"'; i++ {
		if text[i] != '\\' {
			continue
		}
		i++
		if text[i] != 'u' {
			continue
		}
		unit := scanner{text, i + 1}
		r, _ := unit.unit()
		joined := unit.pair(r)
		switch {
		case r == 0:
			return 0, `has the character \u0000, which jsonb cannot hold`
		case joined >= 0xd800 && joined <= 0xdfff:
			return 0, `has half of a surrogate pair (\ud800 to \udfff), which jsonb cannot hold`
		}
		i = unit.at - 1
	}
	return i + 1, ""
}

// jsonNumber goes to the end of a number of valid JSON. more is how many characters jsonb
// adds to it; below zero: it has no room for it.
func jsonNumber(text []byte, i int) (end, more int) {
	s := scanner{text, i}
	s.take('-')
	whole, fraction, exponent := s.digits(), 0, 0
	if s.take('.') {
		fraction = s.digits()
	}
	if c := s.next(); c == 'e' || c == 'E' {
		s.at++
		more = 1
		negative := s.take('-')
		s.take('+')
		from := s.at
		s.digits()
		for _, c := range text[from:s.at] {
			exponent = min(exponent*10+int(c-'0'), 1<<20)
		}
		if negative {
			exponent = -exponent
		}
	}
	if whole+exponent > maxWhole || fraction-exponent > maxFraction {
		return s.at, -1
	}
	return s.at, more + max(exponent, -exponent)
}
