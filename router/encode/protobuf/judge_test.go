package protobuf

import (
	"bytes"
	"testing"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/encoding/prototext"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/descriptorpb"
	"google.golang.org/protobuf/types/dynamicpb"
	_ "google.golang.org/protobuf/types/known/anypb"
	_ "google.golang.org/protobuf/types/known/durationpb"
	_ "google.golang.org/protobuf/types/known/emptypb"
	_ "google.golang.org/protobuf/types/known/fieldmaskpb"
	_ "google.golang.org/protobuf/types/known/structpb"
	_ "google.golang.org/protobuf/types/known/timestamppb"
	_ "google.golang.org/protobuf/types/known/wrapperspb"
)

// The judge is the library of Protobuf: descriptors by protodesc, JSON by protojson.

// orders has what schemas of orders have.
const orders = `
name: "order.proto" package: "shop.v1" syntax: "proto3"
dependency: ["google/protobuf/timestamp.proto", "google/protobuf/duration.proto", "google/protobuf/wrappers.proto",
	"google/protobuf/struct.proto", "google/protobuf/field_mask.proto", "google/protobuf/empty.proto", "google/protobuf/any.proto"]
message_type { name: "Order"
	field { name: "id" number: 1 label: LABEL_OPTIONAL type: TYPE_STRING }
	field { name: "customer" number: 2 label: LABEL_OPTIONAL type: TYPE_MESSAGE type_name: ".shop.v1.Customer" }
	field { name: "placed_at" number: 3 label: LABEL_OPTIONAL type: TYPE_MESSAGE type_name: ".google.protobuf.Timestamp" }
	field { name: "total_cents" number: 4 label: LABEL_OPTIONAL type: TYPE_INT64 }
	field { name: "lines" number: 5 label: LABEL_REPEATED type: TYPE_MESSAGE type_name: ".shop.v1.Order.Line" }
	field { name: "state" number: 6 label: LABEL_OPTIONAL type: TYPE_ENUM type_name: ".shop.v1.State" }
	field { name: "note" number: 7 label: LABEL_OPTIONAL type: TYPE_STRING proto3_optional: true oneof_index: 1 }
	field { name: "tags" number: 8 label: LABEL_REPEATED type: TYPE_MESSAGE type_name: ".shop.v1.Order.TagsEntry" }
	field { name: "card" number: 9 label: LABEL_OPTIONAL type: TYPE_STRING oneof_index: 0 }
	field { name: "iban" number: 10 label: LABEL_OPTIONAL type: TYPE_STRING oneof_index: 0 }
	nested_type { name: "Line"
		field { name: "sku" number: 1 label: LABEL_OPTIONAL type: TYPE_STRING }
		field { name: "qty" number: 2 label: LABEL_OPTIONAL type: TYPE_INT32 }
		field { name: "of" number: 3 label: LABEL_OPTIONAL type: TYPE_MESSAGE type_name: ".shop.v1.Order.Line" } }
	nested_type { name: "TagsEntry" options { map_entry: true }
		field { name: "key" number: 1 label: LABEL_OPTIONAL type: TYPE_STRING }
		field { name: "value" number: 2 label: LABEL_OPTIONAL type: TYPE_STRING } }
	oneof_decl { name: "payment" } oneof_decl { name: "_note" } }
message_type { name: "Customer"
	field { name: "name" number: 1 label: LABEL_OPTIONAL type: TYPE_STRING }
	field { name: "rating" number: 2 label: LABEL_OPTIONAL type: TYPE_DOUBLE } }
enum_type { name: "State" value { name: "UNKNOWN" number: 0 } value { name: "PLACED" number: 1 } value { name: "PAID" number: 7 } }
`

const placed = `{"id": "8e0a5a5e-3c3f-4c5e-9f43-0242ac120002", "customer": {"name": "Ada", "rating": 0.5}, "placedAt": "2026-11-25T20:05:09.123456Z",
	"totalCents": "12990", "lines": [{"sku": "A-1", "qty": 2}, {"sku": "B-2", "qty": 1}], "state": "PLACED", "note": "leave at the door"}`

