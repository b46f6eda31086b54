package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/cdc-relay/cdc-relay/advice"
	"github.com/cdc-relay/cdc-relay/explain"
	"github.com/cdc-relay/cdc-relay/relay/status"
	"github.com/cdc-relay/cdc-relay/sandbox"
	"github.com/cdc-relay/cdc-relay/test/harness"
	"github.com/jackc/pgx/v5"
	"github.com/twmb/franz-go/pkg/kadm"
)

// checked is what check --json printed.
type checked struct {
	OK, Warn, Fail int
	Findings       advice.Findings
	Records        []map[string]any
	code           int
}

func checkUp(t *testing.T, env []string, args ...string) checked {
	t.Helper()
	got := invoke(t, env, append([]string{"check", "--json"}, args...)...)
	var out checked
	if err := json.Unmarshal([]byte(got.stdout), &out); err != nil {
		t.Fatalf("%v in %q; standard error: %s", err, got.stdout, got.stderr)
	}
	out.code = got.code
	if want := map[bool]int{true: exitRefused, false: exitOK}[out.Fail > 0]; got.code != want {
		t.Errorf("exit code %d with %d failures, want %d", got.code, out.Fail, want)
	}
	if out.OK+out.Warn+out.Fail != len(out.Findings) {
		t.Errorf("%d ok, %d warn, %d fail of %d findings", out.OK, out.Warn, out.Fail, len(out.Findings))
	}
	return out
}

func (c checked) want(t *testing.T, check string, level advice.Level, texts ...string) {
	t.Helper()
	var all strings.Builder
	for _, f := range c.Findings {
		fmt.Fprintf(&all, "%s\t%s\t%s; %s\n", f.Level, f.Check, f.Seen, f.Advice)
		found := f.Check == check && f.Level == level
		for _, text := range texts {
			found = found && strings.Contains(f.Seen+"; "+f.Advice, text)
		}
		if found {
			return
		}
	}
	t.Errorf("no %s of %s has %q:\n%s", level, check, texts, all.String())
}

// clinic is a set-up system whose relay connects as a role of its own.
func clinic(t *testing.T, sql string) (*life, []string) {
	t.Helper()
	l := newLife(t)
	l.brokers = harness.Kfake(t, sandbox.KafkaOptions{Brokers: 3})
	l.db.Exec(t, sql)
	env := slices.DeleteFunc(slices.Clone(l.env), func(v string) bool { return strings.HasPrefix(v, "CDC_RELAY_KAFKA_CREATE_TOPICS_") })
	env = append(env, "CDC_RELAY_KAFKA_BROKERS="+strings.Join(l.brokers.Addrs, ","))
	invoke(t, env, "setup").want(t, exitOK, "", "")
	role := harness.Unique(t, "doctor")
	l.db.Exec(t, "CREATE ROLE "+role+" LOGIN REPLICATION")
	l.db.Exec(t, "GRANT pg_read_all_data TO "+role)
	url := strings.Replace(l.db.URL, "://"+userOf(l.db.URL), "://"+role, 1)
	t.Cleanup(func() { dropRole(t, l.db.Server.URL("postgres"), role) })
	return l, append(env, "CDC_RELAY_POSTGRES_URL="+url)
}

// misfit is a clinic whose table was replaced since setup, which refuses one like it.
func misfit(t *testing.T, sql string) []string {
	t.Helper()
	l, env := clinic(t, ourOutbox)
	l.db.Exec(t, "DROP TABLE outbox; "+sql+"; ALTER PUBLICATION cdc_relay ADD TABLE outbox")
	return env
}

func userOf(url string) string {
	_, rest, _ := strings.Cut(url, "://")
	user, _, _ := strings.Cut(rest, "@")
	return user
}

func (l *life) topics(t *testing.T, settings map[string]string, names ...string) {
	t.Helper()
	configs := make(map[string]*string)
	for name, value := range settings {
		configs[name] = kadm.StringPtr(value)
	}
	made, err := l.brokers.Admin(t).CreateTopics(t.Context(), 3, 3, configs, names...)
	if err == nil {
		err = made.Error()
	}
	if err != nil {
		t.Fatal(err)
	}
}

