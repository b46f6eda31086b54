package integration

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"math/bits"
	"os"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/cdc-relay/cdc-relay/replication/wal"
	"github.com/cdc-relay/cdc-relay/sandbox"
	"github.com/cdc-relay/cdc-relay/test/harness"
	"github.com/cdc-relay/cdc-relay/test/harness/relaytest"
)

// Sizes that nobody plans for. CDC_RELAY_FAULT_SCALE=full takes those of a nightly
// run; a smaller one proves the same.

// peakLimit is what a relay with the defaults may have resident, in MiB.
const peakLimit = 64

func atFullSize() bool { return os.Getenv("CDC_RELAY_FAULT_SCALE") == "full" }

func needsPeak(t *testing.T) {
	t.Helper()
	if runtime.GOOS != "linux" {
		harness.NotHere(t, "the peak of a process's memory is read as Linux gives it")
	}
}

// shown is what a test looks at of a relay's status.
type shown struct {
	State      string `json:"state"`
	Reason     string `json:"reason"`
	Message    string `json:"message"`
	Published  int64  `json:"events_published_total"`
	Reconnects int64  `json:"reconnects_total"`
}

func awaitState(t *testing.T, running *relaytest.Process, state, reason string) shown {
	t.Helper()
	address := served(t, running)
	var now shown
	relaytest.Eventually(t, "it is "+state+" "+reason, func() (bool, string) {
		now = statusAt(t, address)
		return now.State == state && now.Reason == reason, fmt.Sprintf("%+v", now)
	})
	return now
}

func statusAt(t *testing.T, address string) shown {
	t.Helper()
	var now shown
	if err := json.Unmarshal([]byte(get(t, address, "/api/v1/status", "")), &now); err != nil {
		t.Fatal(err)
	}
	return now
}

// awaitTries waits until a relay that is blocked has tried some times more.
func awaitTries(t *testing.T, running *relaytest.Process, times int64) {
	t.Helper()
	address := served(t, running)
	began := statusAt(t, address).Reconnects
	relaytest.Eventually(t, "it tries again", func() (bool, string) {
		now := statusAt(t, address).Reconnects
		return now >= began+times, fmt.Sprintf("%d tries more", now-began)
	})
}

// neverStreams looks at a relay that is blocked while it tries three times more. Each
// try streams until it is at the row again, and must not be shown as that.
func neverStreams(t *testing.T, address string) {
	t.Helper()
	began := statusAt(t, address)
	deadline := time.Now().Add(relaytest.Patience)
	for {
		now := statusAt(t, address)
		ready := get(t, address, "/readyz", "")
		switch {
		case now.State == "streaming", strings.TrimSpace(ready) == "ok":
			t.Fatalf("shown as at work before it is past the row: %+v, ready: %s", now, ready)
		case now.Reconnects >= began.Reconnects+3:
			return
		case time.Now().After(deadline):
			t.Fatalf("it does not try again: %+v", now)
		}
		<-time.After(10 * time.Millisecond)
	}
}

func end(t *testing.T, running *relaytest.Process) {
	t.Helper()
	running.Terminate(t)
	if code := running.Wait(t); code != 0 {
		t.Errorf("exit code = %d", code)
	}
}

