package main

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"testing"

	"github.com/cdc-relay/cdc-relay/advice"
	"github.com/cdc-relay/cdc-relay/test/harness"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/sr"
	"github.com/twmb/franz-go/pkg/sr/srfake"
)

// newRegistry is one in the process of the test, and the variables that have a table encoded by it.
func newRegistry(t *testing.T, options ...srfake.Option) (*srfake.Registry, []string) {
	r := srfake.New(options...)
	t.Cleanup(r.Close)
	return r, []string{"CDC_RELAY_OUTBOX_VALUE=avro", "CDC_RELAY_KAFKA_REGISTRY_URL=" + r.URL()}
}

func register(t *testing.T, r *srfake.Registry, subject, schema string) (id int) {
	t.Helper()
	id, _, err := r.RegisterSchema(subject, sr.Schema{Schema: schema})
	if err != nil {
		t.Fatal(err)
	}
	return id
}

// plain are records whose values are Avro ints, with those in JSON.
func plain(t *testing.T, id int, records []*kgo.Record) (out []*kgo.Record) {
	t.Helper()
	for _, r := range records {
		if len(r.Value) < 6 || r.Value[0] != 0 || int(binary.BigEndian.Uint32(r.Value[1:])) != id {
			t.Fatalf("value %x is not one of schema %d", r.Value, id)
		}
		n, size := binary.Varint(r.Value[5:])
		if size != len(r.Value)-5 {
			t.Fatalf("value %x has something behind the number", r.Value)
		}
		read := *r
		read.Value = strconv.AppendInt(nil, n, 10)
		out = append(out, &read)
	}
	return out
}

func TestExplain_ShowsTheSchemaAndTheValueReadBack(t *testing.T) {
	db, env := shop(t, ourTable)
	db.Exec(t, strings.Replace(ourRow, `{"total": 12.50, "note": "1\n2"}`, `{"n": 3}`, 1))
	r, more := newRegistry(t)
	env = append(env, more...)
	invoke(t, env, "explain").want(t, exitRefused, "the newest row is not encoded", "")
	register(t, r, "order-events-value", `"string"`)
	register(t, r, "order-events-value", orderSchema)
	got := invoke(t, env, "explain")
	got.want(t, exitOK, "subject order-events-value, version 2, id 2", "")
	got.want(t, exitOK, `decoded    {"n":3}`, "")
	var report struct {
		Tables []struct {
			Record struct {
				Schema, Decoded string
			}
		}
	}
	asJSON := invoke(t, env, "explain", "--json")
	if err := json.Unmarshal([]byte(asJSON.stdout), &report); err != nil || len(report.Tables) != 1 {
		t.Fatalf("%v in %s", err, asJSON.stdout)
	}
	if rec := report.Tables[0].Record; rec.Schema != "subject order-events-value, version 2, id 2" || rec.Decoded != `{"n":3}` {
		t.Errorf("%+v in %s", rec, asJSON.stdout)
	}
	invoke(t, env, "explain", "--set", "outbox[0].schema.version=1").want(t, exitRefused, "would be rejected: $: the schema wants string, the payload has an object", "")
	invoke(t, env, "explain", "--set", "kafka.registry.url=http://127.0.0.1:1").want(t, exitRefused, "the newest row is not encoded", "")
}

