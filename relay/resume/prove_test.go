package resume

import (
	"errors"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/cdc-relay/cdc-relay/checkpoint/stored"
	"github.com/cdc-relay/cdc-relay/replication/wal"
)

var committed = time.UnixMicro(1_700_000_000_000_001)

// rowsOf are rows of one transaction each, by their commits.
func rowsOf(xid uint32, at time.Time, commits ...wal.LSN) (rows []wal.Row) {
	for _, commit := range commits {
		rows = append(rows, wal.Row{Txn: &wal.Txn{XID: xid, Commit: commit, Time: at}, Ordinal: 1})
	}
	return rows
}

func TestProve_KnowsTheLastTransaction(t *testing.T) {
	whole := stored.Position{End: 300, Last: stored.Last{Commit: 280, XID: 7, Time: committed.UTC()}}
	message := &wal.Row{Txn: &wal.Txn{Commit: 281}, Values: []wal.Value{{Kind: wal.Text, Data: []byte("one")}}}
	other := &wal.Row{Txn: message.Txn, Values: []wal.Value{{Kind: wal.Text, Data: []byte("two")}}}
	outside := stored.Position{End: 300, Last: stored.LastOf(message)}
	divided := stored.Position{End: 260, Part: stored.Part{Commit: 280, Rows: 9}, Last: whole.Last}
	for name, c := range map[string]struct {
		at     stored.Position
		batch  wal.Batch
		proven bool
		other  bool
	}{
		"it":                               {whole, wal.Batch{Rows: rowsOf(7, committed, 280), Through: 290}, true, false},
		"it, behind others and before":     {whole, wal.Batch{Rows: append(rowsOf(6, committed, 250, 270), rowsOf(7, committed, 280, 310)...), Through: 320}, true, false},
		"the beginning of it":              {whole, wal.Batch{Rows: rowsOf(7, committed, 280), Through: 275, Open: true}, true, false},
		"others before it":                 {whole, wal.Batch{Rows: rowsOf(7, committed, 250, 270), Through: 275}, false, false},
		"a keep-alive before it":           {whole, wal.Batch{Through: 280}, false, false},
		"another id":                       {whole, wal.Batch{Rows: rowsOf(8, committed, 280), Through: 290}, false, true},
		"another time":                     {whole, wal.Batch{Rows: rowsOf(7, committed.Add(time.Microsecond), 280), Through: 290}, false, true},
		"a later row":                      {whole, wal.Batch{Rows: rowsOf(7, committed, 281), Through: 270, Open: true}, false, true},
		"a keep-alive behind it":           {whole, wal.Batch{Through: 281}, false, true},
		"a message outside any there":      {whole, wal.Batch{Rows: rowsOf(0, time.Time{}, 281), Through: 281}, false, true},
		"the message":                      {outside, wal.Batch{Rows: []wal.Row{*message}, Through: 281}, true, false},
		"another message":                  {outside, wal.Batch{Rows: []wal.Row{*other}, Through: 281}, false, true},
		"a transaction for the message":    {outside, wal.Batch{Rows: rowsOf(7, committed, 280), Through: 290}, false, true},
		"the divided one":                  {divided, wal.Batch{Rows: rowsOf(7, committed, 280), Through: 260, Open: true}, true, false},
		"others before the divided one":    {divided, wal.Batch{Rows: rowsOf(7, committed, 259), Through: 265}, false, false},
		"one right before a divided one":   {divided, wal.Batch{Rows: rowsOf(7, committed, 260), Through: 270}, false, true},
		"another one where one is divided": {divided, wal.Batch{Rows: rowsOf(8, committed, 280), Through: 260, Open: true}, false, true},
	} {
		proven, err := Prove(&c.at, &c.batch)
		if proven != c.proven || errors.Is(err, ErrOtherHistory) != c.other || err != nil && !c.other {
			t.Errorf("%s: proven %t, %v", name, proven, err)
		}
	}
}

