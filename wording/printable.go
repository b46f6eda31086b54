package wording

import (
	"fmt"
	"strings"
)

// Printable keeps a line a line.
func Printable(text string) string {
	return replaceControls(text, func(r rune) string {
		switch r {
		case '\n':
			return `\n`
		case '\t':
			return `\t`
		}
		return fmt.Sprintf(`\u%04x`, r)
	})
}

// Visible shows text as it is sent: nothing is escaped, so that a backslash is one,
// and control characters show as the signs that Unicode has for them.
func Visible(text string) string {
	return replaceControls(text, func(r rune) string {
		switch {
		case r < ' ':
			return string(r + '\u2400')
		case r == 0x7f:
			return "\u2421"
		}
		return fmt.Sprintf("<U+%04X>", r)
	})
}

// replaceControls replaces what a terminal would act upon.
func replaceControls(text string, show func(rune) string) string {
	var out strings.Builder
	for _, r := range text {
		switch {
		case r < ' ', r >= 0x7f && r < 0xa0, r == '\u2028', r == '\u2029', r >= '\u202a' && r <= '\u202e', r >= '\u2066' && r <= '\u2069':
			out.WriteString(show(r))
		default:
			out.WriteRune(r)
		}
	}
	return out.String()
}
