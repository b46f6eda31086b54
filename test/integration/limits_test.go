package integration

import (
	"fmt"
	"io"
	"net/http"
	"os"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/cdc-relay/cdc-relay/replication/wal"
	"github.com/cdc-relay/cdc-relay/sandbox"
	"github.com/cdc-relay/cdc-relay/test/harness"
	"github.com/cdc-relay/cdc-relay/test/harness/relaytest"
)

// A row over the limit blocks by its length. It is not read into memory, what stands
// before it is delivered once however often the relay tries, and nothing past it is
// confirmed. CDC_RELAY_FAULT_SCALE=full takes the row of 540 MB.
func TestRow_TooLargeBlocksWithoutBeingRead(t *testing.T) {
	if runtime.GOOS != "linux" {
		harness.NotHere(t, "the peak of a process's memory is read as Linux gives it")
	}
	size := 48 << 20
	if os.Getenv("CDC_RELAY_FAULT_SCALE") == "full" {
		size = 540_000_000
	}
	db := harness.OwnPostgres(t, sandbox.PostgresOptions{})
	p, w := outbox(t, db, harness.Kfake(t, kfakeDefault))
	db.Exec(t, "ALTER TABLE outbox ALTER payload TYPE text")
	running := p.Exec(t, "run", "--set", "relay.max_row_bytes=4MiB", "--set", anyAddress)
	w.Insert(t, 20)
	p.AwaitCaughtUp(t)
	aggregate := strings.TrimSuffix(w.Topic(), "-events")
	small := "INSERT INTO outbox (aggregate_type, aggregate_id, event_type, payload) SELECT '" + aggregate + "', gen_random_uuid(), 'x', '{}' FROM generate_series(1, 30)"
	db.Exec(t, fmt.Sprintf("BEGIN; %s; INSERT INTO outbox (aggregate_type, aggregate_id, event_type, payload) SELECT '%s', gen_random_uuid(), 'x', repeat('x', %d); %[1]s; COMMIT",
		small, aggregate, size))
	relaytest.Eventually(t, "it is tried again", func() (bool, string) {
		sessions := harness.Query[int](t, db, "SELECT count(*) FROM pg_replication_slots WHERE active")
		return strings.Contains(running.Output(), "row_too_large"), fmt.Sprint(sessions)
	})
	delivered := func() int { return len(p.Brokers.Read(t, w.Topic())) }
	relaytest.Eventually(t, "what is before the row is delivered", func() (bool, string) {
		n := delivered()
		return n >= 20+30, fmt.Sprintf("%d records", n)
	})
	awaitTries(t, running, 3)
	for _, part := range []string{"public.outbox", "row 31 of its transaction", "relay.max_row_bytes", "LSN"} {
		if !strings.Contains(running.Output(), part) {
			t.Errorf("the message does not say %q", part)
		}
	}
	place := committingAt.FindStringSubmatch(running.Output())
	if place == nil {
		t.Fatal("the message does not say where the transaction commits")
	}
	commit, err := wal.ParseLSN(place[1])
	if err != nil {
		t.Fatal(err)
	}
	if confirmed := p.Confirmed(t); confirmed > commit {
		t.Errorf("confirmed %s, past the transaction committing at %s", confirmed, commit)
	}
	if n := delivered(); n != 20+30 {
		t.Errorf("%d records, want the 20 before the transaction and the 30 of it before the row, once", n)
	}
	peak := running.PeakMemory(t) >> 20
	t.Logf("row of %d MB: peak memory %d MiB", size/1_000_000, peak)
	if peak >= peakLimit {
		t.Errorf("peak memory = %d MiB", peak)
	}
	running.Terminate(t)
	if code := running.Wait(t); code != 0 && code != 1 { // 1 in the middle of a try
		t.Errorf("exit code = %d", code)
	}
}

