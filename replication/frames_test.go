package replication

import (
	"bytes"
	"io"
	"testing"

	"github.com/cdc-relay/cdc-relay/replication/pgoutput/pgoutputtest"
)

// slowReader gives at most step bytes a read.
type slowReader struct {
	data []byte
	step int
}

func (r *slowReader) Read(p []byte) (int, error) {
	if len(r.data) == 0 {
		return 0, io.EOF
	}
	n := copy(p[:min(len(p), r.step)], r.data)
	r.data = r.data[n:]
	return n, nil
}

func TestFramesGrowForALargeMessageAndShrinkBack(t *testing.T) {
	large := bytes.Repeat([]byte("large "), 1<<20)
	input := append(pgoutputtest.Frame('d', []byte("first")), pgoutputtest.Frame('d', large)...)
	for range 100 {
		input = append(input, pgoutputtest.Frame('d', []byte("last"))...)
	}
	fr := newFrames(&slowReader{data: input, step: 60_000})
	var sizes []int
	biggest := 0
	for {
		_, body, ok, err := fr.next()
		if err != nil {
			t.Fatal(err)
		}
		if ok {
			sizes = append(sizes, len(body))
			if len(body) == len(large) && !bytes.Equal(body, large) {
				t.Fatal("large message came out differently")
			}
			continue
		}
		if _, err := fr.readMore(); err != nil {
			break
		}
		biggest = max(biggest, len(fr.buf))
	}
	if len(sizes) != 102 || sizes[0] != 5 || sizes[1] != len(large) {
		t.Fatalf("%d messages, first %v", len(sizes), sizes[:2])
	}
	if biggest > 4*len(large) || len(fr.buf) != frameBuffer {
		t.Errorf("buffer grew to %d and is %d", biggest, len(fr.buf))
	}
}

func TestFramesRefuseImpossibleLengths(t *testing.T) {
	for _, header := range [][]byte{{'d', 0, 0, 0, 3}, {'d', 0x7f, 0xff, 0xff, 0xff}, {'d', 0x40, 0, 0, 2}} {
		fr := newFrames(bytes.NewReader(header))
		if _, err := fr.readMore(); err != nil {
			t.Fatal(err)
		}
		if _, _, _, err := fr.next(); err == nil {
			t.Errorf("length of % x accepted", header)
		}
	}
}
