package pgoutput

import (
	"encoding/binary"
	"fmt"
	"strings"
	"testing"

	"github.com/cdc-relay/cdc-relay/replication/pgoutput/pgoutputtest"
	"github.com/cdc-relay/cdc-relay/replication/wal"
)

// BenchmarkDecode decodes transactions of n rows of about 300 bytes, as a consumer
// that releases at once: a full batch, or one for each transaction.
func BenchmarkDecode(b *testing.B) {
	payload := `{"order":"` + strings.Repeat("x", 275) + `"}`
	row := pgoutputtest.Insert(pgoutputtest.OutboxOID, "018f2d6e-7c1a-7b43-9d2e-000000000001", "orders", "4711", "OrderPlaced", payload, "2026-11-21 10:00:00+00", "\x00")
	for _, rows := range []int{1, 10, 1000} {
		for _, each := range []bool{false, true} {
			b.Run(fmt.Sprintf("rows=%d/take_each=%t", rows, each), func(b *testing.B) {
				d := NewDecoder(testConfig)
				announce := pgoutputtest.Relation(pgoutputtest.OutboxOID, "public", "outbox", "id", "type", "key", "event", "payload", "created", "published")
				if err := d.Decode(announce, 0); err != nil {
					b.Fatal(err)
				}
				b.ReportAllocs()
				b.SetBytes(int64(len(row)))
				n := 0
				at := wal.LSN(0x1000)
				first, last := pgoutputtest.Begin(at, 1), pgoutputtest.Commit(at, at)
				for b.Loop() {
					if n%rows == 0 {
						at += 0x100
						binary.BigEndian.PutUint64(first[1:], uint64(at))
						_ = d.Decode(first, at)
					}
					if err := d.Decode(row, at); err != nil {
						b.Fatal(err)
					}
					if n++; n%rows == 0 {
						binary.BigEndian.PutUint64(last[2:], uint64(at))
						binary.BigEndian.PutUint64(last[10:], uint64(at+0x80))
						_ = d.Decode(last, at)
					}
					if d.Full() || each && n%rows == 0 {
						d.Take().Release()
					}
				}
				b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "rows/s")
			})
		}
	}
}
