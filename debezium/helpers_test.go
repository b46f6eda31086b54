package debezium_test

import (
	"flag"
	"os"
	"path/filepath"
	"testing"

	"github.com/cdc-relay/cdc-relay/replication/wal"
	"github.com/cdc-relay/cdc-relay/replication/wal/waltest"
	"github.com/cdc-relay/cdc-relay/router"
	"github.com/cdc-relay/cdc-relay/router/record"
)

var update = updateFlag()

// updateFlag is that of the package's other tests.
func updateFlag() *bool {
	if flag.Lookup("update") == nil {
		return flag.Bool("update", false, "write the golden files")
	}
	v := flag.Lookup("update").Value.(flag.Getter).Get().(bool)
	return &v
}

// golden compares got with a file in testdata.
func golden(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", name+".golden")
	if *update {
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatalf("%v (go test -update writes it)", err)
	}
	if string(want) != got {
		t.Errorf("%s differs:\n--- want\n%s\n--- got\n%s", path, want, got)
	}
}

const (
	classEventRouter  = "io.debezium.transforms.outbox.EventRouter"
	classUnwrap       = "io.debezium.transforms.ExtractNewRecordState"
	classDecode       = "io.debezium.connector.postgresql.transforms.DecodeLogicalDecodingMessageContent"
	packageTransforms = "org.apache.kafka.connect.transforms."
	packagePredicates = "org.apache.kafka.connect.transforms.predicates."
)

func table(columns ...string) *wal.Relation { return waltest.Table(columns...) }

const null = waltest.Null

func textRow(rel *wal.Relation, values ...string) *wal.Row { return waltest.TextRow(rel, values...) }

func mustNew(t testing.TB, m router.Mapping) *router.Router {
	t.Helper()
	if m.Table == "" {
		m.Table = "public.outbox"
	}
	r, err := router.New(router.Config{Mappings: []router.Mapping{m}})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// routeOne routes one row and returns the record.
func routeOne(t testing.TB, m router.Mapping, row *wal.Row) (record.Record, error) {
	t.Helper()
	var b record.Buffer
	if err := mustNew(t, m).Route(&b, row); err != nil {
		if len(b.Records) != 0 {
			t.Errorf("a rejected row left %d records", len(b.Records))
		}
		return record.Record{}, err
	}
	return b.Records[0], nil
}
