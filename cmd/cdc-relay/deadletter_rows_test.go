package main

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/cdc-relay/cdc-relay/deadletter"
	"github.com/cdc-relay/cdc-relay/postgres/postgrestest"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/sr/srfake"
)

// large is SQL for a payload that neither its topic nor the dead-letter topic takes.
const large = "jsonb_build_object('n', %d, 'fill', repeat('x', 50000))"

// raised is what lets a redrive send it.
const raised = "--set=kafka.max_message_bytes=4MiB"

// limited is a life whose rows are too large beyond 16 KiB. mapping goes into the table's entry,
// columns into its DDL.
func limited(t *testing.T, mapping, columns string, more ...string) *life {
	t.Helper()
	l := newLife(t)
	l.configure(t, "outbox: [{table: public.outbox, topic: order-events, "+mapping+"}]\nrelay: {on_reject: dead_letter, park_key: true}\n")
	l.env = append(append(l.env, "CDC_RELAY_KAFKA_MAX_MESSAGE_BYTES=16KiB"), more...)
	l.db.Exec(t, "CREATE TABLE outbox ("+columns+", payload jsonb)")
	invoke(t, l.env, "setup").want(t, exitOK, "created slot", "")
	l.brokers.CreateTopic(t, "order-events", 1)
	return l
}

// writes has a relay deliver what the statements write.
func (l *life) writes(t *testing.T, n int, statements ...string) {
	t.Helper()
	url, stop := l.start(t, nil)
	for _, s := range statements {
		l.db.Exec(t, s)
	}
	l.published(t, url, n)
	stop()
}

// sentNumbers are the members n of the values, in their order.
func sentNumbers(t *testing.T, records []*kgo.Record) string {
	t.Helper()
	var all []string
	for _, r := range records {
		var value struct{ N int }
		if err := json.Unmarshal(r.Value, &value); err != nil {
			t.Fatal(err)
		}
		all = append(all, fmt.Sprint(value.N))
	}
	return strings.Join(all, " ")
}

// In a table without a unique index several rows may have one event id, and one key too. The hash
// of what was set aside tells which of them is the letter's.
func TestRedrive_TakesOfSeveralRowsTheOneThatWasSetAside(t *testing.T) {
	for name, mapping := range map[string]string{
		"with a key": "columns: {id: id, key: account, payload: payload}", "without a key": "columns: {id: id, payload: payload}",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := limited(t, mapping, "id bigint NOT NULL, account text")
			const insert = "INSERT INTO outbox VALUES (1, 'k', %s)"
			l.writes(t, 4, fmt.Sprintf(insert, `'{"n": 1}'`), fmt.Sprintf(insert, fmt.Sprintf(large, 2)), fmt.Sprintf(insert, fmt.Sprintf(large, 3)), fmt.Sprintf(insert, `'{"n": 4}'`))

			l.db.Exec(t, `UPDATE outbox SET payload = payload || '{"n": 7}' WHERE payload->>'n' = '3'`)
			const refused = "the letter at partition 0, offset 1 is not complete, and 4 rows have its event id, none of them with the value that was set aside: restore that row as it was, or discard the letter, and write the event again"
			invoke(t, l.env, "deadletter", "redrive", "--all", raised).want(t, exitOK, "(2 would fail)", "")
			invoke(t, l.env, "deadletter", "redrive", "--all", raised).want(t, exitOK, "would fail: "+refused, "")
			got := invoke(t, l.env, "deadletter", "redrive", "--all", "--yes", raised)
			got.want(t, exitFailed, "1 done; "+refused, "")
			got.want(t, exitFailed, "1 of 3 dead letters of the selected keys re-driven, 2 left", "")
			if strings.Contains(got.stdout, "warning") {
				t.Errorf("it warns:\n%s", got.stdout)
			}
			if sent := sentNumbers(t, l.brokers.Read(t, "order-events")); sent != "1 2" {
				t.Errorf("it sent %q", sent)
			}

			l.db.Exec(t, `UPDATE outbox SET payload = payload || '{"n": 3}' WHERE payload->>'n' = '7'`)
			got = invoke(t, l.env, "deadletter", "redrive", "--all", "--yes", raised)
			got.want(t, exitOK, "2 of 2 dead letters of the selected keys re-driven, 0 left", "")
			if strings.Contains(got.stdout, "warning") {
				t.Errorf("it warns:\n%s", got.stdout)
			}
			if sent := sentNumbers(t, l.brokers.Read(t, "order-events")); sent != "1 2 3 4" {
				t.Errorf("it sent %q", sent)
			}
		})
	}
}

