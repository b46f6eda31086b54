package main

import (
	"testing"
)

// The slot of one database is dropped, and another database of the server gets a slot of that
// name. Its table has another row under the event id and the key of the letter.
func TestDeadLetter_LettersOfAnotherDatabaseAreOfAnotherSource(t *testing.T) {
	t.Parallel()
	first := newLife(t)
	second := newLifeOn(t, first.brokers)
	for _, l := range []*life{first, second} {
		l.configure(t, "outbox: [{table: public.outbox, columns: {id: id, key: account, payload: payload}, topic: order-events}]\nrelay: {on_reject: dead_letter}\n")
		l.env = append(l.env, "CDC_RELAY_KAFKA_MAX_MESSAGE_BYTES=16KiB", "CDC_RELAY_POSTGRES_SLOT="+first.slot())
		l.db.Exec(t, "CREATE TABLE outbox (id bigserial PRIMARY KEY, account text, payload jsonb)")
	}
	invoke(t, first.env, "setup").want(t, exitOK, "created slot", "")
	first.brokers.CreateTopic(t, "order-events", 1)
	url, stop := first.start(t, nil)
	first.db.Exec(t, `INSERT INTO outbox (account, payload) VALUES ('a', jsonb_build_object('fill', repeat('x', 50000)))`)
	first.published(t, url, 1)
	stop()
	invoke(t, first.env, "teardown", "--yes").want(t, exitOK, "", "")
	second.db.Exec(t, `INSERT INTO outbox (account, payload) VALUES ('a', '{"of": "second"}')`)
	invoke(t, second.env, "setup").want(t, exitOK, "created slot", "")

	if first.source(t) == second.source(t) {
		t.Errorf("both databases have the source %s", first.source(t))
	}
	invoke(t, second.env, "deadletter", "list").want(t, exitOK, first.source(t), "")
	invoke(t, second.env, "deadletter", "redrive", "--all", "--yes").want(t, exitOK, "1 dead letter of other sources matches and is left out", "")
	invoke(t, second.env, "deadletter", "redrive", "--all", "--yes", "--source", first.source(t)).want(t, exitFailed, "whose table this configuration does not read", "")
	if n := len(first.brokers.Read(t, "order-events")); n != 0 {
		t.Errorf("the topic has %d records, and nobody has the row of the letter", n)
	}
	invoke(t, first.env, "deadletter", "redrive", "--all").want(t, exitOK, "1 of 1 dead letter of the selected keys would be re-driven", "")
}
