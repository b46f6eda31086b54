package connect_test

import (
	"strings"
	"testing"

	"github.com/cdc-relay/cdc-relay/debezium/connect"
	"github.com/cdc-relay/cdc-relay/debezium/connect/expand"
)

func expanded(t testing.TB, o expand.Options, payload string) (expand.Expansion, string) {
	t.Helper()
	x := expand.New(o).Expand(connect.OptionalStringSchema, connect.StringValue(payload))
	return x, convert(t, converterOf(t, jsonic, map[string]string{"schemas.enable": "false"}), x.Schema, x.Value)
}

func TestExpand_Outcomes(t *testing.T) {
	root := expand.Options{Root: "payload"}
	nulls := expand.Options{Root: "payload", NullBytes: true}
	empties := expand.Options{Root: "payload", EmptyAsString: true}
	avro := expand.Options{Root: "payload", Names: connect.NamesAvro}
	poisonText := func(what string) string { return "error: Invalid type for " + what + ": class java.lang.String" }
	for _, c := range []struct {
		options expand.Options
		payload string
		outcome expand.Outcome
		want    string
	}{
		{root, `{"items":[{"p":1,"q":"x"},{"p":2},{"r":true}]}`, expand.Expanded, `{"items":[{"p":1,"q":"x","r":null},{"p":2,"q":null,"r":null},{"p":null,"q":null,"r":true}]}`},
		{root, `{"items":[{"a":{"x":1}},{"a":{"y":2}}]}`, expand.Expanded, `{"items":[{"a":{"x":1}},{"a":{"x":null}}]}`},
		{root, `{"items":[[1],[]]}`, expand.Expanded, `{"items":[[1],[]]}`},
		{root, `{"items":[[],[1]]}`, expand.Kept, `"{\"items\":[[],[1]]}"`},
		{root, `{"x":[{"a":null},{"a":1}]}`, expand.Expanded, `{"x":[{"a":null},{"a":1}]}`},
		{root, `{"a":[[{"b":{"c":1}}]]}`, expand.Expanded, `{"a":[[{"b":{"c":1}}]]}`},
		{root, `{"a":[[1],[3000000000]]}`, expand.Poison, poisonText("STRUCT")},
		{root, `{"a":[{"p":1},{"p":"x"}]}`, expand.Poison, poisonText("STRUCT")},
		{root, `{"a":[{"p":1},{"p":{"q":1}}]}`, expand.Poison, poisonText("STRUCT")},
		{root, `{"a":[{"p":{"q":1}},{"p":[1]}]}`, expand.Poison, poisonText("STRUCT")},
		{root, `{"a":[1.5,18446744073709551616]}`, expand.Poison, poisonText("STRUCT")},
		{root, `[{"a":1}]`, expand.Poison, poisonText("ARRAY")},
		{root, `[]`, expand.Poison, `"[]"`},
		{empties, `[]`, expand.Poison, poisonText("ARRAY")},
		{empties, `{"a":[],"b":[[]]}`, expand.Expanded, `{"a":[],"b":[[]]}`},
		{nulls, `{"a":[null,null],"b":null}`, expand.Expanded, `{"a":[null,null],"b":null}`},
		{nulls, `{"a":[{"p":null},{"p":"x"}]}`, expand.Expanded, `{"a":[{"p":null},{"p":"x"}]}`},
		{avro, `{"ok":1,"a-b":2,"1x":3,"é":4}`, expand.Expanded, `{"ok":1,"a_b":null,"_1x":null,"_":null}`},
		{root, `{"a":{"":null}}`, expand.Expanded, `{"a":{}}`},
		{root, `{"a":1`, expand.Kept, `"{\"a\":1"`},
		{root, "{\"a\":\"\x01\"}", expand.Kept, `"{\"a\":\"\u0001\"}"`},
		{root, `{"a":1}garbage`, expand.Expanded, `{"a":1}`},
		{root, `{"a":"\ud83d"}`, expand.Expanded, `{"a":"\uD83D"}`},
		{root, `{"a":"\ud83dA"}`, expand.Expanded, `{"a":"\uD83DA"}`},
		{root, `{"a":"\ud83d\ud83d\ude00"}`, expand.Expanded, `{"a":"\uD83D\uD83D\uDE00"}`},
		{root, strings.Repeat(`{"a":`, 1000) + "1" + strings.Repeat("}", 1000), expand.Expanded, strings.Repeat(`{"a":`, 1000) + "1" + strings.Repeat("}", 1000)},
		{root, `{"a":` + strings.Repeat("1", 1001) + `}`, expand.Kept, `"{\"a\":` + strings.Repeat("1", 1001) + `}"`},
	} {
		x, got := expanded(t, c.options, c.payload)
		if x.Outcome != c.outcome || got != c.want {
			t.Errorf("%.80s\n got %d %.200s (%v)\nwant %d %.200s", c.payload, x.Outcome, got, x.Reason, c.outcome, c.want)
		}
		if (x.Reason != nil) != (c.outcome == expand.Kept || c.outcome == expand.Poison) {
			t.Errorf("%.80s: reason %v", c.payload, x.Reason)
		}
	}
	if x, _ := expanded(t, root, strings.Repeat(`{"a":`, 1001)+"1"+strings.Repeat("}", 1001)); x.Outcome != expand.Kept {
		t.Errorf("1001 levels: outcome %d", x.Outcome)
	}
	for _, v := range []connect.Value{connect.Null, connect.BufferValue([]byte("{}"))} {
		if x := expand.New(root).Expand(connect.OptionalBytesSchema, v); x.Outcome != expand.Untouched || x.Schema != connect.OptionalBytesSchema {
			t.Errorf("%v was touched", v.Kind())
		}
	}
}

func TestExpand_ManyMembers(t *testing.T) {
	var in strings.Builder
	for i := range 40 {
		in.WriteString(string(rune('a'+i%26)) + strings.Repeat("x", i/26))
		in.WriteByte(' ')
	}
	names := strings.Fields(in.String())
	members := make([]string, 0, 80)
	for range 2 {
		for _, n := range names {
			members = append(members, `"`+n+`":1`)
		}
	}
	_, got := expanded(t, expand.Options{Root: "p"}, "{"+strings.Join(members, ",")+"}")
	if want := "{" + strings.Join(members[:40], ",") + "}"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

// Rows of one shape share a schema, and what differs in shape does not.
func TestExpand_SharesSchemas(t *testing.T) {
	e := expand.New(expand.Options{Root: "p"})
	schema := func(payload string) *connect.Schema {
		return e.Expand(nil, connect.StringValue(payload)).Schema
	}
	a := schema(`{"a":1,"b":[1,2,3]}`)
	if b := schema(`{"a":2,"b":[4,5,6,7]}`); a != b {
		t.Error("one shape, two schemas")
	}
	for _, other := range []string{`{"a":1,"b":[3000000000]}`, `{"a":1,"b":["x"]}`, `{"ab":1}`, `{"a":1}`, `{"a":1,"b":[1],"c":1}`} {
		if schema(other) == a {
			t.Errorf("%s has the schema of another shape", other)
		}
	}
	if got := string(schema(`{"x":{"y":true}}`).JSON()); got != `{"type":"struct","fields":[{"type":"struct","fields":[{"type":"boolean","optional":true,"field":"y"}],"optional":true,"name":"p.x","field":"x"}],"optional":true,"name":"p"}` {
		t.Error(got)
	}
}
