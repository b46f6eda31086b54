package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/cdc-relay/cdc-relay/replication/wal"
	"github.com/cdc-relay/cdc-relay/sandbox"
	"github.com/cdc-relay/cdc-relay/test/harness"
	"github.com/jackc/pgx/v5"
	"github.com/twmb/franz-go/pkg/kgo"
)

// change is a takeover from a connector that nobody runs: slot and publication
// are made here, and so is its position.
type change struct {
	db        *harness.Database
	brokers   *harness.Brokers
	slot      string
	connector string // path
	worker    string // path
	settings  map[string]string
}

func newChange(t *testing.T) *change {
	t.Helper()
	c := &change{db: harness.Postgres(t), brokers: harness.Kfake(t, sandbox.KafkaOptions{}), slot: harness.Unique(t, "change")}
	c.db.Exec(t, `CREATE TABLE outbox (id int PRIMARY KEY, aggregatetype text NOT NULL, aggregateid text NOT NULL, payload text)`)
	c.db.Exec(t, `CREATE TABLE other (id int PRIMARY KEY)`)
	c.db.Exec(t, "CREATE PUBLICATION "+c.slot+" FOR ALL TABLES")
	c.db.Exec(t, "SELECT pg_create_logical_replication_slot($1, 'pgoutput')", c.slot)
	host, port, err := net.SplitHostPort(c.db.Server.Addr())
	if err != nil {
		t.Fatal(err)
	}
	c.settings = map[string]string{
		"connector.class":   "io.debezium.connector.postgresql.PostgresConnector",
		"database.hostname": host, "database.port": port, "database.user": "postgres", "database.dbname": c.db.Name, "database.sslmode": "disable",
		"topic.prefix": "app", "plugin.name": "pgoutput", "slot.name": c.slot, "publication.name": c.slot, "table.include.list": "public.outbox",
		"heartbeat.interval.ms": "60000",
		"key.converter":         "org.apache.kafka.connect.storage.StringConverter", "value.converter": "org.apache.kafka.connect.storage.StringConverter",
		"transforms": "outbox", "transforms.outbox.type": "io.debezium.transforms.outbox.EventRouter",
	}
	c.write(t)
	c.worker = fileOf(t, "worker.properties", fmt.Sprintf("bootstrap.servers=%s\noffset.storage.topic=connect-offsets\n", strings.Join(c.brokers.Addrs, ",")))
	c.brokers.CreateTopic(t, "connect-offsets", 3)
	c.brokers.CreateTopic(t, "outbox.event.Order", 1)
	return c
}

func (c *change) write(t *testing.T) {
	t.Helper()
	content, err := json.Marshal(map[string]any{"name": "outbox", "config": c.settings})
	if err != nil {
		t.Fatal(err)
	}
	c.connector = fileOf(t, "connector.json", string(content))
}

func (c *change) takeover(t *testing.T, more ...string) result {
	t.Helper()
	return invoke(t, nil, append([]string{"takeover", c.connector, "--worker", c.worker, "--set", "kafka.compression=none"}, more...)...)
}

// store puts a position into the offset topic.
func (c *change) store(t *testing.T, connector, value string) {
	t.Helper()
	client, err := kgo.NewClient(kgo.SeedBrokers(c.brokers.Addrs...))
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	record := &kgo.Record{Topic: "connect-offsets", Key: fmt.Appendf(nil, `[%q,{"server":"app"}]`, connector), Value: []byte(value)}
	if err := client.ProduceSync(t.Context(), record).FirstErr(); err != nil {
		t.Fatal(err)
	}
}

// mark is one message of the slot.
type mark struct {
	lsn  wal.LSN
	xid  uint32
	kind byte
	at   int64 // of a beginning: microseconds from 1970 to the commit
}

func (c *change) marks(t *testing.T) []mark {
	t.Helper()
	conn := c.db.Connect(t)
	rows, err := conn.Query(t.Context(), `SELECT lsn::text, xid::text::bigint, get_byte(data, 0),
		CASE WHEN get_byte(data, 0) = ascii('B') THEN ('x' || encode(substring(data FROM 10 FOR 8), 'hex'))::bit(64)::bigint + 946684800000000 ELSE 0 END
		FROM pg_logical_slot_peek_binary_changes($1, NULL, NULL, 'proto_version', '1', 'publication_names', $2)`, c.slot, c.slot)
	if err != nil {
		t.Fatal(err)
	}
	marks, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (mark, error) {
		var lsn string
		var xid int64
		var kind int
		var micros int64
		if err := row.Scan(&lsn, &xid, &kind, &micros); err != nil {
			return mark{}, err
		}
		at, err := wal.ParseLSN(lsn)
		return mark{at, uint32(xid), byte(kind), micros}, err
	})
	if err != nil {
		t.Fatal(err)
	}
	return marks
}

