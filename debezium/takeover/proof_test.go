package takeover

import (
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cdc-relay/cdc-relay/replication/wal"
)

func TestProof_ThreeRules(t *testing.T) {
	position := Position{LSN: 500, Commit: 400, XID: 7, Event: "INSERT"}
	type row struct {
		commit, lsn wal.LSN
		xid         uint32
		ordinal     uint64
	}
	for _, c := range []struct {
		name string
		row  row
		want bool
	}{
		{"of an earlier transaction", row{commit: 300, lsn: 290, xid: 5, ordinal: 1}, true},
		{"of the transaction that ends at the position", row{commit: 390, lsn: 350, xid: 6, ordinal: 1}, true},
		{"of a transaction that began earlier and commits later", row{commit: 700, lsn: 250, xid: 4, ordinal: 1}, false},
		{"before the stored one in its transaction", row{commit: 600, lsn: 450, xid: 7, ordinal: 1}, true},
		{"the stored one", row{commit: 600, lsn: 500, xid: 7, ordinal: 2}, true},
		{"behind the stored one", row{commit: 600, lsn: 510, xid: 7, ordinal: 3}, false},
		{"of a later transaction with the same number", row{commit: 9000, lsn: 8000, xid: 7, ordinal: 1}, false},
	} {
		if got := NewProof(position).Delivered(c.row.commit, c.row.xid, c.row.lsn, c.row.ordinal); got != c.want {
			t.Errorf("a row %s: delivered is %v, want %v", c.name, got, c.want)
		}
	}
}

// Rows of one COPY share an LSN: only one of them is known to have been sent, and
// it stays the same one when the stream begins again.
func TestProof_RowsOfOneCopy(t *testing.T) {
	f := NewProof(Position{LSN: 500, Commit: 400, XID: 7, Event: "INSERT"})
	for range 2 {
		var got []bool
		for ordinal := uint64(1); ordinal <= 3; ordinal++ {
			got = append(got, f.Delivered(600, 7, 500, ordinal))
		}
		if fmt.Sprint(got) != "[true false false]" {
			t.Errorf("delivered %v, want the first row only", got)
		}
	}
}

// A heartbeat may be stored at the beginning of a transaction, whose LSN is that
// of its first row.
func TestProof_AHeartbeatAtBeginProvesNoRow(t *testing.T) {
	f := NewProof(Position{LSN: 500, Commit: 400, XID: 7, Event: "BEGIN"})
	if f.Delivered(600, 7, 500, 1) {
		t.Error("the first row counts as delivered before it was read")
	}
}

func TestProof_WithoutACommitOnlyTheTransactionCounts(t *testing.T) {
	f := NewProof(Position{LSN: 500, XID: 7, Event: "INSERT"})
	if f.Delivered(300, 5, 290, 1) || !f.Delivered(600, 7, 450, 1) {
		t.Error("a position without lsn_commit proves other transactions, or not its own")
	}
}

