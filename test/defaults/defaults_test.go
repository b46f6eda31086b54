package defaults

import (
	"os"
	"path/filepath"
	"testing"
	"time"
)

const source = `package p
type T struct {
	// Wait is how long. Defaults to 5s.
	Wait time.Duration
	Room int // default 8 MiB
	// A and B are two. Default 1 and "x".
	A int
	B string
	Kind string // defaults to Usual
	// Rule defaults to the lesser of two things.
	Rule int
	Plain int // has none
}`

type filled struct {
	Wait           time.Duration
	Room, A        int
	B, Kind        string
	Rule, Plain, C int
}

// silent counts errors.
type silent struct {
	testing.TB
	errors int
}

func (s *silent) Errorf(string, ...any) { s.errors++ }
func (s *silent) Helper()               {}

func TestCompare_FindsWhatIsNotSo(t *testing.T) {
	file := filepath.Join(t.TempDir(), "p.go")
	if err := os.WriteFile(file, []byte(source), 0o600); err != nil {
		t.Fatal(err)
	}
	good := filled{Wait: 5 * time.Second, Room: 8 << 20, A: 1, B: "x", Kind: "usual", Rule: 3, Plain: 7}
	names := map[string]any{"Usual": "usual"}
	if n := Compare(t, file, "T", good, names); n != 5 {
		t.Errorf("%d defaults were compared, want 5", n)
	}
	for name, change := range map[string]func(*filled){
		"a duration": func(f *filled) { f.Wait++ }, "a size": func(f *filled) { f.Room++ }, "the first of two": func(f *filled) { f.A++ },
		"the second of two": func(f *filled) { f.B = "y" }, "a name": func(f *filled) { f.Kind = "other" },
	} {
		bad, quiet := good, &silent{TB: t}
		change(&bad)
		if Compare(quiet, file, "T", bad, names); quiet.errors != 1 {
			t.Errorf("%s: %d errors", name, quiet.errors)
		}
	}
	quiet := &silent{TB: t}
	if Compare(quiet, file, "T", good, nil); quiet.errors != 1 {
		t.Errorf("a name that nobody explains: %d errors", quiet.errors)
	}
}