func nth(marks []mark, kind byte, n int) mark {
	for _, m := range marks {
		if m.kind == kind {
			if n == 0 {
				return m
			}
			n--
		}
	}
	return mark{}
}

// insert commits rows of one transaction each.
func (c *change) insert(t *testing.T, transactions ...[]int) {
	t.Helper()
	for _, ids := range transactions {
		c.db.Exec(t, `INSERT INTO outbox SELECT i, 'Order', 'k', 'p' || i FROM unnest($1::int[]) i`, ids)
	}
}

func (c *change) values(t *testing.T) string {
	t.Helper()
	var values []string
	for _, r := range c.brokers.Read(t, "outbox.event.Order") {
		values = append(values, string(r.Value))
	}
	return strings.Join(values, " ")
}

func TestTakeover_PlansThenFiltersWhatThePositionProves(t *testing.T) {
	c := newChange(t)
	c.insert(t, []int{1, 2}, []int{3, 4, 5}, []int{6})
	c.db.Exec(t, "INSERT INTO other VALUES (1)")
	marks := c.marks(t)
	row := nth(marks, 'I', 3) // the second row of the second transaction
	committed := nth(marks, 'B', 1).at
	c.store(t, "outbox", fmt.Sprintf(`{"lsn_proc":%d,"messageType":"INSERT","lsn_commit":%d,"lsn":%d,"txId":%d,"ts_usec":%d}`,
		row.lsn, nth(marks, 'C', 0).lsn, row.lsn, row.xid, committed))
	c.store(t, "stranger", `{"lsn":1}`)

	r := c.takeover(t)
	r.want(t, 0, "nothing was changed", "")
	for _, line := range []string{
		"outbox (Kafka Connect JSON), topic.prefix app", "plugin pgoutput", "of all tables; it stays as it is",
		"insert at " + row.lsn.String() + " in transaction " + fmt.Sprint(row.xid) + " of " + time.UnixMicro(committed).UTC().Format(time.RFC3339), "(topic connect-offsets)",
		"transactions that end at " + nth(marks, 'C', 0).lsn.String() + " or before are not sent again", "rows up to " + row.lsn.String() + " are not sent again",
		"__debezium-heartbeat.app goes on", "further tables are published (1)",
	} {
		if !strings.Contains(r.stdout, line) {
			t.Errorf("the plan lacks %q:\n%s", line, r.stdout)
		}
	}
	if got := c.values(t); got != "" {
		t.Fatalf("the plan sent %q", got)
	}

	r = c.takeover(t, "--yes")
	r.want(t, 0, "taken over: 4 rows delivered by Debezium and not sent again, 2 sent", "")
	if got := c.values(t); got != "p5 p6" {
		t.Errorf("sent %q, want what Debezium had not", got)
	}
	if harness.Query[bool](t, c.db, "SELECT puballtables AND pubdelete FROM pg_publication WHERE pubname = $1", c.slot) != true {
		t.Error("the publication was altered")
	}
	// Again: the slot is beyond the position by now.
	released(t, c.db)
	c.takeover(t, "--yes").want(t, 3, "the takeover was done before", "refused")
	// And the relay goes on without a repetition.
	c.insert(t, []int{7})
	released(t, c.db)
	c.takeover(t, "--yes", "--no-offsets").want(t, 0, "taken over: 0 rows delivered by Debezium and not sent again, 1 sent", "")
	if got := c.values(t); got != "p5 p6 p7" {
		t.Errorf("sent %q", got)
	}
}

