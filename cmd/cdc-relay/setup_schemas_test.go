package main

import (
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/cdc-relay/cdc-relay/test/harness"
	"github.com/twmb/franz-go/pkg/sr"
	"github.com/twmb/franz-go/pkg/sr/srfake"
)

const orderSchema = `{"type": "record", "name": "Order", "fields": [{"name": "n", "type": "int"}]}`

// widerSchema takes what orderSchema takes, and a note.
const widerSchema = `{"type": "record", "name": "Order", "fields": [{"name": "n", "type": "int"}, {"name": "note", "type": ["null", "string"], "default": null}]}`

// registers is a life whose setup registers a schema.
type registers struct {
	*life
	*srfake.Registry
	file, slot string
	refusal    atomic.Int32 // status of the answer to what would change the registry; zero: it takes it
	compatible atomic.Bool
}

func newRegisters(t *testing.T) *registers {
	r := &registers{life: newLife(t), Registry: srfake.New(), file: filepath.Join(t.TempDir(), "order.avsc")}
	t.Cleanup(r.Close)
	r.compatible.Store(true)
	r.Intercept(func(w http.ResponseWriter, req *http.Request) bool {
		status := int(r.refusal.Load())
		switch {
		case req.Method == http.MethodPost && strings.HasPrefix(req.URL.Path, "/compatibility/") && !r.compatible.Load():
			_, _ = w.Write([]byte(`{"is_compatible": false, "messages": ["READER_FIELD_MISSING_DEFAULT_VALUE at /fields/1"]}`))
		case req.Method == http.MethodPost && strings.HasSuffix(req.URL.Path, "/versions") && status != 0:
			w.WriteHeader(status)
		default:
			return false
		}
		return true
	})
	r.slot = strings.TrimPrefix(r.env[1], "CDC_RELAY_POSTGRES_SLOT=")
	r.env = append(r.env, "CDC_RELAY_OUTBOX_VALUE=avro", "CDC_RELAY_OUTBOX_SCHEMA_FILE="+r.file, "CDC_RELAY_OUTBOX_SCHEMA_REGISTER=true",
		"CDC_RELAY_OUTBOX_SCHEMA_SUBJECT=orders-value", "CDC_RELAY_KAFKA_REGISTRY_URL="+r.URL())
	r.write(t, orderSchema)
	return r
}

// write has the file be this schema.
func (r *registers) write(t *testing.T, schema string) {
	t.Helper()
	if err := os.WriteFile(r.file, []byte(schema), 0o600); err != nil {
		t.Fatal(err)
	}
}

func (r *registers) slots(t *testing.T) int64 {
	t.Helper()
	return harness.Query[int64](t, r.db, "SELECT count(*) FROM pg_replication_slots WHERE slot_name = '"+r.slot+"'")
}

// versions counts those of the subject.
func (r *registers) versions(t *testing.T) (n int) {
	t.Helper()
	for r.has(n + 1) {
		n++
	}
	return n
}

func (r *registers) has(version int) bool {
	_, is := r.GetSchema("orders-value", version)
	return is
}

func TestSetup_RegistersTheSchema(t *testing.T) {
	t.Parallel()
	r := newRegisters(t)
	setup := func(code int, stdout, stderr string, args ...string) {
		t.Helper()
		invoke(t, r.env, append([]string{"setup", "--create-table"}, args...)...).want(t, code, stdout, stderr)
	}
	setup(exitOK, "-- subject orders-value is missing, for schema "+r.file, "", "--dry-run")
	if r.versions(t) != 0 || r.slots(t) != 0 {
		t.Fatal("--dry-run wrote")
	}
	setup(exitOK, "registered schema "+r.file+" under subject orders-value: version 1, id 1", "")
	setup(exitOK, "-- subject orders-value has schema "+r.file+": version 1, id 1", "")
	if n := r.versions(t); n != 1 || r.slots(t) != 1 {
		t.Errorf("%d versions after two calls", n)
	}
	r.write(t, widerSchema)
	setup(exitOK, "-- subject orders-value lacks schema "+r.file+"; the registry calls it compatible with version 1, id 1", "", "--dry-run")
	if n := r.versions(t); n != 1 {
		t.Fatalf("--dry-run wrote: %d versions", n)
	}
	setup(exitOK, ": version 2, id 2", "")
	r.write(t, orderSchema)
	setup(exitOK, "has schema "+r.file+": version 1, id 1", "rows are encoded by the latest one, version 2; bring the file up to date")
	setup(exitOK, "", "is version 1 of subject orders-value, and rows are encoded by version 2", "--set", "outbox.schema.version=2")
	if n := r.versions(t); n != 2 {
		t.Errorf("%d versions", n)
	}
	invoke(t, r.env, "sql").want(t, exitOK, "`cdc-relay setup` registers schema "+r.file+" under subject orders-value", "")
}

