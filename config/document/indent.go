package document

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// maxIndentLines bounds the search for a line that is indented wrongly, which takes
// the square of it.
const maxIndentLines = 400

// blockLine is a line of a file in plain block style: a key, an item, or both.
type blockLine struct {
	at     int    // index among the file's lines
	indent int    // of the first sign, which may be a dash
	inner  int    // how much further in the key or item behind the dash stands
	dash   bool   // begins an item of a list
	key    string // empty: an item that is no mapping
	open   bool   // a key without a value: what it holds is below
}

// misindented looks for the one line whose indentation keeps the file from being
// read. The parser only notices further down that something does not fit; which line
// it is, the tree of keys says: moved, all lines stand where their keys belong. It
// reports false for files with other mistakes or in another style.
func (d *Document) misindented() (*SyntaxError, bool) {
	lines, ok := d.blockLines()
	if !ok || len(lines) > maxIndentLines {
		return nil, false
	}
	best, wanted, ok := bestMove(lines, d.keys.Tree)
	if !ok {
		return nil, false
	}
	line := lines[best]
	moved := slices.Clone(d.lines)
	moved[line.at] = strings.Repeat(" ", wanted) + strings.TrimLeft(moved[line.at], " ")
	_, err := ParseYAML(strings.Join(moved, "\n"))
	return &SyntaxError{
		Line: line.at + 1, Column: line.indent + 1,
		Message: fmt.Sprintf("this line is indented by %s, its neighbours by %d", spaces(line.indent), wanted),
	}, err == nil
}

// bestMove gives the line after whose move to another indentation the fewest lines
// do not fit. It reports false when all do, or none of the moves helps.
func bestMove(lines []blockLine, root *Branch) (best, wanted int, ok bool) {
	least := fit(lines, root)
	for i := range lines {
		actual := lines[i].indent
		for _, indent := range indents(lines) {
			lines[i].indent = indent
			m := fit(lines, root)
			m.distance = max(indent-actual, actual-indent)
			if m.lines < least.lines || ok && m.compare(least) <= 0 {
				best, wanted, least, ok = i, indent, m, true
			}
		}
		lines[i].indent = actual
	}
	return best, wanted, ok
}

func spaces(n int) string {
	if n == 1 {
		return "1 space"
	}
	return fmt.Sprintf("%d spaces", n)
}

// indents are those that lines or what is behind their dashes have.
func indents(lines []blockLine) []int {
	var all []int
	for _, l := range lines {
		if !slices.Contains(all, l.indent) {
			all = append(all, l.indent)
		}
		if l.dash && !slices.Contains(all, l.indent+l.inner) {
			all = append(all, l.indent+l.inner)
		}
	}
	slices.Sort(all)
	return all
}

var (
	blockText = regexp.MustCompile(`^[|>][-+0-9]*\s*(#.*)?$`)
	// simpleValue is complete on its line: in quotes, in brackets, or plain without a
	// sign that YAML could take for something else.
	simpleValue = regexp.MustCompile(`^("([^"\\]|\\.)*"|'([^']|'')*'|\[[^\[\]{}"']*\]|\[("([^"\\]|\\.)*"|'[^']*'|[^"'\[\]{}])*\]|\{[^{}"']*\}|\{("([^"\\]|\\.)*"|'[^']*'|[^"'{}])*\}|[^\s"'\[\]{}|>@` + "`" + `%&*!,?#-][^#]*|-[^\s#][^#]*)\s*(#.*)?$`)
	keyOfBlock  = regexp.MustCompile(`^("[^"\\]*"|'[^']*'|[^\s"'#:{}\[\]&*!|>%@,?-][^\s"'#:]*):(\s+(.*))?$`)
)

// blockLines takes the file apart, or reports false for what it does not know.
func (d *Document) blockLines() ([]blockLine, bool) {
	var lines []blockLine
	above, textFrom := -1, 0 // of a block text: how far in its key stands, and its own first line
	for i, raw := range d.lines {
		text := strings.TrimRight(raw, "\r \t")
		body := strings.TrimLeft(text, " ")
		indent := len(text) - len(body)
		if above >= 0 && textFrom == 0 && indent > above && body != "" {
			textFrom = indent
		}
		if above >= 0 && (body == "" || textFrom > 0 && indent >= textFrom) {
			continue
		}
		above, textFrom = -1, 0
		if body == "" || strings.HasPrefix(body, "#") {
			continue
		}
		line, isText, ok := blockLineOf(body)
		if !ok {
			return nil, false
		}
		if isText {
			above = indent
		}
		line.at, line.indent = i, indent
		lines = append(lines, line)
	}
	return lines, len(lines) > 1
}

