package integration

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/cdc-relay/cdc-relay/relay/status"
	"github.com/cdc-relay/cdc-relay/replication/wal"
	"github.com/cdc-relay/cdc-relay/router/record"
	"github.com/cdc-relay/cdc-relay/sandbox"
	"github.com/cdc-relay/cdc-relay/sink/topics"
	"github.com/cdc-relay/cdc-relay/test/harness"
	"github.com/cdc-relay/cdc-relay/test/harness/relaytest"
)

// The relay at work is frozen until another one has its slot, and then wakes up with
// a transaction that it had begun. Whatever it still tries is refused.
func TestExactlyOnce_AFrozenLeaderIsShutOut(t *testing.T) {
	t.Parallel() // most of it is waiting
	db, brokers := harness.Postgres(t), harness.Kfake(t, kfakeDefault)
	p, w := exactlyOnce(t, db, brokers, "")
	p.YAML = strings.Replace(p.YAML, "postgres: {", "postgres: {wal_sender_timeout: 5s, ", 1)
	relays := []*relaytest.Process{p.Exec(t, "run")}
	w.Insert(t, 10)
	p.AwaitCaughtUp(t)
	relays = append(relays, p.Exec(t, "run"))
	w.Start(t, 2, time.Millisecond)
	holder := func() int {
		return harness.Query[int](t, db, "SELECT coalesce((SELECT active_pid FROM pg_replication_slots WHERE slot_name = $1), 0)", p.Slot)
	}
	for round := range 2 {
		leader, from := 0, p.Confirmed(t)
		relaytest.Eventually(t, "one is at work, and the other one stands by", func() (bool, string) { // a busy machine may have changed who
			leader = slices.IndexFunc(relays, func(r *relaytest.Process) bool { return lastState(r) == "streaming" })
			return leader >= 0 && lastState(relays[1-leader]) == "standby" && p.Confirmed(t) > from, relays[0].Output() + relays[1].Output()
		})
		frozen, before := relays[leader], holder()
		signal(t, frozen, syscall.SIGSTOP)
		relaytest.Eventually(t, "another one has the slot and confirms", func() (bool, string) {
			pid := holder()
			if pid == before || pid == 0 {
				from = p.Confirmed(t)
				return false, fmt.Sprint("held by ", pid)
			}
			return p.Confirmed(t) > from, relays[1-leader].Output()
		})
		signal(t, frozen, syscall.SIGCONT)
		from = p.Confirmed(t)
		relaytest.Eventually(t, "the new leader goes on", func() (bool, string) { return p.Confirmed(t) > from, relays[1-leader].Output() })
		if round == 0 { // shut out, or standing by: another one of it is what a supervisor would start
			frozen.Kill()
			relays[leader] = p.Exec(t, "run")
		}
	}
	w.Stop(t)
	p.AwaitCaughtUp(t)
	for _, r := range relays {
		r.Kill()
	}
	finishOnce(t, p)
	verifyOnce(t, p, w)
}

var states = regexp.MustCompile(`"state":"([a-z]+)"`)

// lastState is the one that a relay's log has last.
func lastState(r *relaytest.Process) string {
	all := states.FindAllStringSubmatch(r.Output(), -1)
	if all == nil {
		return ""
	}
	return all[len(all)-1][1]
}

func signal(t *testing.T, p *relaytest.Process, s syscall.Signal) {
	t.Helper()
	if err := syscall.Kill(p.PID(), s); err != nil {
		t.Fatal(err)
	}
}

// A standby that lags is promoted. What was delivered of the old history is there
// once, and what the new one has at the same positions is delivered too.
func TestExactlyOnce_AFailoverLosesNothingOfTheNewHistory(t *testing.T) {
	t.Parallel()
	db := harness.OwnPostgres(t, sandbox.PostgresOptions{Version: harness.Versions()[0]})
	brokers := harness.Kfake(t, kfakeDefault)
	p, w := exactlyOnce(t, db, brokers, "")
	insert := func(n int) {
		db.Exec(t, "INSERT INTO outbox (aggregate_type, aggregate_id, event_type, payload) SELECT $1, gen_random_uuid(), 'x', '{}' FROM generate_series(1, $2)", strings.TrimSuffix(w.Topic(), "-events"), n)
	}
	delivered := func() (all, distinct int) {
		events := map[string]bool{}
		for _, record := range readCommitted(t, p, w.Topic()) {
			all++
			events[header(record, "id")] = true
		}
		return all, len(events)
	}
	want := func(when string, n int) {
		t.Helper()
		if all, distinct := delivered(); all != n || distinct != n {
			t.Errorf("%s: %d records of %d events, want %d", when, all, distinct, n)
		}
	}
	r := p.Start(t)
	r.AwaitStreaming(t)
	insert(10)
	p.AwaitCaughtUp(t)

	servers := newTwoServers(t, db)
	r.AwaitStreaming(t)
	insert(5)
	p.AwaitCaughtUp(t)
	lost := p.Confirmed(t)
	r.Await(t, "the rows that will be lost are confirmed", func(s status.Status) bool { return s.LSN.Confirmed >= status.Position(lost) })
	stop(t, db, sandbox.Immediate)
	r.Abort() // the next relay knows of it by the checkpoint alone
	_ = r.Wait(t)

	servers.promote(t)
	r = p.Start(t)
	r.Await(t, "the lost rows are reported", func(s status.Status) bool { return s.State == status.Streaming && s.DataLoss == 1 })
	insert(7)
	p.AwaitCaughtUp(t)
	want("after the failover", 22)
	r.Stop(t)

	stop(t, db, sandbox.Fast)
	servers.startPrimary(t)
	insert(3)
	r = p.Start(t) // knows of the failover by the checkpoint alone
	r.Await(t, "the old primary is refused", func(s status.Status) bool { return s.State == status.Reconnecting && s.Reason == "stale_primary" })
	want("with the old primary", 22)

	stop(t, db, sandbox.Immediate)
	servers.startStandby(t)
	insert(2)
	p.AwaitCaughtUp(t)
	r.Stop(t)
	want("in the end", 24)
}

