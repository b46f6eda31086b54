package debezium_test

import (
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cdc-relay/cdc-relay/replication/wal"
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

// oids are those of types whose columns come without a type's name.
var oids = map[string]uint32{"int8": 20, "int4": 23, "box": 603, "varchar": 1043, "date": 1082, "timestamp": 1114, "uuid": 2950, "jsonb": 3802, "text": 25}

// table is a relation in short: `name type` for each column.
func table(columns ...string) *wal.Relation {
	rel := &wal.Relation{OID: 16384, Namespace: "public", Name: "outbox"}
	for _, c := range columns {
		name, typ, _ := strings.Cut(c, " ")
		col := wal.Column{Name: name, TypeMod: -1, Type: 99999, TypeName: typ}
		if oid, known := oids[typ]; known {
			col.Type, col.TypeName = oid, ""
		}
		rel.Columns = append(rel.Columns, col)
	}
	return rel
}

// null is NULL in a row of text values.
const null = "\x00null"

func textRow(rel *wal.Relation, values ...string) *wal.Row {
	row := &wal.Row{
		Txn:      &wal.Txn{XID: 7, Commit: 0x1_0000_0028},
		LSN:      0x1_0000_0010,
		Ordinal:  3,
		Relation: rel,
	}
	for _, v := range values {
		if v == null {
			row.Values = append(row.Values, wal.Value{Kind: wal.Null})
			continue
		}
		row.Values = append(row.Values, wal.Value{Kind: wal.Text, Data: []byte(v)})
	}
	return row
}

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
