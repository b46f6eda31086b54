package tape

import (
	"strings"
	"testing"
)

// A payload of many values does not keep its memory for the life of the relay.
func TestRead_GivesBackWhatALargePayloadTook(t *testing.T) {
	var tape Tape
	large, small := []byte("["+strings.Repeat("1,", 1<<18)+"1]"), []byte(`{"a": [1, 2]}`)
	for range 2 {
		if err := tape.Read(large); err != nil || len(tape.Nodes) != 1<<18+2 {
			t.Fatalf("%d nodes, %v", len(tape.Nodes), err)
		}
	}
	if err := tape.Read(small); err != nil || len(tape.Nodes) != 5 || cap(tape.Nodes) > kept {
		t.Errorf("%d nodes, room for %d, %v", len(tape.Nodes), cap(tape.Nodes), err)
	}
	if n := testing.AllocsPerRun(10, func() { _ = tape.Read(small) }); n > 0 {
		t.Errorf("%v allocations for a usual payload", n)
	}
}

func TestMember_IsReadableWhateverTheName(t *testing.T) {
	for name, want := range map[string]string{"n": ".n", "_a9": "._a9", "": `[""]`, "9": `["9"]`, "a b": `["a b"]`, strings.Repeat("x", 41): `["` + strings.Repeat("x", 40) + `\u2026"]`} {
		if got := Member(name); got != want {
			t.Errorf("%q: %s, want %s", name, got, want)
		}
	}
}