// A position is only numbers: one that was stored about another database, or
// before a restore, must not keep rows back.
func TestTakeover_APositionOfAnotherLogFiltersNothing(t *testing.T) {
	c := newChange(t)
	c.insert(t, []int{1, 2}, []int{3})
	marks := c.marks(t)
	last := nth(marks, 'I', 2)
	for name, position := range map[string]string{
		"another transaction at the LSN":               fmt.Sprintf(`{"messageType":"INSERT","lsn_commit":%d,"lsn":%d,"txId":%d}`, nth(marks, 'C', 0).lsn, last.lsn, last.xid+1),
		"nothing at the LSN":                           fmt.Sprintf(`{"messageType":"INSERT","lsn_commit":%d,"lsn":%d,"txId":%d}`, nth(marks, 'C', 0).lsn, last.lsn-1, last.xid),
		"lsn_commit behind the row's own transaction":  fmt.Sprintf(`{"messageType":"INSERT","lsn_commit":%d,"lsn":%d,"txId":%d}`, nth(marks, 'C', 1).lsn, nth(marks, 'I', 0).lsn, nth(marks, 'I', 0).xid),
		"the same without a kind":                      fmt.Sprintf(`{"lsn":%d,"txId":%d,"lsn_commit":%d}`, nth(marks, 'I', 0).lsn, nth(marks, 'I', 0).xid, nth(marks, 'C', 1).lsn),
		"another transaction of that number and place": fmt.Sprintf(`{"messageType":"INSERT","lsn_commit":%d,"lsn":%d,"txId":%d,"ts_usec":%d}`, nth(marks, 'C', 0).lsn, last.lsn, last.xid, nth(marks, 'B', 1).at-1),
		"a heartbeat where none ends":                  fmt.Sprintf(`{"messageType":"COMMIT","lsn_commit":%d,"lsn":%d,"txId":%d}`, last.lsn+1, last.lsn+1, last.xid),
	} {
		t.Run(name, func(t *testing.T) {
			conn := c.db.Connect(t)
			slot := harness.Unique(t, "copy")
			if _, err := conn.Exec(t.Context(), "SELECT pg_copy_logical_replication_slot($1, $2)", c.slot, slot); err != nil {
				t.Fatal(err)
			}
			c.settings["slot.name"] = slot
			c.write(t)
			c.store(t, "outbox", position)
			before := c.values(t)
			c.takeover(t, "--yes").want(t, 0, "so nothing is filtered", "")
			if got := strings.TrimSpace(strings.TrimPrefix(c.values(t), before)); got != "p1 p2 p3" {
				t.Errorf("sent %q, want every row", got)
			}
		})
	}
}

// A position proves nothing about rows and messages that the connector never sends: a
// configuration may have more of them.
func TestTakeover_SendsWhatTheConnectorDoesNotCapture(t *testing.T) {
	c := newChange(t)
	c.brokers.CreateTopic(t, "outbox.event.Bill", 1)
	c.brokers.CreateTopic(t, "app.message", 1)
	c.settings["message.prefix.include.list"] = "theirs"
	c.write(t)
	c.db.Exec(t, `CREATE TABLE billing (id int PRIMARY KEY, aggregatetype text NOT NULL, aggregateid text NOT NULL, payload text)`)
	c.db.Exec(t, `INSERT INTO billing VALUES (1, 'Bill', 'k', 'b1')`)
	c.db.Exec(t, `SELECT pg_logical_emit_message(true, 'ours', 'm1')`)
	c.insert(t, []int{1}, []int{2}, []int{3})
	marks := c.marks(t) // without messages
	row := nth(marks, 'I', 2)
	c.store(t, "outbox", fmt.Sprintf(`{"messageType":"INSERT","lsn_commit":%d,"lsn":%d,"txId":%d}`, nth(marks, 'C', 1).lsn, row.lsn, row.xid))
	imported := invoke(t, nil, "import", c.connector, "--worker", c.worker)
	if !strings.Contains(imported.stdout, "outbox:\n") || !strings.Contains(imported.stdout, "message.prefix.include.list: theirs\n") {
		t.Fatalf("the import is another:\n%s", imported.stdout)
	}
	edited := strings.Replace(imported.stdout, "outbox:\n", "outbox:\n  - table: public.billing\n    preset: debezium\n", 1)
	edited = strings.Replace(edited, "include.list: theirs", "include.list: ours", 1)

	for name, yaml := range map[string]string{"more tables and messages": edited, "as imported": imported.stdout} {
		t.Run(name, func(t *testing.T) {
			slot := harness.Unique(t, "copy")
			if _, err := c.db.Connect(t).Exec(t.Context(), "SELECT pg_copy_logical_replication_slot($1, $2)", c.slot, slot); err != nil {
				t.Fatal(err)
			}
			c.settings["slot.name"] = slot
			c.write(t)
			bills, messages := len(c.brokers.Read(t, "outbox.event.Bill")), len(c.brokers.Read(t, "app.message"))
			before := c.values(t)
			r := c.takeover(t, "--yes", "--config", fileOf(t, "cdc-relay.yaml", strings.Replace(yaml, "slot: "+c.slot, "slot: "+slot, 1)))
			if r.want(t, 0, "taken over: ", ""); t.Failed() {
				t.Fatal(r.stderr)
			}
			bills, messages = len(c.brokers.Read(t, "outbox.event.Bill"))-bills, len(c.brokers.Read(t, "app.message"))-messages
			want := 0
			if yaml == edited {
				want = 1
				if line := "but all rows of public.billing, logical messages, which the connector does not capture"; !strings.Contains(r.stdout, line) {
					t.Errorf("the plan lacks %q:\n%s", line, r.stdout)
				}
			}
			if got := strings.TrimSpace(strings.TrimPrefix(c.values(t), before)); got != "p3" || bills != want || messages != want {
				t.Errorf("sent %q, %d bills, %d messages; want what Debezium had not, %d and %d", got, bills, messages, want, want)
			}
		})
	}
}