var twoOfThree = map[string]string{"min.insync.replicas": "2"}

const ourOutbox = `CREATE TABLE outbox (
	id uuid PRIMARY KEY DEFAULT gen_random_uuid(), aggregate_type varchar(100) NOT NULL, aggregate_id uuid NOT NULL, event_type varchar(100) NOT NULL,
	payload jsonb NOT NULL, idempotency_key varchar(255) UNIQUE, created_at timestamptz NOT NULL DEFAULT now(), published_at timestamptz, retry_count int DEFAULT 0, last_error text)`

// A server that takes connections and says nothing uses up the time; the brokers are not
// to blame. A check that is interrupted prints no verdict.
func TestCheck_BlamesNobodyThatItDidNotLookAt(t *testing.T) {
	listen := func() net.Listener {
		listener, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = listener.Close() })
		return listener
	}
	silent := func(at net.Listener) []string {
		return append(slices.Clone(closedPorts), "CDC_RELAY_POSTGRES_URL=postgres://relay@"+at.Addr().String()+"/shop?sslmode=disable")
	}
	first, second := listen(), listen()
	got := invoke(t, silent(first), "check", "--timeout", "300ms")
	got.want(t, exitRefused, "fail  kafka.connection     not looked at: the 300ms of --timeout are over", "")
	if strings.Contains(got.stdout, "start the brokers") {
		t.Errorf("the brokers are blamed:\n%s", got.stdout)
	}
	stopped, stop := context.WithCancel(t.Context())
	defer stop()
	go func() { // once it asks the server, and not while it reads the configuration
		if conn, err := second.Accept(); err == nil {
			defer conn.Close()
			stop()
			<-t.Context().Done()
		}
	}()
	got = invokeWithin(stopped, t, silent(second), "check")
	got.want(t, exitFailed, "", "cdc-relay: check: interrupted by a signal; run it again for a result")
	if got.stdout != "" {
		t.Errorf("a verdict:\n%s", got.stdout)
	}
}

func TestCheck_FindsNothingOnAHealthySystem(t *testing.T) {
	l, env := clinic(t, ourOutbox)
	l.insert(t, 20)
	l.topics(t, twoOfThree, "order-events")
	got := checkUp(t, env)
	for _, f := range got.Findings {
		if f.Level != advice.OK {
			t.Errorf("on a healthy system: %+v", f)
		}
	}
	got.want(t, "configuration", advice.OK, "the environment")
	got.want(t, "table.mapping", advice.OK, "public.outbox", "preset outbox", "${aggregate_type}-events", "aggregate_id")
	got.want(t, "table.rows", advice.OK, "20 newest rows", "order-events")
	got.want(t, "table.payload_size", advice.OK, "9 bytes")
	got.want(t, "slot", advice.OK)
	got.want(t, "topic", advice.OK, "order-events", "3 partitions with 3 replicas")
	if len(got.Records) != 0 {
		t.Error("records are shown though nobody asked")
	}

	text := invoke(t, env, "check")
	text.want(t, exitOK, "0 warn, 0 fail", "")
	text.want(t, exitOK, "ok  table.mapping", "")
	if strings.Contains(text.stdout, `{"n"`) {
		t.Errorf("a payload is shown though nobody asked:\n%s", text.stdout)
	}
	invoke(t, env, "check", "--show-record").want(t, exitOK, `{"n": 20}`, "")
	if shown := checkUp(t, env, "--show-record"); len(shown.Records) != 1 || shown.Records[0]["topic"] != "order-events" {
		t.Errorf("records %v", shown.Records)
	}
}

func TestCheck_OfflineTouchesNoServer(t *testing.T) {
	got := checkUp(t, closedPorts, "--offline")
	got.want(t, "configuration", advice.OK, "the environment")
	if got.Fail != 0 || len(got.Records) != 0 {
		t.Errorf("%+v", got)
	}
	for _, f := range got.Findings {
		if f.Check != "configuration" {
			t.Errorf("offline: %+v", f)
		}
	}
	invoke(t, closedPorts, "check", "--offline", "--set", "postgres.slot=No").want(t, exitUsage, "", "postgres.slot")
	invoke(t, closedPorts, "check", "--offline", "--set", "outbox[0].topic=${x").want(t, exitUsage, "", "topic")
	weak := append(closedPorts[1:], "CDC_RELAY_POSTGRES_URL=postgres://relay@db.example.com/shop?sslmode=disable")
	checkUp(t, weak, "--offline").want(t, "configuration", advice.Warn, "sslmode=disable")
}

