package main

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/cdc-relay/cdc-relay/audit"
	"github.com/cdc-relay/cdc-relay/test/harness"
	"github.com/twmb/franz-go/pkg/kgo"
)

// audited is a life whose rows an audit compares with records that tests plant beside the relay's.
type audited struct {
	*keeper
	client *kgo.Client
}

func newAudited(t *testing.T, version string, more ...string) *audited {
	t.Helper()
	a := &audited{keeper: newOld(t, version, append(more, "CDC_RELAY_RELAY_DEAD_LETTER_TOPIC="+harness.Unique(t, "letters"))...)}
	var err error
	if a.client, err = kgo.NewClient(kgo.SeedBrokers(a.brokers.Addrs...), kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.AllowAutoTopicCreation()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(a.client.Close)
	return a
}

// put produces what a mapping of newOld's table makes of a row.
func (a *audited) put(t *testing.T, topic string, partition int32, id, key, value string, more ...kgo.RecordHeader) {
	t.Helper()
	headers := append([]kgo.RecordHeader{{Key: "id", Value: []byte(id)}, {Key: "eventType", Value: []byte("Placed")}}, more...)
	if id == "" {
		headers = nil
	}
	r := &kgo.Record{Topic: topic, Partition: partition, Key: []byte(key), Value: []byte(value), Headers: headers}
	if err := a.client.ProduceSync(t.Context(), r).FirstErr(); err != nil {
		t.Fatal(err)
	}
}

// row inserts one of number n.
func (a *audited) row(t *testing.T, n int, kind, key string) {
	t.Helper()
	a.db.Exec(t, `INSERT INTO outbox (id, aggregate_type, aggregate_id, event_type, payload) OVERRIDING SYSTEM VALUE VALUES ($1::int, $2, $3, 'Placed', to_jsonb($1::int))`, n, kind, key)
}

// unseen has no relay send the rows that write inserts.
func (a *audited) unseen(t *testing.T, write func()) {
	t.Helper()
	a.db.Exec(t, "ALTER PUBLICATION "+a.slot+" DROP TABLE outbox")
	write()
	a.db.Exec(t, "ALTER PUBLICATION "+a.slot+" ADD TABLE outbox")
}

// run audits, checks the exit code, and returns the result.
func (a *audited) run(t *testing.T, code int, args ...string) audit.Result {
	t.Helper()
	got := invoke(t, a.env, append([]string{"audit", "--json"}, args...)...)
	var line struct {
		Text   string
		Result audit.Result
	}
	if err := json.Unmarshal([]byte(got.stdout), &line); got.code != code || err != nil && code != exitFailed && code != exitUsage && code != exitRefused {
		t.Fatalf("audit %v ended with %d, want %d\n%s\n%s", args, got.code, code, got.stdout, got.stderr)
	}
	if want := fmt.Sprintf("proven %d of %d", line.Result.Proven, line.Result.Rows); line.Text != want && line.Text != "" {
		t.Errorf("it says %q, want %q", line.Text, want)
	}
	return line.Result
}

// finds audits rows of a range of numbers, and wants these verdicts, and so many proven rows.
func (a *audited) finds(t *testing.T, code int, from, to, proven int, want map[string]int64, more ...string) audit.Result {
	t.Helper()
	r := a.run(t, code, append([]string{"--where", fmt.Sprintf("id BETWEEN %d AND %d", from, to), "--show-ids"}, more...)...)
	if int(r.Proven) != proven || !maps.Equal(r.Verdicts, want) {
		t.Errorf("rows %d to %d %v: proven %d, %v; want %d, %v\n%+v", from, to, more, r.Proven, r.Verdicts, proven, want, r)
	}
	return r
}

func TestAudit_FindsEachPlantedFault(t *testing.T) {
	t.Parallel()
	for _, version := range harness.VersionsFor(t) {
		t.Run(version, func(t *testing.T) {
			t.Parallel()
			a := newAudited(t, version, keeping["detect_moved_slot"], "CDC_RELAY_RELAY_ON_REJECT=dead_letter", "CDC_RELAY_KAFKA_MAX_MESSAGE_BYTES=64KiB")
			if _, err := a.brokers.Admin(t).CreateTopic(t.Context(), 2, 1, nil, "pair-events"); err != nil {
				t.Fatal(err)
			}
			a.write(t, 1, 3) // before the slot
			invoke(t, a.env, "setup").want(t, exitOK, "", "")
			for n := 11; n <= 40; n++ {
				a.row(t, n, "order", fmt.Sprint(n%3))
			}
			a.row(t, 50, "or/der", "1")
			a.db.Exec(t, `INSERT INTO outbox (id, aggregate_type, aggregate_id, event_type, payload) OVERRIDING SYSTEM VALUE SELECT 51, 'order', '1', 'Placed', to_jsonb(string_agg(md5(n::text), '')) FROM generate_series(1, 4000) n`)
			_, stop := a.start(t, nil)
			a.await(t, "30 records", func() bool { return len(a.brokers.Read(t, "order-events")) >= 30 })
			a.finds(t, exitOK, 11, 40, 30, map[string]int64{})
			stop()
			released(t, a.db)

			a.unseen(t, func() {
				a.row(t, 60, "order", "1")  // missing
				a.row(t, 70, "order", "k")  // out of order
				a.row(t, 71, "order", "k")  //
				a.row(t, 80, "pair", "p")   // two partitions
				a.row(t, 81, "pair", "p")   //
				a.row(t, 90, "other", "1")  // in another topic
				a.row(t, 91, "order", "k1") // with other content
				a.row(t, 92, "order", "k2") //
				a.row(t, 93, "order", "k3") //
				a.row(t, 100, "order", "r") // sent again on purpose
			})
			a.put(t, "order-events", 0, "71", "k", "71")
			a.put(t, "order-events", 0, "70", "k", "70")
			a.put(t, "pair-events", 0, "80", "p", "80")
			a.put(t, "pair-events", 1, "81", "p", "81")
			a.put(t, "order-events", 0, "90", "1", "90")
			a.put(t, "order-events", 0, "91", "K1", "91")
			a.put(t, "order-events", 0, "92", "k2", "0")
			a.put(t, "order-events", 0, "93", "k3", "93", kgo.RecordHeader{Key: "more", Value: []byte("x")})
			a.put(t, "order-events", 0, "12", "0", "12") // twice
			a.put(t, "order-events", 0, "100", "r", "100")
			a.put(t, "order-events", 0, "100", "r", "100", kgo.RecordHeader{Key: "cdc-relay-replay", Value: []byte("run")})
			a.put(t, "order-events", 0, "99999", "z", "1") // of nobody's row
			a.put(t, "order-events", 0, "", "z", "1")      // without an id
			_, stop = a.start(t, nil)
			defer stop()

			if r := a.finds(t, exitOK, 1, 3, 0, map[string]int64{"before_slot": 3}); r.Faults != 0 {
				t.Errorf("%d faults", r.Faults)
			}
			a.finds(t, exitOK, 50, 51, 0, map[string]int64{"rejected": 1, "waiting": 1})
			if r := a.finds(t, exitBlocked, 11, 60, 30, map[string]int64{"missing": 1, "rejected": 1, "waiting": 1, "twice": 1}); r.Findings[0].ID != "60" || r.Findings[1].ID != "12" || r.Foreign != 1 || r.Extra == 0 {
				t.Errorf("%+v", r)
			}
			a.finds(t, exitBlocked, 11, 40, 29, map[string]int64{"twice": 1}, "--expect", "once")
			a.finds(t, exitBlocked, 70, 71, 1, map[string]int64{"out_of_order": 1})
			a.finds(t, exitOK, 70, 71, 2, map[string]int64{"order_unclear": 1}, "--concurrent-writers")
			a.finds(t, exitOK, 80, 81, 2, map[string]int64{"two_partitions": 1})
			a.finds(t, exitBlocked, 40, 90, 4, map[string]int64{"missing": 1, "out_of_order": 1, "two_partitions": 1, "differs": 1, "rejected": 1, "waiting": 1}, "--expect", "at-least-once")
			for n, part := range map[int]string{91: "key", 92: "value", 93: "headers"} {
				if r := a.finds(t, exitBlocked, n, n, 0, map[string]int64{"differs": 1}); r.Findings[0].Part != part {
					t.Errorf("row %d differs in %q", n, r.Findings[0].Part)
				}
			}
			if r := a.finds(t, exitOK, 100, 100, 1, map[string]int64{}, "--expect", "once"); r.Resent != 1 {
				t.Errorf("%d were sent again", r.Resent)
			}

			// What the topic has removed cannot be told.
			ends, err := a.brokers.Admin(t).ListEndOffsets(t.Context(), "order-events")
			if err != nil {
				t.Fatal(err)
			}
			if _, err := a.brokers.Admin(t).DeleteRecords(t.Context(), ends.Offsets()); err != nil {
				t.Fatal(err)
			}
			a.finds(t, exitOK, 11, 40, 0, map[string]int64{"gone": 30})
		})
	}
}

// Rows that one transaction wrote have one time, which does not say in which order they were written. A
// record behind one of a later time is reported.
func TestAudit_OrdersNoRowsOfOneTime(t *testing.T) {
	t.Parallel()
	a := newAudited(t, "18", keeping["detect_moved_slot"])
	invoke(t, a.env, "setup").want(t, exitOK, "", "")
	a.db.Exec(t, `INSERT INTO outbox (id, aggregate_type, aggregate_id, event_type, payload) OVERRIDING SYSTEM VALUE SELECT n, 'order', '1', 'Placed', to_jsonb(n) FROM generate_series(3, 1, -1) n`)
	_, stop := a.start(t, nil)
	defer stop()
	a.await(t, "3 records", func() bool { return len(a.brokers.Read(t, "order-events")) >= 3 })
	a.finds(t, exitOK, 1, 3, 3, map[string]int64{}, "--order", "created_at")
	a.db.Exec(t, `UPDATE outbox SET created_at = created_at + interval '1 s' WHERE id = 3`)
	a.finds(t, exitOK, 1, 3, 3, map[string]int64{"order_unclear": 1}, "--order", "created_at")
}

// What people see of it, and what the report shows: no payload, and no event id unasked.
func TestAudit_ShowsNoContent(t *testing.T) {
	t.Parallel()
	a := newAudited(t, "18", keeping["detect_moved_slot"])
	invoke(t, a.env, "setup").want(t, exitOK, "", "")
	a.unseen(t, func() {
		a.db.Exec(t, `INSERT INTO outbox (aggregate_type, aggregate_id, event_type, payload) SELECT 'order', 'secret-key', 'Placed', '"secret-value"' FROM generate_series(1, 120)`)
	})
	_, stop := a.start(t, nil)
	defer stop()
	report := filepath.Join(t.TempDir(), "audit.ndjson")
	got := invoke(t, a.env, "audit", "--report", report)
	got.want(t, exitBlocked, "FAULT missing: 120 (no record, and the topic would still have it)", "the audit found 120 faults")
	if !strings.HasSuffix(got.stdout, "proven 0 of 120\n") || !strings.Contains(got.stdout, "public.outbox id sha256:") {
		t.Errorf("it shows\n%s", got.stdout)
	}
	written, err := os.ReadFile(report)
	if err != nil {
		t.Fatal(err)
	}
	if lines := strings.Split(strings.TrimSpace(string(written)), "\n"); len(lines) != 101 || !strings.Contains(lines[100], `"missing":120`) {
		t.Errorf("%d lines, the last is %s", len(lines), lines[len(lines)-1])
	}
	if all := got.stdout + got.stderr + string(written); strings.Contains(all, "secret") {
		t.Errorf("it shows content:\n%s", all)
	}
	invoke(t, a.env, "audit", "--show-ids").want(t, exitBlocked, "public.outbox id 21, topic order-events", "")
}

// The other ways to run, of each one pass over what a relay delivered: nothing is found.
func TestAudit_ProvesWhatARelaySends(t *testing.T) {
	t.Parallel()
	for name, more := range map[string][]string{
		"exactly_once":       {keeping["exactly_once"]},
		"shards":             {"CDC_RELAY_POSTGRES_SHARDS=2"},
		"position_headers":   {"CDC_RELAY_RELAY_POSITION_HEADERS=true"},
		"cloudevents":        {"value: cloudevents"},
		"cloudevents_binary": {"value: cloudevents_binary"},
		"envelope":           {"value: envelope"},
		"timestamp":          {"columns: {timestamp: created_at}"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var flags []string
			env := more
			if strings.Contains(more[0], ": ") {
				env = nil
				key, value, _ := strings.Cut(more[0], ": ")
				if key == "columns" {
					key, value = "columns.timestamp", "created_at"
				}
				flags = []string{"--set", "outbox[0]." + key + "=" + value}
			}
			a := newAudited(t, "18", env...)
			file := filepath.Join(t.TempDir(), "cdc-relay.yaml")
			text := "outbox: [{table: public.outbox}]\n"
			if flags != nil {
				path, value, _ := strings.Cut(strings.TrimPrefix(flags[1], "outbox[0]."), "=")
				if under, last, nested := strings.Cut(path, "."); nested {
					text = fmt.Sprintf("outbox: [{table: public.outbox, %s: {%s: %s}}]\n", under, last, value)
				} else {
					text = fmt.Sprintf("outbox: [{table: public.outbox, %s: %s}]\n", path, value)
				}
			}
			if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
			a.env = append(slices.DeleteFunc(a.env, func(v string) bool { return strings.HasPrefix(v, "CDC_RELAY_OUTBOX_TABLE=") }), "CDC_RELAY_CONFIG="+file)
			invoke(t, a.env, "setup").want(t, exitOK, "", "")
			a.write(t, 1, 200)
			_, stop := a.start(t, nil)
			defer stop()
			a.await(t, "200 records", func() bool { return len(a.brokers.Read(t, "order-events")) >= 200 })
			want := exitOK
			r := a.run(t, want)
			if r.Proven != 200 || r.Faults != 0 || len(r.Verdicts) != 0 || (r.Expect == audit.Once) != (name == "exactly_once") {
				t.Errorf("%+v", r)
			}
			sampled := a.run(t, exitOK, "--sample", "1/4")
			if sampled.Proven != sampled.Rows || sampled.Rows == 0 || sampled.Rows >= 200 || sampled.Extra != 0 {
				t.Errorf("a sample: %+v", sampled)
			}
			if later := a.run(t, exitOK, "--since", "2100-01-01T00:00:00Z"); later.Rows != 0 {
				t.Errorf("%d rows are of the next century", later.Rows)
			}
			if now := a.run(t, exitOK, "--since", "2020-01-01T00:00:00Z", "--until", "2100-01-01T00:00:00Z", "--where", "aggregate_id = '1'"); now.Rows == 0 || now.Rows != now.Proven {
				t.Errorf("%+v", now)
			}
		})
	}
}

