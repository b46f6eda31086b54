package relay

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/cdc-relay/cdc-relay/debezium"
	"github.com/cdc-relay/cdc-relay/relay/rejected"
	"github.com/cdc-relay/cdc-relay/replication/wal"
	"github.com/cdc-relay/cdc-relay/router"
	"github.com/cdc-relay/cdc-relay/router/record"
	"github.com/rs/zerolog"
)

// Updates of an outbox that marks rows as processed are as many as its rows: the
// first is logged at once, the others in one line a minute, and no value with them.
func TestRelay_LogsWhatTheRouterNoticedOnceAMinute(t *testing.T) {
	const class = "org.apache.kafka.connect.storage.StringConverter"
	routes, err := router.New(router.Config{Mappings: []router.Mapping{{Table: "public.outbox", Connector: debezium.Config{
		{Name: "topic.prefix", Value: "app"}, {Name: "key.converter", Value: class}, {Name: "value.converter", Value: class},
	}}}})
	if err != nil {
		t.Fatal(err)
	}
	rel := &wal.Relation{Namespace: "public", Name: "outbox"}
	values := make([]wal.Value, 0, 4)
	for _, name := range []string{"id", "aggregatetype", "aggregateid", "payload"} {
		rel.Columns = append(rel.Columns, wal.Column{Name: name, Type: 25, TypeMod: -1, TypeName: "text"})
		values = append(values, wal.Value{Kind: wal.Text, Data: []byte("hidden")})
	}
	var log bytes.Buffer
	r := New(Config{}, Parts{Router: routes}, Events{}, zerolog.New(&log))
	update := func(commit uint64) {
		row := &wal.Row{Relation: rel, Values: values, Ordinal: 1, Txn: &wal.Txn{Commit: 0x100}, Change: &wal.Change{Op: wal.Update}}
		row.Txn.Commit += wal.LSN(commit)
		if err := routes.Route(new(record.Buffer), row); err != nil {
			t.Fatal(err)
		}
	}
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	r.logNotices(now)
	update(0)
	r.logNotices(now)
	for n := range uint64(3) {
		update(1 + n)
		r.logNotices(now.Add(time.Second))
	}
	r.logNotices(now.Add(rejected.Every))
	r.logNotices(now.Add(2 * rejected.Every))
	lines := strings.Split(strings.TrimSpace(log.String()), "\n")
	if len(lines) != 2 || !strings.Contains(lines[0], `"rows":1`) || !strings.Contains(lines[1], `"rows":3`) ||
		!strings.Contains(lines[1], `"lsn":"0/101"`) || !strings.Contains(lines[1], `"table":"public.outbox"`) {
		t.Errorf("logged:\n%s", &log)
	}
	if strings.Contains(log.String(), "hidden") {
		t.Errorf("a value is logged:\n%s", &log)
	}
}
