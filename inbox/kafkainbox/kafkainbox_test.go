package kafkainbox

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgtype"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/cdc-relay/cdc-relay/inbox"
)

// The tracker against a model that looks at every offset, with offsets missing and done in any order.
func TestTracker_AgreesWithItsModel(t *testing.T) {
	for seed := range uint64(2000) {
		random := rand.New(rand.NewPCG(seed, 1))
		tr := newTracker()
		var order []int64
		open, places := map[int64]bool{}, map[int64]uint64{}
		next := random.Int64N(1000)
		for range 60 {
			if len(open) == 0 || random.IntN(2) == 0 {
				places[next] = tr.take(next, int32(next))
				order, open[next] = append(order, next), true
				next += 1 + random.Int64N(3)
			} else {
				var some []int64
				for _, offset := range order {
					if open[offset] {
						some = append(some, offset)
					}
				}
				offset := some[random.IntN(len(some))]
				tr.done(places[offset])
				delete(open, offset)
			}
			want := int64(-1)
			for _, offset := range order {
				if open[offset] {
					break
				}
				want = offset + 1
			}
			if tr.next != want || want > 0 && int64(tr.epoch) != want-1 || tr.idle() != (len(open) == 0) {
				t.Fatalf("seed %d: next %d, want %d; epoch %d, idle %t", seed, tr.next, want, tr.epoch, tr.idle())
			}
		}
	}
}

func TestTracker_FollowsALogThatWasCut(t *testing.T) {
	tr := newTracker()
	first, second := tr.take(5, 1), tr.take(6, 1)
	again := tr.take(4, 2) // the offsets from 4 on are other records now
	tr.done(again)
	tr.done(first)
	if tr.next != 6 {
		t.Error(tr.next)
	}
	tr.done(second)
	if tr.next != 5 || tr.epoch != 2 || !tr.idle() {
		t.Error(tr.next, tr.epoch)
	}
}

func TestTracker_RefusesWhatIsNotOpen(t *testing.T) {
	for name, place := range map[string]uint64{"unknown": 3, "done and past": 0, "done": 2, "far": 1 << 63} {
		tr := newTracker()
		first := tr.take(4, 0)
		tr.take(5, 0)
		third := tr.take(8, 0)
		tr.done(first)
		tr.done(third)
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%s: allowed", name)
				}
			}()
			tr.done(place)
		}()
	}
}

func TestRetry_DoublesUpToALimit(t *testing.T) {
	r := Retry{First: 100 * time.Millisecond, Max: time.Second}
	for failures, want := range map[int]int64{1: 100, 2: 200, 3: 400, 4: 800, 5: 1000, 6: 1000, 1_000_000: 1000} {
		if got := r.delay(failures, 1); got.Milliseconds() != want {
			t.Errorf("behind %d: %s", failures, got)
		}
	}
	if got := r.delay(3, 0.5); got != 200*time.Millisecond {
		t.Errorf("half: %s", got)
	}
	if got := (Retry{First: time.Hour, Max: time.Second}).delay(1, 1); got != time.Second {
		t.Errorf("first over max: %s", got)
	}
}

func sqlError(code string) error {
	return fmt.Errorf("insert invoice of secret: %w", &pgconn.PgError{Code: code, Message: "secret"})
}

// An error about prepared statements comes again and again behind a pooler, and names the setting.
func TestTrouble_OfAPoolerNamesTheSetting(t *testing.T) {
	for code, want := range map[string]bool{"26000": true, "42P05": true, "57P01": false, "23505": false} {
		var got error
		c := &Consumer{cfg: Config{Events: Events{Trouble: func(err error) { got = err }}}.withDefaults()}
		c.trouble(t.Context(), progressError("read", sqlError(code)))
		if got == nil || strings.Contains(got.Error(), "default_query_exec_mode=exec") != want || !errors.As(got, new(*pgconn.PgError)) {
			t.Errorf("%s: %v", code, got)
		}
	}
}

