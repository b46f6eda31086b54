package column

import (
	"bufio"
	"encoding/binary"
	"encoding/hex"
	"math/rand/v2"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/cdc-relay/cdc-relay/replication/wal"
	"github.com/cdc-relay/cdc-relay/router/record"
)

// TestTypes_BinaryGivesTheServersText compares every exact type with a golden
// table that a PostgreSQL server printed; testdata/types.sql says how.
func TestTypes_BinaryGivesTheServersText(t *testing.T) {
	f, err := os.Open("testdata/types.golden")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	seen := map[string]int{}
	for lines := bufio.NewScanner(f); lines.Scan(); {
		if strings.HasPrefix(lines.Text(), "#") {
			continue
		}
		fields := strings.Split(lines.Text(), "\t")
		if len(fields) != 3 {
			t.Fatalf("malformed line %q", lines.Text())
		}
		name, want := fields[0], fields[1]
		data, err := hex.DecodeString(fields[2])
		if err != nil {
			t.Fatalf("%s %q: %v", name, want, err)
		}
		typ := typeNamed(name)
		if !typ.exact {
			t.Fatalf("type %s is in the golden table and not exact", name)
		}
		seen[name]++
		row := &wal.Row{Values: []wal.Value{{Kind: wal.Binary, Data: data}}}
		s := &Source{Column: "c", Typ: typ}
		got, err := s.Text(&record.Buffer{}, row)
		if err != nil || string(got) != want {
			t.Errorf("%s %x: got %q, %v; the server prints %q", name, data, got, err, want)
		}
	}
	for _, typ := range columnTypes {
		if typ.exact && seen[typ.Names[0]] < 2 {
			t.Errorf("the golden table has %d values of exact type %s", seen[typ.Names[0]], typ.Names[0])
		}
	}
}

// TestTypes_TimestampsReadBack writes random instants from binary and parses the
// text again with an independent reader.
func TestTypes_TimestampsReadBack(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	epoch := time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)
	for range 20000 {
		micros := random.Int64N(8000*365*86400*1e6) - 1990*365*86400*1e6
		want := time.UnixMicro(epoch.UnixMicro() + micros).UTC()
		text, ok := appendTimestampTZ(nil, binary.BigEndian.AppendUint64(nil, uint64(micros)))
		got, err := time.Parse("2006-01-02 15:04:05.999999-07", string(text))
		if !ok || err != nil || !got.Equal(want) {
			t.Fatalf("%d gives %q, which reads as %s, %v; want %s", micros, text, got, err, want)
		}
	}
}

func TestTypes_RefuseMalformedBinary(t *testing.T) {
	for _, typ := range columnTypes {
		if typ.read == nil || typ.Form == FormBytes {
			continue
		}
		for _, data := range [][]byte{{}, {9, 9, 9}, make([]byte, 17)} {
			if typ.Form == FormJSON && len(data) == 17 {
				data[0] = 2
			}
			if got, ok := typ.read(nil, data); ok {
				t.Errorf("%s takes %x for %q", typ.Names[0], data, got)
			}
		}
	}
}

func TestTypeOf(t *testing.T) {
	for _, c := range []struct {
		col   wal.Column
		form  Form
		exact bool
	}{
		{wal.Column{Type: 2950}, FormScalar, true},
		{wal.Column{Type: 16385, TypeName: "uuid"}, FormScalar, false}, // a domain
		{wal.Column{Type: 16385, TypeName: "int4"}, FormInteger, false},
		{wal.Column{Type: 16390, TypeName: "public.hstore"}, FormHstore, false},
		{wal.Column{Type: 16390, TypeName: "hstore"}, FormHstore, false},
		{wal.Column{Type: 1009}, FormArray, false},
		{wal.Column{Type: 16391, TypeName: "character varying(20)[]"}, FormArray, false},
		{wal.Column{Type: 16391, TypeName: "character varying(20)"}, FormText, false},
		{wal.Column{Type: 16391, TypeName: "timestamp(3) with time zone"}, FormScalar, false},
		{wal.Column{Type: 16391, TypeName: "mood"}, FormText, false},
		{wal.Column{}, FormText, false},
	} {
		if got := TypeOf(c.col); got.Form != c.form || got.exact != c.exact {
			t.Errorf("%+v: form %d exact %v, want %d %v", c.col, got.Form, got.exact, c.form, c.exact)
		}
	}
}

