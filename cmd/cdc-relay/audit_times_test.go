package main

import (
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/cdc-relay/cdc-relay/test/harness"
)

// The column of time may say something else than when a row was written: it lies in the future, or
// a clock was wrong. A row with its record is proven all the same, one without is a fault, and where
// the topic has removed records nobody can tell.
func TestAudit_TimesOfRowsDecideNothing(t *testing.T) {
	t.Parallel()
	for i, version := range harness.Versions() {
		t.Run(version, func(t *testing.T) {
			t.Parallel()
			a := newAudited(t, version, keeping["detect_moved_slot"])
			if _, err := a.brokers.Admin(t).CreateTopic(t.Context(), 1, 1, nil, "past-events"); err != nil {
				t.Fatal(err)
			}
			if i > 0 { // nobody knows what became of the rows from before the slot
				a.row(t, 50, "order", "z")
			}
			invoke(t, a.env, "setup").want(t, exitOK, "", "")
			_, stop := a.start(t, nil)
			a.write(t, 1, 10)
			a.await(t, "10 records", func() bool { return len(a.brokers.Read(t, "order-events")) >= 10 })
			a.db.Exec(t, "UPDATE outbox SET created_at = CASE WHEN id = 1 THEN 'infinity' ELSE now() + interval '400 days' END WHERE id <= 5")
			at := func(days int) string { return time.Now().AddDate(0, 0, days).UTC().Format(time.RFC3339) }
			a.finds(t, exitOK, 1, 10, 5, map[string]int64{}, "--since", at(100))
			a.finds(t, exitOK, 1, 10, 4, map[string]int64{}, "--since", at(100), "--until", at(500))

			stop() // a relay that saw the table leave its publication would wait for a person
			released(t, a.db)
			a.unseen(t, func() {
				a.row(t, 20, "order", "a")
				a.row(t, 30, "past", "b")
			})
			_, stop = a.start(t, nil)
			defer stop()
			a.db.Exec(t, "UPDATE outbox SET created_at = now() + interval '400 days' WHERE id = 20; UPDATE outbox SET created_at = now() - interval '1 day' WHERE id = 30")
			if r := a.finds(t, exitBlocked, 1, 20, 5, map[string]int64{"missing": 1}, "--since", at(100)); len(r.Findings) != 1 || r.Findings[0].ID != "20" {
				t.Errorf("%+v", r)
			}
			record := &kgo.Record{Topic: "past-events", Timestamp: time.Now().AddDate(0, 0, -3), Key: []byte("b"), Value: []byte("30"),
				Headers: []kgo.RecordHeader{{Key: "id", Value: []byte("30")}, {Key: "eventType", Value: []byte("Placed")}}}
			if err := a.client.ProduceSync(t.Context(), record).FirstErr(); err != nil {
				t.Fatal(err)
			}
			a.finds(t, exitOK, 30, 30, 1, map[string]int64{}, "--since", at(-2))

			ends, err := a.brokers.Admin(t).ListEndOffsets(t.Context(), "order-events")
			if err != nil {
				t.Fatal(err)
			}
			var begins kadm.Offsets // one record stays, whose time is since when nothing was removed
			ends.Each(func(o kadm.ListedOffset) { begins.AddOffset(o.Topic, o.Partition, o.Offset-1, -1) })
			if _, err := a.brokers.Admin(t).DeleteRecords(t.Context(), begins); err != nil {
				t.Fatal(err)
			}
			a.finds(t, exitOK, 1, 5, 0, map[string]int64{"gone": 5})
			a.finds(t, exitOK, 1, 5, 0, map[string]int64{"gone": 5}, "--since", at(100))
		})
	}
}