func TestBlame_IsTheRecordsOnlyWhereItsHandlerFailed(t *testing.T) {
	for name, c := range map[string]struct {
		err  error
		want blame
	}{
		"handler":                 {&handlerError{errors.New("secret")}, attempt},
		"handler's statement":     {&handlerError{sqlError("23505")}, attempt},
		"handler's time limit":    {&handlerError{context.DeadlineExceeded}, attempt},
		"statement timeout":       {&handlerError{sqlError("57014")}, attempt},
		"panic":                   {&handlerError{&PanicError{Value: "secret"}}, attempt},
		"swallowed":               {ofCommit(sqlError("25P02")), attempt},
		"deferred constraint":     {ofCommit(sqlError("23503")), attempt},
		"permanent":               {&handlerError{fmt.Errorf("decode: %w", Permanent(errors.New("secret")))}, hopeless},
		"permanent, and deadlock": {&handlerError{Permanent(sqlError("40P01"))}, hopeless},
		"rewind":                  {&RewindError{}, rewound},
		"serialization":           {&handlerError{sqlError("40001")}, nobodys},
		"deadlock":                {&handlerError{sqlError("40P01")}, nobodys},
		"server shuts down":       {&handlerError{sqlError("57P01")}, nobodys},
		"server starts":           {&handlerError{sqlError("57P03")}, nobodys},
		"too many connections":    {&handlerError{sqlError("53300")}, nobodys},
		"standby":                 {&handlerError{sqlError("25006")}, nobodys},
		"prepared elsewhere":      {&handlerError{sqlError("26000")}, nobodys},
		"prepared twice":          {&handlerError{sqlError("42P05")}, nobodys},
		"prepared, then altered":  {&handlerError{&pgconn.PgError{Code: "0A000", Routine: "RevalidateCachedQuery"}}, nobodys},
		"not supported":           {&handlerError{sqlError("0A000")}, attempt},
		"commit lost":             {ofCommit(errors.New("unexpected EOF")), nobodys},
		"commit, server ends":     {ofCommit(sqlError("57P01")), nobodys},
		"commit, serialization":   {ofCommit(sqlError("40001")), nobodys},
		"claim":                   {&inbox.TableError{Code: "42P01", Err: errors.New("")}, nobodys},
		"connection":              {&lostError{errors.New("secret")}, nobodys},
		"its connection":          {&ConnectionError{Err: errors.New("secret")}, attempt},
		"begin":                   {fmt.Errorf("begin: %w", errors.New("refused")), nobodys},
	} {
		if got := blamed(c.err); got != c.want {
			t.Errorf("%s: %d, want %d", name, got, c.want)
		}
		refused := (&RecordError{Topic: "t", Err: c.err}).Error()
		if strings.Contains(refused, "secret") {
			t.Errorf("%s: %s", name, refused)
		}
	}
	if Permanent(nil) != nil {
		t.Error("no error became one")
	}
	text := (&RecordError{"orders", 3, 17, 2, fmt.Errorf("at: %w", Permanent(sqlError("23505")))}).Error()
	if text != "handle record: topic orders, partition 3, offset 17: attempt 2: SQLSTATE 23505" {
		t.Error(text)
	}
	if text := describe(fmt.Errorf("a: %w", Permanent(&custom{}))); text != "error of type *kafkainbox.custom" {
		t.Error(text)
	}
}

type custom struct{}

func (*custom) Error() string { return "secret" }

func testPartition(t *testing.T, cfg Config) *partition {
	t.Helper()
	cfg.Consumer, cfg.Brokers, cfg.Topics, cfg.DB = "billing", []string{"b:1"}, []string{"t"}, &pgxpool.Pool{}
	cfg.Handle = func(context.Context, pgx.Tx, *kgo.Record) error { return nil }
	c, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return newPartition(c, "t", 0)
}

func stamped(at time.Time) item { return item{record: &kgo.Record{Topic: "t", Timestamp: at}} }

func TestClock_IsTheLargestTimestampThatIsNotToCome(t *testing.T) {
	p := testPartition(t, Config{})
	now := time.Now()
	if at := p.advance([]item{stamped(now.Add(time.Hour))}); at.After(time.Now()) || at.Before(now) || !p.clock.IsZero() {
		t.Errorf("a record of a time to come: %s, clock %s", at, p.clock)
	}
	for _, step := range []struct{ age, want time.Duration }{{10 * time.Hour, 10 * time.Hour}, {12 * time.Hour, 10 * time.Hour}, {-time.Hour, 10 * time.Hour}, {time.Hour, time.Hour}} {
		if at := p.advance([]item{stamped(now.Add(-step.age))}); !at.Equal(now.Add(-step.want)) {
			t.Errorf("age %s: %s", step.age, now.Sub(at))
		}
	}
	p.loaded = true
	taken := p.tracker.take(5, 0)
	p.drained(6, now)
	if p.clock.Equal(now) {
		t.Error("drained with a record in hand")
	}
	p.tracker.done(taken)
	p.drained(7, now)
	if p.clock.Equal(now) {
		t.Error("drained before the end")
	}
	p.drained(6, now)
	if !p.clock.Equal(now) {
		t.Error("the clock of a drained partition stands still")
	}
}

