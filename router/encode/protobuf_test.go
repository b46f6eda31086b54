package encode

import (
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/prototext"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/descriptorpb"
)

const (
	orderProto = `name: "order.proto" package: "shop" syntax: "proto3" dependency: ["line.proto", "google/protobuf/timestamp.proto"]
		message_type { name: "Order"
			field { name: "id" number: 1 label: LABEL_OPTIONAL type: TYPE_STRING }
			field { name: "lines" number: 2 label: LABEL_REPEATED type: TYPE_MESSAGE type_name: ".shop.Line" }
			field { name: "at" number: 3 label: LABEL_OPTIONAL type: TYPE_MESSAGE type_name: ".google.protobuf.Timestamp" } }
		message_type { name: "Cancelled" field { name: "id" number: 1 label: LABEL_OPTIONAL type: TYPE_STRING } }`
	lineProto = `name: "line.proto" package: "shop" syntax: "proto3"
		message_type { name: "Line" field { name: "qty" number: 1 label: LABEL_OPTIONAL type: TYPE_INT32 } field { name: "of" number: 2 label: LABEL_OPTIONAL type: TYPE_MESSAGE type_name: ".shop.Line" } }`
)

func protoFile(t testing.TB, text string) *descriptorpb.FileDescriptorProto {
	t.Helper()
	file := &descriptorpb.FileDescriptorProto{}
	if err := prototext.Unmarshal([]byte(text), file); err != nil {
		t.Fatal(err)
	}
	return file
}

// serialized is a schema as registries give it with format=serialized.
func serialized(t testing.TB, file *descriptorpb.FileDescriptorProto) string {
	t.Helper()
	b, err := proto.Marshal(file)
	if err != nil {
		t.Fatal(err)
	}
	return base64.StdEncoding.EncodeToString(b)
}

func TestProtobuf_EncodesByTheDescriptorsOfARegistry(t *testing.T) {
	s := Schema{Subject: "s-value", Version: 3, ID: 17, Kind: Protobuf, Text: serialized(t, protoFile(t, orderProto)), References: []Reference{{Name: "line.proto", Text: serialized(t, protoFile(t, lineProto))}}}
	for message, want := range map[string]string{"": "0000000011" + "00" + "0a0161" + "12020801" + "1a020801", "shop.Cancelled": "0000000011" + "0202" + "0a0161"} {
		payload := `{"id": "a"}`
		if message == "" {
			payload = `{"lines": [{"qty": 1}], "at": "1970-01-01T00:00:01Z", "id": "a"}`
		}
		e, err := Compile(s, Options{Kind: Protobuf, Message: message})
		if err != nil {
			t.Fatal(err)
		}
		got, err := e.Append(nil, []byte(payload))
		if err != nil || hex.EncodeToString(got) != want {
			t.Errorf("%s: %x, %v, want %s", message, got, err, want)
		}
		if err := Indexes(got); err != nil {
			t.Error(err)
		}
		if back, err := e.Decode(got); err != nil || !strings.Contains(string(back), `"id":"a"`) {
			t.Errorf("%s, %v", back, err)
		}
		for i := range got {
			if back, err := e.Decode(got[:i]); err == nil && i < 6 {
				t.Errorf("%x is decoded to %s", got[:i], back)
			}
		}
	}
	e, err := Compile(s, Options{Kind: Protobuf})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := e.Append(nil, []byte(`{"lines": [{}, {}, {"qty": "x"}]}`)); err == nil || err.Error() != "$.lines[2].qty: the schema wants int32, the payload has a string that is no number (subject s-value, version 3, id 17)" {
		t.Error(err)
	}
}

func TestProtobuf_EncodesByADescriptorSetOfAFile(t *testing.T) {
	set, err := proto.Marshal(&descriptorpb.FileDescriptorSet{File: []*descriptorpb.FileDescriptorProto{protoFile(t, lineProto), protoFile(t, orderProto)}})
	if err != nil {
		t.Fatal(err)
	}
	for message, want := range map[string]string{"": "00", "shop.Line": "00", "shop.Cancelled": "0202"} {
		e, err := Compile(Schema{File: "order.desc", ID: 5, Kind: Protobuf, Text: string(set)}, Options{Kind: Protobuf, Message: message})
		if err != nil {
			t.Fatal(err)
		}
		if got, err := e.Append(nil, []byte(`{}`)); err != nil || hex.EncodeToString(got) != "0000000005"+want {
			t.Errorf("%s: %x, %v", message, got, err)
		}
	}
}

