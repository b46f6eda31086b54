package integration

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cdc-relay/cdc-relay/relay/status"
	"github.com/cdc-relay/cdc-relay/sandbox"
	"github.com/cdc-relay/cdc-relay/test/harness"
)

// The disk of the server is put back to a copy of it. That makes no new timeline, and new rows get
// positions that the checkpoint covers.
func TestExactlyOnce_ADiskThatIsPutBackLosesNoNewRow(t *testing.T) {
	t.Parallel()
	db := harness.OwnPostgres(t, sandbox.PostgresOptions{Version: harness.Versions()[0]})
	p, w := exactlyOnce(t, db, harness.Kfake(t, kfakeDefault), "")
	insert := func(event string, n, size int) {
		t.Helper()
		db.Exec(t, `INSERT INTO outbox (aggregate_type, aggregate_id, event_type, payload)
			SELECT $1, gen_random_uuid(), $2, to_jsonb(repeat('x', $4)) FROM generate_series(1, $3)`, strings.TrimSuffix(w.Topic(), "-events"), event, n, size)
	}
	r := p.Start(t)
	r.AwaitStreaming(t)
	insert("first", 5, 10)
	p.AwaitCaughtUp(t)

	data := filepath.Join(db.Server.Dir(), "data")
	copied := func(from, to string) {
		t.Helper()
		stop(t, db, sandbox.Fast)
		if out, err := exec.Command("cp", "-a", from, to).CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
	}
	copied(data, data+"-copy")
	start(t, db)
	insert("gone", 500, 1000)
	p.AwaitCaughtUp(t)
	r.Stop(t)

	copied(data, data+"-gone")
	if err := os.RemoveAll(data); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command("cp", "-a", data+"-copy", data).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	start(t, db)
	insert("new", 3, 10)
	r = p.Start(t)
	r.Await(t, "the rows that are gone are reported", func(s status.Status) bool { return s.State == status.Streaming && s.DataLoss == 1 })
	insert("new", 4, 10)
	p.AwaitCaughtUp(t)
	r.Stop(t)
	found := map[string]int{}
	for _, record := range readCommitted(t, p, w.Topic()) {
		found[header(record, "eventType")]++
	}
	if found["new"] != 7 || found["first"] < 5 || found["gone"] != 500 {
		t.Errorf("delivered %v", found)
	}
}
