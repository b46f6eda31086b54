package connect_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/cdc-relay/cdc-relay/debezium/connect"
	"github.com/cdc-relay/cdc-relay/debezium/connect/codec"
	"github.com/cdc-relay/cdc-relay/debezium/connect/converter"
)

const (
	simple = converter.ClassSimpleHeader
	text   = converter.ClassString
	jsonic = converter.ClassJSON
)

func TestCodec_EachType(t *testing.T) {
	for _, c := range []struct {
		typ, text, want string
		modes           map[string]string
	}{
		{"time", "24:00:00", "86400000000", nil},
		{"timetz", "24:00:00+00", "00:00:00Z", nil},
		{"timetz", "24:00:00+02", "22:00:00Z", nil},
		{"interval", "00:00:04.825548", "P0Y0M0DT0H0M4.825547999S", map[string]string{"interval.handling.mode": "string"}},
		{"interval", "-00:00:00.000001", "P0Y0M0DT0H0M-0.000001S", map[string]string{"interval.handling.mode": "string"}},
		{"interval", "1 day 00:00:10", "P0Y0M1DT0H0M10S", map[string]string{"interval.handling.mode": "string"}},
		{"tsvector", "'a':1 'b':2", "'a':1 'b':2", nil},
		{"timetz", "00:30:00+05:30", "19:00:00Z", nil},
		{"timetz", "13:14:15.123456-07", "20:14:15.123456Z", nil},
		{"timestamp(3)", "infinity", "9223372036825200", nil},
		{"timestamptz", "2024-02-29 13:14:15+02", "2024-02-29T11:14:15.000000Z", nil},
		{"timestamptz(1)", "2024-02-29 13:14:15.5+00", "2024-02-29T13:14:15.5Z", nil},
		{"timestamp", "2024-01-02 03:04:05", "2024-01-02T03:04:05Z", map[string]string{"time.precision.mode": "isostring"}},
		{"date[]", "{2024-02-29,NULL}", "[19782,null]", nil},
		{"date[]", "{2024-02-29}", "[2024-02-29]", map[string]string{"time.precision.mode": "connect"}},
		{"timestamp[]", `{"2024-02-29 13:14:15.123456"}`, "[1709212455123456]", nil},
		{"time(3)[]", `{13:14:15.5}`, "[47655500]", nil},
		{"bytea[]", `{"\\x01ff",NULL}`, `["Af8=",null]`, nil},
		{"bytea[]", `{"\\x01ff"}`, `["01ff"]`, map[string]string{"binary.handling.mode": "hex"}},
		{"hstore[]", `{"\"a\"=>\"1\""}`, `["{\"a\":\"1\"}"]`, nil},
		{"hstore", `"a"=>"1", "n"=>NULL`, `{"a":"1","n":null}`, map[string]string{"hstore.handling.mode": " MAP "}},
		{"hstore", ``, `{}`, nil},
		{"numeric(6,2)[]", "{1.50,NULL,2.00}", "[1.50,null,2.00]", nil},
		{"varbit", "101", "BQ==", nil},
		{"varbit(1)", "1", "true", nil},
		{"bit(9)", "100000001", "AQE=", nil},
		{"bit(9)", "000000000", "", nil},
		{"ltree", "a.b", "a.b", nil},
		{"macaddr8", "08:00:2b:01:02:03:04:05", "08:00:2b:01:02:03:04:05", nil},
		{"\"char\"", "x", "x", nil},
		{"interval", "1 day -00:00:00.5", "86399500000", nil},
		{"interval", "-178000000 years", "-5617172800000000000000", nil},
		{"interval", "1 mon 00:00:00.1", "P0Y1M0DT0H0M0.1S", map[string]string{"interval.handling.mode": "string"}},
		{"money", "-$1,234.565", "-1234.57", nil},
		{"money", "£1.00", "1.00", nil},
		{"name", "n", "<null>", nil},
		{"text[]", `{"",a,"NULL","a\\b","{}"}`, `["","a","NULL","a\\b","{}"]`, nil},
		{"domain:d:text[]", `{a}`, `["a"]`, nil},
		{"double precision", "1e400", "Infinity", nil},
		{"numeric", "0.00", `{"scale":0,"value":"AA=="}`, nil},
		{"unknown:pg_lsn", "0/1", "302f31", map[string]string{"include.unknown.datatypes": "true", "binary.handling.mode": "hex"}},
	} {
		if c.typ == "interval" && strings.HasPrefix(c.text, "-178") {
			c.want = "-9223372036854775808" // saturates
		}
		if c.typ == "domain:d:text[]" { // a domain over an array, not an array of a domain
			base := typeOf(t, "text[]")
			modes, _ := codec.ParseModes(nil)
			codec, err := codec.New(codec.Column{Name: "c", Type: codec.TypeInfo{OID: 20_001, Name: "d", TypeMod: -1, Base: &base}}, modes)
			if err != nil {
				t.Fatal(err)
			}
			if v, err := codec.Decode([]byte(c.text)); err != nil || convert(t, converterOf(t, simple, nil), codec.Schema, v) != c.want {
				t.Errorf("%s: %v", c.typ, err)
			}
			continue
		}
		codec := codecOf(t, c.typ, "", false, c.modes)
		v, err := codec.Decode([]byte(c.text))
		if err != nil {
			t.Errorf("%s %s: %v", c.typ, c.text, err)
			continue
		}
		if got := convert(t, converterOf(t, simple, nil), codec.Schema, v); got != c.want {
			t.Errorf("%s %s: got %s, want %s", c.typ, c.text, got, c.want)
		}
	}
}