func TestCheck_SaysWhatIsUnreachable(t *testing.T) {
	got := checkUp(t, closedPorts)
	got.want(t, "postgres.connection", advice.Fail, "127.0.0.1:1")
	got.want(t, "kafka.connection", advice.Fail, "127.0.0.1:1")
	for _, f := range got.Findings {
		if f.Check == "deadletter.order" {
			t.Errorf("the brokers that are away are named twice: %+v", f)
		}
	}
	invoke(t, closedPorts, "check").want(t, exitRefused, "2 fail", "")
}

func TestCheck_RowsThatCannotBecomeRecords(t *testing.T) {
	l, env := clinic(t, `CREATE TABLE outbox (n bigint PRIMARY KEY, id uuid, aggregate_type text, aggregate_id text, event_type text, payload text)`)
	env = append(env, "CDC_RELAY_CONFIG="+writeFile(t, `outbox:
  - table: public.outbox
    topic: ${aggregate_type}-events
    columns: {id: id, key: aggregate_id, payload: payload, type: event_type}
    value: merged
    value_fields: {type: event_type}
`))
	env = explain.Without(env, []string{"CDC_RELAY_OUTBOX_TABLE=public.outbox"})
	l.topics(t, twoOfThree, "order-events")
	l.db.Exec(t, `INSERT INTO outbox VALUES
		(1, gen_random_uuid(), 'order', 'a', 'x', '{}'), (2, gen_random_uuid(), 'order', NULL, 'x', '{}'),
		(3, gen_random_uuid(), 'no spaces!', 'a', 'x', '{}'), (4, gen_random_uuid(), NULL, 'a', 'x', '{}'),
		(5, NULL, 'order', 'a', 'x', '{}'), (6, gen_random_uuid(), 'order', 'a', 'x', 'top secret, no JSON')`)
	got := checkUp(t, env)
	got.want(t, "table.keys", advice.Warn, "1 of the 6", "columns.key")
	got.want(t, "table.rows", advice.Fail, "1 of the 6", "no spaces!-events", "reason route", "each of them blocks the relay")
	got.want(t, "table.rows", advice.Fail, `"aggregate_type"`, "NULL", "reason route")
	got.want(t, "table.rows", advice.Fail, `"id", the event id, is NULL`)
	got.want(t, "table.rows", advice.Fail, "no JSON object", "reason encode")
	got.want(t, "topic", advice.OK, "order-events")
	for _, f := range got.Findings {
		if strings.Contains(f.Seen+f.Advice, "secret") {
			t.Errorf("a payload is shown: %+v", f)
		}
	}
	checkUp(t, env, "--set", "relay.on_reject=dead_letter").want(t, "table.rows", advice.Warn, "reason route", "each of them goes to the dead letters")
	checkUp(t, env, "--set", "relay.on_reject=skip", "--set", "relay.accept_loss=true").want(t, "table.rows", advice.Fail, "reason route", "each of them is lost")
}

