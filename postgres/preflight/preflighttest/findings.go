package preflighttest

import (
	"fmt"
	"strings"
	"testing"

	"github.com/cdc-relay/cdc-relay/advice"
	"github.com/cdc-relay/cdc-relay/postgres/preflight"
)

func Findings(report *preflight.Report) string {
	var b strings.Builder
	for _, f := range report.Findings {
		fmt.Fprintf(&b, "%s\t%s\t%s; %s\n", f.Level, f.Check, f.Seen, f.Advice)
	}
	return b.String()
}

// WantFinding looks for one finding whose text has all of texts.
func WantFinding(t *testing.T, report *preflight.Report, check string, level advice.Level, texts ...string) {
	t.Helper()
	for _, f := range report.Findings {
		if f.Check != check || f.Level != level {
			continue
		}
		all := true
		for _, text := range texts {
			all = all && strings.Contains(f.Seen+"; "+f.Advice, text)
		}
		if all {
			return
		}
	}
	t.Errorf("no %s of %s has %q:\n%s", level, check, texts, Findings(report))
}