// Outages leave nothing open behind: neither files nor goroutines.
func TestOutages_LeaveNothingOpenBehind(t *testing.T) {
	t.Parallel()
	if runtime.GOOS != "linux" {
		harness.NotHere(t, "open files are counted as Linux shows them")
	}
	db := harness.Postgres(t)
	brokers := harness.Kfake(t, sandbox.KafkaOptions{Brokers: 3})
	p, w := outbox(t, db, brokers)
	running := p.Exec(t, "run", "--set", anyAddress)
	address := served(t, running)
	settled := func() (files, goroutines int) {
		t.Helper()
		insertAcross(t, p, w, 32) // or a broker that had nothing to do would be a new connection later
		p.AwaitCaughtUp(t)
		entries, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", running.PID()))
		if err != nil {
			t.Fatal(err)
		}
		return len(entries), int(metric(t, address, "go_goroutines"))
	}
	settled()
	files, goroutines := settled()
	outages := scale(t, "CDC_RELAY_TEST_OUTAGES", 20)
	for range outages {
		db.Exec(t, "SELECT pg_terminate_backend(active_pid) FROM pg_replication_slots WHERE slot_name = $1", p.Slot)
		brokers.Fake.TakeAway(0)
		w.Insert(t, 20)
		brokers.Fake.Return()
	}
	var nowFiles, nowGoroutines int
	relaytest.Eventually(t, "files and goroutines are as before", func() (bool, string) {
		nowFiles, nowGoroutines = settled()
		return nowFiles <= files+3 && nowGoroutines <= goroutines+8, fmt.Sprintf("files %d, were %d; goroutines %d, were %d", nowFiles, files, nowGoroutines, goroutines)
	})
	t.Logf("%d outages of both sides: files %d to %d, goroutines %d to %d", outages, files, nowFiles, goroutines, nowGoroutines)
	running.Terminate(t)
	if code := running.Wait(t); code != 0 {
		t.Errorf("exit code = %d", code)
	}
	w.Verify(t)
}

// anyAddress has a relay take a port that is free when it takes it; served is which.
const anyAddress = "http.listen=127.0.0.1:0"

var isUp = regexp.MustCompile(`"listen":"(127\.0\.0\.1:[0-9]+)"`)

func served(t *testing.T, running *relaytest.Process) (address string) {
	t.Helper()
	relaytest.Eventually(t, "it serves its status", func() (bool, string) {
		out := running.Output()
		found := isUp.FindStringSubmatch(out)
		if found != nil {
			address = found[1]
		}
		return found != nil, out
	})
	return address
}

