package pgoutput

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/cdc-relay/cdc-relay/replication/pgoutput/pgoutputtest"
	"github.com/cdc-relay/cdc-relay/replication/wal"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// TestCapturesDecodeAsBefore decodes what real servers sent.
func TestCapturesDecodeAsBefore(t *testing.T) {
	captures := captured(t)
	if len(captures) == 0 {
		t.Fatal("no captures in testdata")
	}
	for path, messages := range captures {
		t.Run(strings.TrimSuffix(strings.TrimPrefix(filepath.ToSlash(path), "testdata/"), ".hex"), func(t *testing.T) {
			got := decodeCapture(t, messages)
			golden := strings.TrimSuffix(path, ".hex") + ".golden"
			if *update {
				if err := os.WriteFile(golden, got, 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(golden)
			if err != nil {
				t.Fatal(err)
			}
			if !bytes.Equal(got, want) {
				t.Errorf("differs from %s (-update rewrites it):\n%s", golden, got)
			}
		})
	}
}

func captureTables() []wal.Table {
	return []wal.Table{{Schema: "public", Name: "outbox"}, {Schema: "public", Name: `Out"Box`}, {Schema: "public", Name: "parts"}}
}

// decodeCapture takes a batch for each transaction.
func decodeCapture(t *testing.T, messages []pgoutputtest.Message) []byte {
	t.Helper()
	d := NewDecoder(Options{Tables: captureTables()})
	var out bytes.Buffer
	var shape *wal.Relation
	for _, m := range messages {
		if err := d.Decode(m, 0); err != nil {
			t.Fatal(err)
		}
		if m[0] != 'C' {
			continue
		}
		b := d.Take()
		for i := range b.Rows {
			if rel := b.Rows[i].Relation; rel != shape {
				shape = rel
				columns := make([]string, len(rel.Columns))
				for i, c := range rel.Columns {
					columns[i] = fmt.Sprintf("{Name:%s Type:%d TypeMod:%d TypeName:%s}", c.Name, c.Type, c.TypeMod, c.TypeName)
				}
				fmt.Fprintf(&out, "relation %s.%s [%s]\n", rel.Namespace, rel.Name, strings.Join(columns, " "))
			}
		}
		fmt.Fprintf(&out, "%s  committed %s\n", render(b), b.ThroughTime.Format(time.RFC3339))
		b.Release()
	}
	return out.Bytes()
}