func TestCheck_MappingsThatDoNotFit(t *testing.T) {
	for name, tt := range map[string]struct {
		table, set string
		texts      []string
	}{
		"nothing fits":        {`CREATE TABLE outbox (a int, b int)`, "", []string{"public.outbox"}},
		"column missing":      {ourOutbox, "outbox[0].columns.key=nobody", []string{"outbox[0].columns.key", `"nobody"`}},
		"generated payload":   {`CREATE TABLE outbox (id uuid, aggregate_type text, aggregate_id text, event_type text, body text, payload text GENERATED ALWAYS AS (upper(body)) STORED)`, "outbox[0].columns.payload=payload", []string{`column "payload" of table public.outbox is generated, which this server does not publish`, "write it as an ordinary column"}},
		"generated, by auto":  {`CREATE TABLE outbox (id uuid, aggregate_type text, aggregate_id text, event_type text, source text, payload text GENERATED ALWAYS AS (upper(source)) STORED)`, "", []string{`column "payload" of table public.outbox is generated, which this server does not publish`, "write it as an ordinary column"}},
		"composite key":       {`CREATE TYPE place AS (x int); CREATE DOMAIN spot AS place; CREATE TABLE outbox (id uuid, aggregate_type text, aggregate_id spot, event_type text, payload jsonb)`, "", []string{"outbox[0].columns.key", "type place", "map another column"}},
		"composite payload":   {`CREATE TYPE place AS (x int); CREATE TABLE outbox (id uuid, aggregate_type text, aggregate_id text, event_type text, payload place)`, "", []string{"outbox[0].columns.payload", "type place", "to_jsonb"}},
		"generated, by guess": {`CREATE TABLE outbox (id uuid, aggregate_type text, aggregate_id text, event_type text, body text, payload text GENERATED ALWAYS AS (upper(body)) STORED)`, "outbox[0].preset=outbox", []string{`preset outbox: column "payload" of table public.outbox is generated`, "write it as an ordinary column"}},
		"another's queue":     {`CREATE TABLE outbox ("Id" bigint, "Version" text, "Name" text, "Content" text, "Retries" int, "Added" timestamp, "ExpiresAt" timestamp, "StatusName" text)`, "", []string{"CAP", "a second time", "a table of their own"}},
		"large object":        {`CREATE TABLE outbox (id uuid, aggregate_type text, aggregate_id text, event_type text, payload oid)`, "", []string{"large object"}},
		"row without a name":  {`CREATE TABLE outbox (id uuid, aggregate_type text, aggregate_id text, event_type text, payload jsonb)`, "outbox[0].preset=frobnicate", nil},
	} {
		t.Run(name, func(t *testing.T) {
			env := misfit(t, tt.table)
			args := []string{}
			if tt.set != "" {
				args = []string{"--set", tt.set}
			}
			if tt.texts == nil { // the file is wrong, whatever the server has
				invoke(t, env, append([]string{"check"}, args...)...).want(t, exitUsage, "", "frobnicate")
				return
			}
			checkUp(t, env, args...).want(t, "table.mapping", advice.Fail, tt.texts...)
		})
	}
}

func TestCheck_NamesTheColumnListThatHidesAColumn(t *testing.T) {
	l, env := clinic(t, ourOutbox)
	l.db.Exec(t, `ALTER PUBLICATION cdc_relay SET TABLE outbox (id, aggregate_type, aggregate_id, event_type)`)
	got := checkUp(t, env, "--set", "outbox[0].preset=outbox", "--set", "outbox[0].columns.payload=payload")
	got.want(t, "table.mapping", advice.Fail, `"payload"`, "column list", `SET TABLE "public"."outbox"`)
}

func TestCheck_TopicsAndSizes(t *testing.T) {
	l, env := clinic(t, ourOutbox)
	checkUp(t, env).want(t, "topic", advice.OK, "no topic is known")
	l.insert(t, 3)
	checkUp(t, env).want(t, "topic", advice.Fail, "order-events", "does not exist")
	l.topics(t, map[string]string{"min.insync.replicas": "2", "max.message.bytes": "5000"}, "order-events")
	got := checkUp(t, env)
	got.want(t, "topic.max_message_bytes", advice.Warn, "order-events", "5000")
	l.db.Exec(t, `INSERT INTO outbox (aggregate_type, aggregate_id, event_type, payload, created_at)
		VALUES ('order', gen_random_uuid(), 'Large', to_jsonb(repeat('x', 9000)), now() - interval '1 year')`)
	got = checkUp(t, env, "--set", "kafka.max_message_bytes=4KiB")
	got.want(t, "kafka.max_message_bytes", advice.Fail, "9", "4096", "such a row blocks the relay")
	got = checkUp(t, env, "--set", "kafka.max_message_bytes=4KiB", "--set", "relay.on_reject=dead_letter")
	got.want(t, "kafka.max_message_bytes", advice.Warn, "9", "4096", "such a row goes to the dead letters")
	got = checkUp(t, env)
	got.want(t, "topic.max_message_bytes", advice.Fail, "order-events", "5000", "9002 bytes")
	fixed := checkUp(t, env, "--set", "outbox[0].topic=fixed")
	fixed.want(t, "topic", advice.Fail, "topic fixed does not exist")

	// What is too large to be read is no dead letter either.
	l.db.Exec(t, `INSERT INTO outbox (aggregate_type, aggregate_id, event_type, payload) VALUES ('order', gen_random_uuid(), 'Huge', to_jsonb(repeat('x', 1100000)))`)
	got = checkUp(t, env, "--set", "relay.max_row_bytes=1MiB", "--set", "kafka.max_message_bytes=4KiB", "--set", "relay.on_reject=dead_letter")
	got.want(t, "table.payload_size", advice.Fail, "1100002 bytes", "rows over 1048576", "raise relay.max_row_bytes")
}

