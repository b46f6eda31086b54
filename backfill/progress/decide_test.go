package progress

import (
	"errors"
	"math/rand/v2"
	"strings"
	"testing"
)

func TestDecide_FollowsFromWhatIsThere(t *testing.T) {
	half := func(change func(*State)) State {
		s := State{
			Temporary: Slot{Name: "s_backfill", Exists: true, Confirmed: 0x100}, Final: []Slot{{Name: "s"}},
			Progress: sample(), Keeps: true, System: "7", Timeline: 1, Tables: sample().Tables, Total: true,
		}
		change(&s)
		return s
	}
	complete := func(change func(*State)) State {
		return half(func(s *State) {
			s.Temporary.Exists, s.Progress.Finished, s.Final[0] = false, true, Slot{Name: "s", Exists: true, Confirmed: 0x900, Ours: true}
			change(s)
		})
	}
	buckets := func(change func(*State)) State {
		return half(func(s *State) {
			s.Progress, s.Exactly, s.Final = online(), true, []Slot{{Name: "s1"}, {Name: "s2"}}
			s.Temporary.Confirmed = 0x140
			change(s)
		})
	}
	bucketsDone := func(change func(*State)) State {
		return buckets(func(s *State) {
			s.Progress.Finished, s.Progress.Online.Next, s.Progress.Online.Reading, s.Temporary.Confirmed = true, 4, false, 0x160
			change(s)
		})
	}
	for name, tt := range map[string]struct {
		state   State
		restart bool
		want    Step
		says    string
	}{
		"nothing is there":                            {State{Final: []Slot{{Name: "s"}}}, false, Begin, ""},
		"a slot of setup's":                           {State{Final: []Slot{{Name: "s", Exists: true}}}, false, "", "older rows can no longer"},
		"interrupted":                                 {half(func(*State) {}), false, Resume, ""},
		"to be restarted":                             {half(func(*State) {}), true, Anew, ""},
		"no progress":                                 {half(func(s *State) { s.Progress = nil }), false, Anew, ""},
		"no record, exactly once":                     {half(func(s *State) { s.Progress, s.Exactly = nil, true }), false, "", "there is no record"},
		"no record, exactly once, accepted":           {half(func(s *State) { s.Progress, s.Exactly = nil, true }), true, Anew, ""},
		"announced, exactly once":                     {half(func(s *State) { s.Progress, s.Exactly, s.Begun = nil, true, true }), false, Anew, ""},
		"of another slot":                             {half(func(s *State) { s.Progress.Point = 0x99 }), false, Anew, ""},
		"of another server":                           {half(func(s *State) { s.System = "8" }), false, Anew, ""},
		"another timeline":                            {half(func(s *State) { s.Timeline = 2 }), false, "", "timeline"},
		"another mapping":                             {half(func(s *State) { s.Tables[1].Shape = "h" }), false, "", "--restart"},
		"fewer tables":                                {half(func(s *State) { s.Tables = s.Tables[:1] }), false, "", "--restart"},
		"no order to resume by":                       {half(func(s *State) { s.Total = false }), false, Anew, ""},
		"in use":                                      {half(func(s *State) { s.Temporary.Active = true }), false, "", "another backfill"},
		"in use, and to be restarted":                 {half(func(s *State) { s.Temporary.Active = true }), true, "", "another backfill"},
		"lost":                                        {half(func(s *State) { s.Temporary.Err = errors.New("it is lost") }), false, Anew, ""},
		"lost, exactly once":                          {half(func(s *State) { s.Temporary.Err, s.Exactly = errors.New("it is lost"), true }), false, "", "it is lost"},
		"lost, exactly once, accepted":                {half(func(s *State) { s.Temporary.Err, s.Exactly = errors.New("it is lost"), true }), true, Anew, ""},
		"all sent":                                    {half(func(s *State) { s.Progress.Finished = true }), false, Finish, ""},
		"all sent, and it is lost":                    {half(func(s *State) { s.Progress.Finished, s.Temporary.Err = true, errors.New("it is lost") }), false, Anew, ""},
		"online, interrupted":                         {buckets(func(*State) {}), false, Resume, ""},
		"online, as it began":                         {buckets(func(s *State) { s.Online = true }), false, Resume, ""},
		"online, and no unique order":                 {buckets(func(s *State) { s.Total = false }), false, Resume, ""},
		"online, and the slot is another one":         {buckets(func(s *State) { s.Temporary.Confirmed = 0x161 }), false, "", "where the backfill that sent 5 rows did not leave it"},
		"online, and the slot begins before":          {buckets(func(s *State) { s.Temporary.Confirmed = 0x99 }), false, "", "where the backfill that sent 5 rows did not leave it"},
		"online, another slot, to be restarted":       {buckets(func(s *State) { s.Temporary.Confirmed = 0x161 }), true, Anew, ""},
		"online, another slot, at least once":         {buckets(func(s *State) { s.Temporary.Confirmed, s.Exactly = 0x161, false }), false, Anew, ""},
		"online, and another guarantee":               {buckets(func(s *State) { s.Exactly = false }), false, "", "began with relay.guarantee: exactly_once"},
		"online, and another number of shards":        {buckets(func(s *State) { s.Final = s.Final[:1] }), false, "", "began with postgres.shards: 2"},
		"begun without buckets":                       {half(func(s *State) { s.Online = true }), false, "", "began without --online"},
		"online, all sent":                            {bucketsDone(func(*State) {}), false, Finish, ""},
		"online, all sent, and a crash":               {bucketsDone(func(s *State) { s.Temporary.Confirmed = 0x150 }), false, Resume, ""},
		"online, all sent, a crash, to be restarted":  {bucketsDone(func(s *State) { s.Temporary.Confirmed = 0x150 }), true, Anew, ""},
		"online, all sent, a crash, another timeline": {bucketsDone(func(s *State) { s.Temporary.Confirmed, s.Timeline = 0x150, 2 }), false, "", "timeline"},
		"online, copied, and a crash": {bucketsDone(func(s *State) {
			s.Temporary.Confirmed, s.Final[0] = 0x150, Slot{Name: "s1", Exists: true, Confirmed: 0x160}
		}), false, Finish, ""},
		"online, and a slot that is no copy": {bucketsDone(func(s *State) {
			s.Final[0] = Slot{Name: "s1", Exists: true, Confirmed: 0x155}
		}), false, "", "there is no record that a complete backfill made it"},
		"copied": {half(func(s *State) {
			s.Progress.Finished, s.Final[0] = true, Slot{Name: "s", Exists: true, Confirmed: 0x100}
		}), false, Finish, ""},
		"copied, and streamed from": {half(func(s *State) {
			s.Progress.Finished, s.Final[0] = true, Slot{Name: "s", Exists: true, Confirmed: 0x200, Ours: true}
		}), false, Finish, ""},
		"copied, and it is lost": {half(func(s *State) {
			s.Progress.Finished, s.Temporary.Err, s.Final[0] = true, errors.New("it is lost"), Slot{Name: "s", Exists: true, Confirmed: 0x200, Ours: true}
		}), false, Finish, ""},
		"copied, and it is lost, exactly once": {half(func(s *State) {
			s.Exactly, s.Progress.Finished, s.Temporary.Err, s.Final[0] = true, true, errors.New("it is lost"), Slot{Name: "s", Exists: true, Confirmed: 0x200, Ours: true}
		}), true, Finish, ""},
		"copied, nothing is kept, and it is lost": {half(func(s *State) {
			s.Keeps, s.Progress, s.Temporary.Err, s.Final[0] = false, nil, errors.New("it is lost"), Slot{Name: "s", Exists: true, Confirmed: 0x100}
		}), false, Finish, ""},
		"one of two copied, and it is lost": {half(func(s *State) {
			s.Progress.Finished, s.Temporary.Err, s.Final = true, errors.New("it is lost"), []Slot{{Name: "s_2_0", Exists: true, Confirmed: 0x100}, {Name: "s_2_1"}}
		}), false, Anew, ""},
		"made by somebody": {half(func(s *State) { s.Final[0] = Slot{Name: "s", Exists: true, Confirmed: 0x100} }), false, "", "there is no record"},
		"made later": {half(func(s *State) {
			s.Progress.Finished, s.Final[0] = true, Slot{Name: "s", Exists: true, Confirmed: 0x200}
		}), false, "", "there is no record"},
		"made later, restarted": {half(func(s *State) { s.Final[0] = Slot{Name: "s", Exists: true, Confirmed: 0x200} }), true, "", "there is no record"},
		"copied, nothing is kept": {half(func(s *State) {
			s.Keeps, s.Progress, s.Final[0] = false, nil, Slot{Name: "s", Exists: true, Confirmed: 0x100}
		}), false, Finish, ""},
		"copied by somebody, after an earlier backfill": {half(func(s *State) {
			s.Progress.Point, s.Progress.Finished, s.Final[0] = 0x99, true, Slot{Name: "s", Exists: true, Confirmed: 0x100}
		}), false, "", "there is no record"},
		"complete":                       {complete(func(*State) {}), false, Nothing, ""},
		"complete, one of its tables":    {complete(func(s *State) { s.Tables = s.Tables[1:] }), false, Nothing, ""},
		"complete, another mapping":      {complete(func(s *State) { s.Tables[1].Shape = "h" }), false, Nothing, ""},
		"complete, of another table":     {complete(func(s *State) { s.Tables[1].OID = 5 }), false, "", "--late"},
		"complete, of other rows":        {complete(func(s *State) { s.Tables[0].Where = "" }), false, "", "--late"},
		"complete, of an earlier slot":   {complete(func(s *State) { s.Final[0].Ours = false }), false, "", "--late"},
		"its slot is gone":               {half(func(s *State) { s.Temporary.Exists = false }), false, Begin, ""},
		"its slot is gone, exactly":      {half(func(s *State) { s.Temporary.Exists, s.Exactly = false, true }), false, "", "twice"},
		"complete, and its slot is gone": {half(func(s *State) { s.Temporary.Exists, s.Exactly, s.Progress.Finished = false, true, true }), false, "", "twice"},
		"its slot is gone, accepted":     {half(func(s *State) { s.Temporary.Exists, s.Exactly = false, true }), true, Begin, ""},
		"one of two shards":              {State{Final: []Slot{{Name: "s_2_0", Exists: true}, {Name: "s_2_1"}}}, false, "", "setup"},
	} {
		got, err := tt.state.Decide(tt.restart)
		if got != tt.want || (err == nil) != (tt.says == "") || err != nil && !strings.Contains(err.Error(), tt.says) {
			t.Errorf("%s: %q, %v; want %q, %q", name, got, err, tt.want, tt.says)
		}
	}
}

