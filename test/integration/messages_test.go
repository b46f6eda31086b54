package integration

import (
	"fmt"
	"regexp"
	"strings"
	"testing"

	"github.com/cdc-relay/cdc-relay/fault"
	"github.com/cdc-relay/cdc-relay/test/harness"
	"github.com/cdc-relay/cdc-relay/test/harness/relaytest"
)

// Logical messages come through the same slot as the rows of a table, in the
// order of the commits, and a message of a transaction that rolled back does not.
func TestMessages_ComeInOneOrderWithRows(t *testing.T) {
	t.Parallel()
	harness.EachPostgres(t, func(t *testing.T, db *harness.Database) {
		brokers := harness.Kfake(t, kfakeDefault)
		db.Exec(t, "CREATE TABLE outbox (id text PRIMARY KEY, aggregate_type text, aggregate_id text, event_type text, payload json)")
		p := relaytest.New(t, db, brokers, []string{"{message_prefix: outbox}", "{table: public.outbox}"})
		p.Setup(t)
		topic := harness.Unique(t, "order")
		brokers.CreateTopic(t, topic+"-events", 3)

		message := func(transactional bool, prefix, id string) string {
			return fmt.Sprintf(`SELECT pg_logical_emit_message(%t, '%s', '{"id":"%s","aggregateType":"%s","aggregateId":"a","type":"T","payload":{"n": "%s"},"headers":{"h":"1"}}')`,
				transactional, prefix, id, topic, id)
		}
		row := func(id string) string {
			return fmt.Sprintf(`INSERT INTO outbox VALUES ('%s', '%s', 'a', 'T', '{"n": "%s"}')`, id, topic, id)
		}
		db.Exec(t, "BEGIN; "+message(true, "outbox", "1")+"; "+row("2")+"; "+message(true, "outbox", "3")+"; COMMIT")
		db.Exec(t, "BEGIN; "+message(true, "outbox", "rolled back")+"; ROLLBACK")
		db.Exec(t, message(true, "heartbeat", "not ours"))
		db.Exec(t, message(false, "outbox", "4"))
		db.Exec(t, row("5"))

		p.Start(t).AwaitStreaming(t)
		p.AwaitCaughtUp(t)
		var got []string
		for _, r := range brokers.Read(t, topic+"-events") {
			line := string(r.Key) + " " + string(r.Value)
			for _, h := range r.Headers {
				line += " " + h.Key + "=" + string(h.Value)
			}
			got = append(got, line)
		}
		want := []string{
			`a {"n": "1"} id=1 eventType=T h=1`,
			`a {"n": "2"} id=2 eventType=T`,
			`a {"n": "3"} id=3 eventType=T h=1`,
			`a {"n": "4"} id=4 eventType=T h=1`,
			`a {"n": "5"} id=5 eventType=T`,
		}
		if strings.Join(got, "\n") != strings.Join(want, "\n") {
			t.Errorf("records:\n%s\nwant:\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
		}
	})
}

func TestMessages_WithoutTheRolesBlockWithTheirPosition(t *testing.T) {
	t.Parallel()
	harness.EachPostgres(t, func(t *testing.T, db *harness.Database) {
		p := relaytest.New(t, db, harness.Kfake(t, kfakeDefault), []string{"{message_prefix: outbox}"})
		p.Setup(t) // a publication without tables
		db.Exec(t, `SELECT pg_logical_emit_message(true, 'outbox', '{"id":"1","aggregateId":"a"}')`)
		st := p.Start(t).AwaitBlocked(t, fault.ReasonRoute)
		if !strings.Contains(st.Message, "message.outbox") || !regexp.MustCompile(`\b[0-9A-F]+/[0-9A-F]+\b`).MatchString(st.Message) {
			t.Errorf("message %q names neither the prefix nor a position", st.Message)
		}
	})
}