// A policy that hides the row is no reason to take it for deleted.
func TestRedrive_TellsARowThatAPolicyHidesFromOneThatIsGone(t *testing.T) {
	t.Parallel()
	l := limited(t, "columns: {id: id, payload: payload}", "id bigint PRIMARY KEY")
	l.writes(t, 1, "INSERT INTO outbox VALUES (1, "+fmt.Sprintf(large, 1)+")")
	role := postgrestest.NewRole(t, l.db, "LOGIN REPLICATION")
	l.db.Exec(t, "GRANT SELECT ON outbox TO "+role)
	defer l.db.Exec(t, "DROP OWNED BY "+role)
	env := l.with("CDC_RELAY_POSTGRES_URL", postgrestest.WithUser(t, l.db.URL, role))
	l.db.Exec(t, "ALTER TABLE outbox ENABLE ROW LEVEL SECURITY")

	for _, args := range [][]string{{"--all"}, {"--all", "--yes"}} {
		got := invoke(t, env, append([]string{"deadletter", "redrive", raised}, args...)...)
		got.want(t, exitFailed, "row-level security of table public.outbox applies to role \""+role+"\", and may hide the row; connect as a role with BYPASSRLS, or as the table's owner", "")
		if strings.Contains(got.stdout, "discard") && !strings.Contains(got.stdout, "would be") || strings.Contains(got.stdout, "write the event again") {
			t.Errorf("it advises to give the row up:\n%s", got.stdout)
		}
	}
	l.db.Exec(t, "ALTER ROLE "+role+" BYPASSRLS")
	invoke(t, env, "deadletter", "redrive", "--all", "--yes", raised).want(t, exitOK, "1 of 1 dead letter of the selected keys re-driven, 0 left", "")
}

const (
	fillSchema = `{"type": "record", "name": "R", "fields": [{"name": "n", "type": "int"}, {"name": "fill", "type": "string"}]}`
	moreSchema = `{"type": "record", "name": "R", "fields": [{"name": "n", "type": "int"}, {"name": "fill", "type": "string"}, {"name": "more", "type": "string", "default": ""}]}`
)

// limitedAvro is limited with value: avro and the first schema of a registry, whose number is first.
func limitedAvro(t *testing.T, keyed bool) (r *srfake.Registry, l *life, first int) {
	t.Helper()
	r, more := newRegistry(t)
	first = register(t, r, "order-events-value", fillSchema)
	mapping := "columns: {id: id, payload: payload}"
	if keyed {
		mapping = "columns: {id: id, key: account, payload: payload}"
	}
	l = limited(t, "value: avro, "+mapping, "id bigint PRIMARY KEY, account text", more[1:]...)
	return r, l, first
}

// A value is made again by the schema that made it, although the subject has a newer version by now.
func TestRedrive_EncodesByTheSchemaOfTheLetter(t *testing.T) {
	for name, keyed := range map[string]bool{"with a key": true, "without a key": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r, l, first := limitedAvro(t, keyed)
			const insert = "INSERT INTO outbox VALUES (%d, 'k', %s)"
			l.writes(t, 2, fmt.Sprintf(insert, 1, fmt.Sprintf(large, 1)), fmt.Sprintf(insert, 2, fmt.Sprintf(large, 2)))
			register(t, r, "order-events-value", moreSchema)

			one := []string{"deadletter", "redrive", "--all", raised}
			if keyed {
				one = []string{"deadletter", "redrive", "--offset", "0", "--partition", "0", raised}
			}
			got := invoke(t, l.env, append(one, "--yes")...)
			got.want(t, exitOK, "2 of 2 dead letters of the selected keys re-driven, 0 left", "")
			if strings.Contains(got.stdout, "warning") {
				t.Errorf("it warns:\n%s", got.stdout)
			}
			for _, record := range l.brokers.Read(t, "order-events") {
				if id := int(binary.BigEndian.Uint32(record.Value[1:])); id != first {
					t.Errorf("it is encoded by schema %d, want %d", id, first)
				}
			}
		})
	}
}