// A row that Kafka can never take is passed as operations.md has it: stop, move the
// slot just behind the commit that the message names, start, send the others of its
// transaction again.
func TestHuge_RowIsPassedByMovingTheSlot(t *testing.T) {
	needsPeak(t)
	size := 24 << 20
	if atFullSize() {
		size = 540_000_000
	}
	db := harness.Postgres(t)
	p, w := outbox(t, db, harness.Kfake(t, kfakeDefault))
	db.Exec(t, "ALTER TABLE outbox ALTER payload TYPE text")
	running := p.Exec(t, "run", "--set", "relay.max_row_bytes=4MiB", "--set", anyAddress)
	w.Insert(t, 20)
	p.AwaitCaughtUp(t)

	small := fmt.Sprintf("INSERT INTO outbox (aggregate_type, aggregate_id, event_type, payload) SELECT '%s', gen_random_uuid(), 'x', '{}' FROM generate_series(1, 30)",
		strings.TrimSuffix(w.Topic(), "-events"))
	large := strings.Replace(strings.Replace(small, "'{}'", fmt.Sprintf("repeat('x', %d)", size), 1), "(1, 30)", "(1, 1)", 1)
	began := time.Now()
	db.Exec(t, "BEGIN; "+small+"; "+large+"; "+small+"; COMMIT")
	w.Insert(t, 10) // waits behind it
	status := awaitState(t, running, "blocked", "row_too_large")
	blocked := time.Since(began)
	place := committingAt.FindStringSubmatch(status.Message)
	if place == nil {
		t.Fatalf("the message does not say where the transaction commits: %s", status.Message)
	}
	commit, err := wal.ParseLSN(place[1])
	if err != nil {
		t.Fatal(err)
	}
	if confirmed := p.Confirmed(t); confirmed > commit {
		t.Errorf("confirmed %s, past the transaction committing at %s", confirmed, commit)
	}
	retained := harness.Query[int64](t, db, "SELECT pg_wal_lsn_diff(pg_current_wal_insert_lsn(), restart_lsn)::bigint FROM pg_replication_slots WHERE slot_name = $1", p.Slot)
	relaytest.Eventually(t, "what is before the row is delivered", func() (bool, string) {
		n := len(p.Brokers.Read(t, w.Topic()))
		return n == 20+30, fmt.Sprintf("%d records", n)
	})
	neverStreams(t, served(t, running))
	peak := running.PeakMemory(t) >> 20
	stopBlocked(t, p, running)

	db.Exec(t, "SELECT pg_replication_slot_advance($1, $2::text::pg_lsn + 1)", p.Slot, place[1])
	running = p.Exec(t, "run", "--set", "relay.max_row_bytes=4MiB", "--set", anyAddress)
	p.AwaitCaughtUp(t)
	if n := len(p.Brokers.Read(t, w.Topic())); n != 20+30+10 {
		t.Errorf("%d records past the row, want 60", n)
	}
	db.Exec(t, "WITH gone AS (DELETE FROM outbox WHERE event_type = 'x' AND octet_length(payload) < 1000 RETURNING *) INSERT INTO outbox SELECT * FROM gone ORDER BY created_at")
	p.AwaitCaughtUp(t)
	times := map[string]int{}
	for _, record := range p.Brokers.Read(t, w.Topic()) {
		times[header(record, "id")]++
	}
	twice := 0
	for _, n := range times {
		if n == 2 {
			twice++
		} else if n != 1 {
			t.Errorf("a row came %d times", n)
		}
	}
	if len(times) != 20+30+10+30 || twice != 30 {
		t.Errorf("%d rows are delivered, want 90; %d of them twice, want the 30 before the large one", len(times), twice)
	}
	peak = max(peak, running.PeakMemory(t)>>20)
	t.Logf("bar: row of %d MB on PostgreSQL %s: blocked %s after its insert began, peak memory %d MiB, %d MiB of WAL retained; passed by moving the slot, 0 lost but itself",
		size/1_000_000, db.Major(), blocked.Round(10*time.Millisecond), peak, retained>>20)
	if peak >= peakLimit {
		t.Errorf("peak memory = %d MiB", peak)
	}
	end(t, running)
}

// With exactly_once the gap has to be accepted as well. Nothing is seen of what a
// Kafka transaction does not commit, so its rows come once when they are sent again;
// unless the machine was so slow that a part of them was committed by itself.
func TestHuge_RowIsPassedByMovingTheSlotWithExactlyOnce(t *testing.T) {
	db := harness.Postgres(t)
	p, w := exactlyOnce(t, db, harness.Kfake(t, kfakeDefault), ", max_row_bytes: 4MiB")
	running := p.Exec(t, "run", "--set", anyAddress)
	w.Insert(t, 20)
	p.AwaitCaughtUp(t)
	insert := fmt.Sprintf("INSERT INTO outbox (aggregate_type, aggregate_id, event_type, payload) SELECT '%s', gen_random_uuid(), 'x', ", strings.TrimSuffix(w.Topic(), "-events"))
	db.Exec(t, "BEGIN; "+insert+"'{}' FROM generate_series(1, 30); "+insert+"to_jsonb(repeat('x', 6000000)); COMMIT")
	w.Insert(t, 10)
	status := awaitState(t, running, "blocked", "row_too_large")
	place := committingAt.FindStringSubmatch(status.Message)
	if place == nil {
		t.Fatalf("the message does not say where the transaction commits: %s", status.Message)
	}
	neverStreams(t, served(t, running))
	stopBlocked(t, p, running)

	db.Exec(t, "SELECT pg_replication_slot_advance($1, $2::text::pg_lsn + 1)", p.Slot, place[1])
	accept := p.Exec(t, "setup", "--accept-gap")
	if code := accept.Wait(t); code != 0 {
		t.Fatalf("setup --accept-gap: exit code %d\n%s", code, accept.Output())
	}
	running = p.Exec(t, "run")
	p.AwaitCaughtUp(t)
	db.Exec(t, "WITH gone AS (DELETE FROM outbox WHERE event_type = 'x' AND payload = '{}' RETURNING *) INSERT INTO outbox SELECT * FROM gone ORDER BY created_at")
	p.AwaitCaughtUp(t)
	end(t, running)
	ids := map[string]bool{}
	records := readCommitted(t, p, w.Topic())
	for _, record := range records {
		ids[header(record, "id")] = true
	}
	if twice := len(records) - len(ids); len(ids) != 20+30+10 || twice < 0 || twice > 30 {
		t.Errorf("%d records of %d rows, want 60 of as many, or 30 more", len(records), len(ids))
	}
}