// A heartbeat's position proves whole transactions.
func TestTakeover_AHeartbeatsPosition(t *testing.T) {
	c := newChange(t)
	c.insert(t, []int{1, 2}, []int{3}, []int{4})
	end := nth(c.marks(t), 'C', 1)
	c.store(t, "outbox", fmt.Sprintf(`{"messageType":"COMMIT","lsn_proc":%d,"lsn_commit":%d,"lsn":%d,"txId":%d}`, end.lsn, end.lsn, end.lsn, end.xid))
	c.takeover(t, "--yes").want(t, 0, "taken over: 3 rows delivered by Debezium and not sent again, 1 sent", "")
	if got := c.values(t); got != "p4" {
		t.Errorf("sent %q", got)
	}
}

// A stop is nobody's refusal: the command may be repeated, and its end says so.
func TestTakeover_IsToldToStop(t *testing.T) {
	c := newChange(t)
	c.insert(t, []int{1}, []int{2})
	marks := c.marks(t)
	row := nth(marks, 'I', 1)
	c.store(t, "outbox", fmt.Sprintf(`{"messageType":"INSERT","lsn_commit":%d,"lsn":%d,"txId":%d}`, nth(marks, 'C', 0).lsn, row.lsn, row.xid))
	for patience := time.Duration(0); ; patience += 60 * time.Millisecond {
		ctx, cancel := context.WithCancel(t.Context())
		over := time.AfterFunc(patience, cancel)
		r := invokeWithin(ctx, t, nil, "takeover", c.connector, "--worker", c.worker, "--set", "kafka.compression=none", "--yes")
		over.Stop()
		cancel()
		if r.code == 0 || strings.Contains(r.stdout, "the takeover was done before") {
			break // what was read before the stop is confirmed by it
		}
		if r.want(t, 1, "", ""); !strings.Contains(r.stderr, "interrupted by a signal") && !strings.Contains(r.stderr, "stopped before") || strings.Contains(r.stderr, "correct") {
			t.Fatalf("after %s: %s", patience, r.stderr)
		}
		released(t, c.db)
	}
	if got := c.values(t); got != "" {
		t.Errorf("sent %q, and Debezium had delivered all", got)
	}
}

