package main

import (
	"context"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"

	"github.com/twmb/avro"
	"github.com/twmb/franz-go/pkg/sr"
	"github.com/twmb/franz-go/pkg/sr/srfake"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/encoding/prototext"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/descriptorpb"
	"google.golang.org/protobuf/types/dynamicpb"
)

// Contestants that differ from relay-kafka in nothing but what they make of the payload.
const (
	relayAvro       = "relay-avro"
	relayJSONSchema = "relay-json-schema"
	relayProtobuf   = "relay-protobuf"
)

// The schemas of the payload of bench_payload, for one that has room for a whole order.
const (
	avroOrder = `{"type": "record", "name": "Order", "fields": [
		{"name": "n", "type": "int"}, {"name": "state", "type": "string"}, {"name": "customer", "type": "string"},
		{"name": "currency", "type": "string"}, {"name": "total", "type": "int"},
		{"name": "lines", "type": {"type": "array", "items": {"type": "record", "name": "Line", "fields": [
			{"name": "sku", "type": "string"}, {"name": "quantity", "type": "int"}, {"name": "price", "type": "int"}]}}},
		{"name": "note", "type": "string"}]}`
	jsonOrder     = `{"type": "object", "properties": {"n": {"type": "integer"}, "note": {"type": "string"}}, "required": ["n"]}`
	protobufOrder = `name: "order.proto" package: "bench" syntax: "proto3"
		message_type { name: "Order"
			field { name: "n" number: 1 label: LABEL_OPTIONAL type: TYPE_INT32 }
			field { name: "state" number: 2 label: LABEL_OPTIONAL type: TYPE_STRING }
			field { name: "customer" number: 3 label: LABEL_OPTIONAL type: TYPE_STRING }
			field { name: "currency" number: 4 label: LABEL_OPTIONAL type: TYPE_STRING }
			field { name: "total" number: 5 label: LABEL_OPTIONAL type: TYPE_INT32 }
			field { name: "lines" number: 6 label: LABEL_REPEATED type: TYPE_MESSAGE type_name: ".bench.Line" }
			field { name: "note" number: 7 label: LABEL_OPTIONAL type: TYPE_STRING } }
		message_type { name: "Line"
			field { name: "sku" number: 1 label: LABEL_OPTIONAL type: TYPE_STRING }
			field { name: "quantity" number: 2 label: LABEL_OPTIONAL type: TYPE_INT32 }
			field { name: "price" number: 3 label: LABEL_OPTIONAL type: TYPE_INT32 } }`
)

// format is what a contestant makes of payloads.
type format struct {
	value  string // outbox[].value; empty: it is not the relay's
	kind   sr.SchemaType
	schema string

	// decoder gives the reader of bodies, which are what lies behind the number of the schema.
	decoder func(b *bench) (func(id uint32, body []byte) (ordered, error), error)
}

var formats = map[string]format{
	relayAvro:       {value: "avro", kind: sr.TypeAvro, schema: avroOrder, decoder: avroDecoder},
	relayJSONSchema: {value: "json_schema", kind: sr.TypeJSON, schema: jsonOrder, decoder: jsonDecoder},
	relayProtobuf:   {value: "protobuf", kind: sr.TypeProtobuf, schema: "the registry gives it compiled alone", decoder: protobufDecoder},
	debeziumAvro:    {decoder: registeredDecoder},
}

// ordered is the payload of bench_payload.
type ordered struct {
	N        int    `json:"n" avro:"n"`
	State    string `json:"state" avro:"state"`
	Customer string `json:"customer" avro:"customer"`
	Currency string `json:"currency" avro:"currency"`
	Total    int    `json:"total" avro:"total"`
	Lines    []line `json:"lines" avro:"lines"`
	Note     string `json:"note" avro:"note"`
}

type line struct {
	SKU      string `json:"sku" avro:"sku"`
	Quantity int    `json:"quantity" avro:"quantity"`
	Price    int    `json:"price" avro:"price"`
}

// whole reports whether the members are those of the row; of the note it is the length.
func (o ordered) whole(payload int) bool {
	n := o.N
	return o.State == "placed" && o.Customer == fmt.Sprint("c-", n%10000) && o.Currency == "EUR" && o.Total == n*37%100000 &&
		len(o.Lines) == 1 && o.Lines[0] == line{SKU: fmt.Sprint("sku-", n*7%5000), Quantity: 1 + n%9, Price: n * 13 % 10000} && len(o.Note) == payload-160
}

