package retention

import (
	"strings"
	"testing"
	"time"

	"github.com/cdc-relay/cdc-relay/postgres/maintenance"
)

func TestCheckCondition_WantsOneConditionByItself(t *testing.T) {
	for _, good := range []string{"", "true", "(a OR b) AND c", "a = ')'", `"x)" = 1`, "a = $$)$$", "a = $x$ ; ) $$ $x$", "a -- )\n AND b", "a /* ( /* ; */ */", `a = E'\')'`, "a = 'it''s)'", "a$1 = 2", "a = $1", "a = 'x' -- done", "née = 1"} {
		if err := CheckCondition(good); err != nil {
			t.Errorf("%s: %v", good, err)
		}
	}
	for bad, want := range map[string]string{
		"(a": "is not closed", "true) or (true": "was not opened", "a)": "was not opened", "true; DROP TABLE x": "semicolon", "a = 'x": "quote", `"a`: "quote", "a /* b": "comment", "/* /* */": "comment",
		"a = $$x": "quote", "a = $t$x$$": "quote", "a\x00": "zero byte", `a = E'\'`: "quote", `E'\\') --`: "was not opened", "$1$ ) $1$": "was not opened",
	} {
		if err := CheckCondition(bad); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", bad, err, want)
		}
	}
}

func TestPolicy_AsksForTheAgeInTheColumnsOwnTerms(t *testing.T) {
	p := Policy{Keep: 36 * time.Hour, Where: "a -- b"}
	zoned := p.condition(maintenance.Column{Name: `at "x"`, Type: "timestamp with time zone"})
	if zoned != "\"at \"\"x\"\"\" < pg_catalog.now() - interval '129600 seconds' AND (a -- b\n)" {
		t.Error(zoned)
	}
	p.Where = ""
	if got := p.condition(maintenance.Column{Name: "at", Type: "timestamp(3) without time zone"}); got != `"at" < (pg_catalog.now() AT TIME ZONE 'UTC') - interval '129600 seconds'` {
		t.Error(got)
	}
	for d, want := range map[time.Duration]string{time.Hour: "1h", 36 * time.Hour: "1d12h", 7 * 24 * time.Hour: "7d", 90 * time.Minute: "1h30m", 25*time.Hour + time.Second: "1d1h1s", 10 * 24 * time.Hour: "10d", 20 * time.Hour: "20h"} {
		if got := (&Policy{Keep: d}).Age(); got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
}