// kinds has a field of each type, alone, repeated and as a map.
func kinds() *descriptorpb.FileDescriptorProto {
	file := &descriptorpb.FileDescriptorProto{}
	must(prototext.Unmarshal([]byte(`name: "kinds.proto" package: "k" syntax: "proto3"
		dependency: ["google/protobuf/timestamp.proto", "google/protobuf/duration.proto", "google/protobuf/wrappers.proto",
			"google/protobuf/struct.proto", "google/protobuf/field_mask.proto", "google/protobuf/empty.proto"]
		enum_type { name: "E" value { name: "ZERO" number: 0 } value { name: "ONE" number: 1 } value { name: "LESS" number: -1 } }
		message_type { name: "M" }`), file))
	m := file.MessageType[0]
	number := int32(0)
	add := func(name string, typ descriptorpb.FieldDescriptorProto_Type, typeName string) {
		for _, label := range []descriptorpb.FieldDescriptorProto_Label{descriptorpb.FieldDescriptorProto_LABEL_OPTIONAL, descriptorpb.FieldDescriptorProto_LABEL_REPEATED} {
			number++
			f := &descriptorpb.FieldDescriptorProto{Name: &[]string{"f_" + name, "r_" + name}[label/3], Number: proto.Int32(number), Label: label.Enum(), Type: typ.Enum()}
			if typeName != "" {
				f.TypeName = &typeName
			}
			m.Field = append(m.Field, f)
		}
	}
	entry := func(name string, key descriptorpb.FieldDescriptorProto_Type, value descriptorpb.FieldDescriptorProto_Type, typeName string) {
		number++
		made := &descriptorpb.DescriptorProto{Name: proto.String("M" + name + "Entry"), Options: &descriptorpb.MessageOptions{MapEntry: proto.Bool(true)}, Field: []*descriptorpb.FieldDescriptorProto{
			{Name: proto.String("key"), Number: proto.Int32(1), Label: descriptorpb.FieldDescriptorProto_LABEL_OPTIONAL.Enum(), Type: key.Enum()},
			{Name: proto.String("value"), Number: proto.Int32(2), Label: descriptorpb.FieldDescriptorProto_LABEL_OPTIONAL.Enum(), Type: value.Enum()}}}
		if typeName != "" {
			made.Field[1].TypeName = &typeName
		}
		m.NestedType = append(m.NestedType, made)
		m.Field = append(m.Field, &descriptorpb.FieldDescriptorProto{Name: proto.String("m" + name), Number: proto.Int32(number), Label: descriptorpb.FieldDescriptorProto_LABEL_REPEATED.Enum(),
			Type: descriptorpb.FieldDescriptorProto_TYPE_MESSAGE.Enum(), TypeName: proto.String(".k.M." + *made.Name)})
	}
	for typ := descriptorpb.FieldDescriptorProto_TYPE_DOUBLE; typ <= descriptorpb.FieldDescriptorProto_TYPE_SINT64; typ++ {
		switch typ {
		case descriptorpb.FieldDescriptorProto_TYPE_GROUP:
		case descriptorpb.FieldDescriptorProto_TYPE_MESSAGE:
			add("message", typ, ".k.M")
			entry("message", descriptorpb.FieldDescriptorProto_TYPE_STRING, typ, ".k.M")
		case descriptorpb.FieldDescriptorProto_TYPE_ENUM:
			add("enum", typ, ".k.E")
			entry("enum", descriptorpb.FieldDescriptorProto_TYPE_SINT32, typ, ".k.E")
		default:
			add(written[typ], typ, "")
			key := typ
			if typ == descriptorpb.FieldDescriptorProto_TYPE_DOUBLE || typ == descriptorpb.FieldDescriptorProto_TYPE_FLOAT || typ == descriptorpb.FieldDescriptorProto_TYPE_BYTES {
				key = descriptorpb.FieldDescriptorProto_TYPE_STRING
			}
			entry(written[typ], key, typ, "")
		}
	}
	for _, name := range []string{"Timestamp", "Duration", "FieldMask", "Empty", "Struct", "Value", "ListValue", "DoubleValue", "FloatValue", "Int64Value", "UInt64Value", "Int32Value", "UInt32Value", "BoolValue", "StringValue", "BytesValue"} {
		add(name, descriptorpb.FieldDescriptorProto_TYPE_MESSAGE, ".google.protobuf."+name)
	}
	add("NullValue", descriptorpb.FieldDescriptorProto_TYPE_ENUM, ".google.protobuf.NullValue")
	entry("Value", descriptorpb.FieldDescriptorProto_TYPE_STRING, descriptorpb.FieldDescriptorProto_TYPE_MESSAGE, ".google.protobuf.Value")
	return file
}

// old has what proto2 and editions have: required, groups, packed, closed enums, delimited messages.
const old = `
name: "old.proto" package: "old"
enum_type { name: "E" value { name: "A" number: 1 } value { name: "B" number: 2 } }
message_type { name: "M"
	field { name: "need" number: 2 label: LABEL_REQUIRED type: TYPE_INT32 }
	field { name: "maybe" number: 1 label: LABEL_OPTIONAL type: TYPE_INT32 default_value: "5" }
	field { name: "loose" number: 3 label: LABEL_REPEATED type: TYPE_INT32 }
	field { name: "tight" number: 4 label: LABEL_REPEATED type: TYPE_INT32 options { packed: true } }
	field { name: "e" number: 5 label: LABEL_OPTIONAL type: TYPE_ENUM type_name: ".old.E" }
	field { name: "inner" number: 6 label: LABEL_OPTIONAL type: TYPE_GROUP type_name: ".old.M.Inner" }
	field { name: "more" number: 7 label: LABEL_REPEATED type: TYPE_GROUP type_name: ".old.M.More" }
	field { name: "with_name" number: 900 label: LABEL_OPTIONAL type: TYPE_BYTES json_name: "Other" }
	nested_type { name: "Inner" field { name: "n" number: 1 label: LABEL_OPTIONAL type: TYPE_SINT64 } }
	nested_type { name: "More" field { name: "m" number: 1 label: LABEL_OPTIONAL type: TYPE_MESSAGE type_name: ".old.M" } } }
`

