package sink

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/pierrec/lz4/v4"
	"github.com/twmb/franz-go/pkg/kgo"
)

// noise does not compress.
func noise(n int) []byte {
	out := make([]byte, 0, n+sha256.Size)
	for sum := sha256.Sum256(nil); len(out) < n; sum = sha256.Sum256(sum[:]) {
		out = append(out, sum[:]...)
	}
	return out[:n]
}

func TestLz4_FramesReadBack(t *testing.T) {
	text := []byte(strings.Repeat(`{"order":4711,"state":"placed"} `, 20_000))
	for name, src := range map[string][]byte{
		"empty": {}, "one byte": {'x'}, "text": text, "exactly a block": text[:lz4Block], "a block and a byte": text[:lz4Block+1],
		"noise": noise(300_000), "both": append(noise(100_000), text...), "noise, exactly a block": noise(lz4Block),
	} {
		t.Run(name, func(t *testing.T) {
			c := newLz4Compressor()
			buf := bytes.NewBuffer(make([]byte, 0, 8))
			for range 2 { // the second time in the buffer of the first
				buf.Reset()
				out, codec := c.Compress(buf, src)
				if codec != kgo.CodecLz4 {
					t.Fatalf("codec %d", codec)
				}
				back, err := io.ReadAll(lz4.NewReader(bytes.NewReader(out)))
				if err != nil || !bytes.Equal(back, src) {
					t.Fatalf("%d bytes came back as %d: %v", len(src), len(back), err)
				}
				ours, err := kgo.DefaultDecompressor().Decompress(out, kgo.CodecLz4)
				if err != nil || !bytes.Equal(ours, src) {
					t.Fatalf("the client's own decompressor: %v", err)
				}
			}
		})
	}
}

func BenchmarkLz4_Compress(b *testing.B) {
	var src []byte
	for n := range 150 { // a batch of orders with a note that does not compress
		src = fmt.Appendf(src, `00000000-0000-4000-8000-%012x{"n": %d, "state": "placed", "customer": "c-%d", "lines": [{"sku": "sku-%d", "price": %d}], "note": "`,
			n*7919%10000, n, n%10000, n*7%5000, n*13%10000)
		note := sha256.Sum256(src)
		src = fmt.Appendf(src, `%x"}`, append(note[:], noise(31)...))
	}
	library, err := kgo.DefaultCompressor(kgo.Lz4Compression())
	if err != nil {
		b.Fatal(err)
	}
	for name, c := range map[string]kgo.Compressor{"ours": newLz4Compressor(), "library": library} {
		b.Run(name, func(b *testing.B) {
			b.SetBytes(int64(len(src)))
			b.ReportAllocs()
			buf := new(bytes.Buffer)
			for b.Loop() {
				buf.Reset()
				c.Compress(buf, src)
			}
		})
	}
}
