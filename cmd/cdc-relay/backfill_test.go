package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/cdc-relay/cdc-relay/sandbox"
	"github.com/cdc-relay/cdc-relay/test/harness"
	"github.com/twmb/franz-go/pkg/kgo"
)

// old is a life whose table has rows before there is a slot.
func newOld(t *testing.T, version string, more ...string) *keeper {
	t.Helper()
	k := &keeper{life: &life{db: harness.Postgres(t, version), brokers: harness.Kfake(t, sandbox.KafkaOptions{})}, topic: harness.Unique(t, "positions")}
	k.slot = harness.Unique(t, "old")
	k.env = append([]string{
		"CDC_RELAY_POSTGRES_URL=" + k.db.URL,
		"CDC_RELAY_POSTGRES_SLOT=" + k.slot,
		"CDC_RELAY_POSTGRES_PUBLICATION=" + k.slot,
		"CDC_RELAY_KAFKA_BROKERS=" + strings.Join(k.brokers.Addrs, ","),
		"CDC_RELAY_KAFKA_CREATE_TOPICS_ENABLED=true",
		"CDC_RELAY_KAFKA_CREATE_TOPICS_PARTITIONS=1",
		"CDC_RELAY_OUTBOX_TABLE=public.outbox",
		"CDC_RELAY_HTTP_LISTEN=127.0.0.1:0",
	}, more...)
	if slices.Contains(more, keeping["exactly_once"]) || slices.Contains(more, keeping["detect_moved_slot"]) {
		k.env = append(k.env, "CDC_RELAY_RELAY_CHECKPOINT_TOPIC="+k.topic)
	}
	k.db.Exec(t, `CREATE TABLE outbox (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, aggregate_type text NOT NULL, aggregate_id text NOT NULL,
		event_type text NOT NULL, payload jsonb, created_at timestamptz DEFAULT now())`)
	return k
}

// write inserts rows of seven keys, whose payload is n.
func (k *keeper) write(t *testing.T, from, to int) {
	t.Helper()
	k.db.Exec(t, `INSERT INTO outbox (aggregate_type, aggregate_id, event_type, payload) SELECT 'order', n % 7, 'Placed', to_jsonb(n) FROM generate_series($1::int, $2) n`, from, to)
}

// numbers are the payloads of what consumers of committed records see, by key.
func numbers(t *testing.T, records []*kgo.Record) map[string][]int {
	t.Helper()
	seen := make(map[string][]int)
	for _, r := range records {
		var n int
		if err := json.Unmarshal(r.Value, &n); err != nil {
			t.Fatalf("value %q: %v", r.Value, err)
		}
		seen[string(r.Key)] = append(seen[string(r.Key)], n)
	}
	return seen
}

// eachOnce holds that the keys have 1 to n, once and in order.
func eachOnce(t *testing.T, records []*kgo.Record, n int) {
	t.Helper()
	count := 0
	for key, list := range numbers(t, records) {
		count += len(list)
		if !slices.IsSorted(list) || len(slices.Compact(slices.Clone(list))) != len(list) {
			t.Errorf("key %s has %d records, not in order or some twice", key, len(list))
		}
	}
	if count != n {
		t.Errorf("%d records, want %d", count, n)
	}
}

// committed are the records that consumers of committed ones see.
func (k *keeper) committed(t *testing.T, topic string) (records []*kgo.Record) {
	t.Helper()
	ends, err := k.brokers.Admin(t).ListEndOffsets(t.Context(), topic)
	if err != nil {
		t.Fatal(err)
	}
	client, err := kgo.NewClient(kgo.SeedBrokers(k.brokers.Addrs...), kgo.FetchIsolationLevel(kgo.ReadCommitted()), kgo.KeepControlRecords(),
		kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{topic: {0: kgo.NewOffset().AtStart()}}))
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	end, _ := ends.Lookup(topic, 0)
	for next := int64(0); next < end.Offset; {
		fetches := client.PollFetches(t.Context())
		if err := fetches.Err(); err != nil {
			t.Fatal(err)
		}
		for each := fetches.RecordIter(); !each.Done(); {
			r := each.Next()
			next = r.Offset + 1
			if !r.Attrs.IsControl() {
				records = append(records, r)
			}
		}
	}
	return records
}

func (k *keeper) slots(t *testing.T) string {
	t.Helper()
	return harness.Query[string](t, k.db, `SELECT coalesce(string_agg(slot_name, ' ' ORDER BY slot_name), '') FROM pg_replication_slots WHERE database = current_database()`)
}

