package test

import (
	"regexp"
	"strings"
	"testing"

	"github.com/cdc-relay/cdc-relay/sandbox"
	"github.com/cdc-relay/cdc-relay/test/harness"
	"github.com/cdc-relay/cdc-relay/test/harness/relaytest"
)

// What docs/how-to/skip-a-row.md does about a row that must never be sent leaves out
// that row's transaction and nothing else.
func TestRunbook_MovingTheSlotSkipsOneTransaction(t *testing.T) {
	block := regexp.MustCompile("(?s)```sql\n(.*?)```").FindStringSubmatch(read(t, "docs/how-to/skip-a-row.md"))
	if block == nil {
		t.Fatal("docs/how-to/skip-a-row.md does not say how the slot is moved")
	}
	db, brokers := harness.Postgres(t), harness.Kfake(t, sandbox.KafkaOptions{})
	p := relaytest.New(t, db, brokers, []string{"{table: public.outbox}"})
	p.Setup(t)
	w := p.NewWorkload(t, "outbox", harness.Unique(t, "order"))
	brokers.CreateTopic(t, w.Topic(), 3)

	r := p.Start(t)
	w.Insert(t, 5)
	db.Exec(t, "INSERT INTO outbox (aggregate_type, aggregate_id, event_type, payload) VALUES ('no topic!', gen_random_uuid(), 'x', '{}')")
	w.Insert(t, 5)
	status := r.AwaitBlocked(t, "route")
	r.Stop(t)
	at := regexp.MustCompile(`committing at ([0-9A-F]+/[0-9A-F]+)`).FindStringSubmatch(status.Message)
	if at == nil {
		t.Fatalf("the message %q names no commit", status.Message)
	}
	p.AwaitReleased(t)
	statement := strings.ReplaceAll(block[1], "'cdc_relay'", "'"+p.Slot+"'")
	db.Exec(t, regexp.MustCompile(`'(?:[0-9A-F]+/[0-9A-F]+|X/Y)'`).ReplaceAllString(statement, "'"+at[1]+"'"))

	r = p.Start(t)
	p.AwaitCaughtUp(t)
	r.Stop(t)
	w.Verify(t)
}