// Each thing that keeps rows from their schema is a finding of its own.
func TestCheck_LooksAtTheRegistry(t *testing.T) {
	l, env := clinic(t, ourOutbox)
	l.db.Exec(t, `INSERT INTO outbox (aggregate_type, aggregate_id, event_type, payload) SELECT 'order', gen_random_uuid(), 'Placed', jsonb_build_object('n', n) FROM generate_series(1, 3) n`)
	r, more := newRegistry(t, srfake.WithAuth("Basic cmVsYXk6"))
	env = append(append(env, more...), "CDC_RELAY_KAFKA_REGISTRY_USERNAME=relay")

	checkUp(t, env, "--set", "kafka.registry.url=http://127.0.0.1:1").want(t, "registry.connection", advice.Fail, "public.outbox", "registry_unreachable", "start the registry")
	checkUp(t, env, "--set", "kafka.registry.username=somebody").want(t, "registry.auth", advice.Fail, "registry_refused", "correct kafka.registry.username")
	checkUp(t, env).want(t, "registry.subject", advice.Fail, "order-events-value", "unknown_subject", "register the schema")
	if _, _, err := r.RegisterSchema("order-events-value", sr.Schema{Schema: `{"type": "object"}`, Type: sr.TypeJSON}); err != nil {
		t.Fatal(err)
	}
	checkUp(t, env).want(t, "registry.schema", advice.Fail, "the schema is JSON, and the table is encoded as AVRO", "schema_unusable")

	id := register(t, r, "order-events-value", orderSchema)
	got := checkUp(t, env)
	got.want(t, "registry.schema", advice.OK, fmt.Sprintf("public.outbox: subject order-events-value, version 2, id %d", id))
	got.want(t, "table.rows", advice.OK, "the 3 newest rows routed on trial")

	l.db.Exec(t, `INSERT INTO outbox (aggregate_type, aggregate_id, event_type, payload) VALUES ('order', gen_random_uuid(), 'Placed', '{"n": "many"}')`)
	got = checkUp(t, env)
	got.want(t, "table.rows", advice.Fail, "1 of the 4 newest rows would be rejected", "$.n: the schema wants int, the payload has a string", "reason encode", "blocks the relay")
	checkUp(t, env, "--set", "relay.on_reject=dead_letter").want(t, "table.rows", advice.Warn, "goes to the dead letters")
	for _, f := range got.Findings {
		if strings.Contains(f.Seen+f.Advice, "many") {
			t.Errorf("%s shows the payload: %s", f.Check, f.Seen)
		}
	}
}

// What is compared is the value that the version makes; the latest one may be another than that of
// the record, so then no value is, and the audit says so.
func TestAudit_ComparesValuesOfAPinnedVersion(t *testing.T) {
	t.Parallel()
	r, more := newRegistry(t)
	id := register(t, r, "order-events-value", `"int"`)
	a := newAudited(t, "18", append(more, keeping["detect_moved_slot"])...)
	invoke(t, a.env, "setup").want(t, exitOK, "", "")
	a.write(t, 1, 50)
	_, stop := a.start(t, nil)
	a.await(t, "50 records", func() bool { return len(a.brokers.Read(t, "order-events")) >= 50 })
	eachOnce(t, plain(t, id, a.brokers.Read(t, "order-events")), 50)
	stop() // a relay at work may see the publication without the table
	released(t, a.db)
	a.unseen(t, func() {
		a.row(t, 60, "order", "x")
		a.row(t, 61, "order", "y")
	})
	_, stop = a.start(t, nil)
	defer stop()
	framed := func(n int64) string {
		return string(binary.AppendVarint(binary.BigEndian.AppendUint32([]byte{0}, uint32(id)), n))
	}
	a.put(t, "order-events", 0, "60", "x", framed(60))
	a.put(t, "order-events", 0, "61", "y", framed(6100))
	pinned := []string{"--set", "outbox.schema.version=1"}
	a.finds(t, exitOK, 1, 60, 51, map[string]int64{}, pinned...)
	a.finds(t, exitBlocked, 61, 61, 0, map[string]int64{"differs": 1}, pinned...)

	register(t, r, "order-events-value", `"long"`)
	a.finds(t, exitBlocked, 1, 1, 0, map[string]int64{"differs": 1}, "--set", "outbox.schema.version=2") // another number
	a.finds(t, exitOK, 1, 61, 52, map[string]int64{})
	invoke(t, a.env, "audit").want(t, exitOK, "", "values are not compared, because a table is encoded by the latest version of a schema")
}

