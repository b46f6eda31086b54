package progress

import (
	"fmt"
	"math/rand/v2"
	"testing"
)

// What a position stands for is the place of that row, whatever is in flight, and nothing that was
// not confirmed is ever the present place.
func TestTrack_FindsThePlaceOfEachRow(t *testing.T) {
	for seed := range uint64(2000) {
		rng := rand.New(rand.NewPCG(seed, 2))
		value := func(row uint64) []byte {
			if row%7 == 0 {
				return nil
			}
			return fmt.Appendf(nil, "%d%*s", row, int(row%3)*90, "")
		}
		var track Track
		start := Place{Rows: uint64(rng.IntN(5)), Done: Tuple{nil}}
		track.Begin(start)
		sent, confirmed := start.Rows, start.Rows
		for range 40 {
			if rng.IntN(2) == 0 {
				s := &Spot{Table: int(sent / 10), First: sent + 1}
				for range 1 + rng.IntN(5) {
					sent++
					s.Add([][]byte{value(sent), []byte("x")})
				}
				track.Fly(s)
				continue
			}
			if sent > confirmed {
				confirmed += uint64(rng.IntN(int(sent-confirmed) + 1))
				track.Confirm(confirmed)
			}
			if _, ok := track.At(sent + 1); ok {
				t.Fatalf("seed %d: row %d was not sent and has a place", seed, sent+1)
			}
			if got := track.Now().Rows; got != confirmed {
				t.Fatalf("seed %d: the place is behind %d rows, want %d", seed, got, confirmed)
			}
			for row := max(confirmed, start.Rows+1); row <= sent; row++ {
				got, ok := track.At(row)
				want := value(row)
				if !ok || got.Rows != row || len(got.Done) != 2 || (got.Done[0] == nil) != (want == nil) || want != nil && *got.Done[0] != string(want) {
					t.Fatalf("seed %d: row %d is at %+v, %t", seed, row, got, ok)
				}
			}
		}
		track.Confirm(confirmed - min(confirmed, 1))
		if track.Now().Rows != confirmed {
			t.Fatalf("seed %d: it went back", seed)
		}
	}
}

func TestKey_TellsRowsApart(t *testing.T) {
	seen := map[string]string{}
	for _, values := range [][][]byte{{nil}, {{}}, {nil, nil}, {[]byte("a"), []byte("b")}, {[]byte("ab"), {}}, {{}, []byte("ab")}, {[]byte("a"), nil}, {{1, 'b'}}} {
		key := Key(values)
		if was, ok := seen[key]; ok {
			t.Errorf("%q has the key of %s", values, was)
		}
		seen[key] = fmt.Sprintf("%q", values)
		at := make(Tuple, len(values))
		for i, v := range values {
			if v != nil {
				at[i] = text(string(v))
			}
		}
		if KeyOf(at) != key {
			t.Errorf("%q has two keys", values)
		}
	}
}

func TestPosition_IsNeverZero(t *testing.T) {
	for _, rows := range []uint64{0, 1, 1 << 40} {
		if at := Position(rows); at == 0 || RowsBefore(at) != rows {
			t.Errorf("%d rows are at %s, which is behind %d", rows, at, RowsBefore(at))
		}
	}
}

// A place counts what was left out up to it, each row once, also after a session that was lost.
func TestTrack_CountsWhatWasLeftOut(t *testing.T) {
	track := &Track{}
	fly := func() {
		s := &Spot{First: track.Now().Rows + 1}
		for range 10 {
			s.Add([][]byte{[]byte("x")})
		}
		track.Fly(s)
	}
	at := func(row, skipped uint64, first string) {
		t.Helper()
		if got, ok := track.At(row); !ok || got.Skipped != skipped || got.First != first {
			t.Errorf("at row %d: %+v, %t; want %d left out, the first %q", row, got, ok, skipped, first)
		}
	}
	track.Begin(Place{Rows: 4, Skipped: 1, First: "two"})
	fly()
	track.LeaveOut(8, "eight")
	track.LeaveOut(6, "six")
	at(5, 1, "two")
	at(6, 2, "two")
	at(14, 3, "two")
	track.Confirm(7)
	at(8, 3, "two")
	track.Begin(track.Now()) // the next session
	fly()
	track.LeaveOut(7, "seven")
	track.LeaveOut(8, "eight")
	at(7, 2, "two")
	at(8, 3, "two")

	track = &Track{}
	fly()
	track.LeaveOut(9, "nine")
	track.LeaveOut(3, "three")
	at(2, 0, "")
	for range 20 { // in whatever order a map has them
		at(9, 2, "three")
	}
	track.Begin(Place{Rows: 5, Skipped: 1, First: "three"}) // as it was committed
	fly()
	at(9, 2, "three")
}