// get asks a relay, with a token unless it is empty.
func get(t *testing.T, address, path, token string) string {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+address+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	if token != "" {
		request.Header.Set("Authorization", "Bearer "+token)
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(body)
}

func metric(t *testing.T, address, name string) float64 {
	t.Helper()
	match := regexp.MustCompile(`(?m)^` + name + `(?:\{[^}]*\})? (\S+)$`).FindStringSubmatch(get(t, address, "/metrics", ""))
	if match == nil {
		t.Fatalf("no metric %s", name)
	}
	value, err := strconv.ParseFloat(match[1], 64)
	if err != nil {
		t.Fatal(err)
	}
	return value
}

// Rows that go to very many topics pass in bounded memory. CDC_RELAY_TEST_TOPICS takes
// thousands: each costs a look-up before its first record.
func TestTopics_VeryManyPassInBoundedMemory(t *testing.T) {
	if runtime.GOOS != "linux" {
		harness.NotHere(t, "the peak of a process's memory is read as Linux gives it")
	}
	topics := scale(t, "CDC_RELAY_TEST_TOPICS", 2000)
	seeded := map[string]int32{}
	for i := range topics {
		seeded[fmt.Sprintf("many%d-events", i)] = 1
	}
	db := harness.Postgres(t)
	brokers := harness.Kfake(t, sandbox.KafkaOptions{Topics: seeded})
	p := relaytest.New(t, db, brokers, []string{"{table: public.outbox}"})
	p.Setup(t)
	running := p.Exec(t, "run")
	const rounds = 5
	db.Exec(t, fmt.Sprintf(`INSERT INTO outbox (aggregate_type, aggregate_id, event_type, payload)
		SELECT 'many' || t, gen_random_uuid(), 'x', jsonb_build_object('n', n) FROM generate_series(1, %d) AS n, generate_series(0, %d) AS t`, rounds, topics-1))
	began := time.Now()
	p.AwaitCaughtUp(t)
	took := time.Since(began)
	for _, i := range []int{0, topics / 2, topics - 1} {
		if n := len(brokers.Read(t, fmt.Sprintf("many%d-events", i))); n != rounds {
			t.Errorf("topic %d has %d records", i, n)
		}
	}
	peak := running.PeakMemory(t) >> 20
	t.Logf("%d topics, %d rows: %s, peak memory %d MiB", topics, rounds*topics, took.Round(time.Millisecond), peak)
	if peak > 200 {
		t.Errorf("peak memory = %d MiB", peak)
	}
	running.Terminate(t)
	if code := running.Wait(t); code != 0 {
		t.Errorf("exit code = %d", code)
	}
}

// A leader that is frozen loses the slot once the server gave it up, and stands by
// when it is thawed.
func TestStandby_TakesOverFromAFrozenLeader(t *testing.T) {
	p, w := outbox(t, harness.Postgres(t), harness.Kfake(t, kfakeDefault))
	seen := watch(t, p.Brokers, w.Topic())
	const timeout, limit = 5 * time.Second, 30 * time.Second // with the default timeout it would be 60 s and more
	first := p.Exec(t, "run", "--set", "postgres.wal_sender_timeout=5s")
	w.Insert(t, 100)
	p.AwaitCaughtUp(t)
	seen.news(t, 0)
	second := p.Exec(t, "run", "--set", "postgres.wal_sender_timeout=5s")
	relaytest.Eventually(t, "it stands by", func() (bool, string) { return strings.Contains(second.Output(), "standby"), second.Output() })
	signal(t, first, syscall.SIGSTOP)
	frozen := time.Now()
	w.Insert(t, 100)
	took := seen.successor(t, 1).Sub(frozen)
	t.Logf("the other one's first record came %s after the leader froze; wal_sender_timeout is %s", took.Round(10*time.Millisecond), timeout)
	if took >= limit {
		t.Errorf("the other one's first record came after %s, want less than %s", took, limit)
	}
	p.AwaitCaughtUp(t)
	signal(t, first, syscall.SIGCONT)
	relaytest.Eventually(t, "the thawed one stands by", func() (bool, string) {
		out := first.Output()
		return strings.LastIndex(out, `"state":"standby"`) > strings.LastIndex(out, `"state":"streaming"`), out
	})
	w.Insert(t, 100)
	p.AwaitCaughtUp(t)
	for _, running := range []*relaytest.Process{first, second} {
		running.Terminate(t)
		if code := running.Wait(t); code != 0 {
			t.Errorf("exit code = %d", code)
		}
	}
	w.Verify(t)
}

// A row that the server cannot send ends every session at once. What lies before it is
// delivered and confirmed by one of them, and not sent again by each.
func TestRow_ThatCannotBeDecodedHasNothingSentAgain(t *testing.T) {
	db := harness.OwnPostgres(t, sandbox.PostgresOptions{})
	p, w := outbox(t, db, harness.Kfake(t, kfakeDefault))
	db.Exec(t, "CREATE TYPE mood AS ENUM ('good', 'bad')")
	db.Exec(t, "ALTER TABLE outbox ADD COLUMN mood mood")
	db.Exec(t, "CREATE TABLE moods AS SELECT 'bad'::mood AS mood")
	db.Exec(t, "SET allow_system_table_mods = on; DELETE FROM pg_enum WHERE enumlabel = 'bad'")
	running := p.Exec(t, "run", "--set", anyAddress)
	w.Insert(t, 20)
	p.AwaitCaughtUp(t)
	insert := "INSERT INTO outbox (aggregate_type, aggregate_id, event_type, payload, mood) SELECT '" + strings.TrimSuffix(w.Topic(), "-events") + "', gen_random_uuid(), 'x', '{}', "
	db.Exec(t, fmt.Sprintf("BEGIN; %[1]sNULL FROM generate_series(1, 10); COMMIT; BEGIN; %[1]smood FROM moods; COMMIT", insert))
	relaytest.Eventually(t, "it is tried again", func() (bool, string) {
		return strings.Contains(running.Output(), "undecodable"), running.Output()
	})
	awaitTries(t, running, 3)
	if n := len(p.Brokers.Read(t, w.Topic())); n != 20+10 {
		t.Errorf("%d records, want the 30 before the row, once", n)
	}
	running.Terminate(t)
	if code := running.Wait(t); code != 0 {
		t.Errorf("exit code = %d", code)
	}
}
