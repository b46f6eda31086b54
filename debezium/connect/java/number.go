package java

import (
	"math"
	"math/big"
	"strconv"
	"time"
	"unicode/utf8"
)

// AppendDouble appends Double.toString of a JDK of version 19 or later.
func AppendDouble(dst []byte, f float64) []byte { return appendFloat(dst, f, 64) }

// AppendFloat32 appends Float.toString.
func AppendFloat32(dst []byte, f float32) []byte { return appendFloat(dst, float64(f), 32) }

func appendFloat(dst []byte, f float64, bits int) []byte {
	switch {
	case math.IsNaN(f):
		return append(dst, "NaN"...)
	case math.IsInf(f, 1):
		return append(dst, "Infinity"...)
	case math.IsInf(f, -1):
		return append(dst, "-Infinity"...)
	case f == 0 && math.Signbit(f):
		return append(dst, "-0.0"...)
	case f == 0:
		return append(dst, "0.0"...)
	}
	if a := math.Abs(f); a >= 1e-3 && a < 1e7 {
		start := len(dst)
		dst = strconv.AppendFloat(dst, f, 'f', -1, bits)
		for _, b := range dst[start:] {
			if b == '.' {
				return dst
			}
		}
		return append(dst, '.', '0')
	}
	var scratch [32]byte
	e := strconv.AppendFloat(scratch[:0], f, 'e', -1, bits)
	digits, exp := e, []byte(nil)
	for i, b := range e {
		if b == 'e' {
			digits, exp = e[:i], e[i+1:]
		}
	}
	// Java requires two digits, and of the numbers that need one only it takes the two
	// digits nearest to the value. That differs from appending 0 for the smallest
	// subnormals alone: 4.9E-324 and not 5.0E-324.
	if one := digits[0] == '-' && len(digits) == 2 || len(digits) == 1; one {
		if two := strconv.AppendFloat(nil, f, 'e', 1, bits); roundTrips(two, f, bits) {
			digits = two[:len(digits)+2]
			for i, b := range two {
				if b == 'e' {
					exp = two[i+1:]
				}
			}
		}
	}
	dst = append(dst, digits...)
	dst = append(dst, 'E')
	if exp[0] == '-' {
		dst = append(dst, '-')
	}
	exp = exp[1:]
	for len(exp) > 1 && exp[0] == '0' {
		exp = exp[1:]
	}
	return append(dst, exp...)
}

func roundTrips(text []byte, f float64, bits int) bool {
	g, err := strconv.ParseFloat(string(text), bits)
	return err == nil && g == f
}

// A decimal is kept as plain text with exactly as many fraction digits as its
// scale: the form in which PostgreSQL prints a numeric.

// IsPlain reports whether text is a plain decimal, and its scale.
func IsPlain(text []byte) (scale int, ok bool) {
	if len(text) > 0 && text[0] == '-' {
		text = text[1:]
	}
	if len(text) > 1 && text[0] == '0' && text[1] != '.' {
		return 0, false
	}
	point := -1
	for i, b := range text {
		switch {
		case b == '.' && point < 0 && i > 0 && i < len(text)-1:
			point = i
		case b < '0' || b > '9':
			return 0, false
		}
	}
	if point < 0 {
		return 0, len(text) > 0
	}
	return len(text) - point - 1, true
}

// AppendDecimal appends BigDecimal.toString of plain decimal text.
func AppendDecimal(dst, text []byte, scale int) []byte {
	var scratch [64]byte
	digits, negative := unscaledDigits(scratch[:0], text)
	exponent := len(digits) - 1 - scale
	if scale == 0 || exponent >= -6 {
		return append(dst, text...)
	}
	if negative {
		dst = append(dst, '-')
	}
	dst = append(dst, digits[0])
	if len(digits) > 1 {
		dst = append(append(dst, '.'), digits[1:]...)
	}
	dst = append(dst, 'E')
	return strconv.AppendInt(dst, int64(exponent), 10)
}

// unscaledDigits are the digits of the unscaled number without leading zeros.
func unscaledDigits(dst, text []byte) (digits []byte, negative bool) {
	for _, b := range text {
		switch {
		case b == '-':
			negative = true
		case b == '.', b == '0' && len(dst) == 0:
		default:
			dst = append(dst, b)
		}
	}
	if len(dst) == 0 {
		return append(dst, '0'), false
	}
	return dst, negative
}

