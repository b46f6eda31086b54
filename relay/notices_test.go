package relay

import (
	"bytes"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cdc-relay/cdc-relay/debezium"
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
	r.notice(now)
	update(0)
	r.notice(now)
	for n := range uint64(3) {
		update(1 + n)
		r.notice(now.Add(time.Second))
	}
	r.notice(now.Add(noticeEvery))
	r.notice(now.Add(2 * noticeEvery))
	lines := strings.Split(strings.TrimSpace(log.String()), "\n")
	if len(lines) != 2 || !strings.Contains(lines[0], `"rows":1`) || !strings.Contains(lines[1], `"rows":3`) ||
		!strings.Contains(lines[1], `"lsn":"0/101"`) || !strings.Contains(lines[1], `"table":"public.outbox"`) {
		t.Errorf("logged:\n%s", &log)
	}
	if strings.Contains(log.String(), "hidden") {
		t.Errorf("a value is logged:\n%s", &log)
	}
}

// Thousands of rejected rows are as many counts and two lines a minute.
func TestRelay_LogsRowsThatAreSetAsideOnceAMinute(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		r := New(Config{OnReject: SkipOnReject}, Parts{}, Events{}, zerolog.New(&log))
		s := &session{r: r}
		reject := func(table, reason string, n int) {
			for i := range n {
				s.tell(reason, &wal.Row{
					Relation: &wal.Relation{Namespace: "public", Name: table}, Ordinal: uint64(i + 1), Txn: &wal.Txn{Commit: 0x100},
				}, errors.New("refused"))
			}
		}
		said := func(want ...string) {
			t.Helper()
			lines := strings.Split(strings.TrimSpace(log.String()), "\n")
			for i, w := range want {
				if len(lines) != len(want) || !strings.Contains(lines[i], w) {
					t.Fatalf("want %q in:\n%s", want, &log)
				}
			}
			log.Reset()
		}
		reject("a", "route", 30_000)
		reject("a", "too_large", 1)
		reject("b", "route", 1)
		r.tellRest(time.Now(), false)
		said(`"reason":"route","table":"public.a","rows":1,`, `"reason":"too_large","table":"public.a","rows":1,`, `"table":"public.b","rows":1,`)
		pass(noticeEvery)
		r.tellRest(time.Now(), false)
		said(`"reason":"route","table":"public.a","rows":29999,"lsn":"0/FF","seq":30000`)
		reject("a", "route", 2)
		r.tellRest(time.Now(), true)
		said(`"rows":2,`)
	})
}
