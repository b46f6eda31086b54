package tracing

import (
	"fmt"
	"regexp"
	"strings"
	"testing"
)

const (
	goodTrace  = "0af7651916cd43dd8448eb211c80319c"
	goodParent = "00-" + goodTrace + "-b7ad6b7169203331-01"
)

func TestParseParent_IsStrict(t *testing.T) {
	for parent, want := range map[string]bool{
		goodParent: true, goodParent[:53] + "03": true, goodParent[:53] + "00": true, "01" + goodParent[2:] + "-more": true, "cc" + goodParent[2:]: true,
		goodParent + "-more": false, goodParent + "x": false, "01" + goodParent[2:] + "more": false, goodParent[:54]: false, "": false,
		"ff" + goodParent[2:]: false, strings.ToUpper(goodParent): false, "00-" + strings.Repeat("0", 32) + "-b7ad6b7169203331-01": false,
		"00-" + goodTrace + "-0000000000000000-01": false, "00_" + goodParent[3:]: false, goodParent[:53] + "g1": false, strings.Repeat("\xff", 55): false,
		" " + goodParent: false, goodParent + " ": false,
	} {
		c, ok := ParseParent(parent)
		if ok != want || ok && fmt.Sprintf("%x", c.Trace) != goodTrace {
			t.Errorf("%q: %+v %t", parent, c, ok)
		}
		if again, same := ParseParent([]byte(parent)); again != c || same != ok {
			t.Errorf("%q: bytes give %+v %t", parent, again, same)
		}
	}
	if c, _ := ParseParent(goodParent); !c.Sampled() || string(AppendParent(nil, c)) != goodParent {
		t.Errorf("%+v is written as %s", c, AppendParent(nil, c))
	}
}

// What is read is what the specification's grammar allows, and is written as it was.
func FuzzParseParent(f *testing.F) {
	for _, seed := range []string{goodParent, "01" + goodParent[2:] + "-x", "ff" + goodParent[2:], goodParent[:54], ""} {
		f.Add(seed)
	}
	grammar := regexp.MustCompile(`\A([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(-[\s\S]*)?\z`)
	f.Fuzz(func(t *testing.T, text string) {
		c, ok := ParseParent(text)
		m := grammar.FindStringSubmatch(text)
		want := m != nil && m[1] != "ff" && (m[1] != "00" || len(text) == 55) && strings.Trim(m[2], "0") != "" && strings.Trim(m[3], "0") != ""
		if ok != want {
			t.Fatalf("%q: %t, the grammar says %t", text, ok, want)
		}
		if ok {
			if out := string(AppendParent(nil, c)); out[2:] != text[2:55] {
				t.Fatalf("%q is written as %q", text, out)
			}
		}
		if surelyUnsampled([]byte(text)) && ok && c.Sampled() {
			t.Fatalf("%q is taken for one that is not sampled", text)
		}
	})
}
