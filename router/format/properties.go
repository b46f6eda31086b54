package format

import (
	"bytes"

	"github.com/cdc-relay/cdc-relay/router/jsontext"
	"github.com/cdc-relay/cdc-relay/router/record"
)

// property gives the value of key in the text of a java.util.Properties, as its
// store method writes it; nil when there is none. Of several lines the last one
// counts. No line is continued on the next one: store never does that.
func property(b *record.Buffer, text []byte, key string) []byte {
	var found []byte
	for len(text) > 0 {
		var line []byte
		line, text = propertyLine(text)
		line = bytes.TrimLeft(line, " \t\f")
		if len(line) == 0 || line[0] == '#' || line[0] == '!' {
			continue
		}
		name, value := splitProperty(line)
		if string(unescapeProperty(b, name)) == key {
			found = unescapeProperty(b, value)
		}
	}
	return found
}

// propertyLine takes a line off.
func propertyLine(text []byte) (line, rest []byte) {
	if i := bytes.IndexAny(text, "\r\n"); i >= 0 {
		return text[:i], text[i+1:]
	}
	return text, nil
}

// splitProperty parts a line at the first `=`, `:` or blank that no backslash
// precedes.
func splitProperty(line []byte) (name, value []byte) {
	at := 0
	for at < len(line) && !bytes.ContainsRune([]byte("=: \t\f"), rune(line[at])) {
		if line[at] == '\\' {
			at++
		}
		at++
	}
	at = min(at, len(line))
	name, value = line[:at], bytes.TrimLeft(line[at:], " \t\f")
	if len(value) > 0 && (value[0] == '=' || value[0] == ':') {
		value = bytes.TrimLeft(value[1:], " \t\f")
	}
	return name, value
}

func unescapeProperty(b *record.Buffer, s []byte) []byte {
	if bytes.IndexByte(s, '\\') < 0 {
		return s
	}
	out := b.Tail(len(s))
	for i := 0; i < len(s); i++ {
		if s[i] != '\\' || i+1 >= len(s) {
			out = append(out, s[i])
			continue
		}
		i++
		switch c := s[i]; c {
		case 'n':
			out = append(out, '\n')
		case 't':
			out = append(out, '\t')
		case 'r':
			out = append(out, '\r')
		case 'f':
			out = append(out, '\f')
		case 'u':
			if r, n, ok := jsontext.UnescapeUnit(s[i+1:]); ok {
				out = append(out, string(r)...)
				i += n
			}
		default:
			out = append(out, c)
		}
	}
	return b.Claim(out)
}