// A model of Debezium: transactions that overlap in the log, sent in the order of
// commits, stopped after any number of rows. What is taken for delivered was
// delivered; and all that was delivered is taken so, but for rows that share the
// stored LSN.
func TestProof_AgainstAModel(t *testing.T) {
	type row struct {
		commit, lsn wal.LSN
		xid         uint32
		ordinal     uint64
	}
	for seed := range uint64(500) {
		random := rand.New(rand.NewPCG(seed, 1))
		var sent []row
		open := map[uint32][]wal.LSN{}
		ends := map[int]wal.LSN{} // of the transaction before, by the index of a transaction's first row
		lsn, xid, before := wal.LSN(1000), uint32(100), wal.LSN(0)
		for range 60 {
			switch n := random.IntN(10); {
			case n < 2:
				xid++
				open[xid] = nil
			case n < 8 && len(open) > 0:
				lsn += 10
				for _, x := range slices.Sorted(maps.Keys(open)) {
					if random.IntN(2) == 0 {
						continue
					}
					for range 1 + random.IntN(3)/2*2 { // one row, or three of one COPY
						open[x] = append(open[x], lsn)
					}
					break
				}
			case len(open) > 0:
				lsn += 10
				for _, x := range slices.Sorted(maps.Keys(open)) {
					rows := open[x]
					ends[len(sent)] = before
					for i, at := range rows {
						sent = append(sent, row{commit: lsn, lsn: at, xid: x, ordinal: uint64(i + 1)})
					}
					before = lsn + 5
					delete(open, x)
					break
				}
			}
		}
		for last := range sent {
			commit := wal.LSN(0)
			for at := last; at >= 0; at-- {
				if end, ok := ends[at]; ok {
					commit = end
					break
				}
			}
			f := NewProof(Position{LSN: sent[last].lsn, Commit: commit, XID: sent[last].xid, Event: "INSERT"})
			for i, r := range sent {
				got := f.Delivered(r.commit, r.xid, r.lsn, r.ordinal)
				if got && i > last {
					t.Fatalf("seed %d: row %d counts as delivered, and Debezium stopped after row %d", seed, i, last)
				}
				tie := r.xid == sent[last].xid && r.lsn == sent[last].lsn
				if !got && i <= last && !tie {
					t.Fatalf("seed %d: row %d was delivered before row %d, and is not known to be", seed, i, last)
				}
			}
		}
	}
}

// The same log as a slot shows it, whose confirmed position is where Debezium leaves it:
// at the end of the transaction before the stored row's own, or not moved at all. Also
// where transactions overlap the position is found, and proves all it says.
func TestJudge_AgainstAModel(t *testing.T) {
	type row struct {
		commit, end, lsn wal.LSN
		xid              uint32
		ordinal          uint64
	}
	for seed := range uint64(200) {
		random := rand.New(rand.NewPCG(seed, 1))
		var sent []row
		open := map[uint32][]wal.LSN{}
		before := map[uint32]wal.LSN{}
		lsn, xid, ended := wal.LSN(1000), uint32(100), wal.LSN(0)
		for range 60 {
			if random.IntN(5) == 0 || len(open) == 0 {
				xid++
				open[xid] = nil
				continue
			}
			lsn += 10
			x := slices.Sorted(maps.Keys(open))[random.IntN(len(open))]
			if random.IntN(3) > 0 {
				open[x] = append(open[x], lsn)
				continue
			}
			before[x], ended = ended, lsn+5
			for i, at := range open[x] {
				sent = append(sent, row{commit: lsn, end: ended, lsn: at, xid: x, ordinal: uint64(i + 1)})
			}
			delete(open, x)
		}
		for last, stored := range sent {
			for _, event := range []string{"INSERT", "UPDATE", "MESSAGE"} {
				p := Position{LSN: stored.lsn, Commit: before[stored.xid], XID: stored.xid, Event: event}
				for _, confirmed := range []wal.LSN{1, max(1, p.Commit)} {
					verdict, err := ComparePosition(&p, State{Confirmed: confirmed, WALEnd: lsn + 100})
					if err != nil || !verdict.Part {
						t.Fatalf("seed %d: %+v of a slot at %s: %+v, %v", seed, p, confirmed, verdict, err)
					}
					w, found := NewComparison(p), false
					for _, r := range sent {
						if r.commit < confirmed {
							continue
						}
						var past bool
						if found, past = w.Row(r.commit, r.end, r.xid, r.lsn); found || past {
							break
						}
					}
					if !found {
						t.Fatalf("seed %d: %+v of a slot at %s: %s", seed, p, confirmed, w.Missing())
					}
				}
				f := NewProof(p)
				for i, r := range sent {
					if got, want := f.Delivered(r.commit, r.xid, r.lsn, r.ordinal), i < last || i == last && event != "UPDATE"; got != want {
						t.Fatalf("seed %d: row %d counts as delivered is %v, and Debezium stopped after row %d", seed, i, got, last)
					}
				}
			}
		}
	}
}