func TestParseTime(t *testing.T) {
	for _, c := range []struct {
		text string
		want string // RFC 3339, or the error's beginning
	}{
		{"2024-01-02 03:04:05.678912+00", "2024-01-02T03:04:05.678Z"},
		{"2024-01-02 03:04:05.678912+05:30", "2024-01-01T21:34:05.678Z"},
		{"2024-01-02 03:04:05-08", "2024-01-02T11:04:05Z"},
		{"2024-01-02 03:04:05+05:53:28", "2024-01-01T21:10:37Z"},
		{"2024-01-02 03:04:05.67", "2024-01-02T03:04:05.67Z"},
		{"2024-02-29", "2024-02-29T00:00:00Z"},
		{"12345-06-07 08:09:10+00", "12345-06-07T08:09:10Z"},
		{"2024-01-02T03:04:05Z", "2024-01-02T03:04:05Z"},
		{"2024-01-02t03:04:05.1234567z", "2024-01-02T03:04:05.123Z"},
		{"2024-01-02T03:04:05,5+0530", "2024-01-01T21:34:05.5Z"},
		{"2024-01-02T03:04", "2024-01-02T03:04:00Z"},
		{" 2024-01-02T24:00:00Z ", "2024-01-03T00:00:00Z"},
		{"1970-01-01", "1970-01-01T00:00:00Z"},
		{"0", "1970-01-01T00:00:00Z"},
		{"1704164645", "2024-01-02T03:04:05Z"},
		{"1704164645678", "2024-01-02T03:04:05.678Z"},
		{"1704164645678912", "2024-01-02T03:04:05.678Z"},
		{"1704164645678912345", "2024-01-02T03:04:05.678Z"},
		{"9223372036854775807", "2262-04-11T23:47:16.854Z"},
		{"-1", "lies before"},
		{"1969-12-31 23:59:59.999+00", "lies before"},
		{"0044-03-15 00:00:00 BC", "lies before"},
		{"0044-03-15 BC", "lies before"},
		{"infinity", "is infinite"},
		{"-infinity", "is infinite"},
		{"", "is neither"},
		{"now", "is neither"},
		{"2024-13-01", "is neither"},
		{"2023-02-29", "is neither"},
		{"2024-01-02 25:00:00", "is neither"},
		{"2024-01-02 24:00:01", "is neither"},
		{"2024-01-02 03:60:00", "is neither"},
		{"2024-01-02 03:04:05+", "is neither"},
		{"2024-01-02 03:04:05.", "is neither"},
		{"2024-01-02 03:04:05Zx", "is neither"},
		{"24-01-02", "is neither"},
		{"0000-01-02", "is neither"},
		{"1704164645.5", "is neither"},
		{"99999999999999999999", "is neither"},
	} {
		got, err := ParseTime([]byte(c.text))
		if err != nil {
			if !strings.HasPrefix(err.Error(), c.want) {
				t.Errorf("%q: error %q, want %q", c.text, err, c.want)
			}
			continue
		}
		if s := got.Format(time.RFC3339Nano); s != c.want {
			t.Errorf("%q: got %s, want %s", c.text, s, c.want)
		}
	}
}

// FuzzBinary feeds the readers of the binary format, which no text form guards.
func FuzzBinary(f *testing.F) {
	f.Add([]byte{1})
	f.Add([]byte{0xff, 0xff, 0xff, 0xff})
	f.Add([]byte("\x01{}"))
	f.Add(make([]byte, 16))
	f.Fuzz(func(t *testing.T, data []byte) {
		for i := range columnTypes {
			c := &columnTypes[i]
			if c.read == nil {
				continue
			}
			out, ok := c.read([]byte("before"), data)
			if string(out[:6]) != "before" {
				t.Fatalf("%s: overwrote what was there: %q", c.Names[0], out)
			}
			if again, same := c.read(nil, data); same != ok || ok && string(again) != string(out[6:]) {
				t.Fatalf("%s: %q, then %q", c.Names[0], out[6:], again)
			}
		}
	})
}

func FuzzParseTime(f *testing.F) {
	for _, s := range []string{"2024-01-02 03:04:05.678912+00", "0044-03-15 BC", "2024-01-02T03:04:05Z", "1704164645678", "infinity", "2024-01-02 03:04:05+05:53:28 BC"} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		got, err := ParseTime(text)
		if err == nil && got.UnixMilli() < 0 {
			t.Fatalf("%q gives %s, before 1970", text, got)
		}
		// Go also takes an hour of one digit, which RFC 3339 does not have.
		strict := len(text) > 13 && text[13] == ':'
		if want, perr := time.Parse(time.RFC3339Nano, string(text)); perr == nil && strict && want.Year() > 1970 {
			if err != nil || !got.Equal(want.Truncate(time.Millisecond)) {
				t.Fatalf("%q gives %s, %v; RFC 3339 says %s", text, got, err, want)
			}
		}
	})
}

func typeNamed(name string) Type {
	for _, t := range columnTypes {
		if t.Names[0] == name {
			return t
		}
	}
	return Type{}
}