// A configuration keeps positions in a topic. The plan names what is in the way before
// takeover changes anything: the topic is missing, or Debezium had the slot back and moved it.
func TestTakeover_SaysWhatTheCheckpointForbids(t *testing.T) {
	for _, keeps := range []string{"relay.guarantee=exactly_once", "relay.detect_moved_slot=true"} {
		t.Run(keeps, func(t *testing.T) {
			c := newChange(t)
			c.insert(t, []int{1}, []int{2})
			marks := c.marks(t)
			row := nth(marks, 'I', 1)
			c.store(t, "outbox", fmt.Sprintf(`{"messageType":"INSERT","lsn_commit":%d,"lsn":%d,"txId":%d}`, nth(marks, 'C', 0).lsn, row.lsn, row.xid))
			c.takeover(t, "--set", keeps).want(t, 3, "does not exist; run `cdc-relay setup`", "nothing was changed")

			imported := invoke(t, nil, "import", c.connector, "--worker", c.worker)
			setup := func(more ...string) result {
				return invoke(t, nil, append([]string{"setup", "--config", fileOf(t, "cdc-relay.yaml", imported.stdout), "--set", keeps}, more...)...)
			}
			setup().want(t, 0, "created topic", "")
			c.takeover(t, "--set", keeps, "--yes").want(t, 0, "taken over: 2 rows delivered by Debezium and not sent again, 0 sent", "")

			// Debezium gets the slot back, delivers a row, and stores that.
			released(t, c.db)
			c.insert(t, []int{3}, []int{4})
			marks = c.marks(t)
			row = nth(marks, 'I', 0)
			c.db.Exec(t, "SELECT pg_replication_slot_advance($1, $2)", c.slot, nth(marks, 'C', 0).lsn.String())
			c.store(t, "outbox", fmt.Sprintf(`{"messageType":"INSERT","lsn_commit":%d,"lsn":%d,"txId":%d}`, nth(marks, 'C', 0).lsn, row.lsn, row.xid))
			for _, more := range [][]string{nil, {"--yes"}} {
				r := c.takeover(t, append(more, "--set", keeps)...)
				r.want(t, 3, "run `cdc-relay setup --accept-gap`. If that was Debezium, which had the slot since, nothing is left out: stop the connector, then run it", "nothing was changed")
			}
			setup("--accept-gap").want(t, 0, "forgot the checkpoint", "")
			c.takeover(t, "--set", keeps, "--yes").want(t, 0, "1 sent", "")
			if got := c.values(t); got != "p4" {
				t.Errorf("sent %q, want what Debezium had not", got)
			}
		})
	}
}

func TestTakeover_StaysWhenToldTo(t *testing.T) {
	c := newChange(t)
	c.insert(t, []int{1}, []int{2})
	first := nth(c.marks(t), 'I', 0)
	c.store(t, "outbox", fmt.Sprintf(`{"messageType":"INSERT","lsn":%d,"txId":%d}`, first.lsn, first.xid))
	ctx, cancel := context.WithCancel(t.Context())
	t.Chdir(t.TempDir())
	ended := make(chan int, 1)
	var out, problems output
	go func() {
		ended <- run(ctx, []string{"takeover", c.connector, "--worker", c.worker, "--yes", "--stay", "--set", "http.listen=", "--set", "kafka.compression=none"}, process{stdout: &out, stderr: &problems})
	}()
	t.Cleanup(func() {
		if t.Failed() {
			cancel()
			t.Logf("%d: %s%s", <-ended, &out, &problems)
		}
	})
	l := &life{}
	l.await(t, "the second row is there", func() bool { return c.values(t) == "p2" })
	c.insert(t, []int{3})
	l.await(t, "and the third", func() bool { return c.values(t) == "p2 p3" })
	cancel()
	if code := <-ended; code != 0 {
		t.Errorf("exit code %d:\n%s%s", code, &out, &problems)
	}
}

