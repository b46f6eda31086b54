package takeover

import (
	"bytes"
	"encoding/binary"
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"
)

func content(t testing.TB, name string) []byte {
	t.Helper()
	data, err := os.ReadFile(filepath.Join("testdata", name))
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// stored is the position in the files of testdata, which a Java program wrote.
var stored = Position{
	Connector: "outbox", Server: "app", LSN: 24577392, Processed: 24577392, Commit: 24577200, XID: 745, Event: "INSERT",
	Time: time.UnixMicro(1763729000123456).UTC(),
}

func TestParseOffsets_ReadsWhatJavaWrites(t *testing.T) {
	for name, want := range map[string]int{"one.offsets": 1, "three.offsets": 2, "removed.offsets": 1, "empty.offsets": 0} {
		t.Run(name, func(t *testing.T) {
			entries, err := ParseOffsets(content(t, name), "")
			if err != nil || len(entries) != want {
				t.Fatalf("%d entries and %v, want %d", len(entries), err, want)
			}
		})
	}
	entries, err := ParseOffsets(content(t, "three.offsets"), "")
	if err != nil {
		t.Fatal(err)
	}
	p, err := Choose(entries, "outbox", "app")
	if err != nil || !reflect.DeepEqual(*p, stored) {
		t.Errorf("got %+v and %v, want %+v", p, err, stored)
	}
	entries, _ = ParseOffsets(content(t, "removed.offsets"), "")
	if p, err := Choose(entries, "outbox", "app"); p != nil || err != nil {
		t.Errorf("a removed position is %v and %v, want none", p, err)
	}
}

func TestParseOffsets_ReadsTheAnswerOfConnect(t *testing.T) {
	answer := `{"offsets":[{"partition":{"server":"app"},"offset":{"lsn_proc":24577392,"messageType":"INSERT","lsn_commit":24577200,"lsn":24577392,"txId":745,"ts_usec":1763729000123456}}]}`
	entries, err := ParseOffsets([]byte(answer), "outbox")
	if err != nil {
		t.Fatal(err)
	}
	p, err := Choose(entries, "outbox", "app")
	if err != nil || !reflect.DeepEqual(*p, stored) {
		t.Errorf("got %+v and %v, want %+v", p, err, stored)
	}
	for text, want := range map[string]string{
		"{\n\"offsets\": ]": "line 2, column 12: cannot be read", `{"a":1}`: "GET /connectors/NAME/offsets", `{"offsets":[]}`: "", `{"offsets":5}`: `no list "offsets"`,
		"{\"offsets\":[]": "line 1, column 13: cannot be read", `{"lsn":5} {}`: "line 1, column 11: cannot be read",
		`{"offsets":[{"partition":{"filename":"x"},"offset":{}}]}`: "",
	} {
		entries, err := ParseOffsets([]byte(text), "outbox")
		if want == "" && (err != nil || len(entries) != 0) || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%s: %v and %v, want an error with %q", text, entries, err, want)
		}
	}
}

// What Redis and a table hold, as their own programs print it, and a position alone.
func TestParseOffsets_ReadsWhatIsCopiedFromOtherStores(t *testing.T) {
	const key, value = `["outbox",{"server":"app"}]`, `{"lsn_proc":24577392,"messageType":"INSERT","lsn_commit":24577200,"lsn":24577392,"txId":745,"ts_usec":1763729000123456}`
	for name, text := range map[string]string{
		"redis-cli --raw": `["billing",{"server":"shop"}]` + "\n" + `{"lsn":1}` + "\n" + key + "\n" + value + "\n",
		"psql, twice":     key + "\t" + `{"lsn":1}` + "\n" + key + "\t" + value + "\n",
		"other stores":    `["outbox",{"filename":"a"}] {"position":4} ` + key + value,
	} {
		entries, err := ParseOffsets([]byte(text), "")
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if p, err := Choose(entries, "outbox", "app"); err != nil || !reflect.DeepEqual(*p, stored) {
			t.Errorf("%s: got %+v and %v, want %+v", name, p, err, stored)
		}
	}
	entries, err := ParseOffsets([]byte("\n"+value), "outbox")
	if err != nil {
		t.Fatal(err)
	}
	if removed, err := ParseOffsets([]byte(key+" "+value+"\n"+key+" null"), ""); err != nil {
		t.Error(err)
	} else if p, err := Choose(removed, "outbox", "app"); p != nil || err != nil {
		t.Errorf("a removed position: got %+v and %v", p, err)
	}
	nameless := stored
	nameless.Connector, nameless.Server = "", ""
	if p, err := Choose(entries, "outbox", "app"); err != nil || !reflect.DeepEqual(*p, nameless) {
		t.Errorf("a position alone: got %+v and %v, want %+v", p, err, nameless)
	}
	for text, want := range map[string]string{
		key: "line 1, column 28: cannot be read as JSON", key + "\n" + `{"lsn":`: "line 2", "[1] [2]": "has no key",
	} {
		if _, err := ParseOffsets([]byte(text), ""); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want an error with %q", text, err, want)
		}
	}
}

