package wording

import "testing"

func TestNearest_IsAWordThatWasMeant(t *testing.T) {
	names := []string{"http", "kafka", "log", "outbox", "postgres", "relay"}
	for name, want := range map[string]string{"postgers": "postgres", "lgo": "log", "lo": "log", "Kafak": "kafka", "foo": "", "relax": "relay", "outbx": "outbox", "x": ""} {
		if got, ok := Nearest(name, names); got != want || ok != (want != "") {
			t.Errorf("%q: %q, want %q", name, got, want)
		}
	}
}