func TestJudge(t *testing.T) {
	position := Position{LSN: 500, Processed: 500, Commit: 400, XID: 7, Event: "INSERT"}
	for _, c := range []struct {
		name  string
		p     Position
		s     State
		want  Verdict
		cause string
	}{
		{name: "clean stop", p: position, s: State{Confirmed: 400, WALEnd: 900}, want: Verdict{Part: true}},
		{name: "a row where the slot stands", p: Position{LSN: 400, Commit: 400, XID: 7, Event: "INSERT"}, s: State{Confirmed: 400, WALEnd: 900}, want: Verdict{Part: true}},
		{name: "the first row of a slot", p: Position{LSN: 400, XID: 7, Event: "INSERT"}, s: State{Confirmed: 400, WALEnd: 900}, want: Verdict{Part: true}},
		{name: "a transaction that began", p: Position{LSN: 400, Commit: 400, XID: 7, Event: "BEGIN"}, s: State{Confirmed: 400, WALEnd: 900}},
		{name: "clean stop behind a transaction that overlaps the row's", p: Position{LSN: 500, Processed: 610, Commit: 610, XID: 7, Event: "INSERT"}, s: State{Confirmed: 610, WALEnd: 900}, want: Verdict{Part: true}},
		{name: "killed behind one", p: Position{LSN: 500, Processed: 610, Commit: 610, XID: 7, Event: "INSERT"}, s: State{Confirmed: 400, WALEnd: 900}, want: Verdict{Whole: true, Part: true}},
		{name: "killed", p: position, s: State{Confirmed: 200, WALEnd: 900}, want: Verdict{Whole: true, Part: true}},
		{name: "heartbeat", p: Position{LSN: 600, Processed: 600, Commit: 600, Event: "COMMIT"}, s: State{Confirmed: 600, WALEnd: 900}, want: Verdict{}},
		{name: "another server", p: position, s: State{Confirmed: 200, WALEnd: 450}, cause: "ahead of the server's log"},
		{name: "slot moved", p: position, s: State{Confirmed: 600, WALEnd: 900}, cause: "somebody moved the slot"},
		{name: "the driver moves it", p: position, s: State{Confirmed: 600, WALEnd: 900, Ahead: true}, want: Verdict{}},
		{name: "snapshot", p: Position{LSN: 500, Snapshot: true}, s: State{Confirmed: 400, WALEnd: 900}, cause: "had not finished"},
	} {
		got, err := ComparePosition(&c.p, c.s)
		if c.cause != "" {
			if err == nil || !strings.Contains(err.Error(), c.cause) {
				t.Errorf("%s: %v, want an error with %q", c.name, err, c.cause)
			}
			continue
		}
		if err != nil || got != c.want {
			t.Errorf("%s: %+v and %v, want %+v", c.name, got, err, c.want)
		}
	}
	if _, err := ComparePosition(&Position{LSN: 1, Snapshot: true}, State{WALEnd: 2}); !errors.Is(err, ErrSnapshot) {
		t.Errorf("%v, want ErrSnapshot", err)
	}
}

