package ways

import "strings"

// Literal is a text as a constant of SQL, whatever standard_conforming_strings is.
func Literal(text string) string {
	text = strings.ReplaceAll(text, "\x00", "") // which PostgreSQL has in no text
	quoted := "'" + strings.ReplaceAll(text, "'", "''") + "'"
	if strings.Contains(text, `\`) {
		return " E" + strings.ReplaceAll(quoted, `\`, `\\`)
	}
	return quoted
}

// Identifier is a name in SQL, quoted unless it is a plain one.
func Identifier(name string) string {
	name = strings.ReplaceAll(name, "\x00", "")
	plain := name != "" && !reserved[name]
	for i, r := range name {
		plain = plain && (r >= 'a' && r <= 'z' || r == '_' || i > 0 && r >= '0' && r <= '9')
	}
	if plain {
		return name
	}
	return `"` + strings.ReplaceAll(name, `"`, `""`) + `"`
}

// reserved are the key words that PostgreSQL takes for no name of a table, column or role.
var reserved = func() map[string]bool {
	words := map[string]bool{}
	for word := range strings.FieldsSeq(`all analyse analyze and any array as asc asymmetric authorization binary both case cast check collate
		collation column concurrently constraint create cross current_catalog current_date current_role current_schema current_time
		current_timestamp current_user default deferrable desc distinct do else end except false fetch for foreign freeze from full grant
		group having ilike in initially inner intersect into is isnull join lateral leading left like limit localtime localtimestamp
		natural not notnull null offset on only or order outer overlaps placing primary references returning right select
		session_user similar some symmetric system_user table tablesample then to trailing true union unique user using variadic verbose
		when where window with none`) {
		words[word] = true
	}
	return words
}()

// acts reports whether a terminal or a page would act upon a character instead of showing it.
func acts(r rune) bool {
	return r < ' ' || r >= 0x7f && r < 0xa0 || r == '\u061c' || r == '\u200e' || r == '\u200f' ||
		r >= '\u2028' && r <= '\u202e' || r >= '\u2066' && r <= '\u2069'
}

// Word is an argument for a POSIX shell. What is acted upon and not shown becomes a question mark.
func Word(text string) string {
	text = strings.Map(func(r rune) rune {
		if acts(r) {
			return '?'
		}
		return r
	}, text)
	plain := text != ""
	for _, r := range text {
		plain = plain && (r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("_.-:,/@+=", r))
	}
	if plain && text[0] != '-' {
		return text
	}
	return "'" + strings.ReplaceAll(text, "'", `'\''`) + "'"
}
