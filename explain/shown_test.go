package explain

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/cdc-relay/cdc-relay/router/record"
)

// Null would say that the value is a tombstone.
func TestRecordReport_LeavesOutWhatIsNotToBeShown(t *testing.T) {
	for _, tt := range []struct {
		value   []byte
		without bool
		want    string
	}{
		{[]byte("v"), false, `"value":"v"`},
		{nil, false, `"value":null`},
		{[]byte("v"), true, ""},
		{nil, true, ""},
	} {
		r := NewRecord("it", &record.Record{Topic: "t", Value: tt.value})
		r.Value.Hidden = tt.without
		out, err := json.Marshal(r)
		if err != nil {
			t.Fatal(err)
		}
		if text := string(out); strings.Contains(text, `"value"`) != (tt.want != "") || !strings.Contains(text, tt.want) || !strings.Contains(text, `"topic":"t"`) {
			t.Errorf("%s, want %q", text, tt.want)
		}
	}
}

func TestBlob_ShowsWhatIsSent(t *testing.T) {
	for text, want := range map[string]string{
		`{"p": "C:\\d", "q": "\u00e4\n"}`: `{"p": "C:\\d", "q": "\u00e4\n"}`,
		"a\nb\tc\x00\x1b[0m\x7f":          "a␊b␉c␀␛[0m␡",
		"\u202egpj.\u0085":                "<U+202E>gpj.<U+0085>",
		"\xff":                            `\xff (1 bytes)`,
	} {
		b := blob(text)
		if got := b.String(); got != want {
			t.Errorf("%q shows as %s, want %s", text, got, want)
		}
	}
}

func TestSample_OfTheStandardInputIsNamed(t *testing.T) {
	for file, want := range map[string]string{"-": "the sample from the standard input", "row.json": "the sample row.json"} {
		if got := sampleName(file); got != want {
			t.Errorf("%s is called %q, want %q", file, got, want)
		}
	}
}