// Keys that are pruned belong to records that cannot come again without being refused. A record
// that is appended again at most Keep behind the first is met whenever it is read.
func TestClock_NeverDropsAKeyThatCanComeAgain(t *testing.T) {
	seeds := uint64(5000)
	for seed := range seeds {
		random := rand.New(rand.NewPCG(seed, 2))
		keep := time.Duration(1+random.IntN(48)) * time.Hour
		p := testPartition(t, Config{Keep: keep})
		p.loaded = true
		// A log of originals and of repeats, appended at most Keep behind the original.
		start := time.Now().Add(-100 * 24 * time.Hour)
		type entry struct {
			id       int
			appended time.Time
		}
		var log []entry
		at := start
		firsts := map[int]time.Time{}
		for id := range 40 {
			at = at.Add(time.Duration(random.Int64N(int64(12 * time.Hour))))
			log, firsts[id] = append(log, entry{id, at}), at
			if again := random.IntN(40); random.IntN(2) == 0 && again <= id && at.Sub(firsts[again]) <= keep {
				log = append(log, entry{again, at})
			}
		}
		claimed, stored := map[int]time.Time{}, time.Time{}
		for _, e := range log {
			// The consumer reads whenever it likes: wall time has no part in what is dropped.
			clock := p.advance([]item{stamped(e.appended)})
			if _, duplicate := claimed[e.id]; !duplicate {
				if !e.appended.Equal(firsts[e.id]) {
					t.Fatalf("seed %d: %d is handled twice; keep %s", seed, e.id, keep)
				}
				claimed[e.id] = clock
			}
			if random.IntN(3) == 0 {
				stored = p.clock // as flush does
			}
			for id, at := range claimed {
				if at.Before(stored.Add(-keep)) {
					delete(claimed, id)
				}
			}
		}
	}
}

func TestAdmit_RefusesWhatIsOlderThanTheKeys(t *testing.T) {
	now := time.Now()
	header := []kgo.RecordHeader{{Key: "id", Value: []byte("1")}}
	for name, c := range map[string]struct {
		offset int64
		age    time.Duration
		allow  bool
		want   bool
	}{
		"old and before": {9, 3 * time.Hour, false, true}, "old and new offset": {10, 3 * time.Hour, false, false},
		"young and before": {9, 90 * time.Minute, false, false}, "allowed": {9, 3 * time.Hour, true, false},
	} {
		p := testPartition(t, Config{Keep: time.Hour, AllowRewind: c.allow})
		p.atStart = progress{next: 10, at: now.Add(-time.Hour)}
		it := item{record: &kgo.Record{Topic: "t", Offset: c.offset, Timestamp: now.Add(-c.age), Headers: header}}
		p.admit(&it, now)
		var rewind *RewindError
		if errors.As(it.err, &rewind) != c.want || !c.want && (it.err != nil || it.key.IsZero()) {
			t.Errorf("%s: %v", name, it.err)
		}
	}
}

func TestReached_IsTheDatabasesUntilSomethingIsDone(t *testing.T) {
	p := testPartition(t, Config{})
	if _, _, news := p.reached(); news {
		t.Error("nothing is known, and it is news")
	}
	p.atStart, p.clock, p.loaded = progress{next: 100, at: time.Unix(1, 0)}, time.Unix(1, 0), true
	if now, here, _ := p.reached(); here || now.next != 100 {
		t.Errorf("%+v, %t", now, here)
	}
	p.tracker.done(p.tracker.take(40, 3)) // somebody set the group back
	now, here, news := p.reached()
	if !here || !news || now.next != 41 || now.epoch != 3 {
		t.Errorf("%+v, %t, %t", now, here, news)
	}
	p.noteStored(now)
	if _, _, news := p.reached(); news {
		t.Error("it is news twice")
	}
	p = testPartition(t, Config{}) // whose records are all of a time to come
	p.loaded = true
	p.tracker.done(p.tracker.take(40, 3))
	if now, here, news := p.reached(); !here || !news || now.next != 41 || !now.at.IsZero() {
		t.Errorf("%+v, %t, %t", now, here, news)
	}
}

