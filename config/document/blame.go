package document

import (
	"errors"
	"regexp"
	"strings"
)

// maxBlame and blameBytes bound the attempts: each parses a part of the file.
const (
	maxBlame   = 400
	blameBytes = 4 << 20
)

// blame moves a syntax error to the line that a person has to look at. A parser
// notices a quote, a bracket or a colon that is missing only further down, often at
// the end of the file; the line is the first one without which all before it can
// be read.
func (d *Document) blame(err error) error {
	syntax, ok := errors.AsType[*SyntaxError](err)
	if !ok || !syntax.parser || syntax.Line < 1 {
		return err
	}
	if moved, ok := d.misindented(); ok {
		return moved
	}
	good := min(syntax.Line, len(d.lines)) - 1
	read := 0
	for last := good; good > 0; good-- {
		text := strings.Join(d.lines[:good], "\n") + "\n"
		if _, err := ParseYAML(text); err == nil {
			break
		}
		if read += len(text); last-good > maxBlame || read > blameBytes {
			return err
		}
	}
	at := d.content(good, 1)
	if before := d.content(good-1, -1); at >= 0 && before >= 0 && d.dangling(before, at) {
		at = before
	}
	if at < 0 || at+1 >= syntax.Line {
		return err
	}
	moved := *syntax
	moved.Line, moved.Column = at+1, indent(d.lines[at])+1
	return &moved
}

// content is the index of the nearest line from i on that holds more than a
// comment, or -1.
func (d *Document) content(i, step int) int {
	for ; i >= 0 && i < len(d.lines); i += step {
		if text := strings.TrimSpace(d.lines[i]); text != "" && !strings.HasPrefix(text, "#") {
			return i
		}
	}
	return -1
}

var (
	opensBlock = regexp.MustCompile(`:\s*([|>][-+0-9]*\s*)?(#.*)?$`)
	hasKey     = regexp.MustCompile(`^[\s-]*("[^"]*"|'[^']*'|[^\s"'#:]+):(\s|$)`)
)

// dangling reports whether line i can be read by itself, but not with line next
// below it: it is no key, or has a value and keys below it.
func (d *Document) dangling(i, next int) bool {
	line := strings.TrimRight(d.lines[i], "\r \t")
	return !hasKey.MatchString(line) || !opensBlock.MatchString(line) && indent(d.lines[next]) > indent(line)
}

// indent counts the dash of a list as space, because the keys below align with
// what follows it.
func indent(line string) int { return len(line) - len(strings.TrimLeft(line, " -\t")) }
