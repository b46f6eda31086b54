package stage

import (
	"bytes"
	"maps"
	"path/filepath"
	"testing"

	"github.com/cdc-relay/cdc-relay/test/parity/golden"
)

func TestCaptured_WriteReplacesWhatACaseExpects(t *testing.T) {
	path := filepath.Join(t.TempDir(), "case"+golden.Ext)
	given := golden.Files{
		golden.About: []byte("{\"subject\": \"s\"}\n"), golden.Connector: []byte("{}\n"), golden.Schema: []byte("select 1;\n"), golden.Script: []byte("select '\x00';\n"),
	}
	stored := maps.Clone(given)
	stored[golden.ExpectedError] = []byte("an error of before\n")
	stored[golden.ExpectedNotes] = []byte("[]\n")
	if err := stored.Write(path); err != nil {
		t.Fatal(err)
	}
	c, err := golden.Load(path)
	if err != nil {
		t.Fatal(err)
	}
	value := []byte("\xff\x00\n-- dml.sql --\n")
	record := golden.Record{Topic: "t", Partitions: 1, Value: golden.Bytes{Raw: value}, Headers: []golden.Header{}, TimestampType: "CreateTime", Volatile: []string{}}
	captured := Captured{Records: []golden.Record{record}, Log: []string{"one", "-- two --"}}
	if err := captured.Write(c); err != nil {
		t.Fatal(err)
	}
	files, err := golden.ReadFiles(path)
	if err != nil {
		t.Fatal(err)
	}
	want := maps.Clone(given)
	want[golden.Expected] = []byte(record.Line())
	want[golden.ExpectedLog] = []byte("one\n-- two --\n")
	if !maps.EqualFunc(files, want, bytes.Equal) {
		t.Errorf("archive %q, want %q", files, want)
	}
	if c, err = golden.Load(path); err != nil || len(c.Records) != 1 || !bytes.Equal(c.Records[0].Value.Raw, value) || c.Error != "" {
		t.Errorf("case %+v, error %v", c, err)
	}
}