func TestQueue_PullsRoundsWithinTheirBounds(t *testing.T) {
	q := &queue{wake: make(chan struct{}, 1)}
	var items []item
	for i := range 10 {
		items = append(items, item{record: &kgo.Record{Offset: int64(i)}, size: 100*(i%4) + 1})
	}
	q.push(items)
	var rounds []int
	next := int64(0)
	for {
		got := q.pull(4, 250)
		if len(got) == 0 {
			break
		}
		rounds = append(rounds, len(got))
		for _, it := range got {
			if it.record.Offset != next {
				t.Errorf("offset %d, want %d", it.record.Offset, next)
			}
			next++
		}
	}
	if fmt.Sprint(rounds) != "[2 1 1 2 1 1 2]" || next != 10 {
		t.Error(rounds, next)
	}
}

func TestParallel_KeysStayInTheirQueue(t *testing.T) {
	p := testPartition(t, Config{Parallel: 5})
	var records []*kgo.Record
	for i := range 1000 {
		records = append(records, &kgo.Record{Offset: int64(i), Key: fmt.Append(nil, i%50)})
	}
	p.add([16]byte{}, &kgo.FetchPartition{Records: records[:500]})
	p.add([16]byte{}, &kgo.FetchPartition{Records: records[500:]})
	in := map[string]int{}
	used := 0
	for i, q := range p.queues {
		last := int64(-1)
		for _, it := range q.items {
			if at, known := in[string(it.record.Key)]; known && at != i {
				t.Errorf("key %s is in queues %d and %d", it.record.Key, at, i)
			}
			in[string(it.record.Key)] = i
			if it.record.Offset <= last {
				t.Errorf("offset %d behind %d", it.record.Offset, last)
			}
			last = it.record.Offset
		}
		if len(q.items) > 0 {
			used++
		}
	}
	if len(in) != 50 || used < 3 {
		t.Errorf("%d keys in %d queues", len(in), used)
	}
}

func TestConfig_IsRefusedWhereItIsWrong(t *testing.T) {
	good := func() Config {
		return Config{Consumer: "billing", Brokers: []string{"b:1"}, Topics: []string{"t"}, DB: &pgxpool.Pool{}, Handle: func(context.Context, pgx.Tx, *kgo.Record) error { return nil }}
	}
	if _, err := New(good()); err != nil {
		t.Fatal(err)
	}
	for want, change := range map[string]func(*Config){
		"Consumer": func(c *Config) { c.Consumer = "" }, "Brokers": func(c *Config) { c.Brokers = nil }, "Topics": func(c *Config) { c.Topics = nil }, "DB": func(c *Config) { c.DB = nil },
		"one of Handle": func(c *Config) { c.Handle = nil }, "and HandleRound": func(c *Config) {
			c.HandleRound = func(context.Context, pgx.Tx, []*kgo.Record) error { return nil }
		},
		"negative": func(c *Config) { c.Parallel = -1 }, "a number is negative": func(c *Config) { c.Keep = -1 }, "gets the dead letters": func(c *Config) { c.DeadLetterTopic = "t" },
		"one transaction at a time": func(c *Config) { c.Offsets, c.Parallel = true, 2 }, "there are no keys": func(c *Config) { c.Offsets, c.Keep = true, time.Hour },
		"Schema": func(c *Config) { c.Schema = "\x00" }, "make consumer": func(c *Config) {
			c.Kafka = []kgo.Opt{kgo.SessionTimeout(time.Second), kgo.HeartbeatInterval(time.Hour)}
		},
	} {
		cfg := good()
		change(&cfg)
		if _, err := New(cfg); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", want, err)
		}
	}
}

func TestHandlersTx_CannotEndTheTransaction(t *testing.T) {
	tx := handlersTx{}
	if tx.Commit(t.Context()) == nil || tx.Rollback(t.Context()) == nil {
		t.Error("the handler ends the transaction")
	}
}

