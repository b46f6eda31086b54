package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cdc-relay/cdc-relay/test/harness"
	"github.com/twmb/franz-go/pkg/kgo"
)

// delivered is a life whose relay has delivered n rows, and was stopped.
func newDelivered(t *testing.T, version string, n int, more ...string) *keeper {
	t.Helper()
	k := newOld(t, version, more...)
	invoke(t, k.env, "setup").want(t, exitOK, "", "")
	k.write(t, 1, n)
	k.runsUntil(t, "order-events", n)
	released(t, k.db)
	return k
}

// again are the values of the records that a replay sent.
func again(records []*kgo.Record) (values []string) {
	for _, r := range records {
		if slices.ContainsFunc(r.Headers, func(h kgo.RecordHeader) bool { return h.Key == "cdc-relay-replay" && len(h.Value) > 10 }) {
			values = append(values, string(r.Value))
		}
	}
	return values
}

// A record never lands after a newer one of its key, unless that was asked for.
func TestReplay_NeverReordersUnasked(t *testing.T) {
	t.Parallel()
	k := newDelivered(t, "15", 30)
	invoke(t, k.env, "replay", "--where", "id <= 5").want(t, exitOK, "17 further rows of 5 keys newer", "")
	invoke(t, k.env, "replay", "--where", "id <= 5", "--yes").want(t, exitRefused, "", "land after newer ones")
	_, stop := k.streams(t)
	for _, args := range [][]string{{"--where", "id > 23"}, {"--where", "id <= 5", "--complete-keys"}} {
		invoke(t, k.env, append([]string{"replay", "--yes"}, args...)...).want(t, exitRefused, "", "stop the relay")
	}
	if got := again(k.brokers.Read(t, "order-events")); len(got) > 0 {
		t.Fatalf("it sent %q", got)
	}
	invoke(t, k.env, "replay", "--yes", "--where", "id = 1", "--accept-order").want(t, exitOK, "sent 1 row again", "")
	stop()
	released(t, k.db)
	invoke(t, k.env, "replay", "--yes", "--where", "id > 23").want(t, exitOK, "sent 7 rows again", "")
	if got := again(k.brokers.Read(t, "order-events")); strings.Join(got, " ") != "1 24 25 26 27 28 29 30" {
		t.Errorf("it sent %q", got)
	}
	before := k.slotAt(t)
	k.write(t, 31, 40)
	k.runsUntil(t, "order-events", 48)
	if after := k.slotAt(t); before == after {
		t.Errorf("the slot stays at %s", before)
	}
}

func (k *keeper) slotAt(t *testing.T) string {
	t.Helper()
	return harness.Query[string](t, k.db, "SELECT confirmed_flush_lsn::text FROM pg_replication_slots WHERE slot_name = $1", k.slot)
}

// With every newer row of a key sent too, the key ends with its newest row, also when rows were
// committed and not streamed yet.
func TestReplay_CompleteKeysEndWithTheNewest(t *testing.T) {
	t.Parallel()
	for _, version := range harness.VersionsFor(t) {
		t.Run(version, func(t *testing.T) {
			t.Parallel()
			k := newDelivered(t, version, 30, keeping["detect_moved_slot"])
			k.write(t, 31, 40) // not streamed yet
			k.db.Exec(t, "UPDATE outbox SET created_at = NULL WHERE id = 17")
			at := k.slotAt(t)
			invoke(t, k.env, "replay", "--complete-keys", "--where", "id IN (10, 12)", "--yes").want(t, exitOK, "sent 10 rows again", "")
			if now := k.slotAt(t); now != at {
				t.Errorf("the slot went from %s to %s", at, now)
			}
			if got := strings.Join(again(k.brokers.Read(t, "order-events")), " "); got != "10 12 17 19 24 26 31 33 38 40" {
				t.Errorf("it sent %q", got)
			}
			k.runsUntil(t, "order-events", 50)
			for key, list := range numbers(t, k.brokers.Read(t, "order-events")) {
				if newest := slices.Max(list); list[len(list)-1] != newest {
					t.Errorf("key %s ends with %d, and %d is the newest", key, list[len(list)-1], newest)
				}
			}
			invoke(t, k.env, "replay", "--complete-keys", "--key", "5", "--since", "2020-01-01T00:00:00Z", "--order", "created_at", "--yes").want(t, exitOK, "sent 6 rows again", "")
		})
	}
}

