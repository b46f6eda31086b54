package document

import (
	"fmt"
	"strings"
	"testing"
)

// repeated is n lines of a form that takes a number.
func repeated(n int, form string) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, form, i)
	}
	return b.String()
}

// What only looks like it is read.
func TestLimits_AreForTheFileAndNotForItsTexts(t *testing.T) {
	tables := repeated(3000, "  - table: public.t%d\n    headers: {tenant: tenant_id}\n    topic_regex: 'a[{b'\n")
	for name, text := range map[string]string{
		"many tables":            "outbox:\n" + tables,
		"brackets in texts":      "outbox:\n" + repeated(200, "  - table: public.t%d\n    topic: \"x${a}[[\"  # [[[\n    headers: {a: '{{'}\n"),
		"dashes and apostrophes": "outbox:\n" + repeated(200, "  - table: it's%d\n    topic: - [ x\n"),
		"comments":               strings.Repeat("# k: v\n", 50_000) + "pipeline: x\n",
		"a text of lines":        "pipeline: |\n" + strings.Repeat("  line\n", 5000),
	} {
		if err := checkLimits(text); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}