func blockLineOf(body string) (line blockLine, text, ok bool) {
	if rest, found := strings.CutPrefix(body, "- "); found {
		line.dash = true
		item := strings.TrimLeft(rest, " ")
		line.inner = len(body) - len(item)
		body = item
	}
	m := keyOfBlock.FindStringSubmatch(body)
	if m == nil {
		return line, false, line.dash && isSimple(body)
	}
	line.key = strings.Trim(m[1], `"'`)
	value := strings.TrimLeft(m[3], " ")
	line.open = value == "" || strings.HasPrefix(value, "#")
	text = blockText.MatchString(value)
	return line, text, line.open || text || isSimple(value)
}

// isSimple also refuses a plain value with a colon in it that begins another key.
func isSimple(value string) bool {
	if !simpleValue.MatchString(value) {
		return false
	}
	return strings.ContainsAny(value[:1], `"'[{`) || !strings.Contains(value, ": ") && !strings.HasSuffix(value, ":")
}

// misfit says how far lines are from a file.
type misfit struct {
	lines    int // that do not belong where they stand
	steps    int // mappings that are not indented as most are
	distance int // by which a line was moved
}

func (m misfit) compare(n misfit) int {
	return cmp.Or(cmp.Compare(m.lines, n.lines), cmp.Compare(m.steps, n.steps), cmp.Compare(m.distance, n.distance))
}

// level is a mapping or list that is open at a line.
type level struct {
	indent int
	list   bool
	holds  *Branch // nil: nothing is known about it
	last   *Branch // what the last key holds
	open   bool    // the last key has no value yet
}

// fit reads the lines as a parser would, but continues after a line that does not fit.
func fit(lines []blockLine, root *Branch) misfit {
	f := fitting{levels: []level{{indent: lines[0].indent, holds: root}}, steps: map[int]int{}}
	for _, l := range lines {
		if !f.insert(l) {
			f.misplaced++
		}
	}
	most, all := 0, 0
	for _, n := range f.steps {
		most, all = max(most, n), all+n
	}
	return misfit{lines: f.misplaced, steps: all - most}
}

type fitting struct {
	levels    []level
	steps     map[int]int // how often a mapping is indented by so much
	misplaced int
}

func (f *fitting) insert(l blockLine) bool {
	f.leave(l)
	top := &f.levels[len(f.levels)-1]
	if l.dash {
		if !top.list {
			if !top.open || l.indent < top.indent || top.last != nil && top.last.List == nil {
				return false
			}
			top.open = false
			f.enter(level{indent: l.indent, list: true, holds: top.last.item()}, top.indent)
		}
		holds := f.levels[len(f.levels)-1].holds
		if l.key == "" {
			return holds == nil || len(holds.Keys) == 0
		}
		f.levels = append(f.levels, level{indent: l.indent + l.inner, holds: holds})
		return f.key(l)
	}
	if top.indent == l.indent && !top.list {
		return f.key(l)
	}
	if top.list || !top.open || l.indent < top.indent {
		return false
	}
	top.open = false
	f.enter(level{indent: l.indent, holds: top.last}, top.indent)
	return f.key(l)
}

// leave closes the levels that end before l.
func (f *fitting) leave(l blockLine) {
	for len(f.levels) > 1 {
		top := f.levels[len(f.levels)-1]
		if top.indent < l.indent || top.indent == l.indent && (top.list == l.dash || !top.list && top.open) {
			return
		}
		f.levels = f.levels[:len(f.levels)-1]
	}
}

func (f *fitting) enter(l level, above int) {
	if !l.list { // a list may stand as far in as its key
		f.steps[l.indent-above]++
	}
	f.levels = append(f.levels, l)
}

// key takes l up as the next key of the innermost level.
func (f *fitting) key(l blockLine) bool {
	top := &f.levels[len(f.levels)-1]
	top.open = l.open
	if top.holds == nil {
		top.last = nil
		return true
	}
	below, known := top.holds.Keys[l.key]
	if top.holds.Free {
		below, known = &Branch{}, true
	}
	top.last = below
	return known
}

// Branch is a part of the tree of keys: a section, a list, or with neither a value.
type Branch struct {
	Keys map[string]*Branch
	Free bool    // a mapping with free names
	List *Branch // what each item of it is
}

func (b *Branch) item() *Branch {
	if b == nil {
		return nil
	}
	return b.List
}
