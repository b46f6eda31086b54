package main

import (
	"encoding/json"
	"testing"

	"github.com/twmb/avro"
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