var committingAt = regexp.MustCompile(`committing at ([0-9A-F]+/[0-9A-F]+)`)

// stopBlocked returns when the slot may be moved.
func stopBlocked(t *testing.T, p *relaytest.Pipeline, running *relaytest.Process) {
	t.Helper()
	running.Terminate(t)
	if code := running.Wait(t); code != 0 && code != 1 { // 1 in the middle of a try
		t.Errorf("exit code = %d", code)
	}
	awaitFree(t, p)
}

// A row that Kafka can take goes on under a higher limit, with as much memory as the
// message and operations.md ask for.
func TestHuge_RowIsReadUnderAHigherLimit(t *testing.T) {
	needsPeak(t)
	size, limit, batch := 6<<20, "8MiB", "7MiB"
	if atFullSize() {
		size, limit, batch = 48<<20, "64MiB", "50MiB"
	}
	p, w := outbox(t, harness.Postgres(t), harness.Kfake(t, kfakeDefault))
	running := p.Exec(t, "run", "--set", "relay.max_row_bytes=4MiB", "--set", anyAddress)
	w.Insert(t, 20)
	p.AwaitCaughtUp(t)
	w.InsertKey(t, uuid.New(), 1, size)
	w.Insert(t, 10)
	awaitState(t, running, "blocked", "row_too_large")
	stopBlocked(t, p, running)
	setMaxMessageBytes(t, p.Brokers, w.Topic(), "100000000")
	running = p.Exec(t, "run", "--set", "relay.max_row_bytes="+limit, "--set", "kafka.max_message_bytes="+batch)
	p.AwaitCaughtUp(t)
	peak := running.PeakMemory(t) >> 20
	t.Logf("bar: row of %d MiB under a higher relay.max_row_bytes: peak memory %d MiB", size>>20, peak)
	if peak >= peakLimit+4*size>>20 {
		t.Errorf("peak memory = %d MiB", peak)
	}
	end(t, running)
	if duplicates := w.Verify(t); duplicates != 0 {
		t.Errorf("%d duplicates", duplicates)
	}
}

// numbered looks at what is produced to a topic, and keeps a bit of each record: the
// payloads are {"n": 1} and so on, and a partition has them in ascending order.
type numbered struct {
	half int // of the rows

	mu      sync.Mutex
	seen    []uint64
	records int
	last    map[int32]int   // number of the last record, by partition
	next    map[int32]int32 // sequence number of the next batch, by partition
	wrong   string          // the first thing that is
	held    time.Time       // since when the brokers take nothing
}

// watchNumbered lets the brokers take no more from half of the rows on, until the
// returned function is called.
func watchNumbered(brokers *harness.Brokers, rows int) (n *numbered, release func()) {
	n = &numbered{half: rows / 2, seen: make([]uint64, rows/64+1), last: map[int32]int{}, next: map[int32]int32{}}
	released := make(chan struct{})
	cluster := brokers.Fake.Cluster()
	cluster.ControlKey(int16(kmsg.Produce), func(request kmsg.Request) (kmsg.Response, error, bool) {
		cluster.KeepControl()
		if held := n.request(request.(*kmsg.ProduceRequest)); !held.IsZero() {
			cluster.SleepControl(func() { <-released })
		}
		return nil, nil, false
	})
	return n, sync.OnceFunc(func() { close(released) })
}

