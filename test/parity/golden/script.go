package golden

import (
	"fmt"
	"strings"
)

// Step is one statement of a script, or one directive.
type Step struct {
	Line      int    // where it begins
	SQL       string // empty for a directive
	Directive string // its first word
	Argument  string // the rest
}

// Directives are the words that a script may use behind --@.
var Directives = []string{
	"session", "sleep", "settle", "note", "stop-connector", "start-connector", "delete-connector", "create-connector",
	"rename-connector", "term-worker", "kill-worker", "start-worker",
}

const directiveMark = "--@"

// ParseScript splits a script. A statement ends at a semicolon that is the last
// character of a line.
func ParseScript(text string) ([]Step, error) {
	var steps []Step
	var open []string
	begin := 0
	for i, line := range strings.Split(text, "\n") {
		if len(open) == 0 {
			begin = i + 1
			if mark, ok := strings.CutPrefix(strings.TrimSpace(line), directiveMark); ok {
				word, argument, _ := strings.Cut(strings.TrimSpace(mark), " ")
				if !known(word) {
					return nil, fmt.Errorf("line %d: unknown directive %q", i+1, word)
				}
				steps = append(steps, Step{Line: i + 1, Directive: word, Argument: strings.TrimSpace(argument)})
				continue
			}
			if strings.TrimSpace(line) == "" {
				continue
			}
		}
		open = append(open, line)
		if strings.HasSuffix(strings.TrimRight(line, " \t\r"), ";") {
			steps = append(steps, Step{Line: begin, SQL: strings.Join(open, "\n")})
			open = nil
		}
	}
	if len(open) > 0 && strings.TrimSpace(strings.Join(open, "")) != "" {
		return nil, fmt.Errorf("line %d: the statement does not end with a semicolon", begin)
	}
	return steps, nil
}

func known(word string) bool {
	for _, one := range Directives {
		if one == word {
			return true
		}
	}
	return false
}