// Without a relay the slot does not pass the snapshot, and the audit says so.
func TestAudit_WaitsForTheSlot(t *testing.T) {
	t.Parallel()
	a := newAudited(t, "18")
	invoke(t, a.env, "setup").want(t, exitOK, "", "")
	a.write(t, 1, 2)
	invoke(t, a.env, "audit", "--wait", "100ms").want(t, exitFailed, "", "start the relay; if it runs, it may be blocked: see `cdc-relay status`")
	a.db.Exec(t, "SELECT pg_drop_replication_slot($1)", a.slot)
	invoke(t, a.env, "audit").want(t, exitRefused, "", "does not exist")
	a.db.Exec(t, "DROP TABLE outbox")
	invoke(t, a.env, "audit").want(t, exitRefused, "", "public.outbox")
}

func TestAudit_RefusesWhatMakesNoSense(t *testing.T) {
	t.Parallel()
	a := newAudited(t, "18")
	invoke(t, a.env, "setup").want(t, exitOK, "", "")
	for _, tt := range []struct {
		says string
		args []string
	}{
		{"--expect", []string{"--expect", "twice"}},
		{"1/N", []string{"--sample", "5"}},
		{"1/N", []string{"--sample", "1/0"}},
		{"64MiB", []string{"--memory", "1MiB"}},
		{"no unit", []string{"--memory", "100"}},
		{"no such file", []string{"--dir", "/nonexistent/x"}},
		{"no directory", []string{"--dir", os.Args[0]}},
		{"with its zone", []string{"--since", "2026-01-01"}},
		{"with its zone", []string{"--until", "2026-01-01T00:00:00"}},
		{"not before", []string{"--since", "2026-01-02T00:00:00Z", "--until", "2026-01-01T00:00:00Z"}},
		{"not configured", []string{"--table", "public.other"}},
		{"no column", []string{"--by", "nothing", "--since", "2026-01-02T00:00:00Z"}},
		{"allowed: a column of type", []string{"--by", "payload", "--since", "2026-01-02T00:00:00Z"}},
		{"no column", []string{"--order", "nothing"}},
		{"refuses the condition", []string{"--where", "nothing = 1"}},
		{"refuses the condition", []string{"--where", "true) OR (true"}},
		{"refuses the condition", []string{"--where", "id"}},
		{"parameter", []string{"--where", "id = $1"}},
		{"--report", []string{"--report", "/nonexistent/x", "--where", "false"}},
	} {
		if tt.says == "--report" {
			_, stop := a.start(t, nil)
			defer stop()
		}
		invoke(t, a.env, append([]string{"audit"}, tt.args...)...).want(t, exitUsage, "", tt.says)
	}
}

