package checkpoint

import (
	"testing"
	"time"

	"github.com/cdc-relay/cdc-relay/replication/wal"
)

func track(t *testing.T, tr *Tracker, rows int, through wal.LSN) Ticket {
	t.Helper()
	k, ok := tr.Track(Entry{Rows: rows, Bytes: rows, Through: through})
	if !ok {
		t.Fatalf("entry of %d rows through %s was not admitted", rows, through)
	}
	return k
}

func wantConfirmed(t *testing.T, tr *Tracker, want wal.LSN) {
	t.Helper()
	if got := tr.Confirmable(); got != want {
		t.Fatalf("confirmed is %s, want %s", got, want)
	}
}

func TestTracker_HoldsAtFirstPending(t *testing.T) {
	tr := New(100, 1000)
	a, b, c := track(t, tr, 1, 110), track(t, tr, 1, 120), track(t, tr, 1, 130)
	c.Done()
	b.Done()
	wantConfirmed(t, tr, 100)
	a.Done()
	wantConfirmed(t, tr, 130)
}

func TestTracker_KeepAliveQueuesBehindPendingRows(t *testing.T) {
	tr := New(100, 1000)
	a := track(t, tr, 1, 110)
	track(t, tr, 0, 500)
	wantConfirmed(t, tr, 100)
	a.Done()
	wantConfirmed(t, tr, 500)
}

func TestTracker_KeepAliveAloneIsConfirmedAtOnce(t *testing.T) {
	tr := New(100, 1000)
	track(t, tr, 0, 500)
	wantConfirmed(t, tr, 500)
}

func TestTracker_OpenTransactionConfirmsNothing(t *testing.T) {
	tr := New(100, 1000)
	track(t, tr, 5, 0).Done()
	wantConfirmed(t, tr, 100)
	track(t, tr, 5, 200).Done()
	wantConfirmed(t, tr, 200)
}

func TestTracker_NeverGoesBack(t *testing.T) {
	tr := New(100, 1000)
	track(t, tr, 1, 300).Done()
	track(t, tr, 0, 200)
	wantConfirmed(t, tr, 300)
}

func TestTracker_RefusesBeyondTheWindowUntilThereIsRoom(t *testing.T) {
	tr := New(100, 10)
	a := track(t, tr, 8, 110)
	if _, ok := tr.Track(Entry{Rows: 3, Bytes: 3, Through: 120}); ok {
		t.Fatal("11 bytes admitted into a window of 10")
	}
	if _, ok := tr.Track(Entry{Through: 115}); !ok {
		t.Fatal("an entry without rows needs no room")
	}
	a.Done()
	select {
	case <-tr.Room():
	default:
		t.Fatal("no token after an entry was done")
	}
	track(t, tr, 3, 120)
}

func TestTracker_AdmitsAnOversizedEntryAlone(t *testing.T) {
	tr := New(100, 10)
	big := track(t, tr, 500, 110)
	if _, ok := tr.Track(Entry{Rows: 1, Bytes: 1, Through: 120}); ok {
		t.Fatal("a row was admitted beside an oversized entry")
	}
	big.Done()
	track(t, tr, 1, 120)
}

func TestTracker_FinishingTwicePanics(t *testing.T) {
	for name, prepare := range map[string]func(*Tracker) Ticket{
		"while pending entries precede it": func(tr *Tracker) Ticket { track(t, tr, 1, 110); return track(t, tr, 1, 120) },
		"after it was confirmed":           func(tr *Tracker) Ticket { return track(t, tr, 1, 110) },
	} {
		t.Run(name, func(t *testing.T) {
			k := prepare(New(100, 10))
			k.Done()
			defer func() {
				if recover() == nil {
					t.Fatal("second Done did not panic")
				}
			}()
			k.Done()
		})
	}
}

func TestTracker_CannotStartAtZero(t *testing.T) {
	defer func() {
		if recover() == nil {
			t.Fatal("New(0) did not panic")
		}
	}()
	New(0, 10)
}