// server is a model of what a backfill works on: slots, the topic, and rows by number. Rows up to
// old are in the snapshot of the slot's creation.
type server struct {
	temporary, final bool
	point            int // rows that commit after it are in the slot
	rows             int // committed so far
	progress         *Progress
	sent             map[int]int
	keeps            bool
}

// call is one invocation that ends after so many steps.
func (m *server) call(t *testing.T, rng *rand.Rand, budget int) (complete bool) {
	spend := func() bool { budget--; return budget < 0 }
	s := State{Temporary: Slot{Name: "s_backfill", Exists: m.temporary}, Final: []Slot{{Name: "s", Exists: m.final}}, Keeps: m.keeps, System: "7", Timeline: 1, Tables: []TableProgress{{Shape: "f", OID: 1}}, Total: true}
	if m.temporary {
		s.Temporary.Confirmed = Position(uint64(m.point))
	}
	if m.final {
		s.Final[0].Confirmed, s.Final[0].Ours = Position(uint64(m.point)), m.keeps && m.progress.Point == Position(uint64(m.point))
	}
	if m.keeps {
		s.Progress = m.progress
	}
	step, err := s.Decide(false)
	if err != nil {
		t.Fatalf("it cannot go on: %v", err)
	}
	if step == Nothing {
		return true
	}
	snapshot, last := m.rows, -1 // rows that are seen, and up to where they are read
	var p Progress
	switch step {
	case Anew, Begin:
		if step == Anew {
			m.temporary = false
			if spend() {
				return false
			}
		}
		m.temporary, m.point = true, m.rows
		if spend() {
			return false
		}
		p = Progress{System: "7", Timeline: 1, Point: Position(uint64(m.point)), Tables: []TableProgress{{Shape: "f", OID: 1, Order: []string{"id"}}}}
		p.Done = nil
		if m.keeps {
			kept := p
			m.progress = &kept
		}
		last = snapshot
	case Resume:
		p, last = *m.progress, int(RowsBefore(m.progress.Point))
	}
	if step != Finish {
		var track Track
		track.Begin(p.Place)
		for n := int(p.Rows) + 1; n <= min(snapshot, last); n++ {
			if rng.IntN(3) == 0 {
				m.rows++ // somebody writes
			}
			spot := &Spot{First: uint64(n)}
			spot.Add([][]byte{[]byte("x")})
			track.Fly(spot)
			if spend() {
				return false
			}
			m.sent[n]++
			track.Confirm(uint64(n))
			if m.keeps && rng.IntN(2) == 0 {
				m.progress = p.At(track.Now())
			}
		}
		p.Place = track.Now()
		if spend() {
			return false
		}
		if m.keeps {
			done := p
			done.Finished = true
			m.progress = &done
		}
		if spend() {
			return false
		}
	}
	m.final = true
	if spend() {
		return false
	}
	m.temporary = false
	return true
}

// Whatever interrupts how many calls, each row is sent or in the slot that is left, and the slot
// is there only once all older rows are sent.
func TestDecide_LosesNothingWhereverItIsInterrupted(t *testing.T) {
	for seed := range uint64(10_000) {
		rng := rand.New(rand.NewPCG(seed, 3))
		m := &server{rows: rng.IntN(12), sent: map[int]int{}, keeps: rng.IntN(3) > 0}
		for calls := 0; ; calls++ {
			budget := rng.IntN(20)
			if calls > 6 {
				budget = 1000
			}
			complete := m.call(t, rng, budget)
			if m.final {
				for n := 1; n <= m.point; n++ {
					if m.sent[n] == 0 {
						t.Fatalf("seed %d: row %d is not sent, and the slot begins at %d", seed, n, m.point)
					}
				}
			}
			if complete {
				break
			}
			if calls > 10 {
				t.Fatalf("seed %d: it does not end", seed)
			}
		}
		if m.temporary || !m.final {
			t.Fatalf("seed %d: the slots are %+v", seed, m)
		}
	}
}
