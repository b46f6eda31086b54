package replication

import (
	"bytes"
	"testing"

	"github.com/cdc-relay/cdc-relay/replication/pgoutput/pgoutputtest"
)

// FuzzFrames checks that messages come out of the buffer as they went in, however
// the reads cut them, and that nonsense is an error and not a panic.
func FuzzFrames(f *testing.F) {
	f.Add(pgoutputtest.Frame('d', pgoutputtest.KeepAlive(1, true)), uint16(3))
	f.Add(append(pgoutputtest.Frame('N', []byte("SWARNING\x00\x00")), pgoutputtest.Frame('d', pgoutputtest.InWAL(1, 2, pgoutputtest.Begin(1, 2)))...), uint16(7))
	f.Add([]byte{'d', 0xff, 0xff, 0xff, 0xff}, uint16(1))
	f.Fuzz(func(t *testing.T, input []byte, step uint16) {
		fr := newFrames(&slowReader{data: input, step: int(step)%4096 + 1})
		var out []byte
		for {
			kind, body, ok, err := fr.next()
			if err != nil {
				return
			}
			if ok {
				out = append(out, pgoutputtest.Frame(kind, body)...)
				continue
			}
			if _, err := fr.readMore(); err != nil {
				break
			}
		}
		if !bytes.HasPrefix(input, out) {
			t.Fatal("messages came out differently")
		}
	})
}
