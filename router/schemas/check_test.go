package schemas

import (
	"encoding/binary"
	"errors"
	"testing"

	"github.com/cdc-relay/cdc-relay/router/column"
	"github.com/cdc-relay/cdc-relay/router/encode"
	"github.com/cdc-relay/cdc-relay/router/record"
)

// checked is a table that checks, as Value uses it, which knows these schemas.
func checked(t testing.TB, known map[uint32]encode.Kind) *Bound {
	t.Helper()
	table, err := New(Config{Check: true})
	if err != nil {
		t.Fatal(err)
	}
	bound, err := table.Bind(func(string) (*column.Source, error) { return &column.Source{}, nil })
	if err != nil {
		t.Fatal(err)
	}
	for id, kind := range known {
		(&Answer{need: &Need{ID: id, table: table}, kind: kind, known: true}).Learn()
	}
	return bound
}

func framed(id uint32, body ...byte) []byte {
	return append(binary.BigEndian.AppendUint32([]byte{0}, id), body...)
}

// loads are payloads of a topic: those of one schema, those whose schemas take turns, and those of
// Protobuf, which have a list behind the number.
var loads = []struct {
	name     string
	payloads [][]byte
}{
	{"one schema", [][]byte{framed(7, 2), framed(7, 4)}},
	{"two schemas in turns", [][]byte{framed(7, 2), framed(8, 2)}},
	{"protobuf", [][]byte{framed(9, 0, 2), framed(9, 4, 2, 2, 8)}},
}

var knownIDs = map[uint32]encode.Kind{7: encode.Avro, 8: encode.Avro, 9: encode.Protobuf}

func TestCheck_AllocatesNothingForARowOfAKnownSchema(t *testing.T) {
	for _, load := range loads {
		table, source := checked(t, knownIDs), &column.Source{}
		var b record.Buffer
		var scratch []byte
		if n := testing.AllocsPerRun(100, func() {
			for _, payload := range load.payloads {
				if out, err := table.Value(&b, nil, source, payload, "orders", &scratch); err != nil || &out[0] != &payload[0] {
					t.Fatalf("%s: %x, %v", load.name, out, err)
				}
			}
		}); n > 0 {
			t.Errorf("%s: %v allocations", load.name, n)
		}
	}
}

// BenchmarkCheck is what schema.check adds to a row.
func BenchmarkCheck(b *testing.B) {
	for _, load := range loads {
		b.Run(load.name, func(b *testing.B) {
			table, source := checked(b, knownIDs), &column.Source{}
			var buf record.Buffer
			var scratch []byte
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				if _, err := table.Value(&buf, nil, source, load.payloads[i&1], "orders", &scratch); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// An unknown number is asked for, and one that the registry lacks rejects its row, and is asked for
// again by the next one.
func TestCheck_AsksOnceForEachNumber(t *testing.T) {
	table, source := checked(t, nil), &column.Source{Column: "payload"}
	value := func() error {
		var scratch []byte
		_, err := table.Value(new(record.Buffer), nil, source, framed(7, 1), "orders", &scratch)
		return err
	}
	need, ok := errors.AsType[*Need](value())
	if !ok || need.ID != 7 || need.Topic != "orders" {
		t.Fatalf("%+v", need)
	}
	(&Answer{need: need}).Learn()
	if err := value(); err == nil || errors.As(err, &need) {
		t.Errorf("a number that the registry lacks: %v", err)
	}
	if need, ok = errors.AsType[*Need](value()); !ok {
		t.Fatal("it is not asked again")
	}
	(&Answer{need: need, kind: encode.Avro, known: true}).Learn()
	if err := value(); err != nil {
		t.Error(err)
	}
}