// The ways to choose rows, in a plan and sent to a topic of their own.
func TestReplay_SendsWhatIsChosen(t *testing.T) {
	t.Parallel()
	k := newDelivered(t, "18", 20)
	k.db.Exec(t, `INSERT INTO outbox (aggregate_type, aggregate_id, event_type, payload) VALUES ('bill', '1', 'Sent', '100'), ('or/der', '1', 'Sent', '101')`)
	ids := filepath.Join(t.TempDir(), "ids")
	if err := os.WriteFile(ids, []byte("3\n\n 7 \n3\n999\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		args []string
		says string
		sent string
	}{
		{[]string{"--ids", ids}, "1 event of --ids not in the table", "3 7"},
		{[]string{"--key", "1", "--key", "2", "--where", "id < 10"}, "send 4 rows", "1 2 8 9"},
		{[]string{"--topic", "bill-events"}, "without 20 rows of other topics", "100"},
		{[]string{"--since", "2020-01-01T00:00:00Z", "--until", "2020-01-02T00:00:00Z"}, "send 0 rows", ""},
		{[]string{"--where", "id = 2 OR id = 4"}, "from id = 2", "2 4"},
	} {
		to := harness.Unique(t, "again")
		args := append([]string{"replay", "--to-topic", to}, tt.args...)
		invoke(t, k.env, args...).want(t, exitOK, tt.says, "")
		code := exitOK
		if slices.Contains(tt.args, "--topic") { // the row that cannot be routed is of any topic
			code = exitFailed
		}
		invoke(t, k.env, append(args, "--yes")...).want(t, code, "", "")
		if tt.sent == "" {
			continue
		}
		if got := strings.Join(again(k.brokers.Read(t, to)), " "); got != tt.sent {
			t.Errorf("%v: it sent %q, want %q", tt.args, got, tt.sent)
		}
	}
	invoke(t, k.env, "replay", "--where", "true", "--max-rows", "5", "--to-topic", "a", "--yes").want(t, exitRefused, "more than 5 rows", "raise --max-rows")
	invoke(t, k.env, "replay", "--where", "id = 22", "--to-topic", "a", "--yes").want(t, exitFailed, "1 row cannot be sent", "1 row could not be sent")
}

func TestReplay_RefusesWhatMakesNoSense(t *testing.T) {
	t.Parallel()
	k := newOld(t, "18")
	invoke(t, k.env, "setup").want(t, exitOK, "", "")
	for _, tt := range []struct {
		says string
		args []string
	}{
		{"which rows", nil},
		{"only one of", []string{"--where", "true", "--to-topic", "a", "--accept-order"}},
		{"--to-topic", []string{"--where", "true", "--to-topic", "a/b"}},
		{"reserved for the positions of relays", []string{"--where", "true", "--to-topic", "__cdc_relay_checkpoints"}},
		{"reserved for dead letters", []string{"--where", "true", "--to-topic", "cdc-relay.dead-letters"}},
		{"--max-rows", []string{"--where", "true", "--max-rows", "0"}},
		{"--max-rate", []string{"--where", "true", "--max-rate", "-1"}},
		{"not configured", []string{"--where", "true", "--table", "public.other"}},
		{"with its zone", []string{"--since", "yesterday"}},
		{"no column", []string{"--since", "2026-01-01T00:00:00Z", "--by", "nothing"}},
		{"refuses the condition", []string{"--where", "true) OR (true"}},
		{"refuses the condition", []string{"--where", "id"}},
		{"refuses the condition", []string{"--key", "1", "--where", "nothing = 1"}},
		{"no such file", []string{"--ids", "/nonexistent/x"}},
		{"no id in it", []string{"--ids", os.DevNull}},
		{"keeps no positions", []string{"--where", "true", "--to-topic", "a", "--yes", "--resume", "X"}},
	} {
		if slices.Contains(tt.args, "--resume") {
			k.write(t, 1, 1)
		}
		invoke(t, k.env, append([]string{"replay"}, tt.args...)...).want(t, exitUsage, "", tt.says)
	}
	bad := filepath.Join(t.TempDir(), "ids")
	if err := os.WriteFile(bad, []byte("no number\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	invoke(t, k.env, "replay", "--ids", bad).want(t, exitUsage, "", "invalid input syntax")
}

// Killed, it goes on with --resume: with exactly_once no row comes twice.
func TestReplay_KilledGoesOn(t *testing.T) {
	t.Parallel()
	executable, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	for name, how := range keeping {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			k := newDelivered(t, "18", 3000, how)
			var log output
			flags := []string{"replay", "--where", "true", "--to-topic", "again", "--yes", "--max-rate", "250"} // far from done when it is killed
			program := exec.CommandContext(t.Context(), executable, flags...)
			program.Env, program.Stderr = append(slices.Clone(k.env), "HOME=/nonexistent", asProgram+"=1"), &log
			if err := program.Start(); err != nil {
				t.Fatal(err)
			}
			k.await(t, "a second's rows are sent", func() bool { return len(again(k.brokers.Read(t, "again"))) > 300 })
			if err := program.Process.Kill(); err != nil {
				t.Fatal(err)
			}
			_ = program.Wait()
			run := regexp.MustCompile(`run ([A-Z2-7]{26})`).FindStringSubmatch(log.String())
			if run == nil {
				t.Fatalf("it names no run: %s", log.String())
			}
			k.await(t, "the lock is free", func() bool {
				return !harness.Query[bool](t, k.db, "SELECT EXISTS (SELECT FROM pg_stat_activity WHERE application_name = 'cdc-relay replay')")
			})
			resume := append(slices.Clone(flags[:6]), "--resume", run[1])
			other := slices.Clone(resume)
			other[2] = "id > 0"
			invoke(t, k.env, other...).want(t, exitUsage, "", "that run had other rows")
			invoke(t, k.env, resume...).want(t, exitOK, "again, run "+run[1], "")
			invoke(t, k.env, resume...).want(t, exitUsage, "", "no such run")
			seen := make(map[string]int)
			values := again(k.committed(t, "again"))
			for _, v := range values {
				seen[v]++
			}
			if len(seen) != 3000 || how == keeping["exactly_once"] && len(values) != 3000 || len(values) > 5500 {
				t.Errorf("%d rows in %d records", len(seen), len(values))
			}
		})
	}
}

// A role with the printed grants can replay.
func TestReplay_PrintedGrantsAreEnough(t *testing.T) {
	t.Parallel()
	k := newDelivered(t, "18", 9)
	role := harness.Unique(t, "least")
	k.db.Exec(t, "CREATE ROLE "+role+" LOGIN")
	defer func() {
		k.db.Exec(t, "DROP OWNED BY "+role)
		k.db.Exec(t, "DROP ROLE "+role)
	}()
	env := append(slices.Clone(k.env), "CDC_RELAY_POSTGRES_URL="+strings.Replace(k.db.URL, "postgres@", role+"@", 1))
	flags := []string{"replay", "--where", "true", "--yes"}
	invoke(t, env, append(flags, "--to-topic", "again")...).want(t, exitRefused, "", "sql --for replay")
	printed := invoke(t, k.env, "sql", "--for", "replay", "--role", role)
	printed.want(t, exitOK, "GRANT SELECT", "")
	k.db.Exec(t, printed.stdout)
	invoke(t, env, append(flags, "--to-topic", "again")...).want(t, exitOK, "sent 9 rows again", "")
	k.db.Exec(t, "ALTER ROLE "+role+" REPLICATION")
	invoke(t, env, append(flags, "--complete-keys")...).want(t, exitOK, "sent 9 rows again", "")
	if got := again(k.brokers.Read(t, "order-events")); len(got) != 9 {
		t.Errorf("%d records", len(got))
	}
}

// A relay that gets the slot while rows are sent would reorder them: the replay ends.
func TestReplay_EndsWithTheSlot(t *testing.T) {
	t.Parallel()
	k := newDelivered(t, "18", 3000)
	ended := make(chan result, 1)
	go func() {
		ended <- invoke(t, k.env, "replay", "--where", "true", "--complete-keys", "--yes", "--max-rate", "100") // half a minute
	}()
	k.await(t, "rows are sent", func() bool { return len(again(k.brokers.Read(t, "order-events"))) > 30 })
	k.db.Exec(t, "SELECT pg_terminate_backend(active_pid) FROM pg_replication_slots WHERE slot_name = $1", k.slot)
	select {
	case got := <-ended:
		got.want(t, exitFailed, "", "held slot")
	case <-time.After(time.Minute):
		t.Fatal("it goes on without the slot")
	}
	if n := len(again(k.brokers.Read(t, "order-events"))); n > 2500 {
		t.Errorf("it sent %d rows", n)
	}
}

// On a real Apache Kafka, with transactions: what was streamed is proven, and after a replay too.
func TestReplay_AndAuditOnRealBrokers(t *testing.T) {
	k := newOld(t, "18", keeping["exactly_once"])
	k.brokers = harness.Kafka(t)
	k.env = append(slices.DeleteFunc(k.env, func(v string) bool { return strings.HasPrefix(v, "CDC_RELAY_KAFKA_BROKERS=") }), "CDC_RELAY_KAFKA_BROKERS="+strings.Join(k.brokers.Addrs, ","))
	invoke(t, k.env, "setup").want(t, exitOK, "", "")
	kind := harness.Unique(t, "kind")
	topic := kind + "-events"
	k.db.Exec(t, `INSERT INTO outbox (aggregate_type, aggregate_id, event_type, payload) SELECT $1, n % 7, 'Placed', to_jsonb(n) FROM generate_series(1, 500) n`, kind)
	_, stop := k.start(t, nil)
	k.await(t, "500 records", func() bool { return len(k.committed(t, topic)) >= 500 })
	invoke(t, k.env, "audit").want(t, exitOK, "proven 500 of 500", "")
	stop()
	released(t, k.db)
	invoke(t, k.env, "replay", "--key", "3", "--where", "id > 100", "--complete-keys", "--yes").want(t, exitOK, "sent 58 rows again", "")
	if got := again(k.committed(t, topic)); len(got) != 58 || !slices.IsSortedFunc(got, func(a, b string) int { return len(a) - len(b) }) {
		t.Errorf("it sent %q", got)
	}
	_, stop = k.start(t, nil)
	defer stop()
	invoke(t, k.env, "audit", "--expect", "once").want(t, exitOK, "58 records sent again on purpose", "")
}

// A partitioned table, whose rows have places in several tables; and a mapping whose records
// nobody can compare or mark.
func TestReplay_AndAuditOfOtherTables(t *testing.T) {
	t.Parallel()
	k := newOld(t, "15", keeping["detect_moved_slot"])
	k.db.Exec(t, `DROP TABLE outbox`)
	k.db.Exec(t, `CREATE TABLE outbox (id bigint GENERATED BY DEFAULT AS IDENTITY PRIMARY KEY, aggregate_type text NOT NULL, aggregate_id text NOT NULL,
		event_type text NOT NULL, payload jsonb, created_at timestamptz DEFAULT now()) PARTITION BY RANGE (id)`)
	k.db.Exec(t, `CREATE TABLE outbox_a PARTITION OF outbox FOR VALUES FROM (0) TO (20); CREATE TABLE outbox_b PARTITION OF outbox FOR VALUES FROM (20) TO (1000)`)
	invoke(t, k.env, "setup").want(t, exitOK, "", "")
	k.write(t, 1, 40)
	k.runsUntil(t, "order-events", 40)
	released(t, k.db)
	invoke(t, k.env, "replay", "--where", "id = 12", "--complete-keys", "--yes").want(t, exitOK, "sent 5 rows again", "")
	if got := strings.Join(again(k.brokers.Read(t, "order-events")), " "); got != "12 19 26 33 40" {
		t.Errorf("it sent %q", got)
	}
	_, stop := k.start(t, nil)
	defer stop()
	invoke(t, k.env, "audit").want(t, exitOK, "proven 40 of 40", "")

	file := filepath.Join(t.TempDir(), "cdc-relay.yaml")
	text := "outbox: [{table: public.outbox, debezium: {topic.prefix: a, key.converter: org.apache.kafka.connect.storage.StringConverter, value.converter: org.apache.kafka.connect.storage.StringConverter, transforms: outbox, transforms.outbox.type: io.debezium.transforms.outbox.EventRouter}}]\n"
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	env := append(slices.DeleteFunc(slices.Clone(k.env), func(v string) bool { return strings.HasPrefix(v, "CDC_RELAY_OUTBOX_TABLE=") }), "CDC_RELAY_CONFIG="+file)
	invoke(t, env, "audit").want(t, exitRefused, "", "mapped by `debezium:` options")
	invoke(t, env, "replay", "--where", "true").want(t, exitRefused, "", "insert the rows again")
}
