package tape

import (
	"strconv"
)

// IsNumber reports whether text is a number as JSON has them.
func IsNumber(value []byte) bool {
	if len(value) == 0 || value[0] != '-' && (value[0] < '0' || '9' < value[0]) {
		return false
	}
	t := Tape{Text: value}
	return t.number() == nil && t.at == len(value)
}

// Decimal is a number as its digits times a power of ten, without zeros at either end.
type Decimal struct {
	Negative bool
	Digits   []byte
	Exponent int
}

// maxExponent bounds the zeros that a number may stand for.
const maxExponent = 1 << 20

// Parse reads a number that the tape has checked. It fails where the exponent has no use.
func Parse(written []byte) (d Decimal, ok bool) {
	if written[0] == '-' {
		d.Negative, written = true, written[1:]
	}
	d.Digits = make([]byte, 0, 32)
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
			d.Exponent += e
			return d.trim(), true
		}
		if point {
			d.Exponent--
		}
		if c != '0' || len(d.Digits) > 0 {
			d.Digits = append(d.Digits, c)
		}
	}
	return d.trim(), true
}

func (d Decimal) trim() Decimal {
	for n := len(d.Digits); n > 0 && d.Digits[n-1] == '0'; n-- {
		d.Digits, d.Exponent = d.Digits[:n-1], d.Exponent+1
	}
	if len(d.Digits) == 0 {
		return Decimal{}
	}
	return d
}

// Integer reads a number that is whole, such as 7, 7.0 and 7e2.
func Integer(written []byte) (int64, bool) {
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

// integerOf is Integer for what is long, or written with a fraction or an exponent.
func integerOf(written []byte) (int64, bool) {
	d, ok := Parse(written)
	if !ok || d.Exponent < 0 || len(d.Digits)+d.Exponent > 19 {
		return 0, false
	}
	sign := ""
	if d.Negative {
		sign = "-"
	}
	plain := append([]byte(sign), d.Digits...)
	for range d.Exponent {
		plain = append(plain, '0')
	}
	if len(d.Digits) == 0 {
		return 0, true
	}
	v, err := strconv.ParseInt(string(plain), 10, 64)
	return v, err == nil
}

// Unsigned reads a whole number of 64 bits that is not below zero.
func Unsigned(written []byte) (uint64, bool) {
	d, ok := Parse(written)
	if !ok || d.Negative && len(d.Digits) > 0 || d.Exponent < 0 || len(d.Digits)+d.Exponent > 20 {
		return 0, false
	}
	plain := d.Digits
	for range d.Exponent {
		plain = append(plain, '0')
	}
	v, err := strconv.ParseUint(string(plain), 10, 64)
	return v, err == nil
}
