package export

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/klauspost/compress/zstd"
)

var slice = Slice{Table: "public.outbox", Begin: time.Date(2026, 11, 25, 7, 0, 0, 0, time.UTC)}

func folder(t *testing.T) *Folder {
	t.Helper()
	f, err := OpenFolder(t.TempDir() + "/")
	if err != nil {
		t.Fatal(err)
	}
	return f
}

func text(s string) Value { return &s }

// write has a file of rows with one value each written.
func write(t *testing.T, f *Folder, values ...Value) string {
	t.Helper()
	header := &Header{Table: "public.outbox", Columns: []Column{{"id", "text"}}}
	path, _, err := f.Write(t.Context(), slice, header, func(row func([]Value) error) error {
		for _, v := range values {
			if err := row([]Value{v}); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimPrefix(path, f.root+"/")
}

func content(t *testing.T, f *Folder, name string) string {
	t.Helper()
	packed, err := os.ReadFile(filepath.Join(f.root, name))
	if err != nil {
		t.Fatal(err)
	}
	z, _ := zstd.NewReader(nil)
	plain, err := z.DecodeAll(packed, nil)
	if err != nil {
		t.Fatal(err)
	}
	return string(plain)
}

func TestFolder_NeverWritesOverAFile(t *testing.T) {
	t.Parallel()
	f := folder(t)
	for i, tt := range []struct {
		values []Value
		want   string
	}{
		{[]Value{text("a"), nil, text("<\"é\n>")}, "07-0"},
		{[]Value{text("a"), nil, text("<\"é\n>")}, "07-0"}, // they were not deleted
		{[]Value{text("a"), text("b")}, "07-1"},
		{[]Value{text("a")}, "07-2"},
		{[]Value{text("a"), text("b")}, "07-3"},
	} {
		if got := write(t, f, tt.values...); got != "public.outbox/2026/11/25/"+tt.want+".ndjson.zst" {
			t.Errorf("%d: %s, want %s", i, got, tt.want)
		}
	}
	lines := strings.Split(content(t, f, "public.outbox/2026/11/25/07-0.ndjson.zst"), "\n")
	if len(lines) != 6 || lines[1] != `{"id":"a"}` || lines[2] != `{"id":null}` || lines[3] != `{"id":"<\"é\n>"}` || !strings.HasPrefix(lines[4], `{"rows":3,"sha256":"`) {
		t.Errorf("%q", lines)
	}
}

// What a run leaves that was killed is no file, and does not stand in the way.
func TestFolder_LeavesNothingThatIsNotWhole(t *testing.T) {
	t.Parallel()
	f := folder(t)
	full := errors.New("no space left on device")
	_, _, err := f.Write(t.Context(), slice, &Header{Columns: []Column{{"id", "text"}}}, func(row func([]Value) error) error {
		if err := row([]Value{text("a")}); err != nil {
			return err
		}
		return full
	})
	left, _ := filepath.Glob(f.root + "/public.outbox/2026/11/25/*")
	hidden, _ := filepath.Glob(f.root + "/public.outbox/2026/11/25/.*")
	if !errors.Is(err, full) || len(left)+len(hidden) != 0 {
		t.Errorf("%v, left %v %v", err, left, hidden)
	}
	stale := filepath.Join(f.root, "public.outbox/2026/11/25/.07-0.ndjson.zst.tmp")
	if err := os.WriteFile(stale, []byte("half"), 0o600); err != nil {
		t.Fatal(err)
	}
	if got := write(t, f, text("a")); !strings.HasSuffix(got, "07-0.ndjson.zst") {
		t.Error(got)
	}
	if _, err := os.Stat(stale); err == nil {
		t.Error("the file of a run that was killed is still there")
	}
}

// A file that is shorter, longer or altered is none.
func TestVerify_FindsWhatIsNotWhole(t *testing.T) {
	t.Parallel()
	f := folder(t)
	name := write(t, f, text("a"), text("b"))
	plain := content(t, f, name)
	lines := strings.SplitAfter(plain, "\n")
	packed, _ := os.ReadFile(filepath.Join(f.root, name))
	z, _ := zstd.NewWriter(nil)
	for what, bad := range map[string][]byte{
		"cut":         packed[:len(packed)-3],
		"empty":       {},
		"a row less":  z.EncodeAll([]byte(lines[0]+lines[1]+lines[3]), nil),
		"a row more":  z.EncodeAll([]byte(lines[0]+lines[1]+lines[2]+lines[2]+lines[3]), nil),
		"altered":     z.EncodeAll([]byte(strings.Replace(plain, `"b"`, `"c"`, 1)), nil),
		"no trailer":  z.EncodeAll([]byte(lines[0]+lines[1]+lines[2]), nil),
		"half a line": z.EncodeAll([]byte(plain[:len(plain)-1]), nil),
	} {
		if _, err := read(bytes.NewReader(bad)); err == nil {
			t.Errorf("%s: it is taken for whole", what)
		}
	}
	if got, err := read(bytes.NewReader(packed)); err != nil || got.Rows != 2 {
		t.Errorf("%+v, %v", got, err)
	}
}

// A folder that a cut run has made, or could not flush, is flushed by the next one: all names that lead to a
// file are on the disk before its rows are deleted.
func TestFolder_FlushesAllFoldersOfAFile(t *testing.T) {
	t.Parallel()
	f, full := folder(t), errors.New("input/output error")
	var flushed []string
	fails := "public.outbox/2026"
	f.flush = func(folder string) error {
		name, _ := filepath.Rel(f.root, folder)
		if flushed = append(flushed, name); name == fails {
			return full
		}
		return flush(folder)
	}
	header := &Header{Table: "public.outbox", Columns: []Column{{"id", "text"}}}
	if _, _, err := f.Write(t.Context(), slice, header, func(row func([]Value) error) error { return row([]Value{text("a")}) }); !errors.Is(err, full) {
		t.Fatalf("%v, want that of the folder", err)
	}
	fails = ""
	for _, value := range []string{"a", "b"} { // the first one is in a file already
		flushed = nil
		write(t, f, text(value))
		slices.Sort(flushed)
		if want := []string{".", "public.outbox", "public.outbox/2026", "public.outbox/2026/11", "public.outbox/2026/11/25"}; !slices.Equal(slices.Compact(flushed), want) {
			t.Errorf("row %s: flushed %q, want %q", value, flushed, want)
		}
	}
}

func TestFolder_StaysBelowItsRoot(t *testing.T) {
	t.Parallel()
	for table, want := range map[string]string{"public.a/b": "public.a%2Fb", "..": "%2E%2E", "public.Ünal": "public.%C3%9Cnal"} {
		if got := folderName(table); got != want {
			t.Errorf("%s: %s, want %s", table, got, want)
		}
	}
}

// Another database may write files of a table with the same name: the one that was first stays.
func TestFolder_LeavesAFileThatAppearedMeanwhile(t *testing.T) {
	t.Parallel()
	f := folder(t)
	path := filepath.Join(f.root, "public.outbox/2026/11/25/07-0.ndjson.zst")
	_, _, err := f.Write(t.Context(), slice, &Header{Columns: []Column{{"id", "text"}}}, func(row func([]Value) error) error {
		if err := os.WriteFile(path, []byte("of another"), 0o600); err != nil {
			return err
		}
		return row([]Value{text("a")})
	})
	if there, _ := os.ReadFile(path); string(there) != "of another" || !errors.Is(err, fs.ErrExist) {
		t.Errorf("the file holds %q, %v", there, err)
	}
	if got := write(t, f, text("a")); !strings.HasSuffix(got, "07-1.ndjson.zst") {
		t.Error(got)
	}
}
