package config

import (
	"testing"
	"time"

	"github.com/cdc-relay/cdc-relay/config/document"
)

func TestDuration_WantsAUnit(t *testing.T) {
	for text, want := range map[string]time.Duration{"30s": 30 * time.Second, "1m30s": 90 * time.Second, "500ms": time.Second / 2, "0s": 0, "2h": 2 * time.Hour} {
		d, err := parseDuration(text)
		if err != nil || time.Duration(d) != want || d.String() != text {
			t.Errorf("%s: %v, %v", text, d, err)
		}
	}
	for _, text := range []string{"", "30", "0", "-1s", "1d", "s", "1.5", "1e3", "NaN", "0x10", "9999999999h"} {
		if d, err := parseDuration(text); err == nil {
			t.Errorf("%q is taken as %v", text, d)
		}
	}
}

func TestSize_WantsAUnit(t *testing.T) {
	for text, want := range map[string]size{"0B": 0, "1B": 1, "16MiB": 16 << 20, "1GiB": 1 << 30, "1500kB": 1_500_000, "3GB": 3e9, "64KiB": 64 << 10, "2047GiB": 2047 << 30} {
		s, err := parseSize(text)
		if err != nil || s != want {
			t.Errorf("%s: %v, %v", text, s, err)
		}
		if again, err := parseSize(s.String()); err != nil || again != s {
			t.Errorf("%s prints as %s", text, s)
		}
	}
	for _, text := range []string{"", "1", "0", "MiB", "-1MiB", "1.5MiB", "1mb", "1 M", "99999999999GiB", "99999999999999999999B", "1e3kB"} {
		if s, err := parseSize(text); err == nil {
			t.Errorf("%q is taken as %v", text, s)
		}
	}
}

func TestExpand_KnowsReferencesAndEscapes(t *testing.T) {
	x := expander{env: map[string]string{"A": "a", "EMPTY": "", "NESTED": "${A}"}, readFile: testFiles{"/f": "content\n"}.read}
	for text, want := range map[string]string{
		"": "", "plain $A": "plain $A", "${A}": "a", "x${A}y${A}": "xaya", "${EMPTY}": "", "${EMPTY:-d}": "d", "${NO:-}": "", "${NO:-a:b-c}": "a:b-c",
		"$${A}": "${A}", "$${A}${A}": "${A}a", "${file:/f}": "content", "${NESTED}": "${A}", "cost: 5$": "cost: 5$",
	} {
		if got, err := x.expand(text); err != nil || got != want {
			t.Errorf("%s: %q, %v, want %q", text, got, err, want)
		}
	}
	for _, text := range []string{"${NO}", "${A", "${}", "${1A}", "${A-b}", "${a b}", "${file:/none}", "${file:}"} {
		if got, err := x.expand(text); err == nil {
			t.Errorf("%s is taken as %q", text, got)
		}
	}
	for _, text := range []string{"${A}", "$${A}", "$", "$${", "a${b}c${"} {
		if got, err := x.expand(literal(text)); err != nil || got != text {
			t.Errorf("literal of %s expands to %q, %v", text, got, err)
		}
	}
}

func TestQuote_IsReadBackAsText(t *testing.T) {
	for _, text := range []string{"", "a", "a b", "null", "True", "~", "12", "1.5", "0x1f", "1e3", "0o7", "-", "- a", "a: b", "a #b", "#", "'", "\"", "\\", "\n\t", "ü", "😀", "{a}", "[a]", "*a", "&a", "!a", "@a", "%a", "a:", ":a", "127.0.0.1:8080", "30s", "16MiB", "=", "<<", "?", "2026-01-01", "\u2028", "\u0085", ".inf", "a,b", "1_000"} {
		n, err := document.ParseYAML("k: " + quote(text) + "  # c\nl: [" + quote(text) + ", x]\n")
		if err != nil || len(n.Entries) != 2 || n.Entries[0].Value.Text != text || n.Entries[0].Value.Kind != document.Text || n.Entries[1].Value.Items[0].Text != text {
			t.Errorf("%q as %s: %v %+v", text, quote(text), err, n)
		}
	}
}