// A role with the printed grants can audit, and needs no right to replicate. One without them gets
// an error that names the grant.
func TestAudit_PrintedGrantsAreEnough(t *testing.T) {
	t.Parallel()
	for _, version := range harness.VersionsFor(t) {
		t.Run(version, func(t *testing.T) {
			t.Parallel()
			a := newAudited(t, version)
			invoke(t, a.env, "setup").want(t, exitOK, "", "")
			a.write(t, 1, 9)
			_, stop := a.start(t, nil)
			defer stop()
			role := harness.Unique(t, "least")
			a.db.Exec(t, "CREATE ROLE "+role+" LOGIN")
			defer func() {
				a.db.Exec(t, "DROP OWNED BY "+role)
				a.db.Exec(t, "DROP ROLE "+role)
			}()
			env := append(slices.Clone(a.env), "CDC_RELAY_POSTGRES_URL="+strings.Replace(a.db.URL, "postgres@", role+"@", 1))
			invoke(t, env, "audit").want(t, exitRefused, "", "sql --for audit")
			printed := invoke(t, a.env, "sql", "--for", "audit", "--role", role)
			printed.want(t, exitOK, "GRANT SELECT", "")
			a.db.Exec(t, printed.stdout)
			invoke(t, env, "audit").want(t, exitOK, "proven 9 of 9", "")
		})
	}
}

