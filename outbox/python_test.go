package outbox

import (
	"bufio"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io"
	"math"
	"math/rand/v2"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"testing"
	"unicode/utf8"

	"github.com/cdc-relay/cdc-relay/outbox/internal/jsontext"
)

// What Python 3.11 makes of each payload.
var pythonVectors = []struct{ aggregateID, eventType, payload, key string }{
	{"7f0c1c5e-0000-4000-8000-000000000001", "OrderCreated", `{"total": 12}`, "021bf1d1861a1a39e64c53fe459f5370"},
	{"a", "T", `{"total":12.0}`, "f325bb99b2454a82d33cf1fa8af0dcc6"},
	{"a", "T", `{"z": 1, "a": [true, null, {"b": "é", "a": "😀"}]}`, "0b25e6e40af24e2879cc3aafa36ed24a"},
	{"a", "T", `{"s": "<&>\/\"\\\b\f\n\r\t` + "\x7f" + `\u0000\u2028"}`, "c7eed7db010f6258f7de3fec1a965045"},
	{"a", "T", `{"f": [1e16, 1e15, 123456789012345678.0, 0.0001, 0.00001, 1e22, 5e-324, -0.0, 0.1, 1.7976931348623157e308, 100.0]}`, "6041532b7726bce0fe6cc25d8d7cdaf0"},
	{"a", "T", `{"\ud800\udc00": 2, "\ue000": 1, "a": 4, "A": 3, "": 5}`, "e75a5b415e1fbbe56535b45b49110e15"},
	{"a", "T", `{"n": 12345678901234567890123}`, "731c4e8c7abc2daf8634dffb64ca94d1"},
	{"é", "T", `{}`, "34de26f46cee42181c846f44ddd14ebf"},
}

func TestPythonKey_AgreesWithPython(t *testing.T) {
	for _, v := range pythonVectors {
		key, err := PythonKey(v.aggregateID, v.eventType, []byte(v.payload))
		if err != nil || key != v.key {
			t.Errorf("%s: key %s, %v; want %s", v.payload, key, err, v.key)
		}
	}
}

func TestPythonKey_WritesWhatPythonWrites(t *testing.T) {
	for input, want := range map[string]string{
		`-0`:                           `0`,
		`-0.0`:                         `-0.0`,
		`1e400`:                        `Infinity`,
		`-1e400`:                       `-Infinity`,
		`1E2`:                          `100.0`,
		`1.5e-7`:                       `1.5e-07`,
		`123456789.0e10`:               `1.23456789e+18`,
		`"\ud800"`:                     `"\ud800"`,
		`"\udc00\ud800"`:               `"\udc00\ud800"`,
		`"\ud800\ud800\udc00"`:         `"\ud800\ud800\udc00"`,
		`"\/"`:                         `"/"`,
		`{"a":1,"b":2,"a":3}`:          `{"a": 3, "b": 2}`,
		`{"b":{"d":1,"c":2},"a":[{}]}`: `{"a": [{}], "b": {"c": 2, "d": 1}}`,
		" [ ] ":                        `[]`,
		`[1 , "a" ]`:                   `[1, "a"]`,
	} {
		got, err := jsontext.AppendPython(nil, []byte(input))
		if err != nil || string(got) != want {
			t.Errorf("%s: %s, %v; want %s", input, got, err, want)
		}
	}
}

func TestPythonKey_TakesGoValues(t *testing.T) {
	value := map[string]any{
		"total": 12.0, "count": 12, "big": json.Number("123456789012345678901"), "name": "é", "raw": json.RawMessage(`{"b":1,"a":2}`),
		"list": []any{nil, true, int8(-1), uint64(math.MaxUint64), float32(0.5)},
	}
	got, err := jsontext.AppendPython(nil, value)
	want := `{"big": 123456789012345678901, "count": 12, "list": [null, true, -1, 18446744073709551615, 0.5], "name": "\u00e9", "raw": {"a": 2, "b": 1}, "total": 12.0}`
	if err != nil || string(got) != want {
		t.Errorf("%s, %v\nwant %s", got, err, want)
	}
}