// A slot without a relay that could stream from it holds back WAL.
func TestSetup_MakesNoSlotWhereTheRegistryRefuses(t *testing.T) {
	t.Parallel()
	r := newRegisters(t)
	refused := func(stderr string, args ...string) {
		t.Helper()
		got := invoke(t, r.env, append([]string{"setup", "--create-table"}, args...)...)
		got.want(t, exitRefused, "", stderr)
		if strings.Contains(got.stdout, "registered schema") || strings.Contains(got.stdout, "ready") {
			t.Errorf("it says\n%s", got.stdout)
		}
		if r.slots(t) != 0 {
			t.Fatalf("%s: a slot was made", stderr)
		}
	}
	for status, says := range map[int32]string{
		401: "allow the account of kafka.registry to register", 403: "allow the account of kafka.registry to register",
		409: "change the file so that it is compatible", 422: "correct the file", 503: "start the registry",
	} {
		r.refusal.Store(status)
		refused(says)
	}
	r.refusal.Store(0)
	if _, _, err := r.RegisterSchema("orders-value", sr.Schema{Schema: orderSchema}); err != nil {
		t.Fatal(err)
	}
	r.write(t, widerSchema)
	r.compatible.Store(false)
	for _, args := range [][]string{nil, {"--dry-run"}} {
		refused("READER_FIELD_MISSING_DEFAULT_VALUE at /fields/1; change the file", args...)
	}
	if n := r.versions(t); n != 1 {
		t.Errorf("%d versions", n)
	}
	refused("start the registry, or correct kafka.registry.url", "--set", "kafka.registry.url=http://127.0.0.1:1")
}

func TestSetup_RegistersAJSONSchema(t *testing.T) {
	t.Parallel()
	r := newRegisters(t)
	r.env = append(r.env, "CDC_RELAY_OUTBOX_VALUE=json_schema", "CDC_RELAY_OUTBOX_SCHEMA_VALIDATE=true")
	schema := `{"type": "object", "properties": {"n": {"type": "integer"}}}`
	setup := func(code int, stdout, stderr string) {
		t.Helper()
		invoke(t, r.env, "setup", "--create-table").want(t, code, stdout, stderr)
	}
	r.write(t, `{"type": "objekt"}`)
	setup(exitUsage, "", "schema.file: "+r.file)
	if r.versions(t) != 0 || r.slots(t) != 0 {
		t.Fatal("what cannot be used was registered, or a slot made")
	}
	r.write(t, schema)
	setup(exitOK, "registered schema "+r.file+" under subject orders-value: version 1, id 1", "")
	r.write(t, strings.ReplaceAll(schema, " ", "\n ")) // the same, formatted otherwise
	setup(exitOK, "-- subject orders-value has schema "+r.file+": version 1, id 1", "")
	if made, is := r.GetSchema("orders-value", 1); !is || made.Type != sr.TypeJSON || made.Schema.Schema != schema || r.versions(t) != 1 {
		t.Errorf("the registry has %+v, and %d versions", made, r.versions(t))
	}
	_, stop := r.start(t, nil)
	r.insert(t, 1)
	r.await(t, "the row is delivered", func() bool { return len(r.brokers.Read(t, "order-events")) == 1 })
	if code := stop(); code != exitOK {
		t.Errorf("run ended with %d", code)
	}
	if value := r.brokers.Read(t, "order-events")[0].Value; len(value) < 6 || string(value[:5]) != "\x00\x00\x00\x00\x01" || value[5] != '{' {
		t.Errorf("value %q", value)
	}
}

// run uses schemas, and writes none.
func TestRun_RegistersNothing(t *testing.T) {
	t.Parallel()
	r := newRegisters(t)
	invoke(t, r.env, "setup", "--create-table", "--set", "outbox.schema.register=false", "--set", "outbox.schema.file=").want(t, exitOK, "ready", "")
	_, stop := r.start(t, nil)
	r.insert(t, 1)
	r.await(t, "it waits for the subject", func() bool {
		shown := invoke(t, r.env, "check").stdout
		return strings.Contains(shown, "unknown_subject") && strings.Contains(shown, "run `cdc-relay setup`, which registers schema "+r.file+" under subject orders-value")
	})
	if n := r.versions(t); n != 0 {
		t.Errorf("run registered %d", n)
	}
	invoke(t, r.env, "setup").want(t, exitOK, "registered schema", "")
	r.await(t, "the row is delivered", func() bool { return len(r.brokers.Read(t, "order-events")) == 1 })
	if code := stop(); code != exitOK {
		t.Errorf("run ended with %d", code)
	}
}

// Who makes the slot registers before it, so that the first rows find their schema.
func TestBackfill_RegistersTheSchema(t *testing.T) {
	t.Parallel()
	registry, more := newRegistry(t)
	file := filepath.Join(t.TempDir(), "number.avsc")
	if err := os.WriteFile(file, []byte(`"int"`), 0o600); err != nil {
		t.Fatal(err)
	}
	k := newOld(t, "18", append(more, "CDC_RELAY_OUTBOX_SCHEMA_FILE="+file, "CDC_RELAY_OUTBOX_SCHEMA_REGISTER=true", "CDC_RELAY_OUTBOX_SCHEMA_SUBJECT=numbers")...)
	k.write(t, 1, 20)
	invoke(t, k.env, "backfill", "--all").want(t, exitOK, "", "")
	if _, is := registry.GetSchema("numbers", 1); is {
		t.Fatal("a plan registered")
	}
	invoke(t, k.env, "backfill", "--all", "--yes").want(t, exitOK, "rows from before the slot sent", "")
	made, is := registry.GetSchema("numbers", 1)
	if !is {
		t.Fatal("nothing is registered")
	}
	eachOnce(t, plain(t, made.ID, k.committed(t, "order-events")), 20)
}