// What does not fit goes to files: the process stays near the memory that it is given.
func TestAudit_BoundedMemory(t *testing.T) {
	rows := 200_000
	if testing.Short() {
		rows = 110_000 // of which files take a part, too
	}
	if n, err := strconv.Atoi(os.Getenv("AUDIT_ROWS")); err == nil {
		rows = n // for the figures of docs/benchmarks.md
	}
	memory := cmp.Or(os.Getenv("AUDIT_MEMORY"), "64MiB")
	a := newAudited(t, "18")
	invoke(t, a.env, "setup").want(t, exitOK, "", "")
	a.unseen(t, func() { a.write(t, 1, rows) })
	a.db.Exec(t, "ANALYZE outbox")
	_, stop := a.start(t, nil)
	defer stop()
	if _, err := a.brokers.Admin(t).CreateTopic(t.Context(), 1, 1, nil, "order-events"); err != nil {
		t.Fatal(err)
	}
	for n := range rows {
		a.client.Produce(t.Context(), &kgo.Record{
			Topic: "order-events", Key: fmt.Append(nil, (n+1)%7), Value: fmt.Append(nil, n+1),
			Headers: []kgo.RecordHeader{{Key: "id", Value: fmt.Append(nil, n+1)}, {Key: "eventType", Value: []byte("Placed")}},
		}, func(_ *kgo.Record, err error) {
			if err != nil {
				t.Error(err)
			}
		})
	}
	if err := a.client.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	executable, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	var out, log output
	program := exec.CommandContext(t.Context(), executable, "audit", "--json", "--memory", memory, "--dir", t.TempDir())
	program.Env, program.Stdout, program.Stderr = append(slices.Clone(a.env), "HOME=/nonexistent", asProgram+"=1"), &out, &log
	if err := program.Run(); err != nil {
		t.Fatalf("%v\n%s\n%s", err, out.String(), log.String())
	}
	var line struct{ Result audit.Result }
	if err := json.Unmarshal([]byte(out.String()), &line); err != nil {
		t.Fatal(err)
	}
	used := program.ProcessState.SysUsage().(*syscall.Rusage).Maxrss
	state := program.ProcessState
	t.Logf("%d rows with %s in %.1fs, of them %s at work, %d MiB at most, %d MiB in files", rows, memory, line.Result.Seconds, state.UserTime()+state.SystemTime(), used>>10, line.Result.DiskUsed>>20)
	if r := line.Result; r.Proven != int64(rows) || r.Rows != int64(rows) || r.DiskUsed == 0 && memory == "64MiB" {
		t.Errorf("%+v", r)
	}
	limit := int64(160 << 10)
	if raceDetector() { // whose shadow memory is several times what it watches
		limit *= 3
	}
	if memory == "64MiB" && used > limit { // the clients, their buffers and the executable of the tests among it
		t.Errorf("%d KiB, want less than %d", used, limit)
	}
}

