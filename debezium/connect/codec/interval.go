package codec

import (
	"bytes"
	"errors"
	"strconv"

	"github.com/cdc-relay/cdc-relay/debezium/connect"
	"github.com/cdc-relay/cdc-relay/debezium/connect/java"
)

// interval is what PostgreSQL prints in style postgres.
type interval struct {
	years, months, days, hours, minutes int64
	micros                              int64 // seconds and their fraction
}

func intervalShape(m Modes) *shape {
	if m.IntervalText {
		return &shape{schema: named(connect.String, "io.debezium.time.Interval"), decode: func(text []byte) (connect.Value, error) {
			iv, err := parseInterval(text)
			return connect.TextValue(iv.iso()), err
		}}
	}
	return &shape{schema: named(connect.Int64, "io.debezium.time.MicroDuration"), decode: func(text []byte) (connect.Value, error) {
		iv, err := parseInterval(text)
		return connect.Int64Value(iv.duration()), err
	}}
}

// duration is the interval in microseconds with months of 30.4375 days, by the
// same steps in floating point as in Java. The conversions keep the compiler
// from fusing a multiplication and an addition.
func (iv interval) duration() int64 {
	days := float64(float64(iv.years*12+iv.months)*30.4375) + float64(iv.days)
	hours := float64(days*24) + float64(iv.hours)
	minutes := float64(hours*60) + float64(iv.minutes)
	total := (float64(minutes*60) + iv.seconds()) * 1e6
	switch { // Java's cast saturates, Go's does not
	case total >= 1<<63:
		return 1<<63 - 1
	case total <= -1<<63:
		return -1 << 63
	}
	return int64(total)
}

func (iv interval) iso() []byte {
	dst := make([]byte, 0, 32)
	for _, part := range [...]struct {
		n    int64
		unit string
	}{{iv.years, "Y"}, {iv.months, "M"}, {iv.days, "DT"}, {iv.hours, "H"}, {iv.minutes, "M"}} {
		if len(dst) == 0 {
			dst = append(dst, 'P')
		}
		dst = append(strconv.AppendInt(dst, part.n, 10), part.unit...)
	}
	return append(iv.appendSeconds(dst), 'S')
}

// seconds is the sum in floating point that the driver keeps.
func (iv interval) seconds() float64 {
	return float64(iv.micros/java.MicrosPerSecond) + float64(float64(iv.micros%java.MicrosPerSecond)/1e6)
}

// appendSeconds cuts the digits of that sum after the ninth, which is why
// 4.825548 comes out as 4.825547999.
func (iv interval) appendSeconds(dst []byte) []byte {
	start := len(dst)
	dst = strconv.AppendFloat(dst, iv.seconds(), 'f', -1, 64)
	if point := bytes.IndexByte(dst[start:], '.'); point >= 0 {
		dst = bytes.TrimRight(dst[:min(len(dst), start+point+10)], "0")
		dst = bytes.TrimSuffix(dst, []byte("."))
	}
	return dst
}

var errInterval = errors.New("not an interval in style postgres")

// parseInterval reads 1 year 2 mons -3 days +04:05:06.78.
func parseInterval(text []byte) (iv interval, err error) {
	words := bytes.Fields(text)
	for i := 0; i < len(words); i++ {
		if bytes.IndexByte(words[i], ':') >= 0 {
			if i != len(words)-1 || !iv.clock(words[i]) {
				return interval{}, errInterval
			}
			return iv, nil
		}
		n, nerr := strconv.ParseInt(string(words[i]), 10, 32)
		if nerr != nil || i+1 == len(words) {
			return interval{}, errInterval
		}
		i++
		switch string(words[i]) {
		case "year", "years":
			iv.years = n
		case "mon", "mons":
			iv.months = n
		case "day", "days":
			iv.days = n
		default:
			return interval{}, errInterval
		}
	}
	if len(words) == 0 {
		return interval{}, errInterval
	}
	return iv, nil
}

// clock reads hours, minutes and seconds; the sign is that of all three.
func (iv *interval) clock(text []byte) bool {
	sign := int64(1)
	if text[0] == '-' || text[0] == '+' {
		if text[0] == '-' {
			sign = -1
		}
		text = text[1:]
	}
	whole, frac, dotted := bytes.Cut(text, []byte("."))
	n := len(whole)
	if n < 8 || whole[n-3] != ':' || whole[n-6] != ':' || len(frac) > 6 || dotted && len(frac) == 0 {
		return false
	}
	h, herr := strconv.ParseUint(string(whole[:n-6]), 10, 33)
	m, ok1 := number(whole[n-5 : n-3])
	s, ok2 := number(whole[n-2:])
	f, ok3 := int64(0), true
	if dotted {
		f, ok3 = number(frac)
		for i := len(frac); i < 6; i++ {
			f *= 10
		}
	}
	if herr != nil || !ok1 || !ok2 || !ok3 || m > 59 || s > 59 {
		return false
	}
	iv.hours, iv.minutes, iv.micros = sign*int64(h), sign*m, sign*(s*java.MicrosPerSecond+f)
	return true
}
