package harness_test

import (
	"flag"
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
		other := harness.Postgres(t, db.Major())
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

// Sessions are used again, and not those that somebody left in the midst of something.
func TestQuery_NeverSeesAnUnfinishedTransaction(t *testing.T) {
	db := harness.Postgres(t, harness.Versions()[0])
	session := func() int { return harness.Query[int](t, db, "SELECT pg_backend_pid()") }
	first := session()
	if again := session(); again != first {
		t.Errorf("sessions %d and %d, want one that is used again", first, again)
	}
	db.Exec(t, "BEGIN; CREATE TABLE unfinished (id int)")
	if harness.Query[bool](t, db, "SELECT to_regclass('unfinished') IS NOT NULL") || session() == first {
		t.Error("the session was used again inside its transaction")
	}
}

func TestOwnPostgres_MayBeKilled(t *testing.T) {
	db := harness.OwnPostgres(t, sandbox.PostgresOptions{})
	harness.Query[int](t, db, "SELECT 1") // its session dies with the server
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

// What -short leaves out is a skip with a reason, and never what is required.
func TestNeedsServer_SkipsInShortModeUnlessServersAreRequired(t *testing.T) {
	kept := flag.Lookup("test.short").Value.String()
	t.Cleanup(func() { _ = flag.Set("test.short", kept) })
	for _, c := range []struct {
		short, require string
		skipped        bool
	}{{"true", "", true}, {"true", "servers", false}, {"true", "all", false}, {"false", "", false}} {
		t.Setenv(harness.RequireVariable, c.require)
		if err := flag.Set("test.short", c.short); err != nil {
			t.Fatal(err)
		}
		skipped := false
		t.Run("server", func(t *testing.T) {
			defer func() { skipped = t.Skipped() }()
			harness.NeedsServer(t, "a server")
		})
		if skipped != c.skipped {
			t.Errorf("short %s, required %q: skipped %t", c.short, c.require, skipped)
		}
	}
}
