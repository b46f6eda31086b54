package template

import (
	"strings"
	"testing"

	"github.com/cdc-relay/cdc-relay/router/record"
)

// FuzzTopicFilter: what is left of any text is a legal name but for its length, and a
// legal name stays as it is.
func FuzzTopicFilter(f *testing.F) {
	for _, s := range []string{"Billing::Invoice", "order", "ü😀\xff", "..", "a b"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		before := "kept ü "
		got := string(mapTail([]byte(before+text), len(before), topicRune))
		cleaned, ok := strings.CutPrefix(got, before)
		if !ok || record.CheckTopicCharacters([]byte(cleaned)) != nil {
			t.Fatalf("%q gives %q", text, got)
		}
		if record.CheckTopicCharacters([]byte(text)) == nil && cleaned != text {
			t.Fatalf("%q is legal and becomes %q", text, cleaned)
		}
		if n := len([]rune(text)); len(cleaned) != n {
			t.Fatalf("%q of %d characters becomes %q", text, n, cleaned)
		}
	})
}

func FuzzTemplate(f *testing.F) {
	for _, s := range []string{"${a}", "x-${a|lower|default:b}-y", "${a|topic|lower}", "$${a}", "${a#/b/0}", "${", "$", "${a|default:$${}"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		parsed, err := Parse(text)
		if err != nil {
			return
		}
		if len(parsed.Parts) == 0 {
			t.Fatalf("%q has no parts", text)
		}
		again, err := Parse(parsed.String())
		if err != nil || again.String() != parsed.String() {
			t.Fatalf("%q prints as %q, which reads as %v, %v", text, parsed, again, err)
		}
	})
}