// AppendUnscaled appends the unscaled number in two's complement, big-endian
// and as short as possible.
func AppendUnscaled(dst, text []byte) []byte {
	var scratch [64]byte
	digits, negative := unscaledDigits(scratch[:0], text)
	if len(digits) <= 18 {
		var n int64
		for _, b := range digits {
			n = n*10 + int64(b-'0')
		}
		if negative {
			n = -n
		}
		size := 8
		for size > 1 && n>>(8*size-9) == n>>63 {
			size--
		}
		for i := size - 1; i >= 0; i-- {
			dst = append(dst, byte(n>>(8*i)))
		}
		return dst
	}
	n, _ := new(big.Int).SetString(string(digits), 10)
	if !negative {
		raw := n.Bytes()
		if raw[0] >= 0x80 {
			dst = append(dst, 0)
		}
		return append(dst, raw...)
	}
	// -n is ^(n-1).
	raw := n.Sub(n, big.NewInt(1)).Bytes()
	if raw[0] >= 0x80 {
		dst = append(dst, 0xff)
	}
	for _, b := range raw {
		dst = append(dst, ^b)
	}
	return dst
}

// StripZeros drops the trailing zeros of the fraction.
func StripZeros(text []byte, scale int) ([]byte, int) {
	for scale > 0 && text[len(text)-1] == '0' {
		text, scale = text[:len(text)-1], scale-1
	}
	if scale == 0 && len(text) > 0 && text[len(text)-1] == '.' {
		text = text[:len(text)-1]
	}
	if scale == 0 && len(text) == 2 && text[0] == '-' && text[1] == '0' {
		text = text[1:]
	}
	return text, scale
}

// Rescale gives plain text another scale, rounded half up; false when digits
// other than 0 are lost and exact is asked for.
func Rescale(text []byte, from, to int, exact bool) ([]byte, bool) {
	if from <= to {
		if from == to {
			return text, true
		}
		out := append(make([]byte, 0, len(text)+to-from+1), text...)
		if from == 0 {
			out = append(out, '.')
		}
		for ; from < to; from++ {
			out = append(out, '0')
		}
		return out, true
	}
	digits, negative := unscaledDigits(nil, text)
	n, _ := new(big.Int).SetString(string(digits), 10)
	unit := new(big.Int).Exp(big.NewInt(10), big.NewInt(int64(from-to)), nil)
	rest := new(big.Int)
	n.QuoRem(n, unit, rest)
	if rest.Sign() != 0 && exact {
		return nil, false
	}
	if rest.Lsh(rest, 1).Cmp(unit) >= 0 {
		n.Add(n, big.NewInt(1))
	}
	return plainOf(n, negative, to), true
}

// plainOf writes an unscaled number and a scale of 0 or more as plain text.
func plainOf(n *big.Int, negative bool, scale int) []byte {
	digits := n.Append(nil, 10)
	for len(digits) <= scale {
		digits = append([]byte{'0'}, digits...)
	}
	var out []byte
	if negative && n.Sign() != 0 {
		out = append(out, '-')
	}
	out = append(out, digits[:len(digits)-scale]...)
	if scale > 0 {
		out = append(append(out, '.'), digits[len(digits)-scale:]...)
	}
	return out
}

// ParseBigDecimal reads what new BigDecimal(String) reads, as plain text. A
// negative scale is given up, which no caller keeps.
func ParseBigDecimal(s string) (text []byte, scale int, ok bool) {
	mantissa, exponent := s, 0
	for i := range len(s) {
		if s[i] == 'e' || s[i] == 'E' {
			n, err := strconv.Atoi(s[i+1:])
			if err != nil || n > 1000 || n < -1000 {
				return nil, 0, false
			}
			mantissa, exponent = s[:i], n
			break
		}
	}
	negative := false
	if len(mantissa) > 0 && (mantissa[0] == '-' || mantissa[0] == '+') {
		negative, mantissa = mantissa[0] == '-', mantissa[1:]
	}
	digits, seen := make([]byte, 0, len(mantissa)), false
	for _, b := range []byte(mantissa) {
		switch {
		case b == '.' && !seen:
			seen = true
			continue
		case b < '0' || b > '9':
			return nil, 0, false
		case seen:
			scale++
		}
		digits = append(digits, b)
	}
	if len(digits) == 0 {
		return nil, 0, false
	}
	scale -= exponent
	for ; scale < 0; scale++ {
		digits = append(digits, '0')
	}
	n, _ := new(big.Int).SetString(string(digits), 10)
	return plainOf(n, negative, scale), scale, true
}