func TestParseOffsets_RefusesEverythingElse(t *testing.T) {
	for name, want := range map[string]string{
		"foreign.offsets": "none of its entries is the position of a Debezium connector",
		"strings.offsets": "an entry is no byte array",
	} {
		if _, err := ParseOffsets(content(t, name), ""); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want an error with %q", name, err, want)
		}
	}
	for _, junk := range []string{"", "lsn=5\n", "\x00\x00", "PK\x03\x04"} {
		if _, err := ParseOffsets([]byte(junk), ""); !errors.Is(err, ErrNotOffsets) {
			t.Errorf("%q: %v, want ErrNotOffsets", junk, err)
		}
	}
	whole := content(t, "three.offsets")
	for n := range whole {
		if _, err := ParseOffsets(whole[:n], ""); err == nil {
			t.Fatalf("the first %d bytes of a file are read without an error", n)
		}
	}
	if _, err := ParseOffsets(append(whole, 0), ""); err == nil {
		t.Error("a file with a byte behind the map is read without an error")
	}
}

// Each byte of what surrounds the entries means something, and the message says where one
// is wrong.
func TestParseOffsets_NamesTheByteThatIsWrong(t *testing.T) {
	whole := content(t, "one.offsets")
	for _, c := range []struct {
		at   int
		want string
	}{
		{4, "at byte 4: an object is not where it should be"},
		{5, "at byte 5: its class is not where it should be"},
		{8, "at byte 33: the object is no java.util.HashMap"},
		{32, "at byte 33: the object is no java.util.HashMap"},
		{33, "at byte 34: the class is written in an unknown way"},
		{35, "at byte 36: the map has 3 fields, not 2"},
		{36, "at byte 37: the map has a field of an unknown type"},
		{49, "at byte 50: the map has a field of an unknown type"},
		{61, "at byte 61: the end of the class is not where it should be"},
		{62, "at byte 62: the class without a parent is not where it should be"},
		{71, "at byte 71: the map's size is not where it should be"},
		{72, "at byte 73: the map's size has 9 bytes, not 8"},
		{81, "at byte 81: an entry is no byte array"},
		{82, "at byte 83: an entry is no byte array"},
		{86, "at byte 95: an entry is no byte array"},
		{94, "at byte 95: an entry is no byte array"},
		{95, "at byte 98: byte arrays are written in an unknown way"},
		{97, "at byte 98: byte arrays are written in an unknown way"},
		{98, "at byte 98: the end of the class is not where it should be"},
		{99, "at byte 99: the class without a parent is not where it should be"},
		{136, "at byte 137: an entry is no byte array"},
		{260, "at byte 260: the end of the map is not where it should be"},
	} {
		wrong := bytes.Clone(whole)
		wrong[c.at]++
		if _, err := ParseOffsets(wrong, ""); err == nil || !strings.HasSuffix(err.Error(), c.want) {
			t.Errorf("byte %d is another: %v, want %s", c.at, err, c.want)
		}
	}
	if _, err := ParseOffsets(whole[:4], ""); err == nil || !strings.HasSuffix(err.Error(), "at byte 4: it ends too early") {
		t.Errorf("nothing behind the version: %v", err)
	}
}

// What is as large as allowed is read.
func TestParseOffsets_HasLimits(t *testing.T) {
	whole := content(t, "one.offsets")
	const size, entry, value = 77, 100, 137 // where the number of entries begins, and the length of a key and a value
	entries := func(n int) []byte {
		data := binary.BigEndian.AppendUint32(bytes.Clone(whole[:size]), uint32(n))
		return append(append(data, bytes.Repeat([]byte{tcNull}, 2*n)...), tcEndBlock)
	}
	key := func(n int) []byte {
		data := binary.BigEndian.AppendUint32(bytes.Clone(whole[:entry]), uint32(n))
		return append(append(data, make([]byte, n)...), tcNull, tcEndBlock)
	}
	for _, c := range []struct {
		name    string
		content []byte
		want    string
	}{
		{"as many entries as allowed", entries(100_000), "none of its entries is the position"},
		{"one more", entries(100_001), "the map has 100001 entries"},
		{"a key as long as allowed", key(1 << 20), "none of its entries is the position"},
		{"one byte more", key(1<<20 + 1), "an entry has 1048577 bytes"},
		{"as many pairs as allowed", bytes.Repeat([]byte("[]0"), 100_000), "has no key"},
		{"one pair more", bytes.Repeat([]byte("[]0"), 100_001), "has more than 100000 entries"},
	} {
		if _, err := ParseOffsets(c.content, ""); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", c.name, err, c.want)
		}
	}
	empty := append(binary.BigEndian.AppendUint32(bytes.Clone(whole[:value]), 0), tcEndBlock)
	found, err := ParseOffsets(empty, "")
	if err != nil || len(found) != 1 {
		t.Fatalf("an empty position: %v, %v", found, err)
	}
	if _, err := Choose(found, "outbox", "app"); err == nil {
		t.Error("an empty position counts as one that was removed")
	}
}