// raceDetector reports whether the tests were built with it.
func raceDetector() bool {
	info, ok := debug.ReadBuildInfo()
	return ok && slices.ContainsFunc(info.Settings, func(s debug.BuildSetting) bool { return s.Key == "-race" && s.Value == "true" })
}

// A table that is written anew shows no rows to an older snapshot. That is no table without rows.
func TestAudit_ARewrittenTableIsNoEmptyOne(t *testing.T) {
	t.Parallel()
	a := newAudited(t, "18", keeping["detect_moved_slot"])
	invoke(t, a.env, "setup").want(t, exitOK, "", "")
	for n := 1; n <= 3; n++ {
		a.row(t, n, "order", "1")
	}
	ended := make(chan result, 1)
	go func() { ended <- invoke(t, a.env, "audit", "--wait", "5m") }()
	a.await(t, "the audit's snapshot", func() bool { // the slot has not passed it, as no relay runs
		return harness.Query[bool](t, a.db, `SELECT EXISTS (SELECT FROM pg_stat_activity WHERE datname = current_database() AND application_name = 'cdc-relay audit' AND state = 'idle in transaction' AND backend_xmin IS NOT NULL)`)
	})
	a.db.Exec(t, "ALTER TABLE outbox ADD COLUMN anew uuid DEFAULT gen_random_uuid()")
	_, stop := a.start(t, nil)
	(<-ended).want(t, exitFailed, "", "run the command again")
	stop()
}