// number gives the reader of a row's number in values of the format; each has to be the whole row.
func (f format) number(b *bench, s shape) (func(value []byte) (int, bool), error) {
	decode, err := f.decoder(b)
	if err != nil {
		return nil, err
	}
	return func(value []byte) (int, bool) {
		if len(value) < 5 || value[0] != 0 || binary.BigEndian.Uint32(value[1:]) == 0 {
			return 0, false
		}
		o, err := decode(binary.BigEndian.Uint32(value[1:]), value[5:])
		return o.N, err == nil && o.whole(s.payload)
	}, nil
}

var errBody = errors.New("bytes are left, or missing")

func avroDecoder(*bench) (func(uint32, []byte) (ordered, error), error) {
	schema, err := avro.Parse(avroOrder)
	return func(_ uint32, body []byte) (o ordered, err error) {
		rest, err := schema.Decode(body, &o)
		if err == nil && len(rest) > 0 {
			err = errBody
		}
		return o, err
	}, err
}

func jsonDecoder(*bench) (func(uint32, []byte) (ordered, error), error) {
	return func(_ uint32, body []byte) (o ordered, err error) { return o, json.Unmarshal(body, &o) }, nil
}

func protobufFile() (*descriptorpb.FileDescriptorProto, protoreflect.MessageDescriptor, error) {
	file := &descriptorpb.FileDescriptorProto{}
	if err := prototext.Unmarshal([]byte(protobufOrder), file); err != nil {
		return nil, nil, err
	}
	made, err := protodesc.NewFile(file, nil)
	if err != nil {
		return nil, nil, err
	}
	return file, made.Messages().Get(0), nil
}

func protobufDecoder(*bench) (func(uint32, []byte) (ordered, error), error) {
	_, message, err := protobufFile()
	return func(_ uint32, body []byte) (o ordered, err error) {
		if len(body) == 0 || body[0] != 0 { // the first message of the file
			return o, errBody
		}
		m := dynamicpb.NewMessage(message)
		if err := proto.Unmarshal(body[1:], m); err != nil {
			return o, err
		}
		text, err := protojson.Marshal(m)
		if err != nil {
			return o, err
		}
		return o, json.Unmarshal(text, &o)
	}, err
}

// startRegistry starts a registry in this process, whose time is nobody's, with a subject for each
// topic and format.
func startRegistry(topics []string) (*srfake.Registry, error) {
	file, _, err := protobufFile()
	if err != nil {
		return nil, err
	}
	compiled, err := proto.Marshal(file)
	if err != nil {
		return nil, err
	}
	r := srfake.New()
	ids := map[string]int{}
	for _, topic := range topics {
		for _, f := range formats {
			if f.value == "" {
				continue
			}
			subject := topic + "-" + f.value
			if ids[subject], _, err = r.RegisterSchema(subject, sr.Schema{Type: f.kind, Schema: f.schema}); err != nil {
				r.Close()
				return nil, fmt.Errorf("register %s: %w", subject, err)
			}
		}
	}
	r.Intercept(func(w http.ResponseWriter, req *http.Request) bool { // as Confluent's does
		if req.URL.Query().Get("format") != "serialized" {
			return false
		}
		subject, _, _ := strings.Cut(strings.TrimPrefix(req.URL.Path, "/subjects/"), "/")
		w.Header().Set("Content-Type", "application/vnd.schemaregistry.v1+json")
		_, _ = fmt.Fprintf(w, `{"subject": %q, "version": 1, "id": %d, "schemaType": "PROTOBUF", "schema": %q}`,
			subject, ids[subject], base64.StdEncoding.EncodeToString(compiled))
		return true
	})
	return r, nil
}

func startFormat(name string) func(context.Context, *bench, job) (*running, error) {
	return func(ctx context.Context, b *bench, j job) (*running, error) {
		r, err := startRegistry(j.topics)
		if err != nil {
			return nil, err
		}
		value := formats[name].value
		return startEncoding(ctx, b, j, r, value, "${topic}-"+value)
	}
}

// startEncoding starts a relay that encodes by the schemas of a registry, which ends with it.
func startEncoding(ctx context.Context, b *bench, j job, r *srfake.Registry, value, subject string) (*running, error) {
	run, err := startRelay("CDC_RELAY_OUTBOX_VALUE="+value, "CDC_RELAY_OUTBOX_SCHEMA_SUBJECT="+subject, "CDC_RELAY_KAFKA_REGISTRY_URL="+r.URL())(ctx, b, j)
	if err != nil {
		r.Close()
		return nil, err
	}
	stop := run.stop
	run.stop = func() error { defer r.Close(); return stop() }
	return run, nil
}

func compareFormats(ctx context.Context, b *bench) error {
	return b.compare(ctx, "formats", usual(b.rows), func(c contestant) bool {
		return c.encodes || c.name == relayKafka || c.name == debeziumWarm
	})
}
