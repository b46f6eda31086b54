package checkpoint

import (
	"testing"
	"time"

	"github.com/jackc/pglogrepl"
)

func track(t *testing.T, tr *Tracker, rows int, through pglogrepl.LSN) Ticket {
	t.Helper()
	k, ok := tr.Track(Entry{Rows: rows, Bytes: rows, Through: through})
	if !ok {
		t.Fatalf("entry of %d rows through %s was not admitted", rows, through)
	}
	return k
}

func wantConfirmed(t *testing.T, tr *Tracker, want pglogrepl.LSN) {
	t.Helper()
	if got := tr.Confirmed(); got != want {
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
	read, commit := time.Unix(10, 0), time.Unix(5, 0)
	a, _ := tr.Track(Entry{Rows: 2, Bytes: 20, Through: 110, Read: read, Commit: commit})
	track(t, tr, 3, 120)
	if s := tr.Stats(); s.Entries != 2 || s.Rows != 5 || s.Bytes != 23 || !s.Oldest.Equal(read) || !s.Commit.IsZero() {
		t.Fatalf("stats %+v", s)
	}
	a.Done()
	if s := tr.Stats(); s.Rows != 3 || !s.Commit.Equal(commit) || !s.Oldest.IsZero() {
		t.Fatalf("stats after the first is done %+v", s)
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
		window[i%len(window)], _ = tr.Track(Entry{Rows: 1, Bytes: 300, Through: pglogrepl.LSN(i + 2)})
	}
}

// During an outage a busy database sends keep-alives for hours behind rows that
// are not acknowledged.
func TestTracker_KeepAlivesBehindPendingRowsCostNoMemory(t *testing.T) {
	tr := New(100, 1000)
	a := track(t, tr, 1, 110)
	for lsn := range pglogrepl.LSN(100_000) {
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
	b.Partial(250)
	wantConfirmed(t, tr, 100)
	a.Partial(150)
	a.Partial(120) // less than before says nothing new
	wantConfirmed(t, tr, 150)
	a.Done()
	wantConfirmed(t, tr, 250)
	b.Done()
	wantConfirmed(t, tr, 300)
	b.Partial(400) // too late
	wantConfirmed(t, tr, 300)
}