// A row that is routed to the checkpoint topic would decide what another relay delivers.
func TestReserved_ARowForgesNoPosition(t *testing.T) {
	t.Parallel()
	db, brokers := harness.Postgres(t), harness.Kfake(t, kfakeDefault)
	forged := harness.Unique(t, "positions")
	mapping := relaytest.New(t, db, brokers, []string{`{table: public.outbox, topic: "${aggregate_type}"}`}, "relay: {detect_moved_slot: true, checkpoint_topic: "+forged+"}")
	mapping.Setup(t)
	if _, err := topics.EnsureCheckpointTopic(t.Context(), mapping.Settings().Kafka.Connection, mapping.Settings().Kafka.CreateTopics, forged, false); err != nil {
		t.Fatal(err)
	}
	db.Exec(t, `INSERT INTO outbox (aggregate_type, aggregate_id, event_type, payload) VALUES ($1, gen_random_uuid(), 'Forged', '{"v":1}')`, forged)
	r := mapping.Start(t)
	r.Await(t, "the row blocks", func(s status.Status) bool { return s.State == status.Blocked && s.Reason == "route" })
	r.Abort()
	_ = r.Wait(t)
	for _, rec := range brokers.Read(t, forged) {
		if header(rec, "eventType") == "Forged" {
			t.Errorf("a row is in %s, with key %q", forged, rec.Key)
		}
	}
}

func header(r *kgo.Record, key string) string {
	for _, h := range r.Headers {
		if h.Key == key {
			return string(h.Value)
		}
	}
	return ""
}

// Keys with a row that the topic does not take are parked, in transactions that are
// killed in between; letters and records are there once, with positions that rise.
func TestExactlyOnce_ParkedKeysAndPositions(t *testing.T) {
	t.Parallel()
	db, brokers := harness.Postgres(t), harness.Kfake(t, kfakeDefault)
	letters := harness.Unique(t, "letters")
	p, w := exactlyOnce(t, db, brokers, ", on_reject: dead_letter, park_key: true, position_headers: true, max_in_flight_bytes: 256KiB, dead_letter_topic: "+letters)
	if _, err := topics.EnsureTopic(t.Context(), p.Settings().Kafka.Connection, p.Settings().Kafka.CreateTopics, letters, false); err != nil {
		t.Fatal(err)
	}
	setMaxMessageBytes(t, brokers, w.Topic(), "200000")
	good, bad := uuid.New(), uuid.New()
	insert := func(key uuid.UUID, rows, largest int) {
		db.Exec(t, `INSERT INTO outbox (aggregate_type, aggregate_id, event_type, payload)
			SELECT $1, $2, 'x', jsonb_build_object('fill', repeat('x', CASE WHEN i = 2 THEN $4::int ELSE 10 END)) FROM generate_series(1, $3::int) AS i`,
			strings.TrimSuffix(w.Topic(), "-events"), key, rows, largest)
	}
	insert(good, 3, 10)
	insert(bad, 3, 300_000)
	insert(good, 1500, 10) // more than the window
	insert(bad, 2, 10)
	end := p.WALEnd(t)
	for range 3 {
		seen := len(readCommitted(t, p, w.Topic(), letters))
		running := p.Exec(t, "run")
		relaytest.Eventually(t, "more is committed", func() (bool, string) {
			return len(readCommitted(t, p, w.Topic(), letters)) > seen || p.Confirmed(t) >= end, running.Output()
		})
		running.Kill()
	}
	finishOnce(t, p)
	records, set := readCommitted(t, p, w.Topic()), readCommitted(t, p, letters)
	if len(records) != 1504 || len(set) != 4 {
		t.Errorf("%d records and %d letters, want 1504 and 4", len(records), len(set))
	}
	positions := map[string]bool{}
	last := map[string]string{}
	for _, r := range slices.Concat(records, set) {
		lsn, err := wal.ParseLSN(header(r, record.HeaderLSN))
		if err != nil {
			t.Fatalf("record at %s/%d/%d: %v", r.Topic, r.Partition, r.Offset, err)
		}
		at := fmt.Sprintf("%016X/%08s", uint64(lsn), header(r, record.HeaderSeq))
		if positions[at] {
			t.Errorf("position %s is there twice", at)
		}
		positions[at] = true
		if lane := r.Topic + string(r.Key); at <= last[lane] {
			t.Errorf("%s follows %s", at, last[lane])
		} else {
			last[lane] = at
		}
	}
}