func TestDeadLetter_HasTheRecordAndNoDataOfTheError(t *testing.T) {
	record := &kgo.Record{Topic: "orders", Partition: 3, Offset: 17, Key: []byte("k"), Value: []byte("v"), Timestamp: time.Unix(1, 0),
		Headers: []kgo.RecordHeader{{Key: "id", Value: []byte("1")}, {Key: prefix + "reason", Value: []byte("of an earlier life")}}}
	letter := deadLetter("billing", "dead", record, &RecordError{Topic: "orders", Partition: 3, Offset: 17, Attempts: 5, Err: sqlError("23505")})
	if letter.Topic != "dead" || string(letter.Key) != "k" || string(letter.Value) != "v" || header(letter, "id") != "1" || header(letter, prefix+"reason") != "handler" {
		t.Errorf("%+v", letter)
	}
	reasons := 0
	for _, h := range letter.Headers {
		if strings.Contains(string(h.Value), "secret") {
			t.Errorf("%s: %s", h.Key, h.Value)
		}
		if h.Key == prefix+"reason" {
			reasons++
		}
	}
	if reasons != 1 {
		t.Errorf("%d reasons", reasons)
	}
	other := *record
	other.Key, other.Offset = nil, 18
	keyless := *record
	keyless.Key = nil
	if group(record) == group(&keyless) || group(&keyless) == group(&other) || len(group(record)) != 32 {
		t.Error("groups")
	}
}

// What a partition that is new to the database begins at lies before the records of all its queues.
func TestTracker_LowestIsBeforeAllThatIsOpen(t *testing.T) {
	tr := newTracker()
	if tr.lowest() != -1 {
		t.Error(tr.lowest())
	}
	first, second := tr.take(7, 0), tr.take(9, 0)
	tr.done(second)
	if tr.lowest() != 7 {
		t.Error(tr.lowest())
	}
	tr.done(first)
	if tr.lowest() != 10 {
		t.Error(tr.lowest())
	}
}

func TestStaying_IsRetentionAndASegment(t *testing.T) {
	text := func(s string) *string { return &s }
	setting := func(name string, value *string) kmsg.DescribeConfigsResponseResourceConfig {
		return kmsg.DescribeConfigsResponseResourceConfig{Name: name, Value: value}
	}
	for name, c := range map[string]struct {
		settings []kmsg.DescribeConfigsResponseResourceConfig
		want     time.Duration
		known    bool
	}{
		"both":        {[]kmsg.DescribeConfigsResponseResourceConfig{setting("retention.ms", text("3600000")), setting("segment.ms", text("60000")), setting("cleanup.policy", text("delete"))}, 61 * time.Minute, true},
		"for ever":    {[]kmsg.DescribeConfigsResponseResourceConfig{setting("retention.ms", text("-1")), setting("segment.ms", text("60000"))}, forever, true},
		"compacted":   {[]kmsg.DescribeConfigsResponseResourceConfig{setting("cleanup.policy", text("compact"))}, forever, true},
		"huge":        {[]kmsg.DescribeConfigsResponseResourceConfig{setting("retention.ms", text("9223372036854775807")), setting("segment.ms", text("9223372036854775807"))}, forever, true},
		"no value":    {[]kmsg.DescribeConfigsResponseResourceConfig{setting("retention.ms", nil)}, 0, false},
		"no settings": {nil, 0, false},
	} {
		if got, known := staying(c.settings); got != c.want || known != c.known {
			t.Errorf("%s: %s, %t", name, got, known)
		}
	}
}

// With Offsets a record before the offset at which fetching began is of another log. One before the offset
// that the database has by now need not be: another owner may have handled it since then.
func TestAdmit_RefusesAnotherLogWithOffsets(t *testing.T) {
	for offset, want := range map[int64]bool{4: true, 5: false, 9: false, 10: false} {
		p := testPartition(t, Config{Offsets: true})
		p.expect(5)
		p.atStart = progress{next: 10}
		p.add([16]byte{}, fetched(0, offset))
		for _, it := range admitted(p) {
			var rewind *RewindError
			if errors.As(it.err, &rewind) != want || want && (blamed(it.err) != rewound || rewind.Next != 5) {
				t.Errorf("offset %d: %v", offset, it.err)
			}
		}
	}
}

// With Offsets records that come behind later ones are those of another log, in place of an end that
// brokers lost. They are refused, though they lie behind the offset that the assignment began at.
func TestAdd_RefusesALogThatWasCutWithOffsets(t *testing.T) {
	for offsets, want := range map[bool][]int64{true: {11, 12, 13}, false: nil} {
		p := testPartition(t, Config{Offsets: offsets})
		p.atStart = progress{next: 10}
		p.expect(10)
		p.add([16]byte{}, fetched(0, 10, 11, 12))
		p.add([16]byte{}, fetched(0, 11, 12))
		p.add([16]byte{}, fetched(0, 13))
		var refused []int64
		for _, it := range admitted(p) {
			var rewind *RewindError
			if errors.As(it.err, &rewind) && rewind.Next == 13 && blamed(it.err) == rewound {
				refused = append(refused, it.record.Offset)
			}
		}
		if !slices.Equal(refused, want) {
			t.Errorf("offsets %t: refused %v", offsets, refused)
		}
	}
}

