package deadletter

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/cdc-relay/cdc-relay/wording"
)

// criterion is one flag that selects letters.
type criterion struct {
	flag, value string
	given       bool
	of          func(e *Entry) string // that value must equal; nil: see matches
	matches     func(e *Entry) bool
}

func (c *criterion) selects(e *Entry) bool {
	if c.of != nil {
		return c.of(e) == c.value
	}
	return c.matches(e)
}

// criteria are those that the command line can have.
func criteria(f *Filter, source string) []criterion {
	return []criterion{
		{flag: "source", value: source, given: source != "", of: func(e *Entry) string { return e.Source }},
		{flag: "reason", value: f.Reason, given: f.Reason != "", of: func(e *Entry) string { return e.Reason }},
		{flag: "table", value: f.Table, given: f.Table != "", of: func(e *Entry) string { return e.Table }},
		{flag: "topic", value: f.Topic, given: f.Topic != "", of: func(e *Entry) string { return e.Record.Topic }},
		{flag: "lsn", value: f.Commit.String(), given: f.Commit != 0, of: func(e *Entry) string { return e.Commit.String() }},
		{flag: "key", given: f.Key != nil, matches: func(e *Entry) bool { return e.Record.Key != nil && bytes.Equal(e.Record.Key, f.Key) }},
		{flag: "since", given: !f.Since.IsZero(), matches: func(e *Entry) bool { return !e.At.Before(f.Since) }},
		{flag: "partition", given: f.Partition != nil, matches: func(e *Entry) bool { return e.Partition == *f.Partition }},
		{flag: "offset", given: f.Offset != nil, matches: func(e *Entry) bool { return e.Offset == *f.Offset }},
	}
}

// Hints explain why a filter selects nothing: they name the filter's value that no letter has,
// and the values that letters do have, never keys. source is the named one or empty. done also
// counts letters that are done.
func Hints(b *Backlog, f *Filter, source string, done bool) (hints []string) {
	there := slices.DeleteFunc(slices.Clone(b.Entries), func(e *Entry) bool { return e.Done != "" && !done })
	if len(there) == 0 {
		return nil
	}
	mine := there
	if f.Source != nil {
		mine = slices.DeleteFunc(slices.Clone(there), func(e *Entry) bool { return !f.Source(e.Source) })
		if hint := elsewhere(there); source == "" && hint != "" {
			return []string{hint}
		}
	}
	which := map[bool]string{true: "no dead letter", false: "no dead letter that waits"}[done]
	var given []string
	for _, c := range criteria(f, source) {
		if !c.given {
			continue
		}
		given = append(given, "--"+c.flag)
		among := mine // what letters of other sources have does not help
		if c.flag == "source" || len(mine) == 0 {
			among = there
		}
		if slices.ContainsFunc(among, c.selects) {
			continue
		}
		hints = append(hints, fmt.Sprintf("%s matches %s; %s", which, wording.Printable(strings.TrimSpace("--"+c.flag+" "+c.value)), others(b, &c, among)))
	}
	if hints == nil && len(given) > 1 {
		hints = append(hints, fmt.Sprintf("each of %s matches some, and none of them matches all", strings.Join(given, ", ")))
	}
	return hints
}

// elsewhere names the sources of letters that match in all but their source.
func elsewhere(there []*Entry) string {
	var sources []string
	for _, e := range there {
		if e.Other {
			sources = append(sources, wording.Printable(e.Source))
		}
	}
	if sources == nil {
		return ""
	}
	match := map[bool]string{true: "matches and is", false: "match and are"}[len(sources) == 1]
	return fmt.Sprintf("%s %s of another source; --source selects one of: %s", wording.Count(len(sources), "dead letter"), match, listed(sources))
}

// listed names each value once, in order, and not too many.
func listed(values []string) string {
	slices.Sort(values)
	values = slices.Compact(values)
	if n := len(values) - mostValues; n > 0 {
		return strings.Join(values[:mostValues], ", ") + fmt.Sprintf(" and %d more", n)
	}
	return strings.Join(values, ", ")
}

// mostValues bounds what a hint lists.
const mostValues = 10

// others returns what would match instead of the criterion's value.
func others(b *Backlog, c *criterion, there []*Entry) string {
	if done := slices.DeleteFunc(slices.Clone(b.Entries), func(e *Entry) bool { return e.Done == "" || !c.selects(e) }); len(done) > 0 {
		return wording.Count(len(done), "dead letter") + " re-driven or discarded before would"
	}
	switch {
	case c.flag == "since":
		newest := slices.MaxFunc(there, Older)
		return "the newest was set aside at " + newest.At.UTC().Format(time.RFC3339)
	case c.of == nil:
		return "`cdc-relay deadletter list` shows the dead letters"
	}
	var values []string
	for _, e := range there {
		if v := c.of(e); v != "" {
			values = append(values, wording.Printable(v))
		}
	}
	slices.Sort(values)
	values = slices.Compact(values)
	if near, ok := wording.Nearest(c.value, values); ok && c.flag != "lsn" {
		return "did you mean --" + c.flag + " " + near + "?"
	}
	if len(values) == 0 {
		return "none has any"
	}
	return "there are: " + listed(values)
}
