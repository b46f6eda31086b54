package stored

import (
	"slices"
	"strings"
	"testing"
)

func TestStreamed_IsReadAsTheFirstVersionWroteIt(t *testing.T) {
	const value = `{"v":1,"table_oids":[7,16384],"relay_version":"1.2.3"}`
	s := Streamed{Tables: []uint32{16384, 7}, Relay: "1.2.3"}
	if got := string(s.Encode()); got != value {
		t.Errorf("wrote %s\nwant  %s", got, value)
	}
	if got, err := ParseStreamed([]byte(value)); err != nil || !slices.Equal(got.Tables, []uint32{7, 16384}) || got.Relay != "1.2.3" {
		t.Errorf("read %+v, %v", got, err)
	}
	for mention, value := range map[string]string{"which tables": `[]`, "version 2": strings.Replace(value, `"v":1`, `"v":2`, 1)} {
		if got, err := ParseStreamed([]byte(value)); err == nil || !strings.Contains(err.Error(), mention) {
			t.Errorf("%s: read %+v, error %v does not mention %q", value, got, err, mention)
		}
	}
}