// What ends sessions may stay for long: each new one is a rebalance for the whole group.
func TestConsumer_SessionsThatEndSoonBeginAtLongerIntervals(t *testing.T) {
	for _, why := range []error{errGone, errSetBack, errPassed} {
		synctest.Test(t, func(t *testing.T) {
			c := testPartition(t, Config{}).c
			var begins []time.Time
			other := errors.New("another")
			err := c.sessions(t.Context(), func(context.Context) error {
				begins = append(begins, time.Now())
				switch len(begins) {
				case 20:
					<-time.After(time.Minute) // all went well for a while
				case 21:
					return other
				}
				return why
			})
			if !errors.Is(err, other) || len(begins) != 21 {
				t.Fatalf("%d sessions, %v", len(begins), err)
			}
			// From a tenth to all of 100 ms, 200 ms, and so on up to 30 s.
			if soon, late := begins[1].Sub(begins[0]), begins[19].Sub(begins[10]); soon > 100*time.Millisecond || late < 27*time.Second {
				t.Errorf("%v: the first pause %s, nine others %s", why, soon, late)
			}
			if pause := begins[20].Sub(begins[19]) - time.Minute; pause > 100*time.Millisecond {
				t.Errorf("%v: %s behind a session that lasted", why, pause)
			}
			ctx, cancel := context.WithCancel(t.Context())
			if err := c.sessions(ctx, func(context.Context) error { cancel(); return why }); err != nil {
				t.Error(err)
			}
		})
	}
}

// A handler that ends its goroutine, as FailNow does in a test, does not leave a partition that
// nobody handles any more.
func TestConsumer_EndsWithAHandlerThatExits(t *testing.T) {
	for _, round := range []bool{false, true} {
		p := testPartition(t, Config{})
		exit := func() error { runtime.Goexit(); return nil }
		p.c.cfg.Handle = func(context.Context, pgx.Tx, *kgo.Record) error { return exit() }
		if round {
			p.c.cfg.Handle, p.c.cfg.HandleRound = nil, func(context.Context, pgx.Tx, []*kgo.Record) error { return exit() }
		}
		ended := make(chan struct{})
		p.c.endTaking = func() { close(ended) }
		go func() { _, _ = p.call(nil, []*kgo.Record{{}}) }()
		select {
		case <-ended:
			if err := p.c.ending(); !errors.Is(err, errExited) || !strings.Contains(err.Error(), "topic t, partition 0") {
				t.Error(err)
			}
		case <-time.After(time.Minute):
			t.Fatal("the session goes on")
		}
	}
}

// A round in hand ends before the brokers give its partition away, whatever the client's options say.
func TestConsumer_RoundsEndWithinTheRebalanceTimeout(t *testing.T) {
	for timeout, want := range map[time.Duration]time.Duration{0: 30 * time.Second, 10 * time.Second: 5 * time.Second, 5 * time.Minute: 30 * time.Second} {
		cfg := Config{Consumer: "billing", Brokers: []string{"127.0.0.1:1"}, Topics: []string{"t"}, DB: &pgxpool.Pool{}, Handle: func(context.Context, pgx.Tx, *kgo.Record) error { return nil }}
		if timeout > 0 {
			cfg.Kafka = []kgo.Opt{kgo.RebalanceTimeout(timeout)}
		}
		c, err := New(cfg)
		if err != nil {
			t.Fatal(err)
		}
		client, err := kgo.NewClient(c.hooked()...)
		if err != nil {
			t.Fatal(err)
		}
		client.CloseAllowingRebalance()
		if c.roundLimit != want {
			t.Errorf("rebalance timeout %s: a round has %s, want %s", timeout, c.roundLimit, want)
		}
	}
}