func TestProtobuf_RefusesWhatIsNoDescriptor(t *testing.T) {
	order := serialized(t, protoFile(t, orderProto))
	for _, c := range []struct {
		s    Schema
		want string
	}{
		{Schema{Subject: "s", Text: "syntax = \"proto3\";\nmessage M {}"}, "the registry gives Protobuf schemas as text, and not as descriptors (format=serialized); set schema.file to a descriptor set"},
		{Schema{Subject: "s", Text: order, References: []Reference{{Name: "line.proto", Text: "message Line {}"}}}, "reference line.proto: the registry gives Protobuf schemas as text"},
		{Schema{Subject: "s", Text: order}, "type .shop.Line of field shop.Order.lines is not defined; name the schema that defines it in the schema's references"},
		{Schema{Subject: "s", Text: "AAAA"}, "damaged"},
		{Schema{File: "f", Text: "syntax = \"proto3\";"}, "write the file with protoc --include_imports --descriptor_set_out"},
		{Schema{File: "f"}, "it has no descriptors"},
		{Schema{Subject: "s", Text: strings.Repeat("A", MaxSchema*5)}, "bytes with its references"},
	} {
		c.s.Kind = Protobuf
		if _, err := Compile(c.s, Options{Kind: Protobuf}); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%.40s: %v, want %s", c.s.Text, err, c.want)
		}
	}
}

// Large and deep input is taken or refused, in a time that grows with its length: the test would not
// end otherwise.
func TestProtobuf_StandsLargeAndDeepInput(t *testing.T) {
	file := protoFile(t, `name: "wide.proto" syntax: "proto3" message_type { name: "M" }`)
	for i := range 10_000 {
		file.MessageType[0].Field = append(file.MessageType[0].Field, &descriptorpb.FieldDescriptorProto{
			Name: proto.String(fmt.Sprintf("f%d", i)), Number: proto.Int32(int32(i + 1)), Label: descriptorpb.FieldDescriptorProto_LABEL_OPTIONAL.Enum(), Type: descriptorpb.FieldDescriptorProto_TYPE_INT32.Enum(),
		})
	}
	file.MessageType[0].Field[0].Label = descriptorpb.FieldDescriptorProto_LABEL_REPEATED.Enum()
	file.MessageType[0].Field[0].Type = descriptorpb.FieldDescriptorProto_TYPE_MESSAGE.Enum()
	file.MessageType[0].Field[0].TypeName = proto.String(".M")
	e, err := Compile(Schema{Subject: "s", Kind: Protobuf, Text: serialized(t, file)}, Options{Kind: Protobuf})
	if err != nil {
		t.Fatal(err)
	}
	var all strings.Builder
	for i := 9_999; i > 0; i-- { // in the wrong order
		fmt.Fprintf(&all, `"f%d": %d, `, i, i)
	}
	object := `{` + all.String() + `"f0": []}`
	many := `{"f0": [` + object + strings.Repeat(`,`+object, 99) + strings.Repeat(`,{}`, 1_500_000) + `]}` // 20 MB
	got, err := e.Append(nil, []byte(many))
	if err != nil || len(got) < 3_000_000 {
		t.Fatalf("%d bytes, %v", len(got), err)
	}
	deep := strings.Repeat(`{"f0": [`, 127) + `{"f1": 1}` + strings.Repeat(`]}`, 127)
	if got, err = e.Append(nil, []byte(deep)); err != nil {
		t.Fatal(err)
	}
	if back, err := e.Decode(got); err != nil || len(back) != len(strings.ReplaceAll(deep, " ", "")) {
		t.Errorf("%d bytes, %v", len(back), err)
	}
	if _, err := e.Append(nil, []byte(strings.Repeat(`{"f0": [`, 5_000_000))); err == nil {
		t.Error("a bomb is taken")
	}
}
