package jsontext

import (
	"strings"
	"testing"
)

// What PostgreSQL 15 prints of each text as jsonb.
func TestCheck_KnowsTheSizeOfJSONB(t *testing.T) {
	for text, printed := range map[string]string{
		`{"a":1,"b":[1,2]}`:    `{"a": 1, "b": [1, 2]}`,
		`[1,-2.50,0]`:          `[1, -2.50, 0]`,
		`1e5`:                  `100000`,
		`-1.5E-3`:              `-0.0015`,
		`"a,b:c\"\\,"`:         `"a,b:c\"\\,"`,
		`{}`:                   `{}`,
		`"\ud83d\ude00\u00e9"`: `"😀é"`,
	} {
		size, reason := Check([]byte(text), true)
		if reason != "" || size < len(printed) || size > max(len(text), len(printed))+4 {
			t.Errorf("%s: %d bytes, %s; PostgreSQL prints %d", text, size, reason, len(printed))
		}
		if size, _ := Check([]byte(text), false); size != len(text) {
			t.Errorf("%s: %d bytes as json", text, size)
		}
	}
	if size, _ := Check([]byte("["+strings.Repeat("1,", 300)+"1]"), true); size != 603+300 {
		t.Errorf("300 commas: %d bytes", size)
	}
}
