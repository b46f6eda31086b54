package document

import (
	"fmt"
	"slices"
	"strings"
)

// MaxFile is the size in bytes up to which a file is read.
const MaxFile = 1 << 20

// What a configuration never needs is refused before it is parsed: the parser takes the
// square of the number of keys in a block, and of values that are left out, and calls
// itself for each level and each key.
const (
	maxDepth = 100     // levels
	maxKeys  = 500     // in one block
	maxItems = 20_000  // lines that hold more than a comment, and what stands behind commas in brackets and braces
	maxNodes = 1 << 20 // with what aliases stand for
)

// block is a block of lines that are indented alike.
type block struct {
	indent int
	keys   int
}

// checkLimits looks at the text alone, so it may take a line of a long text for a key.
func checkLimits(text string) error {
	if len(text) > MaxFile {
		return &SyntaxError{Line: 1, Column: 1, Message: "the file is larger than a configuration may be; allowed: 1MiB"}
	}
	var s limits
	line := 0
	for raw := range strings.SplitSeq(text, "\n") {
		line++
		if message, column := s.line(strings.TrimRight(raw, "\r \t")); message != "" {
			return &SyntaxError{Line: line, Column: column, Message: message}
		}
	}
	return nil
}

// limits is what is open at a place of the file.
type limits struct {
	blocks []block
	items  int
	flow   int  // brackets and braces
	quote  byte // the sign that ends the text in quotes; 0: in none
}

func (s *limits) line(text string) (message string, column int) {
	body := strings.TrimLeft(text, " ")
	at := len(text) - len(body)
	if s.flow == 0 && s.quote == 0 {
		if body == "" || body[0] == '#' {
			return "", 0
		}
		s.items++
		at = s.open(text, at)
		if slices.ContainsFunc(s.blocks, func(b block) bool { return b.keys > maxKeys }) {
			return fmt.Sprintf("more than %d keys in one mapping", maxKeys), at + 1
		}
	}
	deepest, column := s.scan(text, at)
	switch {
	case len(s.blocks)+deepest > maxDepth:
		return fmt.Sprintf("nested too deeply; allowed: %d levels", maxDepth), max(column, 1)
	case s.items > maxItems:
		return fmt.Sprintf("more than %d keys and values in the file", maxItems), at + 1
	}
	return "", 0
}

// open finds the block of a line, with one more for each dash, and returns where its
// content begins.
func (s *limits) open(text string, at int) int {
	for {
		for len(s.blocks) > 0 && s.blocks[len(s.blocks)-1].indent > at {
			s.blocks = s.blocks[:len(s.blocks)-1]
		}
		if len(s.blocks) == 0 || s.blocks[len(s.blocks)-1].indent < at {
			s.blocks = append(s.blocks, block{indent: at})
		}
		rest := text[at:]
		if !strings.HasPrefix(rest, "- ") && !strings.HasPrefix(rest, "? ") {
			if strings.ContainsAny(rest, ":?") {
				s.blocks[len(s.blocks)-1].keys++
			}
			return at
		}
		if rest[0] == '?' {
			s.blocks[len(s.blocks)-1].keys++
		}
		at += 1 + len(rest) - 1 - len(strings.TrimLeft(rest[1:], " "))
	}
}

// scan follows brackets and quotes where a value may begin, and returns how many are
// open at most.
func (s *limits) scan(text string, at int) (deepest, column int) {
	begins := true // a value may begin here
	for i := at; i < len(text); i++ {
		c := text[i]
		switch {
		case s.quote == '"' && c == '\\':
			i++
		case s.quote != 0:
			if c == s.quote {
				s.quote, begins = 0, false
			}
		case c == ' ' || c == '\t':
			if i+1 < len(text) && text[i+1] == '#' {
				return deepest, column
			}
		case begins && (c == '"' || c == '\''):
			s.quote = c
		case begins && (c == '[' || c == '{'):
			if s.flow++; s.flow > deepest {
				deepest, column = s.flow, i+1
			}
		case s.flow > 0 && (c == ']' || c == '}'):
			s.flow--
			begins = false
		default:
			if s.flow > 0 && c == ',' {
				s.items++
			}
			begins = c == ':' || s.flow > 0 && c == ','
		}
	}
	return deepest, column
}
