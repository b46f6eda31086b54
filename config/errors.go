package config

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// Error is one mistake. Line and Column count from 1 and are 0 when it was not
// made in a file.
type Error struct {
	Source  string // file, environment variable or flag; empty: something is missing everywhere
	Line    int
	Column  int
	Key     string // postgres.slot, outbox[0].topic; empty for the file as a whole
	Message string // what is wrong and what is allowed
	Err     error  // what the message is the text of, where the router found it; else nil

	excerpt string // the line of the file, secrets hidden; empty when it may not be shown
}

func (e *Error) Error() string {
	var b strings.Builder
	b.WriteString(e.Text())
	if e.excerpt != "" {
		if strings.Contains(e.Message, "\n") { // else it looks like a part of the block above
			b.WriteByte('\n')
		}
		b.WriteString("\n    " + e.excerpt + "\n    " + e.caret())
	}
	return b.String()
}

func (e *Error) Unwrap() error { return e.Err }

// Text is Error without the excerpt.
func (e *Error) Text() string {
	var b strings.Builder
	if e.Source != "" {
		b.WriteString(e.Source)
		if e.Line > 0 {
			fmt.Fprintf(&b, ":%d:%d", e.Line, e.Column)
		}
		b.WriteString(": ")
	}
	if e.Key != "" {
		b.WriteString(e.Key + ": ")
	}
	b.WriteString(e.Message)
	return b.String()
}

// caret keeps the line's tabs, so that it stands below its column.
func (e *Error) caret() string {
	var b strings.Builder
	for i, r := range []rune(e.excerpt) {
		if i >= e.Column-1 {
			break
		}
		if r != '\t' {
			r = ' '
		}
		b.WriteRune(r)
	}
	return b.String() + "^"
}

// Errors is every mistake of one Load: those of the file in its order, then the
// others.
type Errors struct {
	List     []*Error
	Warnings []string // as Config.Warnings: they may be why something is missing

	// Log and Pipeline are as far known as the file could be read; a part that has a
	// mistake is its default.
	Log      Log
	Pipeline string
}

func (e *Errors) Error() string {
	texts := make([]string, len(e.List))
	for i, one := range e.List {
		texts[i] = one.Error()
	}
	return strings.Join(texts, "\n")
}

// Text is Error without the excerpts.
func (e *Errors) Text() string {
	texts := make([]string, len(e.List))
	for i, one := range e.List {
		texts[i] = one.Text()
	}
	return strings.Join(texts, "\n")
}

// Unwrap gives the single mistakes to errors.As.
func (e *Errors) Unwrap() []error {
	all := make([]error, len(e.List))
	for i, one := range e.List {
		all[i] = one
	}
	return all
}

func (e *Errors) sort() {
	slices.SortStableFunc(e.List, func(a, b *Error) int {
		if (a.Line > 0) != (b.Line > 0) {
			return cmp.Compare(b.Line, a.Line)
		}
		return cmp.Or(cmp.Compare(a.Line, b.Line), cmp.Compare(a.Column, b.Column))
	})
}
