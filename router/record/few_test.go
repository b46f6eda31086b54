package record

import (
	"fmt"
	"slices"
	"testing"
)

// The chunks of few records are small, and hold the same as large ones.
func TestBuffer_KeepsTheBytesAndHeadersOfFewRecordsAndOfMany(t *testing.T) {
	for _, n := range []int{1, 2, fewRecords, fewRecords + 1, 300} {
		for _, headers := range []int{0, 1, fewHeaders/2 - 1, fewHeaders / 2, fewHeaders, 5 * fewHeaders} {
			var b Buffer
			for range 2 { // the second time with what was given back
				b.Reserve(n)
				text := func(i, h int) string {
					return fmt.Sprintf("%d.%d.%0*d", i, h, (i*37+h*151)%(2*fewBytes), 0)
				}
				for i := range n {
					for h := range headers {
						b.Header(text(i, h), b.Copy([]byte(text(i, h))))
					}
					b.Records = append(b.Records, Record{Headers: b.TakeHeaders(), Value: b.Copy([]byte(text(i, headers)))})
				}
				for i, r := range b.Records {
					if string(r.Value) != text(i, headers) || len(r.Headers) != headers {
						t.Fatalf("record %d of %d: %d headers of %d, value %q", i, n, len(r.Headers), headers, r.Value)
					}
					for h, got := range r.Headers {
						if got.Key != text(i, h) || string(got.Value) != got.Key {
							t.Fatalf("record %d of %d: header %d is %q: %q", i, n, h, got.Key, got.Value)
						}
					}
				}
				wantHeaders, wantBytes := headerChunk, byteChunk
				if n <= fewRecords {
					wantHeaders, wantBytes = fewHeaders, fewBytes
				}
				other := func(want int) func(int) bool { return func(size int) bool { return size != want } }
				if h, p := b.headerChunks.Sizes(), b.byteChunks.Sizes(); slices.ContainsFunc(h, other(wantHeaders)) || slices.ContainsFunc(p, other(wantBytes)) {
					t.Errorf("%d records have chunks of %d headers and %d bytes, want %d and %d", n, h, p, wantHeaders, wantBytes)
				}
				b.Reset()
			}
		}
	}
}

func TestRoom_IsEnoughAndNotMuchMore(t *testing.T) {
	for n, want := range map[int]int{0: 1, 1: 1, 2: 2, 3: 4, 5: 8, 33: 64, 64: 64, 65: 128, 129: 192} {
		if got := Room(n); got != want {
			t.Errorf("for %d elements there is room for %d, want %d", n, got, want)
		}
	}
}
