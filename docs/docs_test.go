package docs

import (
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"
	"testing"

	"github.com/cdc-relay/cdc-relay/wording"
)

// Every entry of the runbook is found and shown whole.
func TestRunbook_EveryEntryIsShown(t *testing.T) {
	reasons := Reasons()
	if len(reasons) < 90 {
		t.Errorf("%d reasons have an entry: the page is not read to its end", len(reasons))
	}
	marks := regexp.MustCompile("`|\\*\\*|\\]\\(")
	for _, reason := range reasons {
		e, found := Runbook(reason)
		if !found {
			t.Errorf("%s has a heading and no entry", reason)
			continue
		}
		if !strings.HasPrefix(e.Link, wording.Docs+"operations.md#") || !strings.Contains(e.Link, reason) {
			t.Errorf("%s: the link is %s", reason, e.Link)
		}
		for name, part := range map[string][]Span{"Means": e.Means, "Look at": e.LookAt, "Do": e.Do, "Rows": e.Rows} {
			if len(part) == 0 {
				t.Errorf("%s: nothing under %s", reason, name)
			}
			for _, s := range part {
				if s.Text == "" || !s.Code && marks.MatchString(s.Text) {
					t.Errorf("%s, %s: %q shows marks of Markdown, or nothing", reason, name, s.Text)
				}
				if page, _, _ := strings.Cut(strings.TrimPrefix(s.Link, wording.Docs), "#"); s.Link != "" && strings.HasPrefix(s.Link, wording.Docs) {
					if _, err := os.Stat(filepath.FromSlash(page)); err != nil {
						t.Errorf("%s, %s: %s leads nowhere", reason, name, s.Link)
					}
				}
			}
		}
	}
	if _, found := Runbook("nothing"); found {
		t.Error("there is an entry of no reason")
	}
}

func TestSpans_AreThoseOfTheLine(t *testing.T) {
	got := spans("Run `setup`, as for [`slot_lost`](#slot_lost), **not** [this](how-to/x.md).")
	want := []Span{
		{Text: "Run "}, {Text: "setup", Code: true}, {Text: ", as for "}, {Text: "slot_lost", Code: true, Link: wording.Docs + "operations.md#slot_lost"},
		{Text: ", "}, {Text: "not", Bold: true}, {Text: " "}, {Text: "this", Link: wording.Docs + "how-to/x.md"}, {Text: "."},
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
}