// request says since when the brokers are held up, zero before.
func (n *numbered) request(request *kmsg.ProduceRequest) (held time.Time) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, topic := range request.Topics {
		for _, partition := range topic.Partitions {
			if err := n.batch(partition.Partition, partition.Records); err != nil && n.wrong == "" {
				n.wrong = fmt.Sprintf("partition %d: %v", partition.Partition, err)
			}
		}
	}
	if n.held.IsZero() && n.records >= n.half {
		n.held = time.Now()
	}
	return n.held
}

// batch takes one that is not compressed. One that is sent again under its numbers is
// stored once by a broker.
func (n *numbered) batch(partition int32, raw []byte) error {
	var batch kmsg.RecordBatch
	if err := batch.UnsafeReadFrom(raw); err != nil {
		return err
	}
	if batch.FirstSequence < n.next[partition] {
		return nil
	}
	if batch.FirstSequence > n.next[partition] || batch.Attributes&7 != 0 {
		return fmt.Errorf("batch of sequence %d and attributes %x, want %d", batch.FirstSequence, batch.Attributes, n.next[partition])
	}
	n.next[partition] += batch.NumRecords
	rest := batch.Records
	for range batch.NumRecords {
		length, w := binary.Varint(rest)
		if err := n.record(partition, rest[w:w+int(length)]); err != nil {
			return err
		}
		rest = rest[w+int(length):]
	}
	return nil
}

func (n *numbered) record(partition int32, raw []byte) error {
	rest := raw[1:] // attributes
	varint := func() int {
		v, w := binary.Varint(rest)
		rest = rest[w:]
		return int(v)
	}
	varint() // timestamp
	varint() // offset
	key := varint()
	rest = rest[key:]
	size := varint()
	_, value, _ := strings.Cut(string(rest[:size]), `{"n": `)
	i, err := strconv.Atoi(strings.TrimSuffix(value, "}"))
	switch {
	case err != nil:
		return fmt.Errorf("payload: %w", err)
	case i < 1 || i/64 >= len(n.seen):
		return fmt.Errorf("number %d", i)
	case i <= n.last[partition]:
		return fmt.Errorf("number %d behind %d", i, n.last[partition])
	}
	n.last[partition] = i
	n.records++
	n.seen[i/64] |= 1 << (i % 64)
	return nil
}

func (n *numbered) sofar() (records int, held time.Time, wrong string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.records, n.held, n.wrong
}

func (n *numbered) distinct() (rows int) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, word := range n.seen {
		rows += bits.OnesCount64(word)
	}
	return rows
}

// slotNow is one look at a slot and at its connection.
type slotNow struct {
	confirmed wal.LSN
	owner     int
	retained  int64
	replied   time.Time // as the relay says it
}