func TestTakeover_Refusals(t *testing.T) {
	c := newChange(t)
	c.insert(t, []int{1})
	position := func(lsn wal.LSN) string {
		return fmt.Sprintf(`{"lsn_proc":%d,"lsn_commit":%d,"lsn":%d,"txId":7,"messageType":"INSERT"}`, lsn, lsn, lsn)
	}
	end := nth(c.marks(t), 'C', 0).lsn

	t.Run("no position is known", func(t *testing.T) {
		invoke(t, nil, "takeover", c.connector, "--set", "kafka.brokers="+strings.Join(c.brokers.Addrs, ",")).want(t, 2, "", "--no-offsets")
	})
	t.Run("an empty topic", func(t *testing.T) {
		c.takeover(t).want(t, 3, "", `has no position of connector "outbox"`)
	})
	t.Run("no such topic", func(t *testing.T) {
		c.takeover(t, "--offset-topic", "nowhere").want(t, 2, "", "there is no topic nowhere on "+strings.Join(c.brokers.Addrs, ",")+": name the worker's offset.storage.topic")
	})
	c.store(t, "billing", position(end))
	t.Run("another connector's position", func(t *testing.T) {
		c.takeover(t).want(t, 3, "", `only of: "billing" with topic.prefix "app"`)
	})
	t.Run("a position that was removed", func(t *testing.T) {
		c.takeover(t, "--offset-file", fileOf(t, "offsets.json", `{"offsets":[{"partition":{"server":"app"},"offset":null}]}`)).want(t, 3, "", "was removed")
	})
	t.Run("two places at once", func(t *testing.T) {
		c.takeover(t, "--no-offsets", "--offset-file", "x").want(t, 2, "", "only one of")
	})
	t.Run("a file that is none", func(t *testing.T) {
		c.takeover(t, "--offset-file", fileOf(t, "offsets", "lsn=1")).want(t, 2, "", "is neither a file of offsets")
	})
	t.Run("a position of another server", func(t *testing.T) {
		c.store(t, "outbox", position(1<<50))
		r := c.takeover(t)
		r.want(t, 3, "ahead of the server's log", "refused")
		if strings.Contains(r.stdout, "filter") || strings.Contains(r.stdout, "may come twice") {
			t.Errorf("a position that is refused is judged:\n%s", r.stdout)
		}
	})
	t.Run("a snapshot that had not finished", func(t *testing.T) {
		c.store(t, "outbox", fmt.Sprintf(`{"lsn":%d,"snapshot":"INITIAL","snapshot_completed":false}`, end))
		c.takeover(t).want(t, 3, "had not finished", "refused")
	})
	t.Run("another slot than the configuration's", func(t *testing.T) {
		c.takeover(t, "--set", "postgres.slot=another").want(t, 2, "", "correct postgres.slot")
	})
	t.Run("a table that the configuration lacks", func(t *testing.T) {
		c.takeover(t, "--config", fileOf(t, "cdc-relay.yaml", fmt.Sprintf("postgres: {url: %q, slot: %s, publication: %s}\noutbox: [{table: public.other}]\nkafka: {brokers: [%s]}\n",
			c.db.URL, c.slot, c.slot, c.brokers.Addrs[0]))).want(t, 2, "", "captures public.outbox")
	})
	t.Run("a slot that is gone", func(t *testing.T) {
		c.settings["slot.name"] = "nothing_here"
		c.settings["slot.drop.on.stop"] = "true"
		c.write(t)
		c.takeover(t, "--no-offsets").want(t, 3, "", "made Debezium drop it")
		delete(c.settings, "slot.drop.on.stop")
	})
	t.Run("a slot of another plugin", func(t *testing.T) {
		other := harness.Unique(t, "plugin")
		c.db.Exec(t, "SELECT pg_create_logical_replication_slot($1, 'test_decoding')", other)
		c.settings["slot.name"] = other
		c.write(t)
		c.takeover(t, "--no-offsets", "--yes").want(t, 3, "its output plugin is test_decoding", "refused")
	})
}

func TestTakeover_AHeldSlotIsPlannedAndNotTaken(t *testing.T) {
	c := newChange(t)
	c.insert(t, []int{1})
	c.store(t, "outbox", `{"lsn":1,"lsn_proc":1}`)
	l := &life{db: c.db, brokers: c.brokers, env: []string{
		"CDC_RELAY_POSTGRES_URL=" + c.db.URL, "CDC_RELAY_POSTGRES_SLOT=" + c.slot, "CDC_RELAY_POSTGRES_PUBLICATION=" + c.slot,
		"CDC_RELAY_KAFKA_BROKERS=" + strings.Join(c.brokers.Addrs, ","), "CDC_RELAY_OUTBOX_TABLE=public.outbox", "CDC_RELAY_HTTP_LISTEN=127.0.0.1:0",
	}}
	_, stop := l.start(t, nil)
	l.await(t, "the slot is held", func() bool {
		return harness.Query[bool](t, c.db, "SELECT active FROM pg_replication_slots WHERE slot_name = $1", c.slot)
	})
	r := c.takeover(t, "--no-offsets")
	r.want(t, 0, "stop the connector first", "")
	r.want(t, 0, "nothing was changed, and as long as the slot is in use --yes is refused", "")
	if strings.Contains(r.stdout, "refused  ") || strings.Contains(r.stdout, "nothing was changed; repeat with --yes") {
		t.Errorf("the plan refuses, or says that --yes would do:\n%s", r.stdout)
	}
	c.takeover(t, "--no-offsets", "--yes").want(t, 3, "the slot is in use by", "nothing was changed")
	if code := stop(); code != 0 {
		t.Errorf("the holder ended with %d", code)
	}
}

