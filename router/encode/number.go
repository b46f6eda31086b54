package encode

import (
	"math/big"
	"strconv"
)

// isNumber reports whether text is a number as JSON has them.
func isNumber(value []byte) bool {
	if len(value) == 0 || value[0] != '-' && (value[0] < '0' || '9' < value[0]) {
		return false
	}
	t := tape{text: value}
	return t.number() == nil && t.at == len(value)
}

// decimal is a number as its digits times a power of ten, without zeros at either end.
type decimal struct {
	negative bool
	digits   []byte
	exponent int
}

// maxExponent bounds the zeros that a number may stand for.
const maxExponent = 1 << 20

// parse reads a number that the tape has checked. It fails where the exponent has no use.
func parse(written []byte) (d decimal, ok bool) {
	if written[0] == '-' {
		d.negative, written = true, written[1:]
	}
	d.digits = make([]byte, 0, 32)
	point := false
	for i, c := range written {
		switch c {
		case '.':
			point = true
			continue
		case 'e', 'E':
			e, err := strconv.Atoi(string(written[i+1:]))
			if err != nil || e > maxExponent || e < -maxExponent {
				return d, false
			}
			d.exponent += e
			return d.trim(), true
		}
		if point {
			d.exponent--
		}
		if c != '0' || len(d.digits) > 0 {
			d.digits = append(d.digits, c)
		}
	}
	return d.trim(), true
}

func (d decimal) trim() decimal {
	for n := len(d.digits); n > 0 && d.digits[n-1] == '0'; n-- {
		d.digits, d.exponent = d.digits[:n-1], d.exponent+1
	}
	if len(d.digits) == 0 {
		return decimal{}
	}
	return d
}

// integer reads a number that is whole, such as 7, 7.0 and 7e2.
func integer(written []byte) (int64, bool) {
	digits, negative := written, false
	if digits[0] == '-' {
		digits, negative = digits[1:], true
	}
	var v int64
	if len(digits) > 18 {
		return integerOf(written)
	}
	for _, c := range digits {
		if c < '0' || '9' < c {
			return integerOf(written)
		}
		v = v*10 + int64(c-'0')
	}
	if negative {
		v = -v
	}
	return v, true
}

// integerOf is integer for what is long, or written with a fraction or an exponent.
func integerOf(written []byte) (int64, bool) {
	d, ok := parse(written)
	if !ok || d.exponent < 0 || len(d.digits)+d.exponent > 19 {
		return 0, false
	}
	sign := ""
	if d.negative {
		sign = "-"
	}
	plain := append([]byte(sign), d.digits...)
	for range d.exponent {
		plain = append(plain, '0')
	}
	if len(d.digits) == 0 {
		return 0, true
	}
	v, err := strconv.ParseInt(string(plain), 10, 64)
	return v, err == nil
}

// appendDecimal writes the exact number, or refuses it.
func (a *avroType) appendDecimal(dst, written []byte) ([]byte, error) {
	d, ok := parse(written)
	zeros := d.exponent + a.scale
	switch {
	case !ok:
		return dst, mismatch("the schema wants %s, the payload has a number out of range", a.name)
	case len(d.digits) > 0 && zeros < 0:
		return dst, mismatch("the schema wants %s, the payload has more digits behind the point", a.name)
	case len(d.digits) > 0 && len(d.digits)+zeros > a.digits:
		return dst, mismatch("the schema wants %s, the payload has more digits", a.name)
	}
	digits := d.digits
	if len(digits) == 0 {
		digits, zeros = []byte("0"), 0
	}
	for range zeros {
		digits = append(digits, '0')
	}
	v, ok := new(big.Int).SetString(string(digits), 10)
	if !ok {
		return dst, mismatch("the schema wants %s, the payload has another number", a.name) // cannot be: these are digits
	}
	if d.negative {
		v.Neg(v)
	}
	made := complement(v)
	if a.size == 0 {
		return append(appendLong(dst, int64(len(made))), made...), nil
	}
	if len(made) > a.size {
		return dst, mismatch("the schema wants %s in %d bytes, the payload has a larger number", a.name, a.size)
	}
	fill := byte(0)
	if d.negative {
		fill = 0xff
	}
	for range a.size - len(made) {
		dst = append(dst, fill)
	}
	return append(dst, made...), nil
}

// complement is the shortest two's complement of a number, most significant byte first.
func complement(v *big.Int) []byte {
	if v.Sign() >= 0 {
		made := v.Bytes()
		if len(made) == 0 || made[0]&0x80 != 0 {
			made = append([]byte{0}, made...)
		}
		return made
	}
	length := v.BitLen()/8 + 1
	made := new(big.Int).Add(v, new(big.Int).Lsh(big.NewInt(1), uint(8*length))).FillBytes(make([]byte, length))
	if length > 1 && made[0] == 0xff && made[1]&0x80 != 0 {
		made = made[1:]
	}
	return made
}
