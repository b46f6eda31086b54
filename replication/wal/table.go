package wal

import (
	"errors"
	"fmt"
	"regexp"
	"strings"
	"unicode/utf8"
)

// ParseTable reads a table name as SQL would: parts without quotes fold to lower
// case, a quote inside quotes is doubled, and the schema defaults to public.
func ParseTable(s string) (Table, error) {
	fail := func(cause string) (Table, error) {
		return Table{}, fmt.Errorf("table name %q: %s; write schema.table, with double quotes around a part that has upper case or other signs", s, cause)
	}
	if !utf8.ValidString(s) || strings.ContainsRune(s, 0) {
		return fail("not UTF-8 text")
	}
	var parts []string
	rest := s
	for {
		part, after, err := CutIdentifier(rest)
		if err != nil {
			return fail(err.Error())
		}
		if len(part) > 63 {
			return fail("a part is longer than PostgreSQL's 63 bytes")
		}
		parts = append(parts, part)
		if after == "" {
			break
		}
		if after[0] != '.' {
			return fail(fmt.Sprintf("%q does not belong to a name", after[:1]))
		}
		rest = after[1:]
	}
	switch len(parts) {
	case 1:
		return Table{Schema: "public", Name: parts[0]}, nil
	case 2:
		return Table{Schema: parts[0], Name: parts[1]}, nil
	}
	return fail("more than two parts")
}

var plainIdentifier = regexp.MustCompile(`^[a-z_][a-z0-9_$]*$`)

// CutIdentifier splits the first part off s.
func CutIdentifier(s string) (part, rest string, err error) {
	if !strings.HasPrefix(s, `"`) {
		end := strings.IndexAny(s, `."`)
		if end < 0 {
			end = len(s)
		}
		// ASCII only, as the server does for an encoding of several bytes.
		part = strings.Map(func(r rune) rune {
			if 'A' <= r && r <= 'Z' {
				return r + 'a' - 'A'
			}
			return r
		}, s[:end])
		if part == "" {
			return "", "", errors.New("a part is empty")
		}
		for i, r := range part {
			letter := r == '_' || 'a' <= r && r <= 'z' || r >= 0x80
			if !letter && (i == 0 || r != '$' && (r < '0' || r > '9')) {
				return "", "", fmt.Errorf("%q needs quotes", string(r))
			}
		}
		return part, s[end:], nil
	}
	var b strings.Builder
	for i := 1; i < len(s); i++ {
		switch {
		case s[i] != '"':
			b.WriteByte(s[i])
		case i+1 < len(s) && s[i+1] == '"':
			b.WriteByte('"')
			i++
		default:
			if b.Len() == 0 {
				return "", "", errors.New("a part is empty")
			}
			return b.String(), s[i+1:], nil
		}
	}
	return "", "", errors.New("a quote is not closed")
}

// String is the name as one would write it in the configuration, with quotes
// only where they are needed. ParseTable reads it back.
func (t Table) String() string { return quotedIfNeeded(t.Schema) + "." + quotedIfNeeded(t.Name) }

func quotedIfNeeded(name string) string {
	if plainIdentifier.MatchString(name) {
		return name
	}
	return QuoteIdentifier(name)
}

// SQL is the name for a statement: always quoted, since a plain name may be a
// reserved word.
func (t Table) SQL() string { return QuoteIdentifier(t.Schema) + "." + QuoteIdentifier(t.Name) }

// Table names one outbox table. Both parts are as the catalog has them: no
// quotes, no folding.
type Table struct {
	Schema string
	Name   string
}

// QuoteIdentifier makes a name an identifier of SQL.
func QuoteIdentifier(name string) string {
	return `"` + strings.ReplaceAll(name, `"`, `""`) + `"`
}