func TestNewCodec_AbsentAndUnsupported(t *testing.T) {
	modes, _ := codec.ParseModes(nil)
	for typ, absent := range map[string]bool{
		"unknown:pg_lsn": true, "unknown:comp": true, "money[]": true, "name[]": true, "interval[]": true, "xml[]": true, "varbit(3)[]": true,
		"point[]": true, "domain:pos:integer[]": true, "unknown:xid[]": true,
		"box": true, "tsvector[]": false, "geometry": false, "vector": false, "bit(3)[]": false,
	} {
		_, err := codec.New(codec.Column{Name: "c", Type: typeOf(t, typ)}, modes)
		var unsupported *connect.UnsupportedError
		if absent != errors.Is(err, connect.ErrAbsent) || absent == errors.As(err, &unsupported) {
			t.Errorf("%s: %v, want absent %t", typ, err, absent)
		}
	}
	negative := typeOf(t, "numeric")
	negative.TypeMod = (5<<16 | (-2 & 0x7ff)) + 4
	if _, err := codec.New(codec.Column{Name: "c", Type: negative}, modes); err == nil || !strings.Contains(err.Error(), "negative scale") {
		t.Errorf("numeric(5,-2): %v", err)
	}
}

func TestDecode_RefusesWhatIsNotOfTheType(t *testing.T) {
	for typ, texts := range map[string][]string{
		"boolean": {"", "yes"}, "integer": {"", "2147483648", "1.5", "x"}, "smallint": {"40000"}, "real": {"", "0x10", "1_0", "abc"},
		"numeric(5,2)": {"NaN", "Infinity", "", "1.234", "x"}, "numeric": {"NaN", "1e5"}, "money": {"12.34", "1.234,56 €", "$", ""},
		"bytea": {"deadbeef", `\x0`, `\xzz`}, "date": {"2024-02-30", "2024-2-3", "0000-01-01", "", "24-01-01x"}, "time": {"25:00:00", "24:00:01", "1:00:00", "00:00:00."},
		"timestamp": {"2024-01-01", "2024-01-01T00:00:00"}, "timestamptz": {"2024-01-01 00:00:00"}, "timetz": {"24:00:01+02", "00:00:00"},
		"interval": {"", "1", "1 eon", "P1D", "00:00", "1 day 2"}, "integer[]": {"", "{", "{1", "{1,}", "{,1}", "1", "{1}x", "{{1},{2}}", "[0:1]={{1},{2}}", "[0:1]", "["},
		"text[]": {`{"a}`, `{"a"b}`, `{a"b}`}, "hstore": {`a=>1`, `"a"`, `"a"=>`, `"a"=>"1""b"=>"2"`, `"a"=>"1", `}, "point": {"1,2", "(1)", "(1,2", "(a,b)"},
		"bit(3)": {"102"}, "bit(1)": {"11"},
	} {
		codec := codecOf(t, typ, "", false, map[string]string{"event.converting.failure.handling.mode": "fail"})
		for _, text := range texts {
			v, err := codec.Decode([]byte(text))
			var failed *connect.ConvertError
			if !errors.As(err, &failed) || failed.Tolerated {
				t.Errorf("%s %q: value %s, error %v", typ, text, v.AppendText(nil), err)
			} else if len(text) > 3 && strings.Contains(err.Error(), text) {
				t.Errorf("%s %q: the error holds the value: %v", typ, text, err)
			}
		}
	}
}

