package main

import "testing"

// The row of a letter without its value is changed, and then replaced by another one.
func TestDeadLetter_WarnsOfAChangedRowAndRefusesAnotherOne(t *testing.T) {
	for name, keyed := range map[string]bool{"with a key": true, "with its id alone": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := newLife(t)
			columns := "id: id, payload: payload"
			if keyed {
				columns += ", key: account"
			}
			l.configure(t, "outbox: [{table: public.outbox, columns: {"+columns+"}, topic: order-events}]\nrelay: {on_reject: dead_letter}\n")
			l.env = append(l.env, "CDC_RELAY_KAFKA_MAX_MESSAGE_BYTES=16KiB")
			l.db.Exec(t, "CREATE TABLE outbox (id bigserial PRIMARY KEY, account text, payload jsonb)")
			invoke(t, l.env, "setup").want(t, exitOK, "created slot", "")
			l.brokers.CreateTopic(t, "order-events", 1)
			url, stop := l.start(t, nil)
			l.db.Exec(t, `INSERT INTO outbox (account, payload) VALUES ('first', jsonb_build_object('fill', repeat('x', 50000)))`)
			l.published(t, url, 1)
			stop()
			l.db.Exec(t, "TRUNCATE outbox RESTART IDENTITY")
			l.db.Exec(t, `INSERT INTO outbox (account, payload) VALUES ('first', '{"amount": 999}')`)
			if !keyed {
				invoke(t, l.env, "deadletter", "redrive", "--all").want(t, exitFailed, "would fail: the letter at partition 0, offset 0 is not complete, and the row that now has its event id holds another value", "")
				invoke(t, l.env, "deadletter", "redrive", "--all", "--yes").want(t, exitFailed, "it may be another row; discard the letter, and write the event again", "")
				if n := len(l.brokers.Read(t, "order-events")); n != 0 {
					t.Errorf("%d records were sent", n)
				}
				return
			}
			const warning = "; warning: 1 row changed after the dead letter was written; the record has the value of the dead letter, or the present one where that has none"
			invoke(t, l.env, "deadletter", "redrive", "--all").want(t, exitOK, "planned"+warning, "")
			invoke(t, l.env, "deadletter", "redrive", "--all", "--yes", "--json").want(t, exitOK, `"changed": 1,`, "")
		})
	}
}
