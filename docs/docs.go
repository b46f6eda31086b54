// Package docs has the runbook of operations.md in the program, for whoever has only that at
// hand. It is pure.
package docs

import (
	_ "embed"
	"regexp"
	"strings"
	"sync"

	"github.com/cdc-relay/cdc-relay/wording"
)

//go:embed operations.md
var operations string

// Entry is what the runbook says of a reason.
type Entry struct {
	Reasons []string `json:"reasons"`
	Means   []Span   `json:"means"`
	LookAt  []Span   `json:"look_at"`
	Do      []Span   `json:"do"`
	Rows    []Span   `json:"rows"` // what has become of them
	Link    string   `json:"link"` // to the entry on the page
}

// Span is a piece of a text that is shown in one way.
type Span struct {
	Text string `json:"text"`
	Code bool   `json:"code,omitempty"`
	Bold bool   `json:"bold,omitempty"`
	Link string `json:"link,omitempty"`
}

// Runbook finds the entry of a reason.
func Runbook(reason string) (Entry, bool) {
	e, found := entries()[reason]
	return e, found
}

// Reasons lists those that have an entry, in the order of the page.
func Reasons() []string {
	var all []string
	for line := range strings.Lines(runbookText()) {
		if found := heading.FindStringSubmatch(strings.TrimSpace(line)); found != nil {
			all = append(all, reasonsIn(found[1])...)
		}
	}
	return all
}

var (
	heading = regexp.MustCompile("^### (`.*)$")
	field   = regexp.MustCompile(`^\* \*\*(Means|Look at|Do|Rows)\*\* (.*)$`)
	span    = regexp.MustCompile("`([^`]+)`|\\*\\*([^*]+)\\*\\*|\\[([^\\]]+)\\]\\(([^)]+)\\)")
)

func runbookText() string {
	_, text, _ := strings.Cut(operations, "\n## Runbook\n")
	text, _, _ = strings.Cut(text, "\n## ")
	return text
}

func reasonsIn(heading string) []string {
	var all []string
	for part := range strings.SplitSeq(heading, ",") {
		all = append(all, strings.Trim(strings.TrimSpace(part), "`"))
	}
	return all
}

var entries = sync.OnceValue(func() map[string]Entry {
	all := map[string]Entry{}
	var e Entry
	keep := func() {
		for _, reason := range e.Reasons {
			all[reason] = e
		}
	}
	for line := range strings.Lines(runbookText()) {
		line = strings.TrimSpace(line)
		if found := heading.FindStringSubmatch(line); found != nil {
			keep()
			e = Entry{Reasons: reasonsIn(found[1]), Link: wording.Docs + "operations.md#" + anchor(found[1])}
		}
		if found := field.FindStringSubmatch(line); found != nil {
			*map[string]*[]Span{"Means": &e.Means, "Look at": &e.LookAt, "Do": &e.Do, "Rows": &e.Rows}[found[1]] = spans(found[2])
		}
	}
	keep()
	return all
})

// anchor is the one that a heading has on the page.
func anchor(heading string) string {
	return strings.ReplaceAll(strings.NewReplacer("`", "", ",", "").Replace(heading), " ", "-")
}

// spans divides a line of Markdown, as far as the page uses it.
func spans(text string) []Span {
	all := []Span{}
	for {
		at := span.FindStringSubmatchIndex(text)
		if at == nil {
			break
		}
		if at[0] > 0 {
			all = append(all, Span{Text: text[:at[0]]})
		}
		part := func(n int) string {
			if at[2*n] < 0 {
				return ""
			}
			return text[at[2*n]:at[2*n+1]]
		}
		switch {
		case part(1) != "":
			all = append(all, Span{Text: part(1), Code: true})
		case part(2) != "":
			all = append(all, Span{Text: part(2), Bold: true})
		default:
			label := part(3)
			all = append(all, Span{Text: strings.Trim(label, "`"), Code: strings.HasPrefix(label, "`"), Link: absolute(part(4))})
		}
		text = text[at[1]:]
	}
	if text != "" {
		all = append(all, Span{Text: text})
	}
	return all
}

// absolute is where a link of the page leads for whoever does not have the page.
func absolute(link string) string {
	switch {
	case strings.HasPrefix(link, "#"):
		return wording.Docs + "operations.md" + link
	case strings.HasPrefix(link, "https://"):
		return link
	}
	return wording.Docs + link
}