// A configuration that was edited is compared with the connector, and what import
// left to do is not said about it.
func TestTakeover_SaysWhatTheConfigurationHasOtherwise(t *testing.T) {
	c := newChange(t)
	c.insert(t, []int{1})
	c.settings["database.password"] = "not asked for"
	c.write(t)
	imported := invoke(t, nil, "import", c.connector, "--worker", c.worker)
	imported.want(t, 0, "topic.prefix: app", "left to do: ")
	edited := strings.Replace(imported.stdout, "topic.prefix: app", "topic.prefix: shop\n      extended.headers.enabled: false", 1)
	edited = strings.Replace(edited, "value.converter: org.apache.kafka.connect.storage.StringConverter", "value.converter: org.apache.kafka.connect.json.JsonConverter", 1)
	for _, part := range []string{"topic.prefix: shop", "json.JsonConverter"} {
		if !strings.Contains(edited, part) {
			t.Fatalf("the import is another:\n%s", imported.stdout)
		}
	}

	same := c.takeover(t, "--no-offsets", "--config", fileOf(t, "same.yaml", imported.stdout))
	same.want(t, 0, "as before", "")
	other := c.takeover(t, "--no-offsets", "--config", fileOf(t, "edited.yaml", edited))
	for _, difference := range []string{
		"the configuration differs from the connector in",
		`public.outbox: topic.prefix: connector "app", configuration "shop"`,
		"__debezium-heartbeat.app is not written any more; __debezium-heartbeat.shop takes its place",
		`public.outbox: extended.headers.enabled: connector none, configuration "false"`,
		`public.outbox: value.converter: connector "org.apache.kafka.connect.storage.StringConverter", configuration "org.apache.kafka.connect.json.JsonConverter"`,
	} {
		other.want(t, 0, difference, "")
	}
	elsewhere := c.takeover(t, "--no-offsets", "--config", fileOf(t, "elsewhere.yaml", strings.Replace(imported.stdout, "@127.0.0.1:", "@localhost:", 1)))
	_, port, _ := net.SplitHostPort(c.db.Server.Addr())
	elsewhere.want(t, 0, fmt.Sprintf("the connector reads 127.0.0.1:%s/%s, the configuration localhost:%s/%s: unless", port, c.db.Name, port, c.db.Name), "")
	if strings.Contains(same.stdout, "the connector reads") {
		t.Errorf("the plan names two servers, and there is one:\n%s", same.stdout)
	}
	for _, wrong := range []string{"as before", "goes on", "key.converter"} {
		if strings.Contains(other.stdout, wrong) {
			t.Errorf("the plan says %q:\n%s", wrong, other.stdout)
		}
	}
	for _, r := range []result{same, other} {
		if strings.Contains(r.stderr, "left to do") || strings.Contains(r.stderr, "to do:") {
			t.Errorf("it says what import left to do:\n%s", r.stderr)
		}
	}
	c.takeover(t, "--no-offsets").want(t, 0, "as before", "to do:")
}

// A configuration file that lies in the directory is taken without being named, so a refusal
// names it.
func TestTakeover_NamesTheFileThatTheSlotIsOf(t *testing.T) {
	connector := fileOf(t, "connector.json", `{"name":"outbox","config":{"connector.class":"io.debezium.connector.postgresql.PostgresConnector","plugin.name":"pgoutput",
		"database.hostname":"127.0.0.1","database.user":"a","database.dbname":"x","topic.prefix":"app","slot.name":"theirs","table.include.list":"public.outbox",
		"transforms":"outbox","transforms.outbox.type":"io.debezium.transforms.outbox.EventRouter"}}`)
	file := fileOf(t, "cdc-relay.yaml", "postgres: {url: 'postgres://a@127.0.0.1:1/x', slot: ours}\noutbox: [{table: public.outbox}]\nkafka: {brokers: ['127.0.0.1:1']}\n")
	invoke(t, nil, "takeover", connector, "--config", file).want(t, 2, "", "the configuration in "+file+" from")
}