func TestDecode_FailureModes(t *testing.T) {
	tolerated := func(codec *codec.Codec, text string) (connect.Value, bool) {
		v, err := codec.Decode([]byte(text))
		var failed *connect.ConvertError
		if !errors.As(err, &failed) {
			t.Fatalf("%q: %v", text, err)
		}
		return v, failed.Tolerated
	}
	if v, ok := tolerated(codecOf(t, "numeric(5,2)", "", false, nil), "NaN"); !ok || !v.IsNull() {
		t.Error("a nullable column takes null by default")
	}
	if _, ok := tolerated(codecOf(t, "numeric(5,2)", "", true, nil), "NaN"); ok {
		t.Error("a NOT NULL column has no place for the null")
	}
	if _, ok := tolerated(codecOf(t, "numeric(5,2)", "1.5", true, nil), "NaN"); !ok {
		t.Error("a default stands for the null in a NOT NULL column")
	}
	if v, ok := tolerated(codecOf(t, "enum:mood:sad,ok[]", "", false, nil), "{sad,NULL}"); !ok || !v.IsNull() {
		t.Error("the elements of an array of enums must not be null")
	}
	nanos := map[string]string{"time.precision.mode": "nanoseconds"}
	for _, text := range []string{"9999-12-31 23:59:59", "1677-09-21 12:00:00", "0044-03-15 12:00:00 BC"} {
		if v, ok := tolerated(codecOf(t, "timestamp", "", false, nanos), text); !ok || !v.IsNull() {
			t.Errorf("%s in nanoseconds must be null", text)
		}
	}
	skip := codecOf(t, "numeric(5,2)", "", false, map[string]string{"event.converting.failure.handling.mode": "SKIP"})
	if _, ok := tolerated(skip, "NaN"); !ok || !skip.Quiet() {
		t.Error("skip is quiet")
	}
	if _, ok := tolerated(codecOf(t, "integer[]", "", false, nil), "{{1},{2}}"); ok {
		t.Error("an array of two dimensions must be refused: what Debezium makes of it is not known")
	}
}