const edition = `
name: "edition.proto" package: "ed" syntax: "editions" edition: EDITION_2023
options { features { field_presence: IMPLICIT } }
enum_type { name: "E" value { name: "A" number: 1 } options { features { enum_type: CLOSED } } }
message_type { name: "M"
	field { name: "plain" number: 1 label: LABEL_OPTIONAL type: TYPE_INT32 }
	field { name: "there" number: 2 label: LABEL_OPTIONAL type: TYPE_INT32 options { features { field_presence: EXPLICIT } } }
	field { name: "need" number: 3 label: LABEL_OPTIONAL type: TYPE_STRING options { features { field_presence: LEGACY_REQUIRED } } }
	field { name: "apart" number: 4 label: LABEL_REPEATED type: TYPE_INT32 options { features { repeated_field_encoding: EXPANDED } } }
	field { name: "dense" number: 5 label: LABEL_REPEATED type: TYPE_INT32 }
	field { name: "e" number: 6 label: LABEL_REPEATED type: TYPE_ENUM type_name: ".ed.E" }
	field { name: "inner" number: 7 label: LABEL_OPTIONAL type: TYPE_MESSAGE type_name: ".ed.M.Inner" options { features { message_encoding: DELIMITED } } }
	field { name: "by_name" number: 8 label: LABEL_REPEATED type: TYPE_MESSAGE type_name: ".ed.M.ByNameEntry" }
	nested_type { name: "Inner" field { name: "n" number: 1 label: LABEL_OPTIONAL type: TYPE_INT32 } }
	nested_type { name: "ByNameEntry" options { map_entry: true features { message_encoding: DELIMITED } }
		field { name: "key" number: 1 label: LABEL_OPTIONAL type: TYPE_STRING }
		field { name: "value" number: 2 label: LABEL_OPTIONAL type: TYPE_MESSAGE type_name: ".ed.M.Inner" } } }
`

func must(err error) {
	if err != nil {
		//nolint:forbidigo // the texts are of this file
		panic(err)
	}
}

func parsed(text string) *descriptorpb.FileDescriptorProto {
	file := &descriptorpb.FileDescriptorProto{}
	must(prototext.Unmarshal([]byte(text), file))
	return file
}

// both makes the encoder of a file's first message, and the library's type.
func both(t testing.TB, file *descriptorpb.FileDescriptorProto, drop bool) (*Encoder, protoreflect.MessageType) {
	t.Helper()
	b, err := proto.Marshal(file)
	if err != nil {
		t.Fatal(err)
	}
	e, err := NewCompiler(Options{Drop: drop}).Compile(b)
	if err != nil {
		t.Fatal(err)
	}
	made, err := protodesc.NewFile(file, protoregistry.GlobalFiles)
	if err != nil {
		t.Fatal(err)
	}
	return e, dynamicpb.NewMessageType(made.Messages().Get(0))
}

// judged holds a payload that the walk took against the library.
func judged(t testing.TB, e *Encoder, library protoreflect.MessageType, payload, value []byte) {
	t.Helper()
	wanted, got := library.New().Interface(), library.New().Interface()
	if err := (protojson.UnmarshalOptions{DiscardUnknown: e.drop}).Unmarshal(payload, wanted); err != nil {
		t.Fatalf("%q is taken, and the library says %v", payload, err)
	}
	if err := proto.Unmarshal(value[1:], got); err != nil {
		t.Fatalf("%q gives %x: %v", payload, value, err)
	}
	if !proto.Equal(wanted, got) {
		t.Fatalf("%q gives %x, which is %v, and the library's is %v", payload, value, got, wanted)
	}
	theirs, err := proto.MarshalOptions{Deterministic: true}.Marshal(wanted)
	if err != nil || len(theirs) != len(value)-1 {
		t.Fatalf("%q gives %x, and the library %x, %v", payload, value[1:], theirs, err)
	}
	back, err := e.Decode(value)
	if err != nil {
		t.Fatalf("%q gives %x, which does not read back: %v", payload, value, err)
	}
	if twice, err := e.Append(nil, back); err != nil || !bytes.Equal(twice, value) {
		t.Fatalf("%q gives %x, which reads back as %s, which gives %x, %v", payload, value, back, twice, err)
	}
}