// The server sends bytea in hexadecimal wherever a column of any table keeps the stream
// from the binary format, and counts so what it sends.
func TestCheck_CountsPayloadsAsTheServerSendsThem(t *testing.T) {
	for _, tt := range []struct {
		name, sql, route string
		level            advice.Level
		seen             string
	}{
		{"binary", "", "varchar(100)", advice.OK, "600000 bytes"},
		{"text", "CREATE DOMAIN kind AS varchar(100)", "kind", advice.Fail, "600000 bytes, which the server sends as 1200002 hexadecimal ones, and rows over 1048576"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			l, env := clinic(t, tt.sql+`; CREATE TABLE outbox (id uuid PRIMARY KEY DEFAULT gen_random_uuid(), aggregate_type `+tt.route+` NOT NULL,
				aggregate_id uuid NOT NULL, event_type varchar(100) NOT NULL, payload bytea NOT NULL)`)
			l.db.Exec(t, `INSERT INTO outbox (aggregate_type, aggregate_id, event_type, payload) VALUES ('order', gen_random_uuid(), 'Scanned', decode(repeat('00', 600000), 'hex'))`)
			checkUp(t, env, "--set", "relay.max_row_bytes=1MiB", "--set", "kafka.max_message_bytes=4KiB").want(t, "table.payload_size", tt.level, tt.seen)
		})
	}
}

// One round shows everything: also rows and topics of a table that is not published.
func TestCheck_LooksAtRowsThatNobodyPublishesYet(t *testing.T) {
	l, env := clinic(t, ourOutbox)
	l.insert(t, 3)
	l.db.Exec(t, `ALTER PUBLICATION cdc_relay SET (publish = 'update')`)
	got := checkUp(t, env)
	got.want(t, "publication.tables", advice.Fail, "does not publish inserts")
	got.want(t, "table.mapping", advice.OK, "public.outbox")
	got.want(t, "table.rows", advice.OK, "3 newest rows")
	got.want(t, "topic", advice.Fail, "order-events", "does not exist", "--bootstrap-server")
}

func TestCheck_DoesNotCallRowsMissingThatItMayNotRead(t *testing.T) {
	l, env := clinic(t, ourOutbox)
	l.insert(t, 3)
	l.db.Exec(t, `REVOKE pg_read_all_data FROM `+userOf(strings.TrimPrefix(env[len(env)-1], "CDC_RELAY_POSTGRES_URL=")))
	got := checkUp(t, env)
	got.want(t, "table.select", advice.Warn, "GRANT SELECT")
	got.want(t, "topic", advice.Warn, "the role may not read them", "table.select")
}

func TestCheck_MissesTheDeadLetterTopic(t *testing.T) {
	l, env := clinic(t, ourOutbox)
	l.insert(t, 1)
	l.topics(t, twoOfThree, "order-events")
	got := checkUp(t, env, "--set", "relay.on_reject=dead_letter")
	got.want(t, "topic", advice.Fail, "cdc-relay.dead-letters", "does not exist", "cdc-relay setup")
	if got.Fail != 1 {
		t.Errorf("%d failures", got.Fail)
	}
}

