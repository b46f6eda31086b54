package tape

import (
	"fmt"
	"strconv"
	"strings"
)

// Mismatch is a payload that does not fit its schema. It has the place and the types, never the
// payload.
type Mismatch struct {
	Schema fmt.Stringer // by whoever has it
	What   string

	path []string // from the inside to the outside
	at   bool     // there is a path
}

// Unfit is one at the value at hand; In has the way to it added.
func Unfit(format string, args ...any) error {
	return &Mismatch{What: fmt.Sprintf(format, args...), at: true}
}

// In adds a step to the way to the value that does not fit.
func In(err error, step string) error {
	if m, ok := err.(*Mismatch); ok { //nolint:errorlint // made by Unfit, and not wrapped on its way
		m.path = append(m.path, step)
	}
	return err
}

// maxPath bounds the steps of a path in a message.
const maxPath = 16

func (m *Mismatch) Error() string {
	var b strings.Builder
	if m.at {
		b.WriteByte('$')
		for i := len(m.path) - 1; i >= 0; i-- {
			if n := len(m.path) - 1 - i; n == maxPath {
				b.WriteString("…")
				break
			}
			b.WriteString(m.path[i])
		}
		b.WriteString(": ")
	}
	b.WriteString(m.What)
	if m.Schema != nil {
		b.WriteString(" (" + m.Schema.String() + ")")
	}
	return b.String()
}

// Member is the step to a member. A name is shortened: who writes maps may have data in it.
func Member(name string) string {
	const most = 40
	if len(name) > most {
		name = name[:most] + "…"
	}
	if name == "" {
		return `[""]`
	}
	for i, c := range name {
		if (c < 'a' || 'z' < c) && (c < 'A' || 'Z' < c) && c != '_' && (c < '0' || '9' < c || i == 0) {
			return "[" + strconv.QuoteToASCII(name) + "]"
		}
	}
	return "." + name
}

// Element is the step to an element.
func Element(i int) string { return "[" + strconv.Itoa(i) + "]" }

// Entry is the step to an entry of a map, whose key is data.
const Entry = "[*]"