func TestPythonKey_RefusesWhatPythonHasNoKeyFor(t *testing.T) {
	for name, payload := range map[string]any{
		"NaN": math.NaN(), "a word": []byte("NaN"), "nothing": []byte(""), "two values": []byte("1 2"), "bad UTF-8": []byte("\"\xff\""), "a raw surrogate": []byte("\"\xed\xa0\x80\""),
		"a bad string": "\xff", "a control character": []byte("\"\x01\""), "a leading zero": []byte("01"), "no digit": []byte("1."), "an open string": []byte(`"a`),
		"an open escape": []byte(`"\`), "an unknown escape": []byte(`"\x"`), "a short escape": []byte(`"\u12"`), "a comma": []byte("[1,]"), "a name that is no string": []byte("{1:2}"),
		"a struct": struct{ A int }{1}, "too many digits": []byte(strings.Repeat("1", 4301)), "too deep": []byte(strings.Repeat("[", 600) + strings.Repeat("]", 600)),
		"a deep value": deep(600),
	} {
		if key, err := PythonKey("a", "T", payload); err == nil {
			t.Errorf("%s: key %s, want an error", name, key)
		}
	}
	if _, err := PythonKey("\xff", "T", nil); err == nil {
		t.Error("an aggregate id that is not UTF-8 got a key")
	}
}

func deep(levels int) any {
	var v any = 1
	for range levels {
		v = []any{v}
	}
	return v
}

// oracle is a python3 that answers the canonical text of a JSON text, both in hexadecimal.
type oracle struct {
	mu  sync.Mutex
	in  io.Writer
	out *bufio.Reader
}

const oracleProgram = `
import json, sys
def no(word): raise ValueError(word)
for line in sys.stdin:
    try:
        text = bytes.fromhex(line.strip()).decode("utf-8")
        print(json.dumps(json.loads(text, parse_constant=no), sort_keys=True).encode().hex(), flush=True)
    except RecursionError:
        print("deep", flush=True)
    except ValueError:
        print("refused", flush=True)
`

// python starts the oracle. Without a python3 the test is skipped, and fails where
// CDC_RELAY_REQUIRE asks for everything.
func python(tb testing.TB) *oracle {
	tb.Helper()
	path, err := exec.LookPath("python3")
	if err != nil {
		if os.Getenv("CDC_RELAY_REQUIRE") != "" {
			tb.Fatalf("CDC_RELAY_REQUIRE asks for everything, and there is no python3: %v", err)
		}
		tb.Skipf("SKIPPED: no python3 on the PATH: the keys are not compared with Python's; install python3 (%v)", err)
	}
	cmd := exec.Command(path, "-c", oracleProgram)
	in, err := cmd.StdinPipe()
	if err != nil {
		tb.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		tb.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		in.Close()
		if err := cmd.Wait(); err != nil {
			tb.Errorf("python3: %v", err)
		}
	})
	return &oracle{in: in, out: bufio.NewReader(out)}
}

var errDeep = errors.New("too deep for Python")

// canonical is what Python writes; false where Python refuses the text.
func (o *oracle) canonical(tb testing.TB, text []byte) (string, bool, error) {
	tb.Helper()
	o.mu.Lock()
	defer o.mu.Unlock()
	if _, err := io.WriteString(o.in, hex.EncodeToString(text)+"\n"); err != nil {
		tb.Fatal(err)
	}
	line, err := o.out.ReadString('\n')
	if err != nil {
		tb.Fatal(err)
	}
	switch line = strings.TrimSpace(line); line {
	case "deep":
		return "", false, errDeep
	case "refused":
		return "", false, nil
	}
	answer, err := hex.DecodeString(line)
	if err != nil {
		tb.Fatal(err)
	}
	return string(answer), true, nil
}

func compare(t *testing.T, o *oracle, text []byte) {
	t.Helper()
	want, taken, err := o.canonical(t, text)
	got, refused := jsontext.AppendPython(nil, text)
	switch {
	case err != nil || errors.Is(refused, jsontext.ErrDepth):
	case taken != (refused == nil):
		t.Errorf("%q: Python takes it: %v; we: %v", text, taken, refused)
	case taken && string(got) != want:
		t.Errorf("%q:\n%s\nPython:\n%s", text, got, want)
	}
}

// FuzzPythonKey compares with a real Python.
func FuzzPythonKey(f *testing.F) {
	for _, v := range pythonVectors {
		f.Add([]byte(v.payload))
	}
	for _, text := range []string{`"\ud83d\ud83d\ude00"`, `[1e16,1E+2,-0,-0.0e5]`, `{"a":{"a":1},"a":[]}`, "\ufeff1", " 1\t\n\r", `"\ud800\u00e9"`, `"\ud800\u00"`} {
		f.Add([]byte(text))
	}
	o := python(f)
	f.Fuzz(func(t *testing.T, text []byte) { compare(t, o, text) })
}

// Random bits make the floats that a fuzzer of text seldom writes.
func TestPythonKey_FloatsAreThoseOfPython(t *testing.T) {
	o := python(t)
	random := rand.New(rand.NewPCG(1, 2))
	var b []byte
	for range 400 {
		b = append(b[:0], '[')
		for i := range 50 {
			f := math.Float64frombits(random.Uint64())
			if i%2 == 0 {
				f = (random.Float64() - 0.5) * math.Pow(10, float64(random.IntN(40)-15))
			}
			if math.IsNaN(f) || math.IsInf(f, 0) {
				continue
			}
			if len(b) > 1 {
				b = append(b, ',')
			}
			b = strconv.AppendFloat(b, f, 'g', -1, 64)
		}
		compare(t, o, append(b, ']'))
	}
}

// Random text, as most fuzzing of bytes is refused before it is a string.
func TestPythonKey_StringsAreThoseOfPython(t *testing.T) {
	o := python(t)
	random := rand.New(rand.NewPCG(3, 4))
	pieces := []string{`\ud83d`, `\ude00`, `\uD800`, `\udfff`, `\u00e9`, "é", "😀", "\x7f", `\n`, `\/`, "a", "", `\u0000`, "\U0010ffff", "\ue000"}
	for range 400 {
		var b strings.Builder
		b.WriteByte('{')
		for i := range 20 {
			if i > 0 {
				b.WriteByte(',')
			}
			b.WriteByte('"')
			for range random.IntN(5) {
				b.WriteString(pieces[random.IntN(len(pieces))])
			}
			b.WriteString(`":`)
			b.WriteByte('0' + byte(i%10))
		}
		b.WriteByte('}')
		if !utf8.ValidString(b.String()) {
			t.Fatal("the test writes no UTF-8")
		}
		compare(t, o, []byte(b.String()))
	}
}

func BenchmarkPythonKey(b *testing.B) {
	payload := []byte(`{"order_id": "7f0c1c5e-0000-4000-8000-000000000001", "customer": "c-1234567", "lines": [{"sku": "A-1", "n": 2, "price": 12.5}, {"sku": "B-2", "n": 1, "price": 3.75}], "currency": "EUR", "total": 28.75}`)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := PythonKey("7f0c1c5e-0000-4000-8000-000000000001", "OrderCreated", payload); err != nil {
			b.Fatal(err)
		}
	}
}
