package golden_test

import (
	"bytes"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cdc-relay/cdc-relay/test/parity/golden"
)

// A capture rewrites an archive: parts that the capture does not touch keep their bytes.
func TestFiles_StoredArchivesAreWrittenAsTheyAre(t *testing.T) {
	for _, c := range cases(t) {
		stored, err := os.ReadFile(c.Path)
		if err != nil {
			t.Fatal(err)
		}
		files, err := golden.ParseFiles(stored)
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(files.Format(), stored) {
			t.Errorf("%s: the archive is written differently", c.Name)
		}
	}
}

func TestFiles_KeepEveryByte(t *testing.T) {
	every := make([]byte, 0, 1024)
	for i := range 1024 {
		every = append(every, byte(i))
	}
	for name, content := range map[string][]byte{
		"empty":                 {},
		"text":                  []byte("select 'ä';\n\n\tselect 2;\n"),
		"comment of SQL":        []byte("-- note\nselect 1; -- note --\n"),
		"line end only":         []byte("\n"),
		"no last line end":      []byte("select 1;"),
		"carriage returns":      []byte("select 1;\r\n"),
		"begins a part":         []byte("-- dml.sql --\n"),
		"begins a part later":   []byte("{}\n-- other --\n{}\n"),
		"begins a part at last": []byte("{}\n-- other --"),
		"not UTF-8":             []byte("\xff\n"),
		"NUL":                   []byte("a\x00b\n"),
		"every byte":            every,
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "case"+golden.Ext)
			want := golden.Files{golden.About: []byte("{}\n"), golden.Worker: content, golden.Expected: {}, golden.ExpectedLog: content}
			if err := want.Write(path); err != nil {
				t.Fatal(err)
			}
			got, err := golden.ReadFiles(path)
			if err != nil {
				t.Fatal(err)
			}
			if !maps.EqualFunc(got, want, bytes.Equal) {
				t.Errorf("read %q, want %q", got, want)
			}
			if got[golden.Worker] == nil || got[golden.Expected] == nil {
				t.Error("a part without bytes is missing")
			}
		})
	}
}

func TestFiles_EncodeOnlyWhatIsNoText(t *testing.T) {
	archive := string(golden.Files{golden.Schema: []byte("select 1;\n"), golden.Script: []byte("select '\x00';\n")}.Format())
	if want := "-- schema.sql --\nselect 1;\n-- dml.sql.base64 --\nc2VsZWN0ICcAJzsK\n"; archive != want {
		t.Errorf("archive\n%s\nwant\n%s", archive, want)
	}
}

func TestParseFiles_RefusesWhatWouldBeIgnored(t *testing.T) {
	for archive, want := range map[string]string{
		"a note\n-- case.json --\n{}\n":               "before the first part",
		"-- cases.json --\n{}\n":                      "unknown part",
		"-- case.json --\n{}\n-- case.json --\n{}\n":  "twice",
		"-- case.json --\n-- case.json.base64 --\n\n": "twice",
		"-- dml.sql.base64 --\n*\n":                   "illegal base64",
	} {
		if _, err := golden.ParseFiles([]byte(archive)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: error %v, want %q", archive, err, want)
		}
	}
}

func TestLoad_NamesThePartThatIsMissing(t *testing.T) {
	path := filepath.Join(t.TempDir(), "case"+golden.Ext)
	files := golden.Files{golden.About: []byte("{}\n"), golden.Connector: []byte("{}\n"), golden.Schema: {}}
	if err := files.Write(path); err != nil {
		t.Fatal(err)
	}
	if _, err := golden.Load(path); err == nil || !strings.Contains(err.Error(), "case.txtar: dml.sql") {
		t.Errorf("error %v", err)
	}
}

func FuzzFiles(f *testing.F) {
	f.Add([]byte("select 1;\n"), []byte("-- dml.sql --\n"))
	f.Add([]byte{}, []byte("\r\n"))
	f.Add([]byte("--  --\n"), []byte("a\n-- b --\r\n"))
	f.Fuzz(func(t *testing.T, schema, script []byte) {
		want := golden.Files{golden.Schema: schema, golden.Script: script}
		got, err := golden.ParseFiles(want.Format())
		if err != nil || !maps.EqualFunc(got, want, bytes.Equal) {
			t.Errorf("read %q (%v), want %q", got, err, want)
		}
	})
}