func TestDefaults(t *testing.T) {
	for _, c := range []struct{ typ, expression, want string }{
		{"integer", "5", "5"}, {"integer", "'-5'::integer", "-5"}, {"bigint", "nextval('s.q'::regclass)", "0"}, {"smallint", "(1 + 2)", "<null>"},
		{"integer", "NULL::integer", "<null>"}, {"text", "NULL::text", "<null>"}, {"text", "'a'::text", "a"}, {"text", "lower('X'::text)", ""},
		{"text", "CURRENT_USER", "CURRENT_USER"}, {"text", "'two\nlines'::text", "<null>"}, {"numeric(6,2)", "1.5", "1.50"}, {"numeric(6,2)", "1.505", "<null>"},
		{"numeric(6,2)", "random()", "0.00"}, {"numeric", "1.50", "<null>"}, {"real", "1.5", "1.5"}, {"double precision", "'NaN'::double precision", "NaN"},
		{"boolean", "false", "false"}, {"boolean", "true", "true"}, {"boolean", "f()", "false"}, {"boolean", "(NOT true)", "false"},
		{"uuid", "public.uuid_generate_v4()", "00000000-0000-0000-0000-000000000000"}, {"uuid", "'A0EEBC99-9C0B-4EF8-BB6D-6BB9BD380A11'::uuid", "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11"},
		{"jsonb", "jsonb_build_object()", "{}"}, {"jsonb", "'{\"a\": 1}'::jsonb", `{"a": 1}`}, {"timestamp", "CURRENT_TIMESTAMP", "0"}, {"timestamp", "(now() AT TIME ZONE 'utc'::text)", "0"},
		{"timestamptz", "CURRENT_TIMESTAMP(3)", "1970-01-01T00:00:00.000000Z"}, {"timestamp", "'infinity'::timestamp without time zone", "<null>"},
		{"date", "('now'::text)::date", "<null>"}, {"time", "'13:14:15'::time without time zone", "47655000000"}, {"interval", "f()", "0"},
		{"bit(3)", "B'101'::\"bit\"", "BQ=="}, {"bit(1)", "B'1'::\"bit\"", "true"}, {"bit(3)", "f()", ""}, {"varbit(9)", "B'110'::\"bit\"", "Bg=="},
		{"enum:mood:sad,ok", "'ok'::app.mood", "ok"}, {"enum:mood:sad,ok", "f()", "<null>"}, {"enum:Mood:sad,ok", "'ok'::app.\"Mood\"", "ok"}, {"enum:mood:sad,ok", "'ok'::other", "<null>"}, {"domain:pos:integer", "5", "<null>"}, {"inet", "'1.2.3.4'::inet", "<null>"},
		{"citext", "'a'::citext", "<null>"}, {"money", "'1'::money", "<null>"}, {"integer[]", "'{1}'::integer[]", "<null>"}, {"xml", "'<a/>'::xml", "<a/>"},
		{"char(3)", "'ab'::bpchar", "ab"}, {"timetz", "'10:00:00+00'::time with time zone", "<null>"},
	} {
		codec := codecOf(t, c.typ, c.expression, false, nil)
		if got := convert(t, converterOf(t, simple, nil), codec.Schema, codec.Schema.Or(connect.Null)); got != c.want {
			t.Errorf("%s default %s: got %s, want %s (%s)", c.typ, c.expression, got, c.want, codec.Warning)
		}
	}
	if c := codecOf(t, "smallint", "(1 + 2)", false, nil); !strings.Contains(c.Warning, "column c") {
		t.Errorf("warning: %q", c.Warning)
	}
	for typ, want := range map[string]string{"numeric": "1.50", "numeric(6,3)": "1.500"} {
		codec := codecOf(t, typ, "1.50", false, map[string]string{"decimal.handling.mode": "string"})
		if got := convert(t, converterOf(t, simple, nil), codec.Schema, codec.Schema.Or(connect.Null)); got != want {
			t.Errorf("%s in mode string: got %s, want %s", typ, got, want)
		}
	}
	modes := codec.DefaultModes()
	modes.DoubledQuotes = true
	codec, err := codec.New(codec.Column{Name: "c", Type: typeOf(t, "text"), Default: "'it''s'::text"}, modes)
	if err != nil {
		t.Fatal(err)
	}
	if got := convert(t, converterOf(t, simple, nil), codec.Schema, codec.Schema.Or(connect.Null)); got != "it's" {
		t.Errorf("got %s", got)
	}
}

