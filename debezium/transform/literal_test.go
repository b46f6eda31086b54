package transform

import (
	"strings"
	"testing"
)

func FuzzLiteral(f *testing.F) {
	for _, seed := range []string{"", " true ", "null", "12", "-129", "1.5", "[1]", "2024-01-02", "x", "\xff"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		schema, _, ok := parseLiteral(text)
		if (schema == nil) != (!ok || strings.TrimSpace(text) == "null") {
			t.Errorf("%q: schema %v, %v", text, schema, ok)
		}
	})
}
