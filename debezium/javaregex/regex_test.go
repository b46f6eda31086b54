package javaregex

import (
	"errors"
	"testing"
)

func TestJavaRegex_ReplacesAsJavaDoes(t *testing.T) {
	for _, c := range []struct{ pattern, replacement, text, want string }{
		{"(?<routedByValue>.*)", "outbox.event.${routedByValue}", "Order", "outbox.event.Order"},
		{"(?<routedByValue>.*)", "outbox.event.${routedByValue}", "", "outbox.event."},
		{"(?<routedByValue>.*)", "outbox.event.${routedByValue}", "a\nb", "a\nb"},
		{"(?<routedByValue>.*)", "outbox.event.${routedByValue}", "a\u2028b", "a\u2028b"},
		{"(?s)(?<v>.*)", "x${v}", "a\nb", "xa\nb"},
		{"ord(?<x>.*)", "${x}-$1-events", "order", "er-er-events"},
		{"a|ab", "X", "ab", "Xb"},
		{"Ord", "x-$0", "Order", "Order"},
		{"(.)(.*)", "$12", "ab", "a2"},
		{"(a)?b", "[$1]", "b", "[]"},
		{"x", `\$1\\`, "x", `$1\`},
		{`[\w.-]+`, "ok", "a.b-c_d", "ok"},
		{`[a\-z]+`, "ok", "a-z", "ok"},
		{`[a\-z]+`, "ok", "b", "b"},
		{`\Qa.b\E`, "ok", "a.b", "ok"},
		{`\Qa.b\E`, "ok", "axb", "axb"},
		{`a\u0062`, "ok", "ab", "ok"},
		{`\s`, "ok", "\x0b", "ok"},
		{`\p{Lower}+\P{Digit}`, "ok", "ab!", "ok"},
		{`\p{IsLatin}+`, "ok", "äb", "ok"},
		{"(?i)ABC", "ok", "abc", "ok"},
		{"^a{2,3}?$", "ok", "aaa", "ok"},
	} {
		r, err := Compile(c.pattern, false)
		if err != nil {
			t.Errorf("%s: %v", c.pattern, err)
			continue
		}
		with, err := ParseReplacement(c.replacement, r.Anywhere)
		if err != nil {
			t.Errorf("%s: %v", c.replacement, err)
			continue
		}
		if got := r.ReplaceFirst(c.text, with); got != c.want {
			t.Errorf("%q with %q on %q: got %q, want %q", c.pattern, c.replacement, c.text, got, c.want)
		}
	}
}

func TestJavaRegex_RefusesWhatItHasNoWordsFor(t *testing.T) {
	for _, pattern := range []string{
		"(?=a)", "(?!a)", "(?<=a)", "(?<!a)", "(?>a)", "a++", "a*+", "a?+", "a{2}+", `(a)\1`, `\k<a>`, "[a[b]]", "[a-z&&b]",
		`\h`, `\R`, `\Z`, `\G`, "(?x)a", "(?m)^a", "a(?s).", `[\S]`, `\p{javaLowerCase}`, `\p{InGreek}`, `\01`,
	} {
		if _, err := Compile(pattern, false); !errors.Is(err, errNoWords) {
			t.Errorf("%s: %v", pattern, err)
		}
	}
	for _, pattern := range []string{"(", "[", "a{", "a{x}", "*", `\`, "(?<a_b>x)", "(?<x", `\u12`, `\p{`} {
		if _, err := Compile(pattern, false); err == nil {
			t.Errorf("%s: compiled", pattern)
		}
	}
}

func TestJavaList_SplitsAtCommasThatAreNotEscaped(t *testing.T) {
	list, err := List(` public\.a , public.b\,c ,,`)
	if err != nil || len(list) != 2 {
		t.Fatalf("%d, %v", len(list), err)
	}
	for text, want := range map[string]bool{"public.a": true, "PUBLIC.A": true, "publicxa": false, "public.b,c": true, "xpublic.a": false} {
		if MatchesAny(list, text) != want {
			t.Errorf("%s: %t", text, !want)
		}
	}
}

func FuzzJavaRegex(f *testing.F) {
	for _, seed := range [][3]string{
		{"(?<routedByValue>.*)", "outbox.event.${routedByValue}", "Order"}, {`[a\-z]+|\Qx\E`, `\$$1`, "a"}, {"(a)(b)?", "$12${x", "ab"}, {`\p{Lower}`, "$", ""},
	} {
		f.Add(seed[0], seed[1], seed[2])
	}
	f.Fuzz(func(t *testing.T, pattern, replacement, text string) {
		r, err := Compile(pattern, false)
		if err != nil {
			return
		}
		with, err := ParseReplacement(replacement, r.Anywhere)
		if err != nil {
			return
		}
		if got := r.ReplaceFirst(text, with); !r.Whole.MatchString(text) && got != text {
			t.Errorf("%q changed %q to %q without a match", pattern, text, got)
		}
	})
}