// runsUntil streams until there are n records.
func (k *keeper) runsUntil(t *testing.T, topic string, n int) {
	t.Helper()
	_, stop := k.start(t, nil)
	k.await(t, fmt.Sprintf("%d records", n), func() bool { return len(k.brokers.Read(t, topic)) >= n })
	if code := stop(); code != exitOK {
		t.Errorf("run ended with %d", code)
	}
}

// writesOn inserts row after row from a number on, until it is stopped, and then tells the last.
func (k *keeper) writesOn(t *testing.T, from int) (last <-chan int, stop func()) {
	t.Helper()
	writing, stop := context.WithCancel(t.Context())
	conn := k.db.Connect(t)
	ended := make(chan int, 1)
	go func() {
		n := from
		for ; writing.Err() == nil; n++ {
			if _, err := conn.Exec(t.Context(), `INSERT INTO outbox (aggregate_type, aggregate_id, event_type, payload) VALUES ('order', $1::int % 7, 'Placed', to_jsonb($1::int))`, n); err != nil {
				t.Error(err)
				break
			}
		}
		ended <- n - 1
	}()
	return ended, stop
}

// What committed before the slot comes from the snapshot, the rest from the stream: each row
// once, and the rows of a key in order.
func TestBackfill_SnapshotAndStreamHaveEachRowOnce(t *testing.T) {
	t.Parallel()
	for _, version := range harness.VersionsFor(t) {
		for name, how := range map[string]string{"plain": "CDC_RELAY_RELAY_ON_BLOCKED=wait", "detect_moved_slot": keeping["detect_moved_slot"], "exactly_once": keeping["exactly_once"]} {
			t.Run(version+" "+name, func(t *testing.T) {
				t.Parallel()
				k := newOld(t, version, how)
				k.write(t, 1, 5000)
				got := invoke(t, k.env, "backfill", "--all")
				got.want(t, exitOK, "nothing was changed", "")
				if slots := k.slots(t); slots != "" {
					t.Fatalf("a plan made %s", slots)
				}
				written, stop := k.writesOn(t, 5001)
				invoke(t, k.env, "backfill", "--all", "--yes").want(t, exitOK, "rows from before the slot sent", "")
				if slots := k.slots(t); slots != k.slot {
					t.Fatalf("there is %q", slots)
				}
				stop()
				last := <-written
				k.write(t, last+1, last+500)
				k.runsUntil(t, "order-events", last+500)
				eachOnce(t, k.brokers.Read(t, "order-events"), last+500)
				if how != keeping["exactly_once"] && how != keeping["detect_moved_slot"] {
					return
				}
				k.how = how
				if told := k.told(t); !strings.Contains(told, "unknown") || !strings.Contains(told, "sent") {
					t.Errorf("the topic has %q", told)
				}
			})
		}
	}
}

// While only the slot of a backfill is there neither run nor setup goes on, and both name the
// way out.
func TestBackfill_RunRefusesHalf(t *testing.T) {
	t.Parallel()
	for _, shards := range []string{"1", "2"} {
		t.Run(shards, func(t *testing.T) {
			t.Parallel()
			k := newOld(t, "18", keeping["detect_moved_slot"], "CDC_RELAY_POSTGRES_SHARDS="+shards)
			k.write(t, 1, 20)
			invoke(t, k.env, "backfill", "--all", "--yes", "--order", "id").want(t, exitOK, "20 rows", "")
			invoke(t, k.env, "backfill", "--all").want(t, exitOK, "complete", "")
			names := strings.Fields(k.slots(t))
			if len(names) != len(shards)+int(shards[0]-'1') {
				t.Fatalf("there is %q", names)
			}
			// As if the last call had ended before it made the slots.
			k.db.Exec(t, "SELECT pg_copy_logical_replication_slot($1::name, $2::name)", names[0], k.slot+"_backfill")
			for _, name := range names {
				k.db.Exec(t, "SELECT pg_drop_replication_slot($1)", name)
			}
			refused := invoke(t, k.env, "run")
			refused.want(t, exitRefused, "", "cdc-relay backfill --yes")
			if !strings.Contains(refused.stderr, "slot_missing") {
				t.Errorf("no reason in %s", refused.stderr)
			}
			if shards == "2" {
				refused.want(t, exitRefused, "", "look at the slots of 2 shards: the slot does not exist")
			}
			invoke(t, k.env, "setup").want(t, exitRefused, "", "cdc-relay backfill --yes")
			invoke(t, k.env, "check").want(t, exitRefused, "cdc-relay backfill --yes", "")
			invoke(t, k.env, "backfill", "--yes").want(t, exitOK, "20 rows", "")
			if got := strings.Fields(k.slots(t)); !slices.Equal(got, names) {
				t.Errorf("there is %q, want %q", got, names)
			}
			k.write(t, 21, 40)
			k.runsUntil(t, "order-events", 40)
			eachOnce(t, k.brokers.Read(t, "order-events"), 40)
		})
	}
}