func TestCheck_KnowsItsOwnRelayFromAnother(t *testing.T) {
	l, env := clinic(t, ourOutbox)
	l.topics(t, twoOfThree, "order-events")
	l.env = env
	url, stop := l.start(t, nil)
	l.await(t, "the relay streams", func() bool { return invoke(t, nil, "status", "--url", url).code == exitOK })
	listen := "http.listen=" + strings.TrimPrefix(url, "http://")
	checkUp(t, env, "--set", listen).want(t, "slot.owner", advice.OK, "the relay of this configuration")
	checkUp(t, env, "--set", listen).want(t, "relay.state", advice.OK, "streaming")
	checkUp(t, env).want(t, "slot.owner", advice.Warn, "in use by", "application_name cdc-relay", "postgres.slot")
	if code := stop(); code != exitOK {
		t.Errorf("run ended with %d", code)
	}
	released(t, l.db)
	checkUp(t, env).want(t, "slot.owner", advice.OK, "nobody")
}

// The row that blocks it has left the table: nothing else shows it.
func TestCheck_FailsWhileItsOwnRelayIsBlocked(t *testing.T) {
	l, env := clinic(t, ourOutbox)
	l.topics(t, twoOfThree, "order-events")
	l.env = env
	url, stop := l.start(t, nil)
	l.db.Exec(t, `INSERT INTO outbox (aggregate_type, aggregate_id, event_type, payload) VALUES ('no spaces!', gen_random_uuid(), 'x', '{}')`)
	l.db.Exec(t, `DELETE FROM outbox`)
	l.await(t, "the relay is blocked", func() bool {
		return strings.Contains(invoke(t, nil, "status", "--url", url).stdout, "blocked")
	})
	got := checkUp(t, env, "--set", "http.listen="+strings.TrimPrefix(url, "http://"))
	got.want(t, "relay.state", advice.Fail, "is blocked", "(route)", "no spaces!-events", "public.outbox")
	got.want(t, "slot.owner", advice.OK, "the relay of this configuration")
	if got.Fail != 1 {
		t.Errorf("%d failures, want the relay's state alone", got.Fail)
	}
	stop()
}

func TestCheck_TellsHowItsRelayIs(t *testing.T) {
	set := func(s status.Status) string {
		return "http.listen=" + strings.TrimPrefix(serve(t, s, ""), "http://")
	}
	for state, level := range map[status.State]advice.Level{
		status.Starting: advice.OK, status.Standby: advice.OK, status.Streaming: advice.OK, status.Blocked: advice.Fail, status.Reconnecting: advice.Warn, status.Stopping: advice.OK,
	} {
		checkUp(t, closedPorts, "--set", set(sampleStatus(state, ""))).want(t, "relay.state", level, "is "+string(state))
	}
	unreachable := sampleStatus(status.Streaming, "kafka_unreachable")
	unreachable.Message = "dial tcp: refused"
	checkUp(t, closedPorts, "--set", set(unreachable)).want(t, "relay.state", advice.Warn, "(kafka_unreachable)", "dial tcp: refused")
	checkUp(t, closedPorts, "--set", set(sampleStatus(status.Standby, "slot_in_use"))).want(t, "relay.state", advice.OK, "(slot_in_use)")

	other := sampleStatus(status.Blocked, "route")
	other.Slot = "another_one"
	for _, f := range checkUp(t, closedPorts, "--set", set(other)).Findings {
		if f.Check == "relay.state" {
			t.Errorf("another pipeline's relay counts as ours: %+v", f)
		}
	}
}

func TestCheck_AdviceIsAWholeSentence(t *testing.T) {
	env := misfit(t, `CREATE TABLE outbox (a int, b int)`)
	got := checkUp(t, env)
	got.want(t, "table.mapping", advice.Fail, "auto does not recognise table public.outbox", "say what they mean: `cdc-relay explain` prints")
	for _, f := range got.Findings {
		if strings.HasSuffix(f.Seen, "for example") || strings.Contains(f.Seen, "say what") {
			t.Errorf("cut short: %+v", f)
		}
	}
}