func TestWitness(t *testing.T) {
	insert := Position{LSN: 500, Commit: 400, XID: 7, Event: "INSERT"}
	heartbeat := Position{LSN: 400, Commit: 400, XID: 7, Event: "COMMIT"}
	message := Position{LSN: 500, Commit: 400, XID: 7, Event: "MESSAGE"}
	for _, c := range []struct {
		name        string
		p           Position
		commit, end wal.LSN
		xid         uint32
		lsn         wal.LSN
		found, past bool
	}{
		{name: "an earlier transaction", p: insert, commit: 300, end: 310, xid: 5, lsn: 290},
		{name: "an earlier row of its transaction", p: insert, commit: 600, end: 610, xid: 7, lsn: 450},
		{name: "the row", p: insert, commit: 600, xid: 7, lsn: 500, found: true},
		{name: "another transaction's row at that LSN", p: insert, commit: 600, end: 610, xid: 8, lsn: 500, past: true},
		{name: "a later row of the transaction", p: insert, commit: 600, end: 610, xid: 7, lsn: 510},
		{name: "a later transaction", p: insert, commit: 700, end: 710, xid: 9, lsn: 690, past: true},
		{name: "a transaction whose end follows where the last one before the row ended", p: Position{LSN: 500, Commit: 610, XID: 7, Event: "INSERT"}, commit: 610, end: 620, xid: 9, lsn: 605, past: true},
		{name: "one whose end follows the heartbeat's", p: heartbeat, commit: 400, end: 410, xid: 8, lsn: 395, past: true},
		{name: "a heartbeat's transaction", p: heartbeat, commit: 390, end: 400, xid: 6, lsn: 350, found: true},
		{name: "one before it", p: heartbeat, commit: 290, end: 300, xid: 6, lsn: 250},
		{name: "one after it", p: heartbeat, commit: 490, end: 500, xid: 8, lsn: 450, past: true},
		{name: "a message of a slot that is confirmed up to lsn_commit", p: message, commit: 600, end: 610, xid: 7, lsn: 500, found: true},
		{name: "a row before the message", p: message, commit: 600, end: 610, xid: 7, lsn: 450},
		{name: "a transaction that overlaps the message's", p: message, commit: 450, end: 460, xid: 6, lsn: 390},
		{name: "behind the message", p: message, commit: 700, end: 710, xid: 8, lsn: 690, past: true},
	} {
		found, past := NewComparison(c.p).Row(c.commit, c.end, c.xid, c.lsn)
		if found != c.found || past != c.past {
			t.Errorf("%s: found %v, past %v; want %v, %v", c.name, found, past, c.found, c.past)
		}
	}
	if NewComparison(insert).Through(400) || !NewComparison(heartbeat).Through(400) || NewComparison(heartbeat).Through(410) {
		t.Error("the end of a transaction is a witness for a heartbeat's position, at its own place")
	}
}

// After a failover that lost the end of the log another transaction may have the number
// and the place of the stored one. It has not the time of its commit.
func TestWitness_ATransactionOfAnotherTimeProvesNothing(t *testing.T) {
	stored := time.Date(2026, 11, 23, 18, 17, 46, 123456000, time.UTC)
	for _, c := range []struct {
		name  string
		p     Position
		at    time.Time
		found bool
	}{
		{name: "the same", p: Position{LSN: 500, Commit: 400, XID: 7, Event: "INSERT", Time: stored}, at: stored.In(time.FixedZone("", 3600)), found: true},
		{name: "a microsecond later", p: Position{LSN: 500, Commit: 400, XID: 7, Event: "INSERT", Time: stored}, at: stored.Add(time.Microsecond)},
		{name: "no time is stored", p: Position{LSN: 500, Commit: 400, XID: 7, Event: "INSERT"}, at: stored, found: true},
		{name: "an event without a kind", p: Position{LSN: 500, Commit: 610, XID: 7, Time: stored}, at: stored.Add(time.Hour)},
	} {
		w := NewComparison(c.p)
		w.Dated(6, stored.Add(-time.Hour)) // another transaction
		if found, past := w.Row(300, 310, 6, 290); found || past {
			t.Fatalf("%s: an earlier transaction: found %v, past %v", c.name, found, past)
		}
		w.Dated(7, c.at)
		found, past := w.Row(600, 610, 7, 500)
		if found != c.found || past == c.found {
			t.Errorf("%s: found %v, past %v; want found %v", c.name, found, past, c.found)
		}
		if !c.found && (!strings.Contains(w.Missing(), "committed at 2026-11-23T") || w.Through(c.p.Commit)) {
			t.Errorf("%s: %s", c.name, w.Missing())
		}
	}
}

