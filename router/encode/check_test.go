package encode

import (
	"encoding/hex"
	"fmt"
	"strings"
	"testing"
)

// A value that the application framed wrongly is refused with the place, and without its bytes.
func TestFraming_NamesTheByteThatIsWrong(t *testing.T) {
	for value, want := range map[string]string{
		"":             "has 0 bytes, and values of a schema registry begin with five: a zero byte and the number of their schema (byte 0)",
		"00":           "has 1 bytes",
		"00000001":     "has 4 bytes, and values of a schema registry begin with five: a zero byte and the number of their schema (byte 4)",
		"7b226e223a7d": "begins with byte 0x7b, and values of a schema registry with a zero byte and the number of their schema (byte 0)",
		"0100000001":   "begins with byte 0x01",
		"0000000001":   "",
		"00ffffffff02": "",
	} {
		b, err := hex.DecodeString(value)
		if err != nil {
			t.Fatal(err)
		}
		id, err := Framing(b)
		if got := fmt.Sprint(err); want == "" && (err != nil || id == 0) || !strings.Contains(got, want) {
			t.Errorf("%s: %d, %s, want %s", value, id, got, want)
		}
	}
}

// The list of Protobuf may be shorter than it says, or end within a number, or claim to be endless.
func TestIndexes_NamesTheByteThatIsWrong(t *testing.T) {
	for list, want := range map[string]string{
		"":                              "byte 5", // nothing
		"80":                            "byte 5", // half a number
		"ffffffffffffffffffff01":        "byte 5", // a number of more than 64 bits
		"01":                            "byte 6", // a negative length
		"0402":                          "byte 7", // one of two
		"0480":                          "byte 6",
		"0203":                          "byte 7", // a negative index
		"feffffffffffffffff01" + "0202": "byte 17",
		"00":                            "",
		"0000":                          "", // and the message
		"020208":                        "",
		"040002":                        "",
	} {
		b, err := hex.DecodeString("0000000007" + list)
		if err != nil {
			t.Fatal(err)
		}
		err = Indexes(b)
		if got := fmt.Sprint(err); want == "" && err != nil || want != "" && !strings.Contains(got, "does not say which message of its Protobuf schema it is ("+want+")") {
			t.Errorf("%q: %s, want %s", list, got, want)
		}
	}
}