func TestCheck_DoesNotBlameTheServerForThePassword(t *testing.T) {
	env := append(explain.Without(closedPorts, nil), "CDC_RELAY_POSTGRES_PASSWORD_COMMAND=[sh, -c, echo s3cret; exit 3]")
	got := checkUp(t, env)
	got.want(t, "postgres.connection", advice.Fail, "password_command sh: exit status 3", "no server was asked")
	for _, f := range got.Findings {
		if strings.Contains(f.Seen+f.Advice, "s3cret") {
			t.Errorf("the command's output is shown: %+v", f)
		}
	}
}

func TestSetup_DryRunForetellsTheSlot(t *testing.T) {
	l, env := clinic(t, ourOutbox)
	role := harness.Unique(t, "ordinary")
	l.db.Exec(t, "CREATE ROLE "+role+" LOGIN")
	t.Cleanup(func() { dropRole(t, l.db.Server.URL("postgres"), role) })
	env = append(env, "CDC_RELAY_POSTGRES_URL="+strings.Replace(l.db.URL, "://"+userOf(l.db.URL), "://"+role, 1), "CDC_RELAY_POSTGRES_SLOT="+harness.Unique(t, "nobody"))
	invoke(t, env, "setup", "--dry-run").want(t, exitOK, "pg_create_logical_replication_slot", `ALTER ROLE "`+role+`" REPLICATION`)
}

func writeFile(t *testing.T, text string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "relay.yaml")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

func dropRole(t *testing.T, url, role string) {
	t.Helper()
	conn, err := pgx.Connect(context.Background(), url)
	if err != nil {
		t.Error(err)
		return
	}
	defer conn.Close(context.Background())
	if _, err := conn.Exec(context.Background(), "DROP ROLE "+role); err != nil {
		t.Error(err)
	}
}

func TestCheck_MessagesWithoutATable(t *testing.T) {
	t.Parallel()
	l := newLife(t)
	l.brokers = harness.Kfake(t, sandbox.KafkaOptions{Brokers: 3})
	l.topics(t, twoOfThree, "orders")
	env := append(explain.Without(l.env, []string{"CDC_RELAY_OUTBOX_TABLE=public.outbox"}),
		"CDC_RELAY_KAFKA_BROKERS="+strings.Join(l.brokers.Addrs, ","),
		"CDC_RELAY_CONFIG="+writeFile(t, "outbox:\n  - message_prefix: outbox\n    topic: orders\n"))
	invoke(t, env, "setup").want(t, exitOK, "", "")
	got := checkUp(t, env)
	got.want(t, "publication", advice.OK)
	got.want(t, "topic", advice.OK, "orders")
	if got.Fail > 0 {
		t.Errorf("%+v", got.Findings)
	}
}

// A table that somebody keeps locked is given up on, and the rest is checked.
func TestCheck_GivesUpOnATableThatIsLocked(t *testing.T) {
	l, env := clinic(t, ourOutbox)
	l.insert(t, 1)
	conn := l.db.Connect(t)
	if _, err := conn.Exec(t.Context(), "BEGIN; LOCK TABLE outbox IN ACCESS EXCLUSIVE MODE"); err != nil {
		t.Fatal(err)
	}
	got := checkUp(t, env)
	got.want(t, "table.rows", advice.Warn, "could not be read", "timeout")
	got.want(t, "kafka.connection", advice.OK)
}

// What messages look like is known without a server, so their mapping is compiled
// also where there is none.
func TestCheck_CompilesTheMappingOfMessages(t *testing.T) {
	file := writeFile(t, "outbox:\n  - message_prefix: shop\n    topic: shop.events\n  - message_prefix: audit\n    columns: {key: 'boddy#/k'}\n")
	env := append([]string{"CDC_RELAY_CONFIG=" + file}, explain.Without(closedPorts, []string{"CDC_RELAY_OUTBOX_TABLE=public.outbox"})...)
	got := checkUp(t, env)
	got.want(t, "table.mapping", advice.OK, "messages shop: preset outbox, topic shop.events, key body#/aggregateId")
	got.want(t, "table.mapping", advice.Fail, file+":5:", "outbox[1].columns.key", `no column "boddy"`)
}