// A topic of dead letters that is missing holds the partition: the text says so, why there is a
// dead letter, and nothing of the record.
func TestDeadLetter_UnsentTellsWhatToDo(t *testing.T) {
	why := &RecordError{Topic: "t", Partition: 1, Offset: 7, Err: fmt.Errorf("handle: %w", &custom{})}
	for err, want := range map[error]string{
		kerr.UnknownTopicOrPartition: "offset 7, which failed (error of type *kafkainbox.custom): send dead letter to topic dead: UNKNOWN_TOPIC_OR_PARTITION: This server does not host this topic-partition.; create the topic",
		kerr.MessageTooLarge:         "offset 7, which failed (error of type *kafkainbox.custom): send dead letter to topic dead: MESSAGE_TOO_LARGE",
	} {
		if got := unsent("dead", why, err); !strings.HasPrefix(got.Error(), want) || !errors.Is(got, err) {
			t.Errorf("%v\nwant %s", got, want)
		}
	}
}

// fetched is an answer of a broker whose log begins at start. A negative offset is the end of a
// Kafka transaction.
func fetched(start int64, offsets ...int64) *kgo.FetchPartition {
	f := &kgo.FetchPartition{LogStartOffset: start}
	for _, offset := range offsets {
		r := &kgo.Record{Topic: "t", Offset: max(offset, -offset), Headers: []kgo.RecordHeader{{Key: "id", Value: []byte("1")}}}
		if offset < 0 {
			r.Attrs = kgo.NewRecordAttrs(kgo.RecordAttrsOpts{Control: true})
		}
		f.Records = append(f.Records, r)
	}
	return f
}

// admitted gives the items that wait, and their errors after admit.
func admitted(p *partition) []item {
	items := p.queues[0].pull(1000, 1<<30)
	for i := range items {
		p.admit(&items[i], time.Now())
	}
	return items
}

// Records that were deleted before they were read are not left out in silence: what was read before
// them is handled, what comes behind is not, and no offset goes past them.
func TestAdd_StopsWhereUnreadRecordsWereDeleted(t *testing.T) {
	for _, offsets := range []bool{false, true} {
		p := testPartition(t, Config{Offsets: offsets})
		p.expect(10)
		p.add([16]byte{}, fetched(3, 10, 14, -15)) // compaction leaves gaps
		p.add([16]byte{}, fetched(16, 16))
		p.add([16]byte{}, fetched(30, -30, 31))
		p.add([16]byte{}, fetched(30, 32))
		var refused []int64
		for _, it := range admitted(p) {
			var lost *LostError
			switch {
			case it.err == nil:
				p.finish([]item{it})
			case errors.As(it.err, &lost) && lost.Next == 17 && lost.Start == 30 && final(it.err):
				refused = append(refused, it.record.Offset)
			default:
				t.Errorf("offset %d: %v", it.record.Offset, it.err)
			}
		}
		if !slices.Equal(refused, []int64{30, 31, 32}) || p.tracker.next != 17 {
			t.Errorf("offsets %t: refused %v, next %d", offsets, refused, p.tracker.next)
		}
	}
}

// Where nothing was read yet, the row in the database is made at what was to be read, so that the
// next start is refused as well.
func TestAdd_BeginsBeforeTheRecordsThatWereDeleted(t *testing.T) {
	for expected, want := range map[int64]int64{10: 10, 30: 31, -1: 31, -2: 31} {
		p := testPartition(t, Config{})
		p.expect(expected)
		p.add([16]byte{}, fetched(30, 31))
		var lost *LostError
		if got := p.lowest(); got != want || errors.As(p.source.wrong, &lost) != (want == 10) {
			t.Errorf("expected %d: begins at %d, %v", expected, got, p.source.wrong)
		}
	}
}

// In the database the offset goes past the end of a transaction with a round; else it would seem,
// when that is deleted, that something was not read.
func TestAdd_EndOfATransactionMovesOffsetsInTheDatabase(t *testing.T) {
	for offsets, want := range map[bool]int{false: 1, true: 2} {
		p := testPartition(t, Config{Offsets: offsets})
		p.add([16]byte{}, fetched(0, 4, -5))
		if items := admitted(p); len(items) != want {
			t.Errorf("offsets %t: %d items", offsets, len(items))
		}
	}
}

