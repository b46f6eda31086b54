package format

import (
	"bytes"
	"testing"

	"github.com/cdc-relay/cdc-relay/router/record"
)

func TestProperties(t *testing.T) {
	for _, c := range []struct{ text, want string }{
		{"", ""},
		{"traceparent=a", "a"},
		{"# traceparent=no\n! traceparent=no\r\ntraceparent = a\r\n", "a"},
		{"traceparent:a\ntraceparent b", "b"},
		{"tracep\\u0061rent=\\u00e9\\t\\=\\q", "é\t=q"},
		{"traceparent", ""},
		{"traceparent=\\", "\\"},
		{"traceparent2=a\nx\\=traceparent=b", ""},
	} {
		var b record.Buffer
		if got := property(&b, []byte(c.text), "traceparent"); string(got) != c.want {
			t.Errorf("%q: %q, want %q", c.text, got, c.want)
		}
	}
}

func FuzzProperty(f *testing.F) {
	for _, seed := range []string{"traceparent=a", "# x\n", "a\\\r\n b=c", "\\", "\\u00", "=", " : ", "k\\"} {
		f.Add([]byte(seed), "a")
	}
	f.Fuzz(func(t *testing.T, text []byte, key string) {
		before := bytes.Clone(text)
		var b record.Buffer
		value := property(&b, text, key)
		if len(value) > len(text) {
			t.Errorf("%q of %q is %q", key, text, value)
		}
		if !bytes.Equal(before, text) {
			t.Error("the row was written to")
		}
	})
}
