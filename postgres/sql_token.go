package postgres

import (
	"errors"
	"fmt"
	"strings"
)

// SQLToken is the length of what begins a text: a quoted part, a comment, a word or one sign.
func SQLToken(text string) (int, error) {
	switch {
	case text[0] == '\'':
		return quoted(text, '\'', false)
	case (text[0] == 'e' || text[0] == 'E') && strings.HasPrefix(text[1:], "'"):
		n, err := quoted(text[1:], '\'', true)
		return n + 1, err
	case text[0] == '"':
		return quoted(text, '"', false)
	case strings.HasPrefix(text, "--"):
		n := strings.IndexAny(text, "\r\n")
		if n < 0 {
			n = len(text)
		}
		return n, nil
	case strings.HasPrefix(text, "/*"):
		return comment(text)
	case text[0] == '$':
		return dollar(text)
	}
	n := 0
	for n < len(text) && wordSign(text[n]) {
		n++
	}
	return max(1, n), nil
}

func wordSign(c byte) bool {
	return c == '_' || c == '$' || '0' <= c && c <= '9' || 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || c >= 0x80
}

// quoted is the length of a text in quotes, in which a quote is doubled, or with escapes that
// begin with a backslash.
func quoted(text string, quote byte, escapes bool) (int, error) {
	for i := 1; i < len(text); i++ {
		switch {
		case escapes && text[i] == '\\':
			i++
		case text[i] != quote:
		case i+1 < len(text) && text[i+1] == quote:
			i++
		default:
			return i + 1, nil
		}
	}
	return 0, fmt.Errorf("a quote (%c) is not closed", quote)
}

// comment is the length of a comment, which may hold others.
func comment(text string) (int, error) {
	depth := 0
	for i := 0; i+1 < len(text); i++ {
		switch text[i : i+2] {
		case "/*":
			depth++
			i++
		case "*/":
			depth--
			i++
			if depth == 0 {
				return i + 1, nil
			}
		}
	}
	return 0, errors.New("a comment is not closed")
}

// dollar is the length of a text in dollar quotes, or of the one sign.
func dollar(text string) (int, error) {
	end := strings.IndexByte(text[1:], '$')
	if end < 0 {
		return 1, nil
	}
	tag := text[:end+2]
	for i, c := range []byte(tag[1 : len(tag)-1]) {
		if !wordSign(c) || c == '$' || i == 0 && '0' <= c && c <= '9' {
			return 1, nil
		}
	}
	body := strings.Index(text[len(tag):], tag)
	if body < 0 {
		return 0, fmt.Errorf("a quote (%s) is not closed", tag)
	}
	return 2*len(tag) + body, nil
}
