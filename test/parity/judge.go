package parity

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/cdc-relay/cdc-relay/test/parity/golden"
)

// Judge says what is wrong with an outcome; empty when it is what the case wants.
func Judge(c *golden.Case, out *Outcome) string {
	switch {
	case Exceptions[c.Name] != "":
		return judgeException(c, out)
	case c.Error != "":
		return judgeRefusal(c, out)
	case stalls(c) && (out.Refused != nil && out.Loading || c.Contains(out.Records)):
		return ""
	case out.Refused != nil:
		return fmt.Sprintf("refused: %v", out.Refused)
	}
	return c.Compare(out.Records)
}

// judgeRefusal is for cases in which Debezium fails: the relay has to deliver the
// same records and then refuse for the same cause, or to refuse at the start.
func judgeRefusal(c *golden.Case, out *Outcome) string {
	if out.Refused == nil && unread(c) {
		return judgeAbrupt(c, out)
	}
	if out.Refused == nil {
		if d := c.Compare(out.Records); d != "" {
			return "not refused, and " + d
		}
		return "not refused; Debezium says: " + lastLine(c.Error)
	}
	if missing, _ := golden.Unnamed(c.Error, out.Refused.Error()); missing != "" {
		return fmt.Sprintf("refused without naming %s: %v; Debezium says: %s", missing, out.Refused, lastLine(c.Error))
	}
	if strings.Contains(c.Error, "exception occurred in the change event producer") {
		return judgeAbrupt(c, out)
	}
	return compareUnlessLoading(c, out)
}

var requiredField = regexp.MustCompile(`null used for required field: "(.*)"`)

// unread says that Debezium failed for a column that no option names: the relay
// does not read it, and has nothing to refuse.
func unread(c *golden.Case) bool {
	field := requiredField.FindStringSubmatch(c.Error)
	config, err := c.Config()
	if field == nil || err != nil {
		return false
	}
	for _, value := range config {
		if strings.Contains(value, field[1]) {
			return false
		}
	}
	return !slices.Contains([]string{"id", "aggregatetype", "aggregateid", "payload"}, field[1])
}

// judgeAbrupt is for a failure that takes with it what Debezium had read before
// the row: the relay delivers that.
func judgeAbrupt(c *golden.Case, out *Outcome) string {
	if out.Loading || c.Contains(out.Records) {
		return ""
	}
	return c.Compare(out.Records)
}

// judgeException is for what the relay does not follow: it still has to refuse, and
// to deliver nothing else.
func judgeException(c *golden.Case, out *Outcome) string {
	switch {
	case out.Refused == nil:
		return "it is an exception, but not refused: " + Exceptions[c.Name]
	case !c.Begins(out.Records):
		return "it is an exception, and delivers something else: " + c.Compare(out.Records)
	}
	return ""
}

func compareUnlessLoading(c *golden.Case, out *Outcome) string {
	if out.Loading {
		return ""
	}
	return c.Compare(out.Records)
}

// stalls says that the case shows Debezium hanging, or losing rows without a word:
// a relay that refuses or delivers does better.
func stalls(c *golden.Case) bool {
	for _, word := range []string{"hang", "no warning", "silent", "every row skipped"} {
		if strings.Contains(c.Subject, word) {
			return true
		}
	}
	return false
}

func lastLine(text string) string { return text[strings.LastIndexByte(text, '\n')+1:] }
