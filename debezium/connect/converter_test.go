package connect_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/cdc-relay/cdc-relay/debezium/connect"
	"github.com/cdc-relay/cdc-relay/debezium/connect/converter"
)

func TestConverters(t *testing.T) {
	decimal := codecOf(t, "numeric(6,2)", "", false, nil)
	amount, err := decimal.Decode([]byte("1.50"))
	if err != nil {
		t.Fatal(err)
	}
	row := &connect.Schema{Type: connect.Struct, Fields: []connect.Field{{Name: "n", Schema: codecOf(t, "integer", "5", false, nil).Schema}, {Name: "t", Schema: connect.OptionalStringSchema}}}
	nulls, err := connect.NewStruct(row, []connect.Value{connect.Null, connect.Null})
	if err != nil {
		t.Fatal(err)
	}
	no := map[string]string{"schemas.enable": "false"}
	for _, c := range []struct {
		class   string
		options map[string]string
		schema  *connect.Schema
		value   connect.Value
		want    string
	}{
		{text, nil, connect.StringSchema, connect.StringValue(""), ""},
		{text, nil, nil, connect.Null, "<null>"},
		{text, map[string]string{"converter.encoding": "ISO-8859-1"}, nil, connect.StringValue("é✓"), "\xe9?"},
		{text, map[string]string{"converter.encoding": "utf-16"}, nil, connect.StringValue("😀"), "\xfe\xff\xd8\x3d\xde\x00"},
		{text, nil, row, nulls, "Struct{}"},
		{jsonic, nil, nil, connect.Null, "<null>"},
		{jsonic, no, nil, connect.Null, "<null>"},
		{jsonic, no, connect.OptionalStringSchema, connect.Null, "null"},
		{jsonic, nil, connect.OptionalStringSchema, connect.Null, `{"schema":{"type":"string","optional":true},"payload":null}`},
		{jsonic, nil, nil, connect.StringValue("[]"), `{"schema":null,"payload":"[]"}`},
		{jsonic, no, nil, connect.ArrayValue([]connect.Value{connect.Int32Value(1), connect.Null}), `[1,null]`},
		{jsonic, no, nil, connect.MapValue([]connect.Value{connect.Int32Value(1), connect.StringValue("a")}), `[[1,"a"]]`},
		{jsonic, no, nil, connect.MapValue([]connect.Value{connect.StringValue("k"), connect.StringValue("a")}), `{"k":"a"}`},
		{jsonic, no, row, nulls, `{"n":5,"t":null}`},
		{jsonic, map[string]string{"schemas.enable": "false", "replace.null.with.default": "FALSE"}, row, nulls, `{"n":null,"t":null}`},
		{jsonic, no, connect.StringSchema, connect.Null, "error: Conversion error: null value for field that is required and has no default value"},
		{jsonic, no, row, connect.StringValue("x"), "error: Invalid type for STRUCT: class java.lang.String"},
		{jsonic, no, row.Fields[1].Schema, nulls, "error: Invalid type for STRING: class org.apache.kafka.connect.data.Struct"},
		{jsonic, no, nil, amount, "error: Java class java.math.BigDecimal does not have corresponding schema type."},
		{jsonic, map[string]string{"schemas.enable": "false", "decimal.format": "numeric"}, decimal.Schema, amount, "1.50"},
		{converter.ClassByteArray, nil, connect.OptionalBytesSchema, connect.BufferValue([]byte{1, 255}), "\x01\xff"},
		{converter.ClassByteArray, nil, connect.OptionalBytesSchema, connect.Null, "<null>"},
		{converter.ClassByteArray, nil, connect.OptionalStringSchema, connect.Null, "error: Invalid schema type for ByteArrayConverter: STRING"},
		{converter.ClassByteArray, nil, nil, connect.StringValue("x"), "error: ByteArrayConverter is not compatible with objects of type class java.lang.String"},
		{converter.ClassBinaryData, nil, connect.OptionalBytesSchema, connect.BufferValue(nil), ""},
		{converter.ClassBinaryData, nil, nil, connect.Null, "<null>"},
		{converter.ClassBinaryData, nil, connect.OptionalStringSchema, connect.Null, "error: A value of type STRING requires a delegate.converter.type to be configured"},
		{converter.ClassBinaryData, map[string]string{"delegate.converter.type": jsonic, "delegate.converter.type.schemas.enable": "false"}, connect.OptionalStringSchema, connect.StringValue("a"), `"a"`},
		{converter.ClassDebeziumByteArray, map[string]string{"delegate.converter.type": text}, connect.OptionalBytesSchema, connect.BufferValue([]byte{1}), "java.nio.HeapByteBuffer[pos=0 lim=1 cap=1]"},
		{converter.ClassInteger, nil, connect.Int32Schema, connect.Int32Value(-2), "\xff\xff\xff\xfe"},
		{converter.ClassInteger, nil, connect.Int64Schema, connect.Int64Value(1), "error: Failed to serialize to integer (was class java.lang.Long)"},
		{converter.ClassLong, nil, connect.Int64Schema, connect.Int64Value(1), "\x00\x00\x00\x00\x00\x00\x00\x01"},
		{converter.ClassShort, nil, nil, connect.Int16Value(258), "\x01\x02"},
		{converter.ClassFloat, nil, nil, connect.Float32Value(1), "\x3f\x80\x00\x00"},
		{converter.ClassDouble, nil, nil, connect.Float64Value(1), "\x3f\xf0\x00\x00\x00\x00\x00\x00"},
		{converter.ClassDouble, nil, nil, connect.Null, "<null>"},
		{converter.ClassBoolean, nil, connect.OptionalBooleanSchema, connect.BooleanValue(true), "\x01"},
		{converter.ClassBoolean, nil, connect.StringSchema, connect.Null, "error: Invalid schema type for BooleanConverter: STRING"},
		{simple, nil, row, nulls, `{"n":5,"t":null}`},
		{simple, nil, nil, connect.BufferValue([]byte{}), ""},
		{simple, nil, nil, connect.DateValue(86_400_000), "1970-01-02"},
		{simple, nil, nil, connect.DateValue(-1), "23:59:59.999Z"},
		{simple, nil, nil, connect.DateValue(316154080369693), "11988-07-10T17:52:49.693Z"},
	} {
		if got := convert(t, converterOf(t, c.class, c.options), c.schema, c.value); got != c.want {
			t.Errorf("%s %v: got %q, want %q", c.class, c.options, got, c.want)
		}
	}
}