// Where there is a slot, or another backfill, nothing is touched.
func TestBackfill_RefusesWhatIsNotTheFirstSetUp(t *testing.T) {
	t.Parallel()
	k := newOld(t, "15", keeping["detect_moved_slot"])
	k.write(t, 1, 5)
	invoke(t, k.env, "setup").want(t, exitOK, "cdc-relay backfill", "")
	invoke(t, k.env, "backfill", "--all", "--yes").want(t, exitRefused, "", "exists")
	if n := len(k.brokers.Read(t, "order-events")); n != 0 {
		t.Errorf("%d records", n)
	}
	// A slot that setup made, and no relay streamed from, is no obstacle once it is dropped.
	k.db.Exec(t, "SELECT pg_drop_replication_slot($1)", k.slot)
	invoke(t, k.env, "backfill", "--all", "--yes").want(t, exitOK, "5 rows", "")
	k.write(t, 6, 9)
	k.runsUntil(t, "order-events", 9)
	eachOnce(t, k.brokers.Read(t, "order-events"), 9)
}

// What makes no sense is refused before anything is touched, and says what does.
func TestBackfill_RefusesBadInput(t *testing.T) {
	t.Parallel()
	k := newOld(t, "15")
	k.write(t, 1, 5)
	plain := harness.Unique(t, "plain")
	k.db.Exec(t, "CREATE TABLE "+plain+" (aggregate_type text, aggregate_id text, event_type text, payload jsonb, id uuid NOT NULL)")
	k.db.Exec(t, "CREATE VIEW seen AS SELECT * FROM outbox; CREATE UNLOGGED TABLE fleeting (LIKE outbox)")
	other := func(table string) []string {
		return append(slices.Clone(k.env), "CDC_RELAY_OUTBOX_TABLE="+table)
	}
	for name, c := range map[string]struct {
		env  []string
		args []string
		code int
		says string
	}{
		"nothing says which rows":          {k.env, nil, exitUsage, "--all"},
		"two ways":                         {k.env, []string{"--all", "--where", "true"}, exitUsage, "only one"},
		"an empty where":                   {k.env, []string{"--where", ""}, exitUsage, "--all"},
		"no mark":                          {k.env, []string{"--unpublished"}, exitUsage, "--where"},
		"another table":                    {k.env, []string{"--all", "--table", "other"}, exitUsage, "public.outbox"},
		"no table's name":                  {k.env, []string{"--all", "--table", `a"b`}, exitUsage, "--table"},
		"a negative rate":                  {k.env, []string{"--all", "--max-rate", "-1"}, exitUsage, "--max-rate"},
		"an order that is not there":       {k.env, []string{"--all", "--order", "nowhere"}, exitUsage, "aggregate_id"},
		"an order twice":                   {k.env, []string{"--all", "--order", "id,id"}, exitUsage, "twice"},
		"a where that is no SQL":           {k.env, []string{"--where", "id >"}, exitUsage, "42601"},
		"a where of another column":        {k.env, []string{"--where", "nowhere = 1"}, exitUsage, "nowhere"},
		"a where that is a number":         {k.env, []string{"--where", "id"}, exitUsage, "boolean"},
		"a where that leaves":              {k.env, []string{"--where", "true) or (true"}, exitUsage, "42601"},
		"a where that comments":            {k.env, []string{"--where", "true) --"}, exitUsage, "42601"},
		"two statements":                   {k.env, []string{"--where", "true; DROP TABLE outbox"}, exitUsage, "42601"},
		"a where that writes":              {k.env, []string{"--where", "setval('outbox_id_seq', 1) > 0"}, exitUsage, "SQLSTATE"},
		"a where that locks":               {k.env, []string{"--where", "id IN (SELECT id FROM outbox FOR UPDATE)"}, exitUsage, "SQLSTATE"},
		"a where that counts":              {k.env, []string{"--where", "count(*) > 1"}, exitUsage, "42803"},
		"a where with a parameter":         {k.env, []string{"--where", "id = $1"}, exitUsage, "parameter"},
		"a where that divides by zero":     {k.env, []string{"--where", "1 / (id - 3) > 0"}, exitUsage, "22012"},
		"a table without a key":            {other("public." + plain), []string{"--all", "--yes"}, exitRefused, "--accept-order"},
		"a key that is no order":           {append(other("public."+plain), keeping["exactly_once"]), []string{"--all", "--yes", "--accept-order"}, exitRefused, "unique key"},
		"a view":                           {other("public.seen"), []string{"--all"}, exitRefused, "view"},
		"an unlogged table":                {other("public.fleeting"), []string{"--all"}, exitRefused, "UNLOGGED"},
		"a missing table":                  {other("public.nowhere"), []string{"--all"}, exitRefused, "does not exist"},
		"a name that is too long":          {append(slices.Clone(k.env), "CDC_RELAY_POSTGRES_SLOT="+strings.Repeat("x", 60)), []string{"--all"}, exitUsage, "shorter"},
		"a comment at the end is a remark": {k.env, []string{"--where", "id > 2 -- three"}, exitOK, ""},
	} {
		t.Run(name, func(t *testing.T) {
			got := invoke(t, c.env, append([]string{"backfill"}, c.args...)...)
			got.want(t, c.code, "", c.says)
			if strings.Contains(got.stderr, "Placed") {
				t.Errorf("a row is in %s", got.stderr)
			}
		})
	}
	const needs = "none: by the place in the table; --yes needs --accept-order"
	invoke(t, other("public."+plain), "backfill", "--all").want(t, exitOK, needs, "")
	if got := invoke(t, other("public."+plain), "backfill", "--all", "--accept-order"); got.code != exitOK || strings.Contains(got.stdout, "--yes needs") {
		t.Errorf("with --accept-order it ends with %d and says\n%s", got.code, got.stdout)
	}
	if slots := k.slots(t); slots != "" {
		t.Errorf("there is %s", slots)
	}
	if n := harness.Query[int64](t, k.db, "SELECT count(*) FROM pg_publication"); n != 0 {
		t.Errorf("%d publications", n)
	}
	if last := harness.Query[int64](t, k.db, "SELECT last_value FROM outbox_id_seq"); last != 5 {
		t.Errorf("the condition wrote: %d", last)
	}
}

