package wording

import "testing"

func TestCount_KnowsOneFromMany(t *testing.T) {
	for want, got := range map[string]string{
		"1 row": Count(1, "row"), "0 rows": Count(0, "row"), "2 dead letters": Count(int64(2), "dead letter"),
		"2 batches": Count(2, "batch"), "3 entries": Count(3, "entry"), "3 keys": Count(3, "key"),
	} {
		if got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}
