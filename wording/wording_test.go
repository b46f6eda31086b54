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

func TestWithoutLogin_HidesThePasswordOfAURL(t *testing.T) {
	for text, want := range map[string]string{
		"postgres://u:PW@h/db": "postgres://***@h/db", "/etc/relay.yaml": "/etc/relay.yaml", "postgres://h/db?user=a@b": "postgres://h/db?user=a@b",
	} {
		if got := WithoutLogin(text); got != want {
			t.Errorf("%s: %s", text, got)
		}
	}
}