func TestParsePosition(t *testing.T) {
	for _, c := range []struct {
		value string
		want  Position
		err   string
	}{
		{value: `{"lsn":10,"lsn_proc":9,"lsn_commit":null,"txId":4294967297}`, want: Position{LSN: 10, Processed: 9, XID: 1}},
		{value: `{"lsn":10,"snapshot":true,"last_snapshot_record":false,"snapshot_completed":false}`, want: Position{LSN: 10, Snapshot: true}},
		{value: `{"lsn":10,"snapshot":"INITIAL","snapshot_completed":true}`, want: Position{LSN: 10}},
		{value: `{"lsn":10,"snapshot":true,"last_snapshot_record":true}`, want: Position{LSN: 10}},
		{value: `{"lsn":10,"snapshot":"false"}`, want: Position{LSN: 10}},
		{value: `{"lsn":10,"snapshot":""}`, want: Position{LSN: 10}},
		{value: `{"lsn":` + strings.Repeat(" ", maxValue-len(`{"lsn":1}`)) + `1}`, want: Position{LSN: 1}},
		{value: `{"lsn":-1}`, err: "lsn is not a whole number"},
		{value: `{"lsn":"10"}`, err: "lsn is not a whole number"},
		{value: `{"lsn":10,"txId":1.5}`, err: "txId is not a whole number"},
		{value: `{"file":"mysql-bin.1","pos":4}`, err: "has no lsn"},
		{value: `[1]`, err: "is not a JSON object"},
		{value: ``, err: "is not a JSON object"},
		{value: `{"lsn":` + strings.Repeat(" ", maxValue-len(`{"lsn":1}`)+1) + `1}`, err: "is larger than"},
	} {
		got, err := ParsePosition(Entry{Value: []byte(c.value)})
		if c.err != "" {
			if err == nil || !strings.Contains(err.Error(), c.err) {
				t.Errorf("%.60s: %v, want an error with %q", c.value, err, c.err)
			}
			continue
		}
		if err != nil || !reflect.DeepEqual(*got, c.want) {
			t.Errorf("%s: %+v and %v, want %+v", c.value, got, err, c.want)
		}
	}
}

func TestChoose_NamesWhatIsThereInstead(t *testing.T) {
	position := []byte(`{"lsn":1}`)
	entries := []Entry{{"outbox", "app", position}, {"billing", "app", position}, {"other", "shop", position}}
	if p, err := Choose(entries, "outbox", "app"); err != nil || p.Connector != "outbox" {
		t.Errorf("%v and %v", p, err)
	}
	if p, err := Choose(entries, "", "shop"); err != nil || p.Connector != "other" {
		t.Errorf("%v and %v", p, err)
	}
	if _, err := Choose(entries, "", "app"); err == nil || !strings.Contains(err.Error(), `several connectors: "billing" with topic.prefix "app", "outbox"`) {
		t.Errorf("%v", err)
	}
	_, err := Choose(entries, "orders", "app")
	var other *OtherConnectorError
	if !errors.As(err, &other) || len(other.Others) != 3 || !strings.Contains(err.Error(), `"other" with topic.prefix "shop"`) {
		t.Errorf("%v", err)
	}
	if _, err := Choose(nil, "orders", "app"); err == nil || !strings.Contains(err.Error(), "has no position") {
		t.Errorf("%v", err)
	}
	// The last record of a topic counts.
	if p, err := Choose([]Entry{{"outbox", "app", []byte(`{"lsn":1}`)}, {"outbox", "app", []byte(`{"lsn":2}`)}}, "outbox", "app"); err != nil || p.LSN != 2 {
		t.Errorf("%v and %v", p, err)
	}
}

func FuzzParseOffsets(f *testing.F) {
	for _, name := range []string{"one.offsets", "three.offsets", "removed.offsets", "empty.offsets", "strings.offsets"} {
		f.Add(content(f, name))
	}
	f.Add([]byte(`{"offsets":[{"partition":{"server":"app"},"offset":{"lsn":1}}]}`))
	f.Add([]byte(`{"lsn":1}`))
	f.Add([]byte(`["outbox",{"server":"app"}]` + "\t" + `{"lsn":1}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		entries, err := ParseOffsets(data, "c")
		if err != nil {
			return
		}
		for _, e := range entries {
			_, _ = ParsePosition(e)
		}
		_, _ = Choose(entries, "", "")
	})
}

func FuzzParseRecord(f *testing.F) {
	f.Add([]byte(`["outbox",{"server":"app"}]`), []byte(`{"lsn":1,"lsn_commit":2,"txId":3,"messageType":"INSERT"}`))
	f.Add([]byte(`[1]`), []byte(`null`))
	f.Fuzz(func(t *testing.T, key, value []byte) {
		e, ok := ParseRecord(key, value)
		if !ok {
			return
		}
		if p, err := ParsePosition(e); err == nil && p.Last() < p.LSN {
			t.Errorf("the last position %v lies before the row's %v", p.Last(), p.LSN)
		}
	})
}