func TestTopic_IsKnownByItsID(t *testing.T) {
	one, other, none := [16]byte{1}, [16]byte{2}, [16]byte{}
	row := func(id [16]byte) pgtype.UUID { return pgtype.UUID{Bytes: id, Valid: id != none} }
	for _, c := range []struct {
		records, row [16]byte
		refused      bool
	}{{one, one, false}, {one, none, false}, {none, one, false}, {none, none, false}, {one, other, true}} {
		p := testPartition(t, Config{})
		p.add(c.records, fetched(0, 1))
		err := p.meets(row(c.row))
		var topic *TopicError
		if errors.As(err, &topic) != c.refused || c.refused && (topic.Is != c.records || topic.Was != c.row || !final(err)) || !c.refused && p.source.row != row(c.row) {
			t.Errorf("records of %v, row of %v: %v", c.records, c.row, err)
		}
	}
	p := testPartition(t, Config{})
	p.add(none, fetched(0, 1))
	p.add(one, fetched(0, 2))
	p.add(none, fetched(0, 3)) // an older broker
	p.add(other, fetched(0, 4))
	for _, it := range admitted(p) {
		if final(it.err) != (it.record.Offset == 4) {
			t.Errorf("offset %d: %v", it.record.Offset, it.err)
		}
	}
	text := (&TopicError{"orders", 3, one, other}).Error()
	if !strings.HasPrefix(text, "topic orders, partition 3: its id is 02000000-0000-0000-0000-000000000000, and the progress in inbox_progress is that of a topic with the id 01000000-") {
		t.Error(text)
	}
}

// A database that was set back comes before what ends Run, and that before another such reason.
func TestConsumer_EndsForTheFirstReason(t *testing.T) {
	p := testPartition(t, Config{})
	ended := 0
	p.c.endTaking = func() { ended++ }
	lost, topic := &LostError{}, &TopicError{}
	if !p.c.endSession(lost) || p.c.endSession(topic) || !errors.Is(p.c.ending(), lost) || p.c.wentBack {
		t.Error(p.c.ending())
	}
	p.c.setBack()
	if p.c.endSession(topic) || !p.c.isSetBack() || !p.c.wentBack || ended != 2 {
		t.Error(p.c.ending(), ended)
	}
}

// What waits in memory is bounded by all of a record: headers may be larger than values.
func TestAdd_CountsKeysAndHeaders(t *testing.T) {
	for name, r := range map[string]*kgo.Record{
		"value": {Value: make([]byte, 900)}, "key": {Key: make([]byte, 900)}, "header": {Headers: []kgo.RecordHeader{{Key: "trace", Value: make([]byte, 900)}}},
	} {
		p := testPartition(t, Config{RoundBytes: 1000})
		full := false
		for i := 0; i < 20 && !full; i++ {
			full = p.add([16]byte{}, &kgo.FetchPartition{Records: []*kgo.Record{r}})
		}
		if !full {
			t.Errorf("%s: 18 kB wait, and more are taken", name)
		}
		if n := len(p.queues[0].pull(500, 1000)); n != 1 {
			t.Errorf("%s: a round of %d", name, n)
		}
	}
}

// A Config.Key that panics is the fault of its record: the process goes on, as with a handler.
func TestAdmit_RefusesARecordWhoseKeyPanics(t *testing.T) {
	p := testPartition(t, Config{Key: func(r *kgo.Record) (inbox.Key, error) {
		return inbox.ByID(r.Topic, string(r.Headers[1].Value)), nil
	}})
	p.add([16]byte{}, fetched(0, 0))
	var panicked *PanicError
	if err := admitted(p)[0].err; blamed(err) != hopeless || !errors.As(err, &panicked) {
		t.Fatal(err)
	}
	if text := describe(panicked); !strings.Contains(text, "Config.Key") || !strings.Contains(text, "index out of range") || len(panicked.Stack) == 0 {
		t.Error(text)
	}
}

// A dead letter and the log say what a record without a key lacks, also where Config.Key says so in words
// of its own, whose text may have data.
func TestAdmit_SaysThatARecordHasNoKey(t *testing.T) {
	for name, key := range map[string]func(*kgo.Record) (inbox.Key, error){
		"default": nil,
		"zero":    func(*kgo.Record) (inbox.Key, error) { return inbox.Key{}, nil },
		"wrapped": func(*kgo.Record) (inbox.Key, error) { return inbox.Key{}, fmt.Errorf("secret: %w", inbox.ErrNoKey) },
	} {
		p := testPartition(t, Config{Key: key})
		it := item{record: &kgo.Record{Topic: "t"}}
		p.admit(&it, time.Now())
		if text := p.refused(it, 1, it.err).Error(); blamed(it.err) != hopeless || !strings.HasSuffix(text, "attempt 1: "+inbox.ErrNoKey.Error()) {
			t.Errorf("%s: %s", name, text)
		}
	}
}
