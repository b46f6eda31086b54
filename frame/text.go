package frame

import (
	"strings"
	"unicode"
)

// cells is how many columns a character takes.
func cells(r rune) int {
	switch {
	case unicode.In(r, unicode.Mn, unicode.Me, unicode.Cf):
		return 0
	case r >= 0x1100 && (r <= 0x115f || r >= 0x2e80 && r <= 0xa4cf || r >= 0xac00 && r <= 0xd7a3 || r >= 0xf900 && r <= 0xfaff ||
		r >= 0xfe30 && r <= 0xfe6f || r >= 0xff00 && r <= 0xff60 || r >= 0xffe0 && r <= 0xffe6 || r >= 0x1f300 && r <= 0x1faff || r >= 0x20000 && r <= 0x3fffd):
		return 2
	}
	return 1
}

// columns is how wide a text is; colours take none.
func columns(text string) (n int) {
	each(text, func(r rune, visible bool) {
		if visible {
			n += cells(r)
		}
	})
	return n
}

// bare is a text without colours.
func bare(text string) string {
	var out strings.Builder
	each(text, func(r rune, visible bool) {
		if visible {
			out.WriteRune(r)
		}
	})
	return out.String()
}

// cut shortens a text to a width, with an ellipsis. What sets a colour stays, so that the line
// ends plain.
func cut(text string, width int) string {
	if columns(text) <= width {
		return text
	}
	var out strings.Builder
	used, over := 0, false
	each(text, func(r rune, visible bool) {
		switch {
		case !visible:
			out.WriteRune(r)
		case over:
		case used+cells(r) > width-1:
			over = true
			out.WriteRune('…')
		default:
			used += cells(r)
			out.WriteRune(r)
		}
	})
	return out.String()
}

// each visits the characters; those of a colour are not visible.
func each(text string, visit func(r rune, visible bool)) {
	colour := false
	for _, r := range text {
		if r == '\x1b' {
			colour = true
		}
		visit(r, !colour)
		if colour && r == 'm' {
			colour = false
		}
	}
}

// wrap divides a text at its spaces into lines of a width; what does not fit into most lines is cut.
func wrap(text string, width, most int) []string {
	var lines []string
	line := ""
	for word := range strings.FieldsSeq(text) {
		switch {
		case line == "":
			line = word
		case columns(line)+1+columns(word) <= width:
			line += " " + word
		default:
			lines = append(lines, line)
			line = word
		}
	}
	if line != "" {
		lines = append(lines, line)
	}
	if len(lines) > most {
		lines[most-1] += " " + strings.Join(lines[most:], " ")
		lines = lines[:most]
	}
	for i := range lines {
		lines[i] = cut(lines[i], width)
	}
	return lines
}

// fold divides a command at its spaces into lines of a width, and leaves nothing out. Each line but
// the last ends with joint, so that a copy is the same command. A longer word is divided anywhere.
func fold(text string, width int, joint string) []string {
	var lines []string
	for columns(text) > width {
		at, used := 0, 0
		for i, r := range text {
			if used += cells(r); used > width-columns(joint) {
				if at == 0 {
					at = i
				}
				break
			}
			if r == ' ' {
				at = i + 1
			}
		}
		if at == 0 { // a character that is wider than the line
			break
		}
		line := text[:at]
		if strings.HasSuffix(line, " ") {
			line = strings.TrimRight(line, " ") + joint
		}
		lines = append(lines, line)
		text = text[at:]
	}
	return append(lines, text)
}
