package document

import (
	"strings"
	"testing"
	"unicode/utf16"
)

// Some editors and shells write UTF-16, with or without a mark of it.
func TestParse_NamesTheEncodingOfUTF16(t *testing.T) {
	little, big := "", ""
	for _, unit := range utf16.Encode([]rune("postgres:\n  slot: é\n")) {
		little += string([]byte{byte(unit), byte(unit >> 8)})
		big += string([]byte{byte(unit >> 8), byte(unit)})
	}
	for name, content := range map[string]string{"little": little, "little with a mark": "\xff\xfe" + little, "big": big, "big with a mark": "\xfe\xff" + big} {
		if _, err := Parse("f", []byte(content), Keys{}); err == nil || !strings.Contains(err.Error(), "UTF-16; allowed: UTF-8") {
			t.Errorf("%s: %v", name, err)
		}
	}
	for _, content := range []string{"", "a", "\ufeffa: é\n"} {
		if _, err := Parse("f", []byte(content), Keys{}); err != nil {
			t.Errorf("%q: %v", content, err)
		}
	}
}