// HashCode is String.hashCode of UTF-8 text.
func HashCode(text []byte) int32 {
	var h int32
	for len(text) > 0 {
		r, n := decodeRune(text)
		if text = text[n:]; r > 0xffff {
			r -= 0x10000
			h = 31*h + 0xd800 + r>>10
			r = 0xdc00 + r&0x3ff
		}
		h = 31*h + r
	}
	return h
}

// HashOrder are the indices of keys in the order in which a java.util.HashMap
// into which they were put one after another is walked.
func HashOrder(keys [][]byte) []int {
	size := 16
	for len(keys)*4 > size*3 {
		size *= 2
	}
	spread := make([]uint32, len(keys))
	for i, k := range keys {
		h := uint32(HashCode(k))
		spread[i] = (h ^ h>>16) & uint32(size-1)
	}
	// Counting sort: it keeps the order of insertion inside a bucket, as the
	// splitting of buckets on a resize does.
	starts := make([]int, size+1)
	for _, b := range spread {
		starts[b+1]++
	}
	for i := 1; i < len(starts); i++ {
		starts[i] += starts[i-1]
	}
	order := make([]int, len(keys))
	for i, b := range spread {
		order[starts[b]] = i
		starts[b]++
	}
	return order
}

// gregorianStart is the first day that Java's Date counts by the Gregorian
// calendar; before it, by the Julian one.
const gregorianStart = -141_427

// AppendDate appends Date.toString in UTC.
func AppendDate(dst []byte, millis int64) []byte {
	days, rest := FloorDiv(millis, MillisPerDay)
	year, month, day := Civil(days)
	if days < gregorianStart {
		year, month, day = julian(days)
	}
	_, weekday := FloorDiv(days+4, 7)
	dst = append(append(dst, time.Weekday(weekday).String()[:3]...), ' ')
	dst = append(append(dst, time.Month(month).String()[:3]...), ' ')
	dst = append(AppendPadded(dst, day, 2), ' ')
	dst = append(AppendClock(dst, rest/1000), " UTC "...)
	if year <= 0 { // the years before Christ are counted from 1
		year = 1 - year
	}
	return strconv.AppendInt(dst, year, 10)
}

// julian is the date of a day since 1970-01-01 in the Julian calendar.
func julian(days int64) (year, month, day int64) {
	cycle, d := FloorDiv(days+719_470, 1461) // four years from 1 March of year 0
	y := min(d/365, 3)
	d -= 365 * y
	m := (5*d + 2) / 153
	year, month, day = cycle*4+y, m+3, d-(153*m+2)/5+1
	if month > 12 {
		year, month = year+1, month-12
	}
	return year, month, day
}

// AppendPadded appends n >= 0 with at least width digits.
func AppendPadded(dst []byte, n int64, width int) []byte {
	var scratch [20]byte
	digits := strconv.AppendInt(scratch[:0], n, 10)
	for i := len(digits); i < width; i++ {
		dst = append(dst, '0')
	}
	return append(dst, digits...)
}

const (
	SurrogateFirst = 0xd800
	SurrogateLast  = 0xdfff
)

// decodeRune is utf8.DecodeRune that also reads a lone surrogate, which a
// string expanded from JSON may hold, in three bytes.
func decodeRune(text []byte) (rune, int) {
	if len(text) >= 3 && text[0] == 0xed && text[1] >= 0xa0 && text[1] <= 0xbf && text[2]&0xc0 == 0x80 {
		return 0xd000 | rune(text[1]&0x3f)<<6 | rune(text[2]&0x3f), 3
	}
	return utf8.DecodeRune(text)
}

// ReplaceSurrogates writes ? for each lone surrogate in dst[start:], as Java
// does when it encodes a string.
func ReplaceSurrogates(dst []byte, start int) []byte {
	for i := start; i+2 < len(dst); i++ {
		if dst[i] == 0xed && dst[i+1] >= 0xa0 {
			dst[i] = '?'
			dst = append(dst[:i+1], dst[i+3:]...)
		}
	}
	return dst
}
