package jsontext

import (
	"errors"
	"strconv"
	"strings"
	"unicode/utf16"
	"unicode/utf8"
)

// JSON here is read without decoding it, so that members keep their bytes. The
// readers below accept text that is not JSON in places, but never read past its
// end; whoever cannot trust the text asks json.Valid first.

var (
	ErrNotObject = errors.New("is not a JSON object")
	ErrNotUTF8   = errors.New("is not UTF-8 text")
	ErrNotJSON   = errors.New("is not JSON")
)

const upperHex = "0123456789ABCDEF"

// AppendString appends text as a JSON string with the escapes that Kafka
// Connect's JsonConverter writes, byte for byte: equal keys must hash to equal
// partitions. Characters above U+FFFF become two escapes, and nothing else but
// quote, backslash and controls is escaped.
func AppendString(dst, text []byte) ([]byte, error) {
	dst = append(dst, '"')
	done := 0
	for i := 0; i < len(text); {
		c := text[i]
		if c >= ' ' && c != '"' && c != '\\' && c < utf8.RuneSelf {
			i++
			continue
		}
		size := 1
		r := rune(c)
		if c >= utf8.RuneSelf {
			r, size = utf8.DecodeRune(text[i:])
			if r == utf8.RuneError && size == 1 {
				return dst, ErrNotUTF8
			}
			if r <= 0xFFFF {
				i += size
				continue
			}
		}
		dst = appendEscape(append(dst, text[done:i]...), r)
		i += size
		done = i
	}
	return append(append(dst, text[done:]...), '"'), nil
}

func appendEscape(dst []byte, r rune) []byte {
	switch r {
	case '"', '\\':
		return append(dst, '\\', byte(r))
	case '\b':
		return append(dst, '\\', 'b')
	case '\t':
		return append(dst, '\\', 't')
	case '\n':
		return append(dst, '\\', 'n')
	case '\f':
		return append(dst, '\\', 'f')
	case '\r':
		return append(dst, '\\', 'r')
	}
	if r > 0xFFFF {
		high, low := utf16.EncodeRune(r)
		return appendUnit(appendUnit(dst, high), low)
	}
	return appendUnit(dst, r)
}

func appendUnit(dst []byte, u rune) []byte {
	return append(dst, '\\', 'u', upperHex[u>>12&15], upperHex[u>>8&15], upperHex[u>>4&15], upperHex[u&15])
}

// AppendUnescaped appends what stands between the quotes of a JSON string.
func AppendUnescaped(dst, inner []byte) ([]byte, error) {
	for i := 0; i < len(inner); {
		c := inner[i]
		if c != '\\' {
			dst = append(dst, c)
			i++
			continue
		}
		if i+1 >= len(inner) {
			return dst, ErrNotJSON
		}
		i += 2
		switch e := inner[i-1]; e {
		case '"', '\\', '/':
			dst = append(dst, e)
		case 'b':
			dst = append(dst, '\b')
		case 'f':
			dst = append(dst, '\f')
		case 'n':
			dst = append(dst, '\n')
		case 'r':
			dst = append(dst, '\r')
		case 't':
			dst = append(dst, '\t')
		case 'u':
			r, n, ok := UnescapeUnit(inner[i:])
			if !ok {
				return dst, ErrNotJSON
			}
			dst = utf8.AppendRune(dst, r)
			i += n
		default:
			return dst, ErrNotJSON
		}
	}
	return dst, nil
}

// UnescapeUnit reads the digits after `\u`, and the second half of a surrogate
// pair where one follows. A half alone becomes U+FFFD.
func UnescapeUnit(b []byte) (r rune, n int, ok bool) {
	first, ok := hex4(b)
	if !ok {
		return 0, 0, false
	}
	if !utf16.IsSurrogate(first) {
		return first, 4, true
	}
	if len(b) >= 10 && b[4] == '\\' && b[5] == 'u' {
		if second, ok := hex4(b[6:]); ok {
			if r := utf16.DecodeRune(first, second); r != utf8.RuneError {
				return r, 10, true
			}
		}
	}
	return utf8.RuneError, 4, true
}

func hex4(b []byte) (rune, bool) {
	if len(b) < 4 {
		return 0, false
	}
	var r rune
	for _, c := range b[:4] {
		d, ok := HexDigit(c)
		if !ok {
			return 0, false
		}
		r = r<<4 | rune(d)
	}
	return r, true
}

// HexDigit is the value of a hexadecimal digit.
func HexDigit(c byte) (byte, bool) {
	switch {
	case '0' <= c && c <= '9':
		return c - '0', true
	case 'a' <= c && c <= 'f':
		return c - 'a' + 10, true
	case 'A' <= c && c <= 'F':
		return c - 'A' + 10, true
	}
	return 0, false
}

// SkipSpace is the position of the first byte from b[i] on that is no white space of JSON.
func SkipSpace(b []byte, i int) int {
	for i < len(b) && (b[i] == ' ' || b[i] == '\t' || b[i] == '\n' || b[i] == '\r') {
		i++
	}
	return i
}

// skipString returns the position after the string that begins at b[i].
func skipString(b []byte, i int) (int, bool) {
	if i >= len(b) || b[i] != '"' {
		return i, false
	}
	for i++; i < len(b); i++ {
		switch b[i] {
		case '\\':
			i++
		case '"':
			return i + 1, true
		}
	}
	return len(b), false
}