// The registry lost the schema of the letter. Nothing shows then whether the row was changed.
func TestRedrive_SaysThatTheSchemaOfTheLetterIsGone(t *testing.T) {
	for name, keyed := range map[string]bool{"with a key": true, "without a key": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, l, first := limitedAvro(t, keyed)
			l.writes(t, 1, "INSERT INTO outbox VALUES (1, 'k', "+fmt.Sprintf(large, 1)+")")
			other, more := newRegistry(t)
			register(t, other, "unused", `"int"`)
			register(t, other, "order-events-value", moreSchema)
			env := append(l.with("CDC_RELAY_KAFKA_REGISTRY_URL", ""), more[1:]...)

			got := invoke(t, env, "deadletter", "redrive", "--all", "--yes", raised)
			if strings.Contains(got.stdout, "changed after") || strings.Contains(got.stdout, "another value") {
				t.Errorf("it says that the row was changed:\n%s", got.stdout)
			}
			if keyed {
				got.want(t, exitOK, "; warning: 1 dead letter encoded by a schema that is not in the registry any more, so that nothing shows whether the row was changed; a missing value is encoded by the present schema", "")
				return
			}
			got.want(t, exitFailed, fmt.Sprintf("schema %d, which encoded its value, is not in the registry any more", first), "")
			if n := len(l.brokers.Read(t, "order-events")); n != 0 {
				t.Errorf("it sent %d records", n)
			}
		})
	}
}

// The time of an event is that of the commit, also when its record is made again.
func TestRedrive_MakesAnEventWithTheTimeOfItsCommit(t *testing.T) {
	t.Parallel()
	l := limited(t, "value: cloudevents, columns: {id: id, type: kind, payload: payload}", "id bigint PRIMARY KEY, kind text")
	l.writes(t, 1, "INSERT INTO outbox VALUES (1, 'Placed', "+fmt.Sprintf(large, 1)+")")
	committed := ""
	for _, h := range l.brokers.Read(t, "cdc-relay.dead-letters")[0].Headers {
		if h.Key == deadletter.HeaderCommitTime {
			committed = string(h.Value)
		}
	}
	got := invoke(t, l.env, "deadletter", "redrive", "--all", "--yes", raised)
	got.want(t, exitOK, "1 of 1 dead letter of the selected keys re-driven, 0 left", "")
	var event struct{ Time string }
	if err := json.Unmarshal(l.brokers.Read(t, "order-events")[0].Value, &event); err != nil || event.Time != committed || committed == "" {
		t.Errorf("the event has time %q, and its row was committed at %q: %v", event.Time, committed, err)
	}
}

// A letter may hold all of its record, and its row be lost in a failover. The event did not happen,
// as far as the database knows.
func TestRedrive_RefusesACompleteLetterWhoseRowWasLost(t *testing.T) {
	t.Parallel()
	l, source := withLetters(t, setAside{key: "a"}, setAside{key: "a", timeline: "7"}, setAside{key: "a"}, setAside{key: "b"}, setAside{key: "c", timeline: "7", source: "7000/5/elsewhere"})
	const lost = "the row of the letter at partition 0, offset 1, of timeline 7, was lost in a failover, so the database does not have it; discard the letter, and write the event again if it is to be sent"
	invoke(t, l.env, "deadletter", "redrive", "--all").want(t, exitOK, "would fail: "+lost, "")
	invoke(t, l.env, "deadletter", "redrive", "--all", "--source", source).want(t, exitOK, "would fail: "+lost, "")
	got := invoke(t, l.env, "deadletter", "redrive", "--all", "--yes", "--source", "all")
	got.want(t, exitFailed, "; "+lost, "")
	got.want(t, exitFailed, "4 of 5 dead letters of the selected keys re-driven, 1 left", "")
	if sent := l.values(t, "orders", "a"); sent != "0 2" {
		t.Errorf("of key a it sent %q", sent)
	}
	if sent := l.values(t, "orders", "b") + l.values(t, "orders", "c"); sent != "34" {
		t.Errorf("of the others it sent %q", sent)
	}
	invoke(t, l.env, "deadletter", "redrive", "--offset", "1", "--partition", "0", "--discard", "--yes").want(t, exitOK, "discarded", "")
	invoke(t, l.env, "deadletter", "list").want(t, exitOK, "0 of 0 dead letters", "")
}