// A role with the printed grants can run the backfill. One without them gets an error that names the grant.
func TestBackfill_PrintedGrantsAreEnough(t *testing.T) {
	t.Parallel()
	for _, version := range harness.VersionsFor(t) {
		t.Run(version, func(t *testing.T) {
			t.Parallel()
			k := newOld(t, version, keeping["detect_moved_slot"])
			k.write(t, 1, 9)
			role := harness.Unique(t, "least")
			defer func() {
				k.db.Exec(t, "DROP OWNED BY "+role)
				k.db.Exec(t, "DROP ROLE "+role)
			}()
			printed := invoke(t, k.env, "sql", "--for", "backfill", "--role", role)
			printed.want(t, exitOK, "GRANT SELECT", "")
			if strings.Contains(printed.stdout, "pg_create_logical_replication_slot") {
				t.Errorf("it makes the slot:\n%s", printed.stdout)
			}
			k.db.Exec(t, strings.ReplaceAll(printed.stdout, `\set ON_ERROR_STOP on`, ""))
			env := append(slices.Clone(k.env), "CDC_RELAY_POSTGRES_URL="+strings.Replace(k.db.URL, "postgres@", role+"@", 1))
			k.db.Exec(t, "REVOKE SELECT ON outbox FROM "+role)
			invoke(t, env, "backfill", "--all").want(t, exitRefused, "", "sql --for backfill")
			k.db.Exec(t, "GRANT SELECT ON outbox TO "+role)
			invoke(t, env, "backfill", "--all", "--yes").want(t, exitOK, "9 rows", "")
			eachOnce(t, k.brokers.Read(t, "order-events"), 9)
		})
	}
	invoke(t, nil, "sql", "--for", "elsewhere").want(t, exitUsage, "", "allowed: backfill")
}

