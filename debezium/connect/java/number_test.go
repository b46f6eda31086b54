package java

import (
	"encoding/base64"
	"math"
	"math/big"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"
)

func TestAppendFloat_IsJavas(t *testing.T) {
	for _, c := range []struct {
		f    float64
		want string
	}{
		{100, "100.0"}, {9999999, "9999999.0"}, {0.001, "0.001"}, {1e7, "1.0E7"}, {1e-7, "1.0E-7"}, {0.00099999, "9.9999E-4"},
		{-1.5e-3, "-0.0015"}, {2e23, "2.0E23"}, {1e23, "1.0E23"}, {5.6843418860808015e-14, "5.684341886080802E-14"},
		{5e-324, "4.9E-324"}, {-5e-324, "-4.9E-324"}, {1e-323, "9.9E-324"}, {1.5e-323, "1.5E-323"}, {math.MaxFloat64, "1.7976931348623157E308"},
		{math.Copysign(0, -1), "-0.0"}, {0, "0.0"}, {math.Inf(-1), "-Infinity"}, {math.NaN(), "NaN"}, {1.2345678912345679e8, "1.2345678912345679E8"},
	} {
		if got := string(AppendDouble(nil, c.f)); got != c.want {
			t.Errorf("%g: got %s, want %s", c.f, got, c.want)
		}
	}
	for _, c := range []struct {
		f    float32
		want string
	}{{16777216, "1.6777216E7"}, {8.589935e9, "8.589935E9"}, {1e-45, "1.4E-45"}, {3.4028235e38, "3.4028235E38"}, {1.5, "1.5"}, {0.1, "0.1"}} {
		if got := string(AppendFloat32(nil, c.f)); got != c.want {
			t.Errorf("float %g: got %s, want %s", c.f, got, c.want)
		}
	}
}

func TestDecimal_IsJavasBigDecimal(t *testing.T) {
	for _, c := range []struct{ text, java, base64 string }{
		{"12.50", "12.50", "BOI="}, {"-0.05", "-0.05", "+w=="}, {"1.50", "1.50", "AJY="}, {"2.50", "2.50", "APo="}, {"0", "0", "AA=="},
		{"0.0000001000", "1.000E-7", "A+g="}, {"0.0000000", "0E-7", "AA=="}, {"0.000001", "0.000001", "AQ=="}, {"0.0000001", "1E-7", "AQ=="},
		{"-0.00000012", "-1.2E-7", "9A=="}, {"128", "128", "AIA="}, {"-128", "-128", "gA=="}, {"-129", "-129", "/38="}, {"255", "255", "AP8="},
		{"100000000000000000000", "100000000000000000000", "BWvHXi1jEAAA"}, {"-100000000000000000000", "-100000000000000000000", "+pQ4odKc8AAA"},
	} {
		scale, ok := IsPlain([]byte(c.text))
		if !ok {
			t.Errorf("%s is not plain", c.text)
			continue
		}
		if got := string(AppendDecimal(nil, []byte(c.text), scale)); got != c.java {
			t.Errorf("%s: toString is %s, want %s", c.text, got, c.java)
		}
		if got := base64.StdEncoding.EncodeToString(AppendUnscaled(nil, []byte(c.text))); got != c.base64 {
			t.Errorf("%s: unscaled is %s, want %s", c.text, got, c.base64)
		}
	}
	for _, bad := range []string{"", "-", ".5", "5.", "1.2.3", "1e5", "+1", "NaN", "1 ", "00", "-01.5"} {
		if _, ok := IsPlain([]byte(bad)); ok {
			t.Errorf("%q passes for a plain decimal", bad)
		}
	}
}

// Two's complement is checked against math/big on numbers around every power of two.
func TestUnscaled_IsTwosComplementAndMinimal(t *testing.T) {
	one := big.NewInt(1)
	for bit := range uint(200) {
		for d := int64(-2); d <= 2; d++ {
			for _, sign := range []int64{1, -1} {
				n := new(big.Int).Add(new(big.Int).Lsh(one, bit), big.NewInt(d))
				n.Mul(n, big.NewInt(sign))
				raw := AppendUnscaled(nil, []byte(n.String()))
				back := new(big.Int).SetBytes(raw)
				if raw[0] >= 0x80 {
					back.Sub(back, new(big.Int).Lsh(one, uint(8*len(raw))))
				}
				if back.Cmp(n) != 0 {
					t.Fatalf("%s became %s", n, back)
				}
				if len(raw) > 1 && (raw[0] == 0 && raw[1] < 0x80 || raw[0] == 0xff && raw[1] >= 0x80) {
					t.Fatalf("%s takes %d bytes, one too many", n, len(raw))
				}
			}
		}
	}
}

