package replication

import "testing"

func TestCountText_KnowsOneFromMany(t *testing.T) {
	for want, got := range map[string]string{
		"1 row": CountText(1, "row"), "0 rows": CountText(0, "row"), "2 dead letters": CountText(int64(2), "dead letter"),
		"2 batches": CountText(2, "batch"), "3 entries": CountText(3, "entry"), "3 keys": CountText(3, "key"),
	} {
		if got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}
