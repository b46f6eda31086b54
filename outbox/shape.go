package outbox

import (
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"
)

//go:generate go -C .. run ./test/shapes

// Shape is the columns of an outbox table, by what they are for. A Column without a name is
// one that the table does not have. The functions in this package that return a Shape are
// those of the relay's presets that a writer can fill; change what differs in your table:
//
//	shape := outbox.Outbox()
//	shape.Key.Type = "uuid"
type Shape struct {
	// Preset is the relay's name for the shape.
	Preset string

	ID             Column
	Key            Column // Event.AggregateID
	Route          Column // Event.AggregateType
	Topic          Column // Event.Topic
	Type           Column // Event.Type
	Payload        Column
	Headers        Column
	Trace          Column
	IdempotencyKey Column

	// Now are columns that take the time of writing.
	Now []string

	// TopicTemplate is what the relay makes the topic of, such as
	// `${aggregate_type}-events`. Empty: the relay's configuration has to say.
	TopicTemplate string
}

// Column is a column of the table.
type Column struct {
	Name string

	// Type is the column's type as SQL has it: uuid, text, varchar(255), json, jsonb,
	// bytea, …
	Type string

	Nullable bool

	// Generated is for an id that the database makes. It is not written.
	Generated bool
}

// kind is how a column's values are checked and written.
type kind byte

const (
	kindNone kind = iota // the table has no such column
	kindText
	kindUUID
	kindInteger
	kindJSON
	kindJSONB
	kindBytes
)

// typed is a Column made ready.
type typed struct {
	Column
	kind  kind
	limit int // characters of a varchar(n); 0: any number
}

func (c Column) ready(role string) (typed, error) {
	t := typed{Column: c}
	if c == (Column{}) {
		return t, nil
	}
	fail := func(format string, args ...any) (typed, error) {
		return typed{}, fmt.Errorf("column for the %s: %s", role, fmt.Sprintf(format, args...))
	}
	if _, err := quoteName(c.Name); err != nil {
		return fail("%v", err)
	}
	base, modifier, limited := strings.Cut(strings.ToLower(strings.TrimSpace(c.Type)), "(")
	switch strings.TrimSpace(base) {
	case "text":
		t.kind = kindText
	case "varchar", "character varying":
		t.kind = kindText
		if limited {
			n, err := strconv.Atoi(strings.TrimSpace(strings.TrimSuffix(modifier, ")")))
			if err != nil || n < 1 {
				return fail("type %q is no type of text", c.Type)
			}
			t.limit = n
		}
	case "uuid":
		t.kind = kindUUID
	case "smallint", "integer", "int", "bigint", "int2", "int4", "int8":
		t.kind = kindInteger
	case "json":
		t.kind = kindJSON
	case "jsonb":
		t.kind = kindJSONB
	case "bytea":
		t.kind = kindBytes
	default:
		return fail("type %q is none that a writer fills; allowed: uuid, text, varchar(n), smallint, integer, bigint, json, jsonb, bytea", c.Type)
	}
	return t, nil
}

func (s *Shape) empty() bool {
	return s.ID == (Column{}) && s.Payload == (Column{}) && s.Preset == "" && s.Route == (Column{}) && s.Type == (Column{})
}

// quoteName makes an identifier. The server would cut a longer one off, which could name
// something else.
func quoteName(name string) (string, error) {
	if name == "" || len(name) > 63 || !validText(name) {
		return "", fmt.Errorf("%q is no name; allowed: 1 to 63 bytes of UTF-8 without a zero byte", name)
	}
	return `"` + strings.ReplaceAll(name, `"`, `""`) + `"`, nil
}

// validText reports whether PostgreSQL takes s as text.
func validText(s string) bool {
	return utf8.ValidString(s) && strings.IndexByte(s, 0) < 0
}

// parseTable reads a table's name as the relay's configuration has it: schema and table.
func parseTable(name string) ([]string, error) {
	fail := func(cause string) ([]string, error) {
		return nil, fmt.Errorf("table %q: %s; write schema.table, with double quotes around a part that has upper case or other signs", name, cause)
	}
	var parts []string
	for rest := name; ; {
		part, after, cause := cutName(rest)
		if cause != "" {
			return fail(cause)
		}
		if _, err := quoteName(part); err != nil {
			return fail("a part is no name of 1 to 63 bytes")
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
		return []string{"public", parts[0]}, nil
	case 2:
		return parts, nil
	}
	return fail("more than two parts")
}

// cutName splits the first part off.
func cutName(s string) (part, rest, cause string) {
	if strings.HasPrefix(s, `"`) {
		for i := 1; i < len(s); i++ {
			if s[i] != '"' {
				continue
			}
			if i+1 < len(s) && s[i+1] == '"' {
				i++
				continue
			}
			return strings.ReplaceAll(s[1:i], `""`, `"`), s[i+1:], ""
		}
		return "", "", "a quote is not closed"
	}
	end := strings.IndexAny(s, `."`)
	if end < 0 {
		end = len(s)
	}
	for i, r := range s[:end] {
		letter := r == '_' || 'a' <= r|0x20 && r|0x20 <= 'z' || r >= 0x80
		if !letter && (i == 0 || r != '$' && (r < '0' || r > '9')) {
			return "", "", fmt.Sprintf("%q needs quotes", string(r))
		}
	}
	return lowerASCII(s[:end]), s[end:], ""
}

// lowerASCII folds as the server does with an encoding of several bytes.
func lowerASCII(s string) string {
	return strings.Map(func(r rune) rune {
		if 'A' <= r && r <= 'Z' {
			return r + 'a' - 'A'
		}
		return r
	}, s)
}