// Killed wherever it is, it goes on with the next call.
func TestBackfill_KilledGoesOn(t *testing.T) {
	t.Parallel()
	executable, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	for name, how := range keeping {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			k := newOld(t, "18", how)
			k.write(t, 1, 8000)
			for kill := 1; kill <= 3; kill++ {
				var log output
				program := exec.CommandContext(t.Context(), executable, "backfill", "--all", "--yes", "--max-rate", "500") // far from done when it is killed
				program.Env, program.Stderr = append(slices.Clone(k.env), "HOME=/nonexistent", asProgram+"=1"), &log
				before := len(k.brokers.Read(t, "order-events"))
				if err := program.Start(); err != nil {
					t.Fatal(err)
				}
				k.await(t, "more records", func() bool { return len(k.brokers.Read(t, "order-events")) >= before+500 })
				_ = program.Process.Kill()
				_ = program.Wait() // it was killed
				released(t, k.db)
				unlocked(t, k.db)
				if n := harness.Query[int64](t, k.db, `SELECT count(*) FROM pg_replication_slots WHERE slot_name LIKE '%\_backfill'`); n == 0 {
					t.Fatal("the backfill ended before it was killed")
				}
				invoke(t, k.env, "run").want(t, exitRefused, "", "backfill")
				k.write(t, 8000+100*(kill-1)+1, 8000+100*kill)
			}
			invoke(t, k.env, "backfill", "--yes").want(t, exitOK, "from before the slot sent", "")
			k.write(t, 8301, 8400)
			_, stop := k.start(t, nil)
			seen := func() map[int]bool {
				all := make(map[int]bool)
				for _, list := range numbers(t, k.committed(t, "order-events")) {
					for _, n := range list {
						all[n] = true
					}
				}
				return all
			}
			k.await(t, "everything is there", func() bool { return len(seen()) >= 8400 })
			if code := stop(); code != exitOK {
				t.Errorf("run ended with %d", code)
			}
			records := k.committed(t, "order-events")
			if how == keeping["exactly_once"] {
				eachOnce(t, records, 8400)
				return
			}
			if n := len(records); n > 8400+3*(500+2*1024)+300 {
				t.Errorf("%d records: more than a second's rows were sent again each time", n)
			}
		})
	}
}

// Rows that backfill --late sends beside a relay are no repetitions to an audit.
func TestBackfill_LateIsNoRepetitionToAnAudit(t *testing.T) {
	t.Parallel()
	k := newDelivered(t, "18", 20, keeping["detect_moved_slot"])
	_, stop := k.start(t, nil)
	defer stop()
	invoke(t, k.env, "backfill", "--late", "--all", "--yes").want(t, exitUsage, "", "--late takes no --all")
	invoke(t, k.env, "backfill", "--all", "--to-topic", "x").want(t, exitUsage, "", "--to-topic is for --late")
	invoke(t, k.env, "backfill", "--late", "--where", "id <= 5", "--yes").want(t, exitRefused, "", "use --to-topic or --accept-order")
	invoke(t, k.env, "backfill", "--late", "--where", "id <= 5", "--accept-order", "--yes").want(t, exitOK, "sent 5 rows, marked with the header cdc-relay-backfill", "")
	if got := len(k.brokers.Read(t, "order-events")); got != 25 {
		t.Errorf("%d records", got)
	}
	invoke(t, k.env, "audit", "--expect", "once").want(t, exitOK, "proven 20 of 20", "")
}

// backfill --late sends old rows behind newer ones of their keys. An audit does not compare the order of these
// rows, and says so.
func TestBackfill_LateIsSaidToHaveNoOrderByAnAudit(t *testing.T) {
	t.Parallel()
	k := newOld(t, "18", keeping["detect_moved_slot"])
	k.write(t, 1, 5)
	invoke(t, k.env, "setup").want(t, exitOK, "", "")
	_, stop := k.start(t, nil)
	defer stop()
	k.write(t, 6, 20)
	k.await(t, "15 records", func() bool { return len(k.committed(t, "order-events")) == 15 })
	late := invoke(t, k.env, "backfill", "--late", "--where", "id <= 5", "--accept-order", "--yes")
	late.want(t, exitOK, "sent 5 rows", "")
	audited := invoke(t, k.env, "audit", "--expect", "once")
	audited.want(t, exitOK, "5 rows that only replay or backfill --late sent", "")
	audited.want(t, exitOK, "proven 20 of 20", "")
}
