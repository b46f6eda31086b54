package pgoutput

import (
	"bufio"
	"bytes"
	"encoding/hex"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cdc-relay/cdc-relay/replication/pgoutput/pgoutputtest"
	"github.com/cdc-relay/cdc-relay/replication/wal"
)

// FuzzDecoder feeds a sequence of length-prefixed messages. Whatever they are, the
// decoder does not panic, keeps its batches' promises, and never leaves an input
// that it has let go of inside a row.
func FuzzDecoder(f *testing.F) {
	f.Add(sequence(pgoutputtest.Begin(0x200, 7), pgoutputtest.Relation(pgoutputtest.OutboxOID, "public", "outbox", pgoutputtest.OutboxColumns...),
		pgoutputtest.Insert(pgoutputtest.OutboxOID, "1", "a"), pgoutputtest.Commit(0x200, 0x230)), uint8(3))
	f.Add(sequence(pgoutputtest.Begin(0x200, 7), pgoutputtest.Relation(pgoutputtest.OtherOID, "public", "t", "id"), pgoutputtest.Message{'U'}.U32(pgoutputtest.OtherOID).U8('N').Tuple("9"),
		pgoutputtest.Message{'D'}.U32(pgoutputtest.OtherOID).U8('O').Tuple("9"), pgoutputtest.Message{'T'}.U32(1).U8(0).U32(pgoutputtest.OtherOID), pgoutputtest.Message{'O'}.LSN(1).Str("o"),
		pgoutputtest.Message{'Y'}.U32(1).Str("a").Str("b"), pgoutputtest.Message{'M'}.U8(0).LSN(1).Str("p").U32(1).U8(1)), uint8(1))
	for _, messages := range captured(f) {
		f.Add(sequence(messages...), uint8(7))
	}
	f.Fuzz(func(t *testing.T, input []byte, rows uint8) {
		cfg := testConfig
		cfg.MaxRows, cfg.MaxBytes = int(rows%16)+1, 512
		d := NewDecoder(cfg)
		var through wal.LSN
		for len(input) >= 2 {
			n := min(int(input[0])<<8|int(input[1]), len(input)-2)
			m := bytes.Clone(input[2 : 2+n])
			input = input[2+n:]
			err := d.Decode(m[:n:n], 0x100)
			clear(m)
			if len(m)%5 == 0 {
				d.Idle(through + wal.LSN(n))
			}
			if b := d.Take(); b != nil {
				through = checkBatch(t, b, through)
				b.Release()
			}
			if err != nil {
				return
			}
		}
	})
}

func checkBatch(t *testing.T, b *wal.Batch, through wal.LSN) wal.LSN {
	t.Helper()
	size := 0
	for i := range b.Rows {
		r := &b.Rows[i]
		if len(r.Values) != len(r.Relation.Columns) || r.Relation.Table < 0 || r.Txn == nil || r.Ordinal == 0 {
			t.Fatalf("row %+v", r)
		}
		for _, v := range r.Values {
			if (v.Kind == wal.Null) != (v.Data == nil) {
				t.Fatalf("value %+v", v)
			}
			size += len(v.Data)
		}
	}
	if b.Bytes < size {
		t.Fatalf("%d bytes said, %d held", b.Bytes, size)
	}
	if b.Through == 0 {
		return through
	}
	if b.Through <= through {
		t.Fatalf("through went from %s to %s", through, b.Through)
	}
	return b.Through
}

func sequence(messages ...pgoutputtest.Message) []byte {
	var out []byte
	for _, m := range messages {
		out = append(append(out, byte(len(m)>>8), byte(len(m))), m...)
	}
	return out
}

// captured gives the messages that real servers sent, by version.
func captured(tb testing.TB) map[string][]pgoutputtest.Message {
	tb.Helper()
	paths, err := filepath.Glob("testdata/*/*.hex")
	if err != nil {
		tb.Fatal(err)
	}
	all := make(map[string][]pgoutputtest.Message)
	for _, path := range paths {
		content, err := os.ReadFile(path)
		if err != nil {
			tb.Fatal(err)
		}
		lines := bufio.NewScanner(bytes.NewReader(content))
		lines.Buffer(nil, 1<<20)
		for lines.Scan() {
			_, text, _ := strings.Cut(lines.Text(), " ")
			m, err := hex.DecodeString(text)
			if err != nil {
				tb.Fatalf("%s: %v", path, err)
			}
			all[path] = append(all[path], m)
		}
	}
	return all
}
