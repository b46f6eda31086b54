package main

import (
	"encoding/binary"
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/twmb/avro"
	"github.com/twmb/franz-go/pkg/sr"
	"github.com/twmb/franz-go/pkg/sr/srfake"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/dynamicpb"
)

// encoded is an order in each format, behind the number of a schema, as the libraries make it.
func encoded(t *testing.T, o ordered) map[string][]byte {
	t.Helper()
	text, err := json.Marshal(o)
	if err != nil {
		t.Fatal(err)
	}
	plain, err := avro.MustParse(avroOrder).Encode(o)
	if err != nil {
		t.Fatal(err)
	}
	_, message, err := protobufFile()
	if err != nil {
		t.Fatal(err)
	}
	m := dynamicpb.NewMessage(message)
	if err := protojson.Unmarshal(text, m); err != nil {
		t.Fatal(err)
	}
	wire, err := proto.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	framing := []byte{0, 0, 0, 0, 7}
	return map[string][]byte{
		relayJSONSchema: append(framing[:5:5], text...),
		relayAvro:       append(framing[:5:5], plain...),
		relayProtobuf:   append(append(framing[:5:5], 0), wire...),
	}
}

// A figure is of values that a consumer can read, and of whole ones.
func TestFormats_CountOnlyWholeValues(t *testing.T) {
	s := usual(1)
	order := ordered{N: 12345, State: "placed", Customer: "c-2345", Currency: "EUR", Total: 12345 * 37 % 100000,
		Lines: []line{{SKU: "sku-1415", Quantity: 7, Price: 12345 * 13 % 10000}}, Note: order(1)[:s.payload-160]}
	right := encoded(t, order)
	order.Lines[0].Price++
	wrong := encoded(t, order)
	for name, f := range formats {
		if f.value == "" {
			continue
		}
		number, err := f.number(nil, s)
		if err != nil {
			t.Fatal(err)
		}
		if n, ok := number(right[name]); !ok || n != 12345 {
			t.Errorf("%s: a whole value gives %d, %t", name, n, ok)
		}
		unframed := append([]byte{0, 0, 0, 0, 0}, right[name][5:]...)
		for what, value := range map[string][]byte{
			"another price": wrong[name], "a byte too many": append(right[name][:len(right[name]):len(right[name])], 1),
			"a byte too few": right[name][:len(right[name])-1], "no framing": right[name][5:], "no number": unframed, "nothing": nil,
		} {
			if n, ok := number(value); ok {
				t.Errorf("%s: %s passes as row %d", name, what, n)
			}
		}
	}
}

// What Debezium's converter wrote is read by the schema that it registered, where every member may be
// null.
func TestFormats_ReadByTheRegisteredSchema(t *testing.T) {
	registry := srfake.New()
	defer registry.Close()
	inferred := strings.NewReplacer(`"type": "int"`, `"type": ["null", "int"]`, `"type": "string"`, `"type": ["null", "string"]`).Replace(avroOrder)
	id, _, err := registry.RegisterSchema("bench-value", sr.Schema{Schema: inferred})
	if err != nil {
		t.Fatal(err)
	}
	number, err := format{decoder: func(*bench) (func(uint32, []byte) (ordered, error), error) { return decoderBy(registry.URL()) }}.number(nil, usual(1))
	if err != nil {
		t.Fatal(err)
	}
	var members map[string]any
	if err := json.Unmarshal([]byte(order(4711)), &members); err != nil {
		t.Fatal(err)
	}
	value := func(id int) []byte {
		body, err := avro.MustParse(inferred).Encode(members)
		if err != nil {
			t.Fatal(err)
		}
		return append(binary.BigEndian.AppendUint32([]byte{0}, uint32(id)), body...)
	}
	whole := value(id)
	if n, ok := number(whole); !ok || n != 4711 {
		t.Errorf("a whole value gives %d, %t", n, ok)
	}
	if _, ok := number(value(id + 1)); ok {
		t.Error("a number that nobody registered passes")
	}
	if _, ok := number(whole[:len(whole)-1]); ok {
		t.Error("a byte too few passes")
	}
	members["total"] = nil
	if _, ok := number(value(id)); ok {
		t.Error("a null in place of the total passes")
	}
}

func TestShape_EventTypesAreNumbered(t *testing.T) {
	s := usual(1)
	if s.functions() != schema {
		t.Error("a shape of one event type has functions of its own")
	}
	s.events = 200
	if text := s.functions(); !strings.Contains(text, "'Changed' || i % 200, bench_payload") || strings.Count(text, "'Changed'") != 1 {
		t.Error(text)
	}
}

func TestReport_ComparesTheFormats(t *testing.T) {
	table := Table{Name: "formats"}
	for name, rate := range map[string]float64{relayKafka: 100, relayAvro: 80, relayJSONSchema: 90, relayProtobuf: 70, debeziumWarm: 40, debeziumAvro: 20} {
		table.Lines = append(table.Lines, Line{Contestant: name, Runs: []Run{{RowsPerSecond: rate}}})
	}
	text := (&Results{Drains: []Table{table}}).markdown()
	want := "Compared with `relay-kafka`: 0.80 as Avro, 0.90 as JSON Schema, 0.70 as Protobuf. Debezium with Avro compared with Debezium without: 0.50. Avro by the relay compared with Avro by Debezium: 4.00."
	if !strings.Contains(text, want) {
		t.Errorf("the report lacks %q:\n%s", want, text)
	}
	table.Lines = slices.DeleteFunc(table.Lines, func(l Line) bool { return l.Contestant != relayKafka && l.Contestant != relayAvro })
	text = (&Results{Drains: []Table{table}}).markdown()
	if want := "0.80 as Avro, – as JSON Schema, – as Protobuf."; !strings.Contains(text, want) {
		t.Errorf("the report lacks %q:\n%s", want, text)
	}
}
