package avro

import (
	"math/big"

	"github.com/cdc-relay/cdc-relay/router/encode/tape"
)

// appendDecimal writes the exact number, or refuses it.
func (a *avroType) appendDecimal(dst, written []byte) ([]byte, error) {
	d, ok := tape.Parse(written)
	zeros := d.Exponent + a.scale
	switch {
	case !ok:
		return dst, tape.Unfit("the schema wants %s, the payload has a number out of range", a.name)
	case len(d.Digits) > 0 && zeros < 0:
		return dst, tape.Unfit("the schema wants %s, the payload has more digits behind the point", a.name)
	case len(d.Digits) > 0 && len(d.Digits)+zeros > a.digits:
		return dst, tape.Unfit("the schema wants %s, the payload has more digits", a.name)
	}
	digits := d.Digits
	if len(digits) == 0 {
		digits, zeros = []byte("0"), 0
	}
	for range zeros {
		digits = append(digits, '0')
	}
	v, ok := new(big.Int).SetString(string(digits), 10)
	if !ok {
		return dst, tape.Unfit("the schema wants %s, the payload has another number", a.name) // cannot be: these are digits
	}
	if d.Negative {
		v.Neg(v)
	}
	made := complement(v)
	if a.size == 0 {
		return append(appendLong(dst, int64(len(made))), made...), nil
	}
	if len(made) > a.size {
		return dst, tape.Unfit("the schema wants %s in %d bytes, the payload has a larger number", a.name, a.size)
	}
	fill := byte(0)
	if d.Negative {
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