func TestExactlyOnce_AsksForProofOfWhatIsSkipped(t *testing.T) {
	known := stored.Last{Commit: 280, XID: 7, Time: committed.UTC()}
	whole := stored.Position{System: "7", Timeline: 1, Slot: "s", End: 300, Last: known}
	divided := whole
	divided.End, divided.Part = 280, stored.Part{Commit: 280, Rows: 9, Shape: "this"}
	older, message, quiet := whole, whole, whole
	older.Last, message.Last = stored.Last{}, stored.Last{Commit: 280, Message: "a1"}
	quiet.Last.Commit = 240
	olderPart := divided
	olderPart.Last = stored.Last{}
	for name, c := range map[string]struct {
		at       *stored.Position
		start    wal.LSN
		timeline int32
		end      wal.LSN
		unproven bool
		last     wal.LSN
	}{
		"the slot is behind it":                  {&whole, 250, 1, 0, true, 280},
		"the slot is where it commits":           {&whole, 280, 1, 0, true, 280},
		"the slot is past it":                    {&whole, 281, 1, 0, false, 280},
		"the slot is at the checkpoint":          {&whole, 300, 1, 0, false, 280},
		"a divided one":                          {&divided, 280, 1, 0, true, 280},
		"of an older version":                    {&older, 250, 1, 0, false, 299},
		"a divided one of an older version":      {&olderPart, 250, 1, 0, false, 280},
		"a message outside any transaction":      {&message, 250, 1, 0, true, 280},
		"no checkpoint":                          {nil, 250, 1, 0, false, 249},
		"the WAL ends before the checkpoint":     {&whole, 250, 1, 299, false, 249},
		"the same, with no row since the slot":   {&quiet, 250, 1, 299, false, 240},
		"the timeline was left before it":        {&whole, 150, 2, 0, false, 199},
		"the timeline was left behind it, by 20": {&whole, 150, 3, 0, true, 280},
	} {
		cfg, origin := at(c.timeline)
		if c.timeline == 3 {
			origin.Forks = []wal.Fork{{Timeline: 1, At: 300}}
		}
		var value []byte
		if c.at != nil {
			value = c.at.Encode()
		}
		point, err := cfg.ExactlyOnce(value, nil, origin, c.start, c.end)
		if err != nil || point.Unproven != c.unproven || point.Position.Last.Commit != c.last {
			t.Errorf("%s: unproven %t, last %+v, %v", name, point.Unproven, point.Position.Last, err)
		}
	}
}

// A loss that the stream showed is another one than a loss that the end of the WAL shows, and neither is of
// another checkpoint.
func TestLoss_IsOfOneCheckpoint(t *testing.T) {
	l := Loss{Checkpoint: []byte("a"), End: 250, Unseen: true}
	ended := Loss{}
	if end := l.EndFor([]byte("a"), 400); end != 250 || l.Text() == ended.Text() {
		t.Errorf("the WAL of the checkpoint ends at %s: %s", end, l.Text())
	}
	if end := l.EndFor([]byte("b"), 400); end != 400 || l.Text() != ended.Text() {
		t.Errorf("the WAL of another checkpoint ends at %s: %s", end, l.Text())
	}
	if end := l.EndFor(nil, 400); end != 400 {
		t.Errorf("without a checkpoint the WAL ends at %s", end)
	}
}

// A written transaction, or with no rows what other tables wrote.
type written struct {
	commit, end wal.LSN
	txn         *wal.Txn
	rows        uint64
	body        []wal.Value // of a message outside any transaction
}

// write appends n of them. xid goes on from what was written before, as on a server whose disk was put back.
func write(random *rand.Rand, before []written, n int, at *time.Time) []written {
	all := append([]written(nil), before...)
	end, xid := wal.LSN(1000), uint32(700)
	if len(all) > 0 {
		end, xid = all[len(all)-1].end, 700+uint32(len(all))
	}
	for range n {
		*at = at.Add(time.Microsecond)
		w := written{commit: end + wal.LSN(random.IntN(2)*8), rows: uint64(random.IntN(3))}
		w.end = w.commit + 8
		w.txn = &wal.Txn{XID: xid, Commit: w.commit, End: w.end, Time: *at}
		if random.IntN(5) == 0 { // a message outside any transaction
			w.rows, w.txn = 1, &wal.Txn{Commit: w.end}
			w.body = []wal.Value{{Kind: wal.Text, Data: []byte(at.String())}}
		}
		end, xid, all = w.end, xid+1, append(all, w)
	}
	return all
}

func (w *written) row(ordinal uint64) *wal.Row {
	return &wal.Row{Txn: w.txn, Ordinal: ordinal, Values: w.body}
}

