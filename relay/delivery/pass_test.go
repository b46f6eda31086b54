package delivery

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/cdc-relay/cdc-relay/checkpoint/stored"
	"github.com/cdc-relay/cdc-relay/debezium"
	"github.com/cdc-relay/cdc-relay/relay/resume"
	"github.com/cdc-relay/cdc-relay/relay/status"
	"github.com/cdc-relay/cdc-relay/replication/wal"
	"github.com/cdc-relay/cdc-relay/router"
	"github.com/cdc-relay/cdc-relay/router/record"
	"github.com/rs/zerolog"
)

// A transaction of three rows, the first two of which Kafka has, goes on with the third. The
// records of provide.transaction.metadata count all three, and the transaction begins once.
func TestRoute_CountsRowsThatWereDeliveredBefore(t *testing.T) {
	const commit = wal.LSN(0x320)
	for name, has := range map[string]func(d *Delivery){
		"a divided transaction": func(d *Delivery) {
			d.guarantee = &exactlyOnce{delivery: d, resumedAt: stored.Position{Part: stored.Part{Commit: commit, Rows: 2}}}
		},
		"another relay's rows": func(d *Delivery) {
			d.start.AlreadySent = func(row *wal.Row) bool { return row.Ordinal <= 2 }
		},
		"the beginning before an unreadable row": func(d *Delivery) {
			d.shared.partial.Last = wal.Place{Commit: commit, Ordinal: 2}
		},
	} {
		t.Run(name, func(t *testing.T) {
			const class = "org.apache.kafka.connect.storage.StringConverter"
			routes, err := router.New(router.Config{Mappings: []router.Mapping{{Table: "public.outbox", Connector: debezium.Config{
				{Name: "topic.prefix", Value: "app"}, {Name: "key.converter", Value: class}, {Name: "value.converter", Value: class},
				{Name: "provide.transaction.metadata", Value: "true"},
			}}}})
			if err != nil {
				t.Fatal(err)
			}
			monitor := status.NewMonitor(status.Pipeline{}, zerolog.Nop(), nil)
			d := &Delivery{shared: New(Config{Resume: new(resume.Config)}, routes, nil, nil, monitor, Events{}, zerolog.Nop())}
			d.guarantee, d.start.AlreadySent = &atLeastOnce{d}, func(*wal.Row) bool { return false }
			has(d)

			rel, txn := &wal.Relation{Namespace: "public", Name: "outbox"}, &wal.Txn{XID: 7, Commit: commit, Time: time.Unix(1000, 0)}
			for _, column := range []string{"id", "aggregatetype", "aggregateid", "payload"} {
				rel.Columns = append(rel.Columns, wal.Column{Name: column, Type: 25, TypeMod: -1, TypeName: "text"})
			}
			batch := &wal.Batch{}
			for ordinal := uint64(1); ordinal <= 3; ordinal++ {
				row := wal.Row{Relation: rel, Txn: txn, LSN: commit - 1, Ordinal: ordinal}
				for range rel.Columns {
					row.Values = append(row.Values, wal.Value{Kind: wal.Text, Data: fmt.Appendf(nil, "row%d", ordinal)})
				}
				batch.Rows = append(batch.Rows, row)
			}
			batch.Rows = append(batch.Rows, wal.Row{Relation: rel, Txn: txn, LSN: commit, Ordinal: 4, Change: &wal.Change{Op: wal.Commit}})
			f := &InFlight{delivery: d, batch: batch, buf: new(record.Buffer)}
			if err := d.Route(f); err != nil {
				t.Fatal(err)
			}
			got := valuesOf(f)
			if len(got) != 2 || got[0] != "row3" || !strings.Contains(got[1], "status=END") || !strings.Contains(got[1], "event_count=3") {
				t.Errorf("records %q, want the third row's and the end of a transaction of three events", got)
			}
		})
	}
}
