package config

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/cdc-relay/cdc-relay/test/harness"
)

// loadText reads a text as the file t.yaml.
func loadText(text string) error {
	_, err := Load(Options{Path: "t.yaml", Environ: []string{}, ReadFile: func(string) ([]byte, error) { return []byte(text), nil }})
	return err
}

// repeated is n lines of a form that takes a number.
func repeated(n int, form string) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, form, i)
	}
	return b.String()
}

func staircase(levels int) string {
	var b strings.Builder
	for i := range levels {
		b.WriteString(strings.Repeat(" ", i) + "a:\n")
	}
	return b.String()
}

// What no configuration needs is refused by its size, before the parser sees it: that takes
// minutes over it, or its stack.
func TestLoad_RefusesWhatNobodyWrites(t *testing.T) {
	laughs := "a0: &a0 [x,x,x,x,x,x,x,x,x,x]\n"
	for i := range 20 {
		alias := fmt.Sprintf("*a%d", i)
		laughs += fmt.Sprintf("a%d: &a%d [%s]\n", i+1, i+1, strings.Join([]string{alias, alias, alias, alias, alias, alias, alias, alias}, ","))
	}
	const deep, many, keys = "nested too deeply; allowed: 100 levels", "more than 20000 keys and values", "more than 500 keys in one mapping"
	for name, c := range map[string]struct{ text, want string }{
		"a large file":             {"# " + strings.Repeat("x", 1<<20), "allowed: 1MiB"},
		"a hundred thousand keys":  {repeated(100_000, "k%d: v\n"), keys},
		"keys of a section":        {"kafka:\n" + repeated(600, "  k%d: v\n"), "t.yaml:502:3: " + keys},
		"complex keys":             {strings.Repeat("? a\n", 600), keys},
		"headers":                  {"outbox:\n  - table: t\n    headers:\n" + repeated(600, "      h%d: v\n"), keys},
		"items without a value":    {"outbox:\n" + strings.Repeat("-\n", 30_000), many},
		"a list in brackets":       {"kafka: {brokers: [" + repeated(30_000, "b%d:9092,") + "]}\n", many},
		"keys in braces":           {"x: {" + repeated(30_000, "k%d, ") + "}\n", many},
		"brackets":                 {"x: " + strings.Repeat("[", 300_000), deep},
		"brackets over many lines": {"x:\n" + strings.Repeat("  [\n", 19_000), deep},
		"braces":                   {"x: " + strings.Repeat("{a: ", 101) + strings.Repeat("}", 101), deep},
		"lists in lists":           {strings.Repeat("- ", 300_000) + "x\n", deep},
		"keys of keys":             {strings.Repeat("? ", 300_000) + "x\n", deep},
		"a staircase":              {staircase(101), deep},
		"braces on a staircase":    {staircase(60) + strings.Repeat(" ", 60) + "a: " + strings.Repeat("[", 50) + strings.Repeat("]", 50), deep},
		"aliases of aliases":       {laughs, "aliases make more than"},
	} {
		t.Run(name, func(t *testing.T) {
			if err := loadText(c.text); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%.200v, want %q", err, c.want)
			} else if len(err.Error()) > 1000 {
				t.Errorf("the error has %d bytes", len(err.Error()))
			}
		})
	}
}

// A file without an end is none that is read to its end.
func TestLoad_ReadsNoMoreThanItTakes(t *testing.T) {
	if _, err := os.Stat("/dev/zero"); err != nil {
		harness.NotHere(t, "no /dev/zero here")
	}
	if _, err := Load(Options{Path: "/dev/zero", Environ: []string{}}); err == nil || !strings.Contains(err.Error(), "allowed: 1MiB") {
		t.Errorf("%v", err)
	}
}

func TestLoad_ReadsAHundredLevels(t *testing.T) {
	if err := loadText(staircase(100)); err == nil || strings.Contains(err.Error(), "nested") {
		t.Errorf("100 levels: %v", err)
	}
}

// A mistake is looked for in a part of a large file only.
func TestLoad_FindsMistakesOfLargeFiles(t *testing.T) {
	err := loadText("outbox:\n" + repeated(9000, "  - table: public.t%d\n") + "  - table: 'open\n")
	if err == nil || !strings.Contains(err.Error(), "t.yaml:900") {
		t.Errorf("%.200v", err)
	}
}
