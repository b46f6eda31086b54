package sink

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"math/rand/v2"
	"os"
	"testing"

	"github.com/pierrec/lz4/v4"
)

// back reads a block with somebody else's code.
func back(t testing.TB, block []byte, size int) []byte {
	t.Helper()
	out := make([]byte, size)
	n, err := lz4.UncompressBlock(block, out)
	if err != nil {
		t.Fatalf("%d bytes made of %d: %v", len(block), size, err)
	}
	return out[:n]
}

func checkBlock(t testing.TB, table *lz4Table, src []byte) {
	t.Helper()
	head := []byte("head")
	block := table.appendBlock(head[:4:4], src)
	if !bytes.Equal(block[:4], head) {
		t.Fatal("wrote over what was there")
	}
	block = block[4:]
	if most := len(src) + len(src)/255 + 16; len(block) > most {
		t.Fatalf("%d bytes became %d, more than %d", len(src), len(block), most)
	}
	checkRules(t, block, len(src))
	if got := back(t, block, len(src)); !bytes.Equal(got, src) {
		t.Fatalf("%d bytes came back differently", len(src))
	}
}

// checkRules holds a block against what the format demands and the library's reader
// does not look at, but others, which copy in larger pieces, rely on.
func checkRules(t testing.TB, block []byte, size int) {
	t.Helper()
	at := 0 // in what the block stands for
	length := func(half byte) int {
		n := int(half)
		for more := half == 15; more; block = block[1:] {
			n += int(block[0])
			more = block[0] == 255
		}
		return n
	}
	for len(block) > 0 {
		token := block[0]
		block = block[1:]
		literals := length(token >> 4)
		at, block = at+literals, block[literals:]
		if len(block) == 0 {
			if token&15 != 0 || at != size || literals < min(size, literalTail) {
				t.Fatalf("ends at %d of %d with %d literals, token %x", at, size, literals, token)
			}
			return
		}
		offset := int(block[0]) | int(block[1])<<8
		block = block[2:]
		match := minMatch + length(token&15)
		if offset == 0 || offset > at || at > size-matchMargin || at+match > size-literalTail {
			t.Fatalf("a match of %d bytes at %d of %d, %d back", match, at, size, offset)
		}
		at += match
	}
	t.Fatal("ends with a match, or with nothing")
}

func TestLz4Block_ReadsBack(t *testing.T) {
	table := new(lz4Table) // one for all: nothing of a block remains
	for size := range 300 {
		checkBlock(t, table, bytes.Repeat([]byte{'a'}, size))
		checkBlock(t, table, noise(size))
	}
	r := rand.New(rand.NewPCG(1, 2)) //nolint:gosec // a test's
	trials := 3000
	if UnderRace {
		trials = 600
	}
	for range trials {
		// Pieces of what was there and new ones, of an alphabet of any size: matches of
		// all lengths and distances, runs, and literals of all lengths.
		src, letters := []byte(nil), 1+r.IntN(256)
		for size := r.IntN(lz4Block + 1); len(src) < size; {
			n := min(1+r.IntN(1<<r.IntN(12)), size-len(src))
			if len(src) > 0 && r.IntN(3) > 0 {
				from := r.IntN(len(src))
				for i := range n { // may overlap itself
					src = append(src, src[from+i])
				}
				continue
			}
			for range n {
				src = append(src, byte(r.IntN(letters)))
			}
		}
		checkBlock(t, table, src)
	}
}

func FuzzLz4Block_ReadsBack(f *testing.F) {
	f.Add([]byte("{}"), uint16(1))
	f.Add([]byte(`{"order":4711,"state":"placed"} `), uint16(40))
	f.Add([]byte{0, 0, 0, 0, 0, 0, 0, 0, 1}, uint16(300))
	f.Fuzz(func(t *testing.T, src []byte, times uint16) {
		if len(src) == 0 {
			return
		}
		checkBlock(t, new(lz4Table), bytes.Repeat(src, 1+min(int(times), lz4Block/len(src)-1)))
	})
}

// It need not compress as well as the library, but nearly.
func TestLz4Block_CompressesNearlyAsWellAsTheLibrary(t *testing.T) {
	source, err := os.ReadFile("kafka_send.go")
	if err != nil {
		t.Fatal(err)
	}
	var orders []byte
	for n := range 150 { // each with a note of its own
		orders = fmt.Appendf(orders, `00000000-0000-4000-8000-%012x{"n": %d, "state": "placed", "customer": "c-%d", "lines": [{"sku": "sku-%d", "price": %d}], "note": "%x"}`,
			n*7919%10000, n, n%10000, n*7%5000, n*13%10000, sha256.Sum256(orders))
	}
	for name, src := range map[string][]byte{"a program": source, "orders": orders, "one letter": bytes.Repeat([]byte("x"), 60000)} {
		src = src[:min(len(src), lz4Block)]
		ours := len(new(lz4Table).appendBlock(nil, src))
		theirs, err := lz4.CompressBlock(src, make([]byte, lz4.CompressBlockBound(len(src))), nil)
		if err != nil {
			t.Fatal(err)
		}
		t.Logf("%s: %d bytes, ours %d, library %d", name, len(src), ours, theirs)
		if ours > theirs*115/100+64 {
			t.Errorf("%s: %d bytes where the library has %d", name, ours, theirs)
		}
	}
}