func TestTracker_StatsCountWhatIsPending(t *testing.T) {
	tr := New(100, 1000)
	read := time.Unix(10, 0)
	a, _ := tr.Track(Entry{Rows: 2, Bytes: 20, Through: 110, Read: read})
	b := track(t, tr, 3, 120)
	c := track(t, tr, 4, 130)
	if s := tr.Stats(); s.Entries != 3 || s.Rows != 9 || s.Waiting != 0 || s.Bytes != 27 || !s.Oldest.Equal(read) {
		t.Fatalf("stats %+v", s)
	}
	b.Done()
	if s := tr.Stats(); s.Rows != 6 || s.Waiting != 3 || !s.Oldest.Equal(read) {
		t.Fatalf("stats while the second is done %+v", s)
	}
	a.Done()
	if s := tr.Stats(); s.Entries != 1 || s.Rows != 4 || s.Waiting != 0 || !s.Oldest.IsZero() {
		t.Fatalf("stats after the first is done too %+v", s)
	}
	c.Done()
}

// A row is unconfirmed until the server is told a position behind its commit, whatever
// the brokers said.
func TestTracker_KnowsTheOldestRowThatTheServerWasNotToldOf(t *testing.T) {
	tr := New(100, 1000)
	at := func(lsn wal.LSN) Commit { return Commit{lsn, time.Unix(int64(lsn), 0)} }
	want := func(when string, lsn wal.LSN) {
		t.Helper()
		var commit Commit
		if lsn != 0 {
			commit = at(lsn)
		}
		if got := tr.Stats().Unreported; got != commit {
			t.Errorf("%s: the oldest is %+v, want %+v", when, got, commit)
		}
	}
	want("empty", 0)
	// Transactions that commit at 110, 120 and 130; the last goes on in the second entry.
	a, _ := tr.Track(Entry{Rows: 3, Bytes: 3, Through: 125, First: at(110), Last: at(130)})
	b, _ := tr.Track(Entry{Rows: 1, Bytes: 1, Through: 135, First: at(130), Last: at(130)})
	want("in flight", 110)
	a.Partial(115, at(120))
	want("partly done", 110)
	tr.Reported(115)
	want("partly told", 120)
	b.Done()
	want("done out of order", 120)
	a.Done()
	want("done", 120)
	tr.Reported(125)
	want("told up to the open transaction", 130)
	tr.Reported(130)
	want("told up to its commit record", 130)
	tr.Reported(135)
	want("all told", 0)
}

// A server that is not told for long, as with a frozen position, costs no memory.
func TestTracker_RemembersABoundedNumberOfUntoldRows(t *testing.T) {
	tr := New(100, 1000)
	for i := range wal.LSN(10 * maxUnreported) {
		commit := Commit{200 + 2*i, time.Unix(int64(i), 0)}
		k, _ := tr.Track(Entry{Rows: 1, Bytes: 1, Through: 201 + 2*i, First: commit, Last: commit})
		k.Done()
	}
	if n := len(tr.unreported); n != maxUnreported {
		t.Errorf("%d rows are remembered", n)
	}
	end := tr.Confirmable()
	tr.Reported(end - 1)
	if got := tr.Stats().Unreported; got.At == 0 {
		t.Error("a row that was not told is forgotten")
	}
	tr.Reported(end)
	if got := tr.Stats().Unreported; got.At != 0 {
		t.Errorf("everything was told, and %+v is unconfirmed", got)
	}
}

func BenchmarkTracker_TrackAndDone(b *testing.B) {
	tr := New(1, 1<<40)
	var window [64]Ticket
	b.ReportAllocs()
	for i := range b.N {
		if i >= len(window) {
			window[i%len(window)].Done()
		}
		window[i%len(window)], _ = tr.Track(Entry{Rows: 1, Bytes: 300, Through: wal.LSN(i + 2)})
	}
}

// During an outage a busy database sends keep-alives for hours behind rows that
// are not acknowledged.
func TestTracker_KeepAlivesBehindPendingRowsCostNoMemory(t *testing.T) {
	tr := New(100, 1000)
	a := track(t, tr, 1, 110)
	for lsn := range wal.LSN(100_000) {
		track(t, tr, 0, 200+lsn)
	}
	if s := tr.Stats(); s.Entries != 2 {
		t.Fatalf("%d entries", s.Entries)
	}
	b := track(t, tr, 1, 300_000)
	track(t, tr, 0, 300_010)
	a.Done()
	wantConfirmed(t, tr, 200+99_999)
	b.Done()
	wantConfirmed(t, tr, 300_010)
}