func TestRescale_RoundsHalfUp(t *testing.T) {
	for _, c := range []struct {
		text string
		to   int
		want string
	}{{"12.34", 0, "12"}, {"12.5", 0, "13"}, {"-12.5", 0, "-13"}, {"0.05", 1, "0.1"}, {"-0.04", 1, "0.0"}, {"1", 3, "1.000"}, {"9.995", 2, "10.00"}} {
		scale, _ := IsPlain([]byte(c.text))
		if got, _ := Rescale([]byte(c.text), scale, c.to, false); string(got) != c.want {
			t.Errorf("%s to scale %d: got %s, want %s", c.text, c.to, got, c.want)
		}
	}
	if _, ok := Rescale([]byte("1.005"), 3, 2, true); ok {
		t.Error("a digit was lost")
	}
	if got, ok := Rescale([]byte("1.500"), 3, 1, true); !ok || string(got) != "1.5" {
		t.Errorf("got %s, %t", got, ok)
	}
}

func TestHashOrder(t *testing.T) {
	for text, want := range map[string]int32{"": 0, "a": 97, "Aa": 2112, "BB": 2112, "zeta": 3735256, "😀": 1772899} {
		if got := HashCode([]byte(text)); got != want {
			t.Errorf("hash of %q is %d, want %d", text, got, want)
		}
	}
	order := func(keys ...string) string {
		var raw [][]byte
		for _, k := range keys {
			raw = append(raw, []byte(k))
		}
		var out []string
		for _, i := range HashOrder(raw) {
			out = append(out, keys[i])
		}
		return strings.Join(out, " ")
	}
	if got := order("b b", "zeta", "alpha"); got != "zeta b b alpha" {
		t.Errorf("got %s", got)
	}
	if got := order("BB", "Aa"); got != "BB Aa" { // one bucket: insertion order
		t.Errorf("got %s", got)
	}
	// Against a model that puts one key after another and splits its buckets.
	random := rand.New(rand.NewPCG(1, 2))
	for range 200 {
		var keys [][]byte
		seen := map[string]bool{}
		for range random.IntN(100) {
			if k := strconv.Itoa(random.IntN(1000)); !seen[k] {
				seen[k] = true
				keys = append(keys, []byte(k))
			}
		}
		if got, want := HashOrder(keys), modelOrder(keys); !slices.Equal(got, want) {
			t.Fatalf("%s: got %v, want %v", keys, got, want)
		}
	}
}

func modelOrder(keys [][]byte) []int {
	buckets := make([][]int, 16)
	spread := func(i int) uint32 { h := uint32(HashCode(keys[i])); return h ^ h>>16 }
	for i := range keys {
		at := spread(i) & uint32(len(buckets)-1)
		buckets[at] = append(buckets[at], i)
		if 4*(i+1) > 3*len(buckets) {
			next := make([][]int, 2*len(buckets))
			for _, bucket := range buckets {
				for _, j := range bucket {
					at := spread(j) & uint32(len(next)-1)
					next[at] = append(next[at], j)
				}
			}
			buckets = next
		}
	}
	return slices.Concat(buckets...)
}

func TestJSONString_EscapesAsJackson(t *testing.T) {
	in := "\x00\x1f\"\\/<>&\x7f\u2028é😀\xed\xa0\xbd퟿"
	if got, want := string(AppendJSONString(nil, in, true)), "\"\\u0000\\u001F\\\"\\\\/<>&\x7f\u2028é\\uD83D\\uDE00\\uD83D퟿\""; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	if got, want := string(AppendJSONString(nil, "😀\n", false)), `"😀\n"`; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

func TestCivil_IsItsOwnInverse(t *testing.T) {
	for days := int64(-2_000_000); days < 3_000_000; days += 97 {
		y, m, d := Civil(days)
		if got := DayNumber(y, m, d); got != days || m < 1 || m > 12 || d < 1 || d > 31 {
			t.Fatalf("day %d is %d-%d-%d, which is day %d", days, y, m, d, got)
		}
	}
}