func TestSchema_JSON(t *testing.T) {
	modes := codec.DefaultModes()
	for _, c := range []struct {
		column codec.Column
		want   string
	}{
		{codec.Column{Type: typeOf(t, "text"), NotNull: true}, `{"type":"string","optional":false}`},
		{codec.Column{Type: typeOf(t, "numeric(6,2)"), Default: "1.50"}, `{"type":"bytes","optional":true,"name":"org.apache.kafka.connect.data.Decimal","version":1,"parameters":{"scale":"2","connect.decimal.precision":"6"},"default":"AJY="}`},
		{codec.Column{Type: typeOf(t, "enum:mood:sad,ok"), Default: "'sad'::mood"}, `{"type":"string","optional":true,"name":"io.debezium.data.Enum","version":1,"parameters":{"allowed":"sad,ok"},"default":"sad"}`},
		{codec.Column{Type: typeOf(t, "timestamp"), Default: "now()", Comment: "é😀"}, `{"type":"int64","optional":true,"name":"io.debezium.time.MicroTimestamp","version":1,"doc":"é\uD83D\uDE00","default":0}`},
		{codec.Column{Name: "payload", Type: typeOf(t, "jsonb"), Source: true}, `{"type":"string","optional":true,"name":"io.debezium.data.Json","version":1,"parameters":{"__debezium.source.column.type":"JSONB","__debezium.source.column.length":"2147483647","__debezium.source.column.scale":"0","__debezium.source.column.name":"payload"}}`},
		{codec.Column{Name: "v", Type: typeOf(t, "varchar(255)"), Source: true}, `{"type":"string","optional":true,"parameters":{"__debezium.source.column.type":"VARCHAR","__debezium.source.column.length":"255","__debezium.source.column.scale":"0","__debezium.source.column.name":"v"}}`},
	} {
		codec, err := codec.New(c.column, modes)
		if err != nil {
			t.Fatal(err)
		}
		if got := string(codec.Schema.JSON()); got != c.want {
			t.Errorf("got %s\nwant %s", got, c.want)
		}
	}
	modes.HstoreMap = true
	codec, err := codec.New(codec.Column{Type: typeOf(t, "hstore")}, modes)
	if err != nil {
		t.Fatal(err)
	}
	if got, want := string(codec.Schema.JSON()), `{"type":"map","keys":{"type":"string","optional":false},"values":{"type":"string","optional":true},"optional":true}`; got != want {
		t.Errorf("got %s\nwant %s", got, want)
	}
}

func TestParseModes_RefusesBadWords(t *testing.T) {
	for name, value := range map[string]string{"time.precision.mode": "structured", "decimal.handling.mode": "exact", "binary.handling.mode": "raw", "hstore.handling.mode": "x",
		"interval.handling.mode": "x", "money.fraction.digits": "-1", "include.unknown.datatypes": "yes", "event.converting.failure.handling.mode": "ignore", "schema.name.adjustment.mode": "x", "field.name.adjustment.mode": "x"} {
		_, err := codec.ParseModes(map[string]string{name: value})
		var bad *connect.OptionError
		if !errors.As(err, &bad) || bad.Option != name {
			t.Errorf("%s=%s: %v", name, value, err)
		}
	}
	for _, name := range codec.ModeOptions {
		if _, err := codec.ParseModes(map[string]string{name: "\x00"}); err == nil && name != "unavailable.value.placeholder" {
			t.Errorf("%s is not read", name)
		}
	}
}

func TestNameMode(t *testing.T) {
	for _, c := range []struct{ mode, in, schema, field string }{
		{"avro", "my-app.public.1", "my_app.public.1", "my_app_public_1"}, {"avro", "1x", "_1x", "_1x"}, {"avro_unicode", "1_", "_u0031_u005f", "_u0031_u005f"}, {"avro", "é", "_", "_"}, {"avro", "😀", "__", "__"},
		{"avro_unicode", "a-b", "a_u002db", "a_u002db"}, {"none", "a-b", "a-b", "a-b"}, {"avro", "ok", "ok", "ok"},
	} {
		modes, err := codec.ParseModes(map[string]string{"schema.name.adjustment.mode": c.mode})
		if err != nil {
			t.Fatal(err)
		}
		if s, f := modes.SchemaNames.SchemaName(c.in), modes.SchemaNames.FieldName(c.in); s != c.schema || f != c.field {
			t.Errorf("%s %s: schema %s, field %s", c.mode, c.in, s, f)
		}
	}
}