func TestBackfill_AndReplayEncodeByTheSchema(t *testing.T) {
	t.Parallel()
	for name, how := range map[string]string{"plain": "CDC_RELAY_RELAY_ON_BLOCKED=wait", "exactly_once": keeping["exactly_once"]} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r, more := newRegistry(t)
			k := newOld(t, "18", append(more, how)...)
			k.write(t, 1, 300)
			first := register(t, r, "order-events-value", `"int"`)
			invoke(t, k.env, "backfill", "--all", "--yes").want(t, exitOK, "rows from before the slot sent", "")
			k.write(t, 301, 400)
			k.runsUntil(t, "order-events", 400)
			eachOnce(t, plain(t, first, k.committed(t, "order-events")), 400)
			released(t, k.db)

			second := register(t, r, "order-events-value", `"long"`)
			invoke(t, k.env, "replay", "--where", "id > 393", "--yes").want(t, exitOK, "sent 7 rows again", "")
			sent := k.committed(t, "order-events")
			if got := again(plain(t, second, sent[len(sent)-7:])); strings.Join(got, " ") != "394 395 396 397 398 399 400" {
				t.Errorf("by the latest version it sent %q", got)
			}
			invoke(t, k.env, "replay", "--where", "id = 400", "--yes", "--set", "outbox.schema.version=1").want(t, exitOK, "sent 1 row again", "")
			sent = k.committed(t, "order-events")
			if got := again(plain(t, first, sent[len(sent)-1:])); strings.Join(got, " ") != "400" {
				t.Errorf("by version 1 it sent %q", got)
			}
		})
	}
}

// A row from before the slot is not at fault either; the command goes on once the schema is there.
func TestBackfill_NamesTheSchemaThatIsMissing(t *testing.T) {
	t.Parallel()
	r, more := newRegistry(t)
	k := newOld(t, "18", append(more, "CDC_RELAY_RELAY_ON_REJECT=dead_letter", "CDC_RELAY_RELAY_DEAD_LETTER_TOPIC="+harness.Unique(t, "letters"))...)
	k.write(t, 1, 20)
	got := invoke(t, k.env, "backfill", "--all", "--yes")
	got.want(t, exitBlocked, "", "row of table public.outbox at id = 1: ask the schema registry for subject order-events-value")
	got.want(t, exitBlocked, "", "correct outbox[].schema.subject and version; then run the command again (reason unknown_subject)")
	if strings.Contains(got.stderr, "leave the row out") || strings.Contains(got.stderr, "by itself") {
		t.Errorf("it blames the row: %s", got.stderr)
	}
	id := register(t, r, "order-events-value", `"int"`)
	invoke(t, k.env, "backfill", "--all", "--yes").want(t, exitOK, "rows from before the slot sent", "")
	eachOnce(t, plain(t, id, k.committed(t, "order-events")), 20)
}

// Rows that did not fit are encoded by the schema that was corrected, in the place of their letters.
func TestDeadletter_RedriveUsesTheCorrectedSchema(t *testing.T) {
	t.Parallel()
	r, more := newRegistry(t)
	register(t, r, "order-events-value", `"int"`)
	letters := harness.Unique(t, "letters")
	k := newOld(t, "18", append(more, "CDC_RELAY_RELAY_ON_REJECT=dead_letter", "CDC_RELAY_RELAY_DEAD_LETTER_TOPIC="+letters)...)
	invoke(t, k.env, "setup").want(t, exitOK, "", "")
	k.write(t, 1, 1)
	k.db.Exec(t, `INSERT INTO outbox (aggregate_type, aggregate_id, event_type, payload) VALUES ('order', 'k', 'Placed', '3000000000')`) // beyond an int
	k.write(t, 2, 2)
	k.runsUntil(t, "order-events", 2)
	released(t, k.db)
	invoke(t, k.env, "deadletter", "list").want(t, exitOK, "1 of 1 dead letter waiting", "")
	invoke(t, k.env, "deadletter", "show").want(t, exitOK, "$: the schema wants int", "")

	still := invoke(t, k.env, "deadletter", "redrive", "--all", "--yes")
	if still.code == exitOK || len(k.brokers.Read(t, "order-events")) != 2 {
		t.Errorf("the schema is the same, and it ended with %d:\n%s%s", still.code, still.stdout, still.stderr)
	}
	invoke(t, k.env, "deadletter", "list").want(t, exitOK, "1 of 1 dead letter waiting", "")

	id := register(t, r, "order-events-value", `"long"`)
	invoke(t, k.env, "deadletter", "redrive", "--all", "--yes").want(t, exitOK, "", "")
	sent := k.brokers.Read(t, "order-events")
	if len(sent) != 3 || string(plain(t, id, sent[2:])[0].Value) != "3000000000" {
		t.Errorf("%d records are there", len(sent))
	}
	invoke(t, k.env, "deadletter", "list").want(t, exitOK, "0 of 0 dead letters", "")
}