// One transaction of very many rows: memory stays as it is, the server is answered
// meanwhile, also for longer than it would wait while the brokers take nothing, and
// its position is confirmed once, when the last of it is acknowledged.
func TestHuge_TransactionStreamsInConstantMemory(t *testing.T) {
	needsPeak(t)
	const timeout = 7 * time.Second // longer than a busy machine stands still
	rows := 150_000
	if atFullSize() {
		rows = 10_000_000
	}
	rows = scale(t, "CDC_RELAY_TEST_TRANSACTION_ROWS", rows)
	db := harness.Postgres(t)
	p, w := outbox(t, db, harness.Kfake(t, sandbox.KafkaOptions{Discard: true}))
	// Indexes cost the test's time and nothing of what it proves.
	db.Exec(t, `DO $$ DECLARE name text; BEGIN
		ALTER TABLE outbox DROP CONSTRAINT outbox_pkey;
		FOR name IN SELECT indexrelid::regclass FROM pg_index WHERE indrelid = 'outbox'::regclass LOOP EXECUTE 'DROP INDEX ' || name; END LOOP;
		END $$`)
	seen, release := watchNumbered(p.Brokers, rows)
	defer release()
	running := p.Exec(t, "run", "--set", anyAddress, "--set", "postgres.wal_sender_timeout="+timeout.String())
	awaitState(t, running, "streaming", "")

	conn := db.Connect(t)
	look := func() (now slotNow) {
		t.Helper()
		var confirmed string
		if err := conn.QueryRow(t.Context(), `SELECT s.confirmed_flush_lsn::text, coalesce(s.active_pid, 0), pg_wal_lsn_diff(pg_current_wal_insert_lsn(), s.restart_lsn)::bigint,
			coalesce(r.reply_time, 'epoch') FROM pg_replication_slots s LEFT JOIN pg_stat_replication r ON r.pid = s.active_pid WHERE s.slot_name = $1`, p.Slot).
			Scan(&confirmed, &now.owner, &now.retained, &now.replied); err != nil {
			t.Fatal(err)
		}
		var err error
		if now.confirmed, err = wal.ParseLSN(confirmed); err != nil {
			t.Fatal(err)
		}
		return now
	}
	owner := look().owner
	insertBegan := time.Now()
	inside := writeHuge(t, db, strings.TrimSuffix(w.Topic(), "-events"), rows)
	committed := time.Now()
	goal := p.WALEnd(t)

	var held time.Time
	var first time.Duration
	var retained int64
	var replies int
	var replied, lastReply time.Time
	var longest time.Duration // between two answers
	deadline := time.Now().Add(relaytest.Patience + time.Duration(rows/5_000)*time.Second)
	for {
		now := look()
		var records int
		var wrong string
		records, held, wrong = seen.sofar()
		switch {
		case wrong != "":
			t.Fatal(wrong)
		case now.owner != owner:
			t.Fatalf("the connection broke: process %d has the slot, it was %d\n%s", now.owner, owner, running.Output())
		case now.confirmed >= goal && records < rows:
			t.Fatalf("confirmed %s with %d of %d rows sent; the transaction commits between %s and %s", now.confirmed, records, rows, inside, goal)
		case time.Now().After(deadline):
			t.Fatalf("%d of %d rows, confirmed %s of %s\n%s", records, rows, now.confirmed, goal, running.Output())
		}
		retained = max(retained, now.retained)
		if now.replied.After(lastReply) {
			if !lastReply.IsZero() {
				longest = max(longest, now.replied.Sub(lastReply))
			}
			lastReply = now.replied
			replies++
		}
		if records > 0 && first == 0 {
			first = time.Since(committed)
		}
		if replied.IsZero() && !held.IsZero() && now.replied.After(held.Add(timeout+500*time.Millisecond)) {
			replied = now.replied
			release()
		}
		if now.confirmed >= goal {
			break
		}
		<-time.After(20 * time.Millisecond)
	}
	took := time.Since(committed)
	peak := running.PeakMemory(t) >> 20
	status := statusAt(t, served(t, running))
	end(t, running)
	distinct := seen.distinct()
	records, _, wrong := seen.sofar()
	if records != rows || distinct != rows || wrong != "" || status.Published != int64(rows) || status.Reconnects != 0 {
		t.Errorf("%d records of %d rows, %d were written; %s; status %+v", records, distinct, rows, wrong, status)
	}
	if replied.IsZero() {
		t.Error("the brokers were not held up for longer than the server waits")
	}
	t.Logf("bar: transaction of %d rows on PostgreSQL %s, written in %s: first record %s after its commit, confirmed after %s (brokers held for %s of it), peak memory %d MiB, at most %d MiB of WAL retained, %d answers seen, longest pause %s, 0 lost, 0 twice",
		rows, db.Major(), committed.Sub(insertBegan).Round(time.Millisecond), first.Round(time.Millisecond), took.Round(time.Millisecond), replied.Sub(held).Round(time.Millisecond),
		peak, retained>>20, replies, longest.Round(time.Millisecond))
	if peak >= peakLimit {
		t.Errorf("peak memory = %d MiB", peak)
	}
}

// writeHuge commits rows with payloads {"n": 1} and so on in one transaction, of a
// thousand keys. It returns a position between the last of them and the commit.
func writeHuge(t *testing.T, db *harness.Database, aggregate string, rows int) wal.LSN {
	t.Helper()
	ctx := t.Context()
	tx, err := db.Connect(t).Begin(ctx)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback(context.WithoutCancel(ctx)) }() // is over already if all went well
	_, err = tx.Exec(ctx, `INSERT INTO outbox (aggregate_type, aggregate_id, event_type, payload)
		SELECT $1, ('00000000-0000-4000-8000-' || lpad((i % 1000)::text, 12, '0'))::uuid, 'Happened', jsonb_build_object('n', i) FROM generate_series(1, $2::int) AS i`, aggregate, rows)
	if err != nil {
		t.Fatal(err)
	}
	var inside string
	if err := tx.QueryRow(ctx, "SELECT pg_current_wal_insert_lsn()::text").Scan(&inside); err != nil {
		t.Fatal(err)
	}
	if err := tx.Commit(ctx); err != nil {
		t.Fatal(err)
	}
	at, err := wal.ParseLSN(inside)
	if err != nil {
		t.Fatal(err)
	}
	return at
}