// lsn_commit is the end of a transaction before the stored row's own. One that lies
// behind the own transaction's end is damaged, and would hold back the rest of that
// transaction and what follows it.
func TestWitness_ACommitBehindTheOwnTransactionProvesNothing(t *testing.T) {
	type row struct {
		commit, end, lsn wal.LSN
		xid              uint32
	}
	slot := []row{
		{commit: 300, end: 310, xid: 6, lsn: 290},
		{commit: 600, end: 610, xid: 7, lsn: 400}, {commit: 600, end: 610, xid: 7, lsn: 500}, {commit: 600, end: 610, xid: 7, lsn: 510},
		{commit: 700, end: 710, xid: 5, lsn: 450}, // began before transaction 7 ended
		{commit: 800, end: 810, xid: 9, lsn: 790},
	}
	find := func(p Position) (bool, *Comparison) {
		w := NewComparison(p)
		for i, r := range slot {
			if found, past := w.Row(r.commit, r.end, r.xid, r.lsn); found || past {
				return found, w
			}
			if (i+1 == len(slot) || slot[i+1].end != r.end) && w.Through(r.end) {
				return true, w
			}
		}
		return false, w
	}
	for _, c := range []struct {
		name    string
		p       Position
		found   bool
		missing string
	}{
		{name: "sound", p: Position{LSN: 500, Commit: 310, XID: 7, Event: "INSERT"}, found: true},
		{name: "sound, the first row of all", p: Position{LSN: 290, XID: 6, Event: "INSERT"}, found: true},
		{name: "behind, a row", p: Position{LSN: 500, Commit: 810, XID: 7, Event: "INSERT"}, missing: "contradicts"},
		{name: "its own end, a row", p: Position{LSN: 500, Commit: 610, XID: 7, Event: "INSERT"}, missing: "contradicts"},
		{name: "behind, an event without a kind", p: Position{LSN: 500, Commit: 810, XID: 7}, missing: "contradicts"},
		{name: "its own end, an event without a kind", p: Position{LSN: 500, Commit: 610, XID: 7}, missing: "contradicts"},
		{name: "behind, an update", p: Position{LSN: 505, Commit: 810, XID: 7, Event: "UPDATE"}, missing: "contradicts"},
		{name: "behind, a beginning", p: Position{LSN: 400, Commit: 810, XID: 7, Event: "BEGIN"}, missing: "contradicts"},
		{name: "behind, an end", p: Position{LSN: 610, Commit: 810, XID: 7, Event: "COMMIT"}, missing: "contradicts"},
		{name: "behind, in a transaction without rows here", p: Position{LSN: 500, Commit: 810, XID: 8}, missing: "no row at 0/1F4 in transaction 8"},
		{name: "nowhere, an event without a kind", p: Position{LSN: 500, Commit: 305, XID: 7}, missing: "ends at 0/131"},
		{name: "a row in an overlap", p: Position{LSN: 450, Commit: 610, XID: 5, Event: "INSERT"}, found: true},
		{name: "an overlap", p: Position{LSN: 450, Commit: 610, XID: 5}, found: true},
		{name: "an update in an overlap", p: Position{LSN: 450, Commit: 610, XID: 5, Event: "UPDATE"}, found: true},
		{name: "sound, an event without a kind", p: Position{LSN: 500, Commit: 310, XID: 7}, found: true},
		{name: "sound, an end", p: Position{LSN: 610, Commit: 610, XID: 7, Event: "COMMIT"}, found: true},
	} {
		found, w := find(c.p)
		if found != c.found || !found && !strings.Contains(w.Missing(), c.missing) {
			t.Errorf("%s: found is %v (%s), want %v with %q", c.name, found, w.Missing(), c.found, c.missing)
		}
	}
}
