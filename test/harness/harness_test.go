package harness_test

import (
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/cdc-relay/cdc-relay/sandbox"
	"github.com/cdc-relay/cdc-relay/test/harness"
)

func TestMain(m *testing.M) { harness.Main(m) }

func TestPostgres_GivesDatabasesOfTheirOwn(t *testing.T) {
	harness.EachPostgres(t, func(t *testing.T, db *harness.Database) {
		db.Exec(t, "CREATE TABLE t (id int)")
		db.Exec(t, "SELECT pg_create_logical_replication_slot($1, 'pgoutput')", harness.Unique(t, "slot"))
		other := harness.Postgres(t, db.Version[:2])
		if n := harness.Query[int](t, other, "SELECT count(*) FROM pg_class WHERE relname = 't'"); n != 0 {
			t.Error("the other database has the table too")
		}
	})
}

func TestBrokers_KeepRecords(t *testing.T) {
	harness.EachBroker(t, func(t *testing.T, brokers *harness.Brokers) {
		topic := harness.Unique(t, "kept")
		brokers.CreateTopic(t, topic, 3, "max.message.bytes", "2000000")
		client, err := kgo.NewClient(kgo.SeedBrokers(brokers.Addrs...))
		if err != nil {
			t.Fatal(err)
		}
		defer client.Close()
		for _, key := range []string{"a", "b", "c", "d"} {
			if err := client.ProduceSync(t.Context(), &kgo.Record{Topic: topic, Key: []byte(key)}).FirstErr(); err != nil {
				t.Fatal(err)
			}
		}
		if got := len(brokers.Read(t, topic)); got != 4 {
			t.Errorf("records = %d, want 4", got)
		}
	})
}

func TestOwnPostgres_MayBeKilled(t *testing.T) {
	db := harness.OwnPostgres(t, sandbox.PostgresOptions{})
	if err := db.Server.Kill(); err != nil {
		t.Fatal(err)
	}
	if err := db.Server.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := harness.Query[int](t, db, "SELECT 1"); got != 1 {
		t.Errorf("answer = %d", got)
	}
}