func TestNewConverter_Refuses(t *testing.T) {
	for _, c := range []struct {
		class   string
		options map[string]string
		option  string
	}{
		{"io.confluent.connect.avro.AvroConverter", nil, ""},
		{jsonic, map[string]string{"schemas.enabled": "false"}, "schemas.enabled"},
		{jsonic, map[string]string{"schemas.enable": "no"}, "schemas.enable"},
		{jsonic, map[string]string{"decimal.format": "TEXT"}, "decimal.format"},
		{jsonic, map[string]string{"schemas.cache.size": "x"}, "schemas.cache.size"},
		{text, map[string]string{"converter.encoding": "EBCDIC"}, "converter.encoding"},
		{converter.ClassBinaryData, map[string]string{"delegate.converter.type": simple}, "delegate.converter.type"},
		{converter.ClassBinaryData, map[string]string{"delegate.converter.type.schemas.enable": "true"}, "delegate.converter.type.schemas.enable"},
		{converter.ClassBinaryData, map[string]string{"delegate.converter.type": jsonic, "delegate.converter.type.x": "1"}, "delegate.converter.type.x"},
		{converter.ClassByteArray, map[string]string{"delegate.converter.type": jsonic}, "delegate.converter.type"},
	} {
		_, err := converter.New(c.class, c.options)
		var bad *connect.OptionError
		if !errors.As(err, &bad) || bad.Option != c.option || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s %v: %v", c.class, c.options, err)
		}
	}
	for _, class := range converter.Classes() {
		if _, err := converter.New(class, nil); err != nil {
			t.Errorf("%s: %v", class, err)
		}
		if converter.IsDataConverter(class) == (class == simple) {
			t.Errorf("%s: data converter is %t", class, converter.IsDataConverter(class))
		}
	}
}

func TestNewStruct_RefusesWhatConnectRefuses(t *testing.T) {
	inner := &connect.Schema{Type: connect.Struct, Optional: true, Name: "payload", Fields: []connect.Field{{Name: "a", Schema: connect.OptionalInt32Schema}}}
	other, err := connect.NewStruct(&connect.Schema{Type: connect.Struct, Optional: true, Name: "payload"}, nil)
	if err != nil {
		t.Fatal(err)
	}
	envelope, err := connect.NewStructSchema("e", []connect.Field{{Name: "payload", Schema: inner}})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		value connect.Value
		want  string
	}{
		{connect.StringValue("x"), `Invalid Java object for schema "payload" with type STRUCT: class java.lang.String for field: "payload"`},
		{other, "Struct schemas do not match."},
	} {
		if _, err := connect.NewStruct(envelope, []connect.Value{c.value}); err == nil || err.Error() != c.want {
			t.Errorf("got %v, want %s", err, c.want)
		}
	}
	if v, err := connect.NewStruct(envelope, []connect.Value{connect.Null}); err != nil || v.StructSchema() != envelope {
		t.Errorf("null in an optional field: %v", err)
	}
	if _, err := connect.NewStructSchema("e", []connect.Field{{Name: "x"}, {Name: "x"}}); err == nil || !strings.Contains(err.Error(), "field name duplication x") {
		t.Errorf("a name twice: %v", err)
	}
}

func TestIsBlank_IsJavasTrim(t *testing.T) {
	for in, want := range map[string]bool{"": true, " \t\n\x00": true, "\u00a0": false, "x": false} {
		if got := connect.StringValue(in).IsBlank(); got != want {
			t.Errorf("%q: %t", in, got)
		}
	}
	if !connect.Null.IsBlank() || connect.BufferValue(nil).IsBlank() {
		t.Error("null is blank, empty bytea is not")
	}
}