// deliver moves a checkpoint over what is written, to its end or into the last transaction.
func deliver(random *rand.Rand, at *stored.Position, all []written) (sent map[*wal.Txn]uint64) {
	sent = map[*wal.Txn]uint64{}
	for i := range all {
		w := &all[i]
		switch {
		case w.rows == 0:
			at.Advance(w.end, nil)
		case i == len(all)-1 && w.rows > 1 && random.IntN(2) == 0:
			at.Divide(w.row(w.rows-1), "this")
			sent[w.txn] = w.rows - 1
		default:
			at.Advance(w.end, w.row(w.rows))
			sent[w.txn] = w.rows
		}
	}
	return sent
}

// stream plays one session. It returns the rows that it sends, how many of each transaction it skipped, and how
// far it would have confirmed.
func stream(random *rand.Rand, point *Point, all []written, start wal.LSN) (sent map[*wal.Txn]uint64, confirmed wal.LSN, err error) {
	sent, confirmed = map[*wal.Txn]uint64{}, start
	unproven := point.Unproven
	b := &wal.Batch{}
	for i := range all {
		w := &all[i]
		if w.commit < start {
			continue
		}
		for n := range w.rows {
			b.Rows = append(b.Rows, *w.row(n + 1))
		}
		b.Through = w.end
		if random.IntN(2) == 0 && i < len(all)-1 {
			continue
		}
		if unproven {
			proven, err := Prove(&point.Position, b)
			if err != nil {
				return sent, confirmed, err
			}
			unproven = !proven
		}
		for n := range b.Rows {
			if row := &b.Rows[n]; !point.Position.Covers(row.Place().Commit, row.Ordinal) {
				sent[row.Txn]++
			}
		}
		if !unproven {
			confirmed = b.Through
		}
		b = &wal.Batch{}
	}
	return sent, confirmed, nil
}

// Whatever was delivered, wherever the slot is, and whatever a server has written since its disk was put back: every
// row arrives, and while the history is the checkpoint's each arrives once.
func TestProve_NoRowIsLostWhereADiskIsPutBack(t *testing.T) {
	cfg, origin := at(1)
	noticed, quiet := 0, 0
	for seed := range uint64(20_000) {
		random := rand.New(rand.NewPCG(seed, 1))
		now := committed
		before := write(random, nil, 1+random.IntN(8), &now)
		rec := stored.Position{System: "7", Timeline: 1, Slot: "s", End: 1000, Last: stored.Last{Commit: 999}}
		delivered := deliver(random, &rec, before)
		kept := random.IntN(len(before) + 1) // of them, on the disk that is put back
		same := kept == len(before)
		all := write(random, before[:kept], random.IntN(12), &now)
		start, walEnd := wal.LSN(1000), wal.LSN(1000)
		for i := range all {
			if i < kept && all[i].end <= rec.End && random.IntN(3) == 0 {
				start = all[i].end
			}
			walEnd = all[i].end
		}
		loss := Loss{}
		var sent map[*wal.Txn]uint64
		for sessions := 0; ; sessions++ {
			value := rec.Encode()
			point, err := cfg.ExactlyOnce(value, nil, origin, start, loss.EndFor(value, walEnd))
			if err != nil {
				t.Fatalf("seed %d: %v", seed, err)
			}
			if point.Lost && same {
				t.Fatalf("seed %d: the same history is taken for another", seed)
			}
			var confirmed wal.LSN
			sent, confirmed, err = stream(random, &point, all, start)
			if err == nil {
				if point.Lost {
					noticed++
				} else if !same {
					quiet++
				}
				break
			}
			if confirmed != start || sessions > 0 || len(sent) > 0 {
				t.Fatalf("seed %d: confirmed %s and sent %v before session %d ended", seed, confirmed, sent, sessions)
			}
			loss = Loss{Checkpoint: value, End: start, Unseen: true}
		}
		for i := range all {
			w := &all[i]
			had := delivered[w.txn]
			if i >= kept {
				had = 0
			}
			switch {
			case had+sent[w.txn] < w.rows:
				t.Fatalf("seed %d: of %d rows of the transaction at %s arrived %d (kept %d of %d, slot at %s, checkpoint %+v)", seed, w.rows, w.commit, had+sent[w.txn], kept, len(before), start, rec)
			case same && had+sent[w.txn] > w.rows:
				t.Fatalf("seed %d: of %d rows of the transaction at %s arrived %d", seed, w.rows, w.commit, had+sent[w.txn])
			}
		}
	}
	if noticed < 1000 || quiet < 1000 {
		t.Errorf("%d losses were noticed, and %d histories went on without one", noticed, quiet)
	}
}
