package connect

import (
	"strings"
	"testing"
)

func TestText_IsJavasToString(t *testing.T) {
	s := &Schema{Type: Struct, Fields: []Field{{"b", OptionalInt32Schema}, {"a", OptionalFloat64Schema}, {"n", OptionalStringSchema}, {"g", &Schema{Type: Struct}}}}
	v := StructOf(s, []Value{Int32Value(1), Float64Value(4.9), Null, StructOf(s.Fields[3].Schema, nil)})
	for _, c := range []struct {
		v    Value
		want string
	}{
		{v, "Struct{b=1,a=4.9,g=Struct{}}"},
		{ArrayValue([]Value{StringValue("a"), StringValue("b c"), Null}), "[a, b c, null]"},
		{MapValue([]Value{StringValue("k"), StringValue("v"), StringValue("n"), Null}), "{k=v, n=null}"},
		{BufferValue([]byte{1, 2, 3, 4}), "java.nio.HeapByteBuffer[pos=0 lim=4 cap=4]"},
		{DateValue(1709212455123), "Thu Feb 29 13:14:15 UTC 2024"},
		{DateValue(-63517780800000), "Fri Mar 17 12:00:00 UTC 44"}, // Julian
		{DateValue(-12219292800001), "Thu Oct 04 23:59:59 UTC 1582"},
		{DateValue(-12219292800000), "Fri Oct 15 00:00:00 UTC 1582"},
		{BooleanValue(true), "true"},
	} {
		if got := string(c.v.AppendText(nil)); got != c.want {
			t.Errorf("got %s, want %s", got, c.want)
		}
	}
	if got := string(BytesValue([]byte{1}).AppendText(nil)); !strings.HasPrefix(got, "[B@") {
		t.Errorf("got %s", got)
	}
}