// A wrong order that rests on the rows' numbers names the flag for writers that overlap.
func TestAudit_NamesTheFlagForConcurrentWriters(t *testing.T) {
	t.Parallel()
	a := newAudited(t, "18", keeping["detect_moved_slot"])
	invoke(t, a.env, "setup").want(t, exitOK, "", "")
	a.unseen(t, func() {
		a.row(t, 1, "order", "k")
		a.row(t, 2, "order", "k")
	})
	a.brokers.CreateTopic(t, "order-events", 1)
	a.put(t, "order-events", 0, "2", "k", "2")
	a.put(t, "order-events", 0, "1", "k", "1")
	_, stop := a.start(t, nil)
	defer stop()
	invoke(t, a.env, "audit").want(t, exitBlocked, "if several writers write rows of one key at a time, they may commit in another order than the rows have: repeat the audit with --concurrent-writers\nproven 1 of 2\n", "the audit found 1 fault")
	if got := invoke(t, a.env, "audit", "--concurrent-writers"); got.code != exitOK || strings.Contains(got.stdout, "several writers") {
		t.Errorf("with the flag it ended with %d:\n%s\n%s", got.code, got.stdout, got.stderr)
	}
}

// While the slot is still to be made by a backfill, that is what completes it.
func TestAudit_NamesTheBackfillThatIsIncomplete(t *testing.T) {
	t.Parallel()
	a := newAudited(t, "18", keeping["detect_moved_slot"])
	a.write(t, 1, 3)
	invoke(t, a.env, "audit").want(t, exitRefused, "", "the slot does not exist; ")
	a.db.Exec(t, "SELECT pg_create_logical_replication_slot($1, 'pgoutput')", a.slot+"_backfill")
	invoke(t, a.env, "audit").want(t, exitRefused, "", fmt.Sprintf("slot %q: the slot does not exist: a backfill is under way or was interrupted (slot %q), and makes the slot when it is complete; let `cdc-relay backfill --yes` complete it", a.slot, a.slot+"_backfill"))
}
