package main

import (
	"strings"
	"testing"
)

// never requires the output of a command to leave a piece of advice out.
func (r result) never(t *testing.T, advice string) {
	t.Helper()
	if said := r.stdout + r.stderr; strings.Contains(said, advice) {
		t.Errorf("%q is said:\n%s", advice, said)
	}
}

// A letter without its value is completed from its row, whatever the row's table is called by now, and
// also if the mapping takes the event id from another column now. No message advises to discard a letter whose
// row is there.
func TestRedrive_FindsTheRowOfARenamedTable(t *testing.T) {
	t.Parallel()
	l := limited(t, "columns: {id: id, key: account, payload: payload}", "id bigserial PRIMARY KEY, ref uuid DEFAULT gen_random_uuid(), account text")
	l.writes(t, 1, `INSERT INTO outbox (account, payload) VALUES ('a', jsonb_build_object('n', 1, 'fill', repeat('x', 50000)))`)
	released(t, l.db)
	l.db.Exec(t, "ALTER TABLE outbox RENAME TO outbox_old")
	l.db.Exec(t, "CREATE TABLE outbox (LIKE outbox_old INCLUDING DEFAULTS)")
	got := invoke(t, l.env, "deadletter", "redrive", "--all", raised)
	got.want(t, exitFailed, "table public.outbox, which has its row, is called public.outbox_old now, which is not in the configuration", "")
	got.never(t, "write the event again")

	both := func(mapping string) {
		l.configure(t, "outbox: [{table: public.outbox, topic: order-events, "+mapping+"}, {table: public.outbox_old, topic: order-events, "+mapping+"}]\nrelay: {on_reject: dead_letter, park_key: true}\n")
	}
	both("columns: {id: ref, key: account, payload: payload}")
	l.db.Exec(t, "ALTER TABLE outbox_old RENAME id TO number")
	got = invoke(t, l.env, "deadletter", "redrive", "--all", raised)
	got.want(t, exitFailed, `its event id is of column "id", which the stream of table public.outbox_old does not have now; if it was renamed or is not published any more, undo that and run this again`, "")
	l.db.Exec(t, "ALTER TABLE outbox_old RENAME number TO id")
	invoke(t, l.env, "deadletter", "redrive", "--all", "--yes", raised).want(t, exitOK, "1 of 1 dead letter of the selected keys re-driven, 0 left", "")
	records := l.brokers.Read(t, "order-events")
	if sent := sentNumbers(t, records); sent != "1" || string(records[0].Headers[0].Value) != "1" {
		t.Errorf("%s sent, with %v", sent, records[0].Headers)
	}
}

// Where the letter does not say by which column it names its row, that it is not found may be for that.
func TestRedrive_DoubtsWhereItCannotKnowTheColumn(t *testing.T) {
	t.Parallel()
	l := limited(t, "columns: {id: 'payload#/n', key: account, payload: payload}", "id bigserial PRIMARY KEY, account text")
	l.writes(t, 1, `INSERT INTO outbox (account, payload) VALUES ('a', jsonb_build_object('n', 4, 'fill', repeat('x', 50000)))`)
	at := []string{"deadletter", "redrive", "--all", raised}
	invoke(t, l.env, at...).want(t, exitFailed, "the event id is not a column, so the row cannot be found by it", "")
	l.configure(t, "outbox: [{table: public.outbox, topic: order-events, columns: {id: id, key: account, payload: payload}}]\nrelay: {on_reject: dead_letter, park_key: true}\n")
	invoke(t, l.env, at...).want(t, exitFailed, `no row of table public.outbox has its event id in column "id"; the letter does not say of which column its event id is, and the mapping has it of "id" now: if that was another one, run this with the mapping of that time; if the row was deleted, look for`, "")
}

// A letter that names its row, which is gone, can only be discarded.
func TestRedrive_SaysThatTheRowIsGone(t *testing.T) {
	t.Parallel()
	l := limited(t, "columns: {id: id, key: account, payload: payload}", "id int PRIMARY KEY, account text")
	l.writes(t, 1, `INSERT INTO outbox (id, account, payload) VALUES (7, 'a', jsonb_build_object('n', 4, 'fill', repeat('x', 50000)))`)
	l.db.Exec(t, "DELETE FROM outbox")
	invoke(t, l.env, "deadletter", "redrive", "--all", raised).want(t, exitFailed, "the letter has no value, and the row is not in table public.outbox any more; look for the event id in its topic", "")
	l.db.Exec(t, "ALTER TABLE outbox ALTER id TYPE bigint")
	invoke(t, l.env, "deadletter", "redrive", "--all", raised).want(t, exitFailed, `no row of table public.outbox has its event id in column "id"; the column had another type when the letter was written`, "")
}

// A row that makes another key by another mapping is the letter's all the same.
func TestRedrive_DoubtsTheMappingWhereTheRowMakesAnotherKey(t *testing.T) {
	t.Parallel()
	l := limited(t, "columns: {id: id, key: account, payload: payload}", "id bigserial PRIMARY KEY, account text, owner text DEFAULT 'o'")
	l.writes(t, 1, `INSERT INTO outbox (account, payload) VALUES ('a', jsonb_build_object('n', 1, 'fill', repeat('x', 50000)))`)
	by := func(key string) {
		l.configure(t, "outbox: [{table: public.outbox, topic: order-events, columns: {id: id, key: "+key+", payload: payload}}]\nrelay: {on_reject: dead_letter, park_key: true}\n")
	}
	by("owner")
	invoke(t, l.env, "deadletter", "redrive", "--all", raised).want(t, exitFailed, "the row that now has its event id makes another key: if the mapping was changed since, run this with the mapping of that time", "")
	by("account")
	invoke(t, l.env, "deadletter", "redrive", "--all", "--yes", raised).want(t, exitOK, "1 of 1 dead letter of the selected keys re-driven, 0 left", "")
}
