package connect_test

import "testing"

// Elements of arrays come through Java's old classes for time; the goldens
// limits-* and arrays-* have the same from a real Debezium.
func TestDecode_ElementsOfArrays(t *testing.T) {
	nanos := map[string]string{"time.precision.mode": "nanoseconds"}
	for _, c := range []struct {
		typ     string
		options map[string]string
		text    string
		want    string
	}{
		{"date[]", nil, `{2024-02-29,"0044-03-15 BC",1582-10-04,1582-10-10,1582-10-15}`, "[19782, -703383, -141438, -141422, -141427]"},
		{"date[]", nil, "{infinity,-infinity}", "[-622191234, -625821272]"},
		{"timestamp[]", nil, `{"1500-02-28 12:34:56.7","0044-03-15 12:00:00 BC","1582-10-15 00:00:00"}`, "[-14825935503300000, -63517953600000000, -12219292800000000]"},
		{"timestamp[]", nil, "{infinity,-infinity}", "[9223372036825200000, -9223372036832400000]"},
		{"timestamp[]", nanos, `{infinity,"9999-12-31 00:00:00","1677-09-21 12:00:00","1969-12-31 23:59:59.999999"}`, "[9223372036854775807, null, null, -1000]"},
		{"timestamptz[]", nil, `{"0044-03-15 12:00:00+00 BC","1582-10-10 00:00:00+00",-infinity,infinity}`,
			"[0044-03-15T12:00:00.000000Z, 1582-10-20T00:00:00.000000Z, +292269055-12-02T23:00:00.000000Z, infinity]"},
		{"time[]", nil, "{23:59:59.999999,24:00:00}", "[86399999000, 0]"},
		{"timetz[]", nil, "{13:14:15.5+02,24:00:00+00}", "[11:14:15Z, 00:00:00Z]"},
		{"integer[]", nil, "[0:1]={1,2}", "[1, 2]"},
	} {
		v, err := codecOf(t, c.typ, "", false, c.options).Decode([]byte(c.text))
		if got := string(v.AppendText(nil)); err != nil || got != c.want {
			t.Errorf("%s %s: %s, %v, want %s", c.typ, c.text, got, err, c.want)
		}
	}
	for _, mode := range []string{"precise", "string", "double"} {
		v, err := codecOf(t, "numeric[]", "", false, map[string]string{"decimal.handling.mode": mode}).Decode([]byte("{1,NaN}"))
		if err == nil || !v.IsNull() {
			t.Errorf("numeric[] with NaN, %s: %s, %v", mode, v.AppendText(nil), err)
		}
	}
}
