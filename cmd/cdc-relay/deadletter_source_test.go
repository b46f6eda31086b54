package main

import (
	"bytes"
	"strings"
	"testing"
)

// sourceBlocks has a connector send changes as they are, in Debezium's envelope, with the row's
// primary key as the event id.
const sourceBlocks = `
outbox:
  - table: public.outbox
    debezium:
      topic.prefix: app
      database.dbname: shop
      key.converter: org.apache.kafka.connect.json.JsonConverter
      key.converter.schemas.enable: false
      value.converter: org.apache.kafka.connect.json.JsonConverter
      value.converter.schemas.enable: false
      header.converter: org.apache.kafka.connect.storage.StringConverter
      transforms: outbox,id
      transforms.outbox.type: io.debezium.transforms.outbox.EventRouter
      transforms.outbox.predicate: all
      transforms.outbox.negate: true
      transforms.id.type: org.apache.kafka.connect.transforms.HeaderFrom$Key
      transforms.id.fields: id
      transforms.id.headers: id
      transforms.id.operation: copy
      predicates: all
      predicates.all.type: org.apache.kafka.connect.transforms.predicates.TopicNameMatches
      predicates.all.pattern: .*outbox
relay: {on_reject: dead_letter}
`

// The envelope names position and transaction of the row. They are restored as the relay would have
// sent them. What an update was to say is not in its table any more.
func TestDeadLetter_RestoresTheSourceOfARowInDebeziumsEnvelope(t *testing.T) {
	t.Parallel()
	l := newLife(t)
	l.configure(t, sourceBlocks)
	l.env = append(l.env, "CDC_RELAY_KAFKA_MAX_MESSAGE_BYTES=16KiB")
	l.db.Exec(t, "CREATE TABLE outbox (id text PRIMARY KEY, aggregatetype text NOT NULL, aggregateid text NOT NULL, type text NOT NULL, payload text)")
	invoke(t, l.env, "setup").want(t, exitOK, "created slot", "")
	l.brokers.CreateTopic(t, "app.public.outbox", 1)
	url, stop := l.start(t, nil)
	l.db.Exec(t, "INSERT INTO outbox VALUES ('a', 'order', '1', 't', repeat('x', 20000)), ('b', 'order', '2', 't', 'small')")
	l.db.Exec(t, "UPDATE outbox SET payload = repeat('y', 20000) WHERE id = 'b'")
	l.published(t, url, 3)
	stop()

	l.env = append(l.env, "CDC_RELAY_KAFKA_MAX_MESSAGE_BYTES=1MiB")
	done := invoke(t, l.env, "deadletter", "redrive", "--all", "--yes")
	done.want(t, exitFailed, "1 of 2 dead letters of the selected keys re-driven, 1 left", "")
	done.want(t, exitFailed, "is of an update: its table has the row as it is now", "")
	if strings.Contains(done.stdout, "changed after") { // else its hash would be another one
		t.Errorf("the restored record is not what was to be sent:\n%s", done.stdout)
	}
	sent := l.brokers.Read(t, "app.public.outbox")
	if len(sent) != 2 || !bytes.Contains(sent[1].Value, []byte(`"xxx`)) || bytes.Contains(sent[1].Value, []byte(`"txId":null`)) {
		t.Errorf("%d records, the last one %.300s", len(sent), sent[len(sent)-1].Value)
	}
}