// skipValue returns the position after the value that begins at b[i]. Nesting
// costs no stack.
func skipValue(b []byte, i int) (int, bool) {
	if i >= len(b) {
		return i, false
	}
	switch b[i] {
	case '"':
		return skipString(b, i)
	case '{', '[':
		return skipNested(b, i)
	}
	start := i
	for i < len(b) && !strings.ContainsRune(",]}: \t\r\n", rune(b[i])) {
		i++
	}
	return i, i > start
}

func skipNested(b []byte, i int) (int, bool) {
	depth := 0
	for i < len(b) {
		switch b[i] {
		case '"':
			end, ok := skipString(b, i)
			if !ok {
				return end, false
			}
			i = end
			continue
		case '{', '[':
			depth++
		case '}', ']':
			depth--
			if depth == 0 {
				return i + 1, true
			}
		}
		i++
	}
	return i, false
}

// elements walks an object or an array without copying.
type elements struct {
	text  []byte
	At    int  // next byte to read
	close byte // '}' or ']'
	more  bool // an element has been read, so a comma comes first
	Bad   bool // text is malformed; set when next returns false
}

// OpenElements begins to read an array or an object; false: text is none.
func OpenElements(text []byte, open, closing byte) (elements, bool) {
	i := SkipSpace(text, 0)
	if i >= len(text) || text[i] != open {
		return elements{}, false
	}
	return elements{text: text, At: i + 1, close: closing}, true
}

// next gives the name (of an object's member; between the quotes, still escaped)
// and the value as written. It returns false at the end and at malformed text.
func (e *elements) Next() (name, value []byte, ok bool) {
	i := SkipSpace(e.text, e.At)
	if i < len(e.text) && e.text[i] == e.close {
		e.At = i
		return nil, nil, false
	}
	if e.more {
		if i >= len(e.text) || e.text[i] != ',' {
			e.Bad = true
			return nil, nil, false
		}
		i = SkipSpace(e.text, i+1)
	}
	if e.close == '}' {
		end, ok := skipString(e.text, i)
		if !ok {
			e.Bad = true
			return nil, nil, false
		}
		name = e.text[i+1 : end-1]
		i = SkipSpace(e.text, end)
		if i >= len(e.text) || e.text[i] != ':' {
			e.Bad = true
			return nil, nil, false
		}
		i = SkipSpace(e.text, i+1)
	}
	end, valid := skipValue(e.text, i)
	if !valid {
		e.Bad = true
		return nil, nil, false
	}
	e.At, e.more = end, true
	return name, e.text[i:end], true
}

// SameName compares a member's name as written with a plain one.
func SameName(escaped []byte, plain string) bool {
	for _, c := range escaped {
		if c == '\\' {
			var room [64]byte
			name, err := AppendUnescaped(room[:0], escaped)
			return err == nil && string(name) == plain
		}
	}
	return string(escaped) == plain
}

// ParsePointer reads an RFC 6901 pointer, which begins with a slash.
func ParsePointer(s string) ([]string, error) {
	if !strings.HasPrefix(s, "/") {
		return nil, errors.New("a JSON pointer begins with a slash")
	}
	tokens := strings.Split(s[1:], "/")
	for i, t := range tokens {
		for at := strings.IndexByte(t, '~'); at >= 0 && at < len(t); {
			if at+1 >= len(t) || t[at+1] != '0' && t[at+1] != '1' {
				return nil, errors.New("in a JSON pointer, ~ is written ~0 and / is written ~1")
			}
			next := strings.IndexByte(t[at+1:], '~')
			if next < 0 {
				break
			}
			at += 1 + next
		}
		tokens[i] = strings.ReplaceAll(strings.ReplaceAll(t, "~1", "/"), "~0", "~")
	}
	return tokens, nil
}

// Lookup follows pointer through text and returns the value as written; nil when
// there is none, or it is null. Of members with one name the last one counts.
func Lookup(text []byte, pointer []string) ([]byte, error) {
	at := text[SkipSpace(text, 0):]
	for _, token := range pointer {
		found, err := Child(at, token)
		if err != nil || found == nil {
			return nil, err
		}
		at = found
	}
	end, ok := skipValue(at, 0)
	if !ok {
		return nil, ErrNotJSON
	}
	if at = at[:end]; string(at) == "null" {
		return nil, nil
	}
	return at, nil
}

// Child is the member or element that one token of a JSON pointer names; nil: there is none.
func Child(text []byte, token string) ([]byte, error) {
	if e, ok := OpenElements(text, '{', '}'); ok {
		var found []byte
		for name, value, ok := e.Next(); ok; name, value, ok = e.Next() {
			if SameName(name, token) {
				found = value
			}
		}
		if e.Bad {
			return nil, ErrNotJSON
		}
		return found, nil
	}
	if e, ok := OpenElements(text, '[', ']'); ok {
		want, err := strconv.ParseUint(token, 10, 31)
		if err != nil || len(token) > 1 && token[0] == '0' {
			return nil, nil //nolint:nilerr // no element has that name
		}
		for _, value, ok := e.Next(); ok; _, value, ok = e.Next() {
			if want == 0 {
				return value, nil
			}
			want--
		}
		if e.Bad {
			return nil, ErrNotJSON
		}
	}
	return nil, nil
}