func TestTracker_PartialConfirmsOnlyAtTheHead(t *testing.T) {
	tr := New(100, 1000)
	a, b := track(t, tr, 5, 200), track(t, tr, 5, 300)
	b.Partial(250, Commit{})
	wantConfirmed(t, tr, 100)
	a.Partial(150, Commit{})
	a.Partial(120, Commit{}) // less than before says nothing new
	wantConfirmed(t, tr, 150)
	a.Done()
	wantConfirmed(t, tr, 250)
	b.Done()
	wantConfirmed(t, tr, 300)
	b.Partial(400, Commit{}) // too late
	wantConfirmed(t, tr, 300)
}

// Wherever the ring's beginning is, it grows before an entry would take a pending one's place.
func TestTracker_GrowsBehindEntriesThatAreDone(t *testing.T) {
	tr := New(100, 1000)
	at := wal.LSN(100)
	var before, pending []Ticket
	for range 60 { // less than a ring
		at += 10
		before = append(before, track(t, tr, 1, at))
	}
	for _, k := range before {
		k.Done()
	}
	done := at
	for range 200 { // more than two rings
		at += 10
		pending = append(pending, track(t, tr, 1, at))
	}
	for _, k := range pending[1:] {
		k.Done()
		wantConfirmed(t, tr, done)
	}
	pending[0].Done()
	wantConfirmed(t, tr, at)
}

// What is pending when the ring grows is what it was: done or not, and where it ends.
func TestTracker_GrowthKeepsWhatIsPending(t *testing.T) {
	tr := New(100, 10_000)
	var pending []Ticket
	ends := func(i int) wal.LSN { return wal.LSN(110 + 10*i) }
	add := func(n int) {
		for range n {
			pending = append(pending, track(t, tr, 1, ends(len(pending))))
		}
	}
	const early = 10
	add(60)
	pending[early].Done()
	add(10)
	for i, k := range pending {
		if i == early {
			continue
		}
		k.Done()
		if i+1 == early { // it is done already
			i++
		}
		wantConfirmed(t, tr, ends(i))
	}
	if s := tr.Stats(); s.Rows != 0 || s.Entries != 0 || s.Waiting != 0 {
		t.Errorf("everything is done: %+v", s)
	}
}

// Rows of a transaction that is not over count as done until it is, over several entries,
// and an entry that took the place of a finished one is not finished.
func TestTracker_CountsTheDoneRowsOfAnOpenTransaction(t *testing.T) {
	tr := New(100, 10_000)
	open := func(rows int, through wal.LSN, open int) {
		t.Helper()
		k, _ := tr.Track(Entry{Rows: rows, Bytes: 1, Through: through, Open: open})
		k.Done()
	}
	for range 64 { // a ring
		open(1, 110, 0)
	}
	open(3, 120, 1)
	open(4, 120, 4) // begins after the same commit
	k := track(t, tr, 2, 130)
	if s := tr.Stats(); s.Waiting != 5 || s.Rows != 2 {
		t.Errorf("five rows of an open transaction are done, two of another are not: %+v", s)
	}
	k.Done()
	if s := tr.Stats(); s.Waiting != 0 {
		t.Errorf("the transaction is over: %+v", s)
	}
}

// Of two rows that are told of for one position the first is the older one.
func TestTracker_PartialKeepsTheFirstRowBehindAPosition(t *testing.T) {
	tr := New(100, 1000)
	a := track(t, tr, 1, 110)
	b, _ := tr.Track(Entry{Rows: 3, Bytes: 3, Through: 200, First: Commit{At: 120}, Last: Commit{At: 190}})
	b.Partial(150, Commit{At: 160})
	b.Partial(150, Commit{At: 170})
	a.Done()
	wantConfirmed(t, tr, 150)
	tr.Reported(150)
	if got := tr.Stats().Unreported; got.At != 160 {
		t.Errorf("the oldest row is at %s", got.At)
	}
}
