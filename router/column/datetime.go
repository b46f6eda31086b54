package column

import (
	"encoding/binary"
	"errors"
	"math"
	"strconv"
	"time"
)

// PostgreSQL counts from 2000-01-01; this many days after 1970-01-01.
const epochDays = 10957

const (
	microsPerDay    = 24 * 60 * 60 * 1_000_000
	microsPerHour   = 60 * 60 * 1_000_000
	microsPerMinute = 60 * 1_000_000
	microsPerSecond = 1_000_000
)

// appendDate is date_out for DateStyle ISO.
func appendDate(dst, data []byte) ([]byte, bool) {
	if len(data) != 4 {
		return dst, false
	}
	days := int32(binary.BigEndian.Uint32(data))
	switch days {
	case math.MaxInt32:
		return append(dst, "infinity"...), true
	case math.MinInt32:
		return append(dst, "-infinity"...), true
	}
	dst, bc := appendDays(dst, int64(days))
	if bc {
		dst = append(dst, " BC"...)
	}
	return dst, true
}

// appendTimestamp is timestamp_out for DateStyle ISO.
func appendTimestamp(dst, data []byte) ([]byte, bool) { return appendMicros(dst, data, "") }

// appendTimestampTZ is timestamptz_out for DateStyle ISO and TimeZone UTC.
func appendTimestampTZ(dst, data []byte) ([]byte, bool) { return appendMicros(dst, data, "+00") }

func appendMicros(dst, data []byte, zone string) ([]byte, bool) {
	if len(data) != 8 {
		return dst, false
	}
	micros := int64(binary.BigEndian.Uint64(data))
	switch micros {
	case math.MaxInt64:
		return append(dst, "infinity"...), true
	case math.MinInt64:
		return append(dst, "-infinity"...), true
	}
	days, clock := micros/microsPerDay, micros%microsPerDay
	if clock < 0 {
		days, clock = days-1, clock+microsPerDay
	}
	dst, bc := appendDays(dst, days)
	dst = appendPadded(append(dst, ' '), clock/microsPerHour, 2)
	dst = appendPadded(append(dst, ':'), clock/microsPerMinute%60, 2)
	dst = appendPadded(append(dst, ':'), clock/microsPerSecond%60, 2)
	if fraction := clock % microsPerSecond; fraction != 0 {
		dst = appendPadded(append(dst, '.'), fraction, 6)
		for dst[len(dst)-1] == '0' {
			dst = dst[:len(dst)-1]
		}
	}
	dst = append(dst, zone...)
	if bc {
		dst = append(dst, " BC"...)
	}
	return dst, true
}

// appendDays writes the day that lies so many days after 2000-01-01. The year
// before 1 is 1 BC, and years have at least four digits.
func appendDays(dst []byte, days int64) (out []byte, bc bool) {
	year, month, day := civil(days + epochDays)
	if bc = year <= 0; bc {
		year = 1 - year
	}
	dst = appendPadded(dst, year, 4)
	dst = appendPadded(append(dst, '-'), month, 2)
	return appendPadded(append(dst, '-'), day, 2), bc
}

// civil is the proleptic Gregorian date of a day counted from 1970-01-01.
// The calendar repeats every 146097 days; a year begins in March here, so that
// the leap day is its last.
func civil(days int64) (year, month, day int64) {
	days += 719468
	era := days / 146097
	if days < 0 {
		era = (days - 146096) / 146097
	}
	doe := days - era*146097
	yoe := (doe - doe/1460 + doe/36524 - doe/146096) / 365
	doy := doe - (365*yoe + yoe/4 - yoe/100)
	mp := (5*doy + 2) / 153
	month = mp + 3
	if mp >= 10 {
		month = mp - 9
	}
	year = yoe + era*400
	if month <= 2 {
		year++
	}
	return year, month, doy - (153*mp+2)/5 + 1
}

func appendPadded(dst []byte, v int64, width int) []byte {
	for limit := int64(10); width > 1; width-- {
		if v < limit {
			for range width - 1 {
				dst = append(dst, '0')
			}
			break
		}
		limit *= 10
	}
	return strconv.AppendInt(dst, v, 10)
}

var (
	errNotTime  = errors.New("is neither a date, a time stamp nor a whole number of seconds, milliseconds, microseconds or nanoseconds")
	errInfinite = errors.New("is infinite, and a record's timestamp is a number of milliseconds")
	errTooEarly = errors.New("lies before 1970, and Kafka takes no such timestamp")
)

// ParseTime reads the text of a timestamptz, timestamp or date column, ISO 8601
// text (`2026-01-02T03:04:05.678Z`; without a zone it is UTC), or digits: time
// since 1970 in seconds below 1e11, in milliseconds below 1e14, in microseconds
// below 1e17, else in nanoseconds. The result is whole milliseconds, cut off.
func ParseTime(text []byte) (time.Time, error) {
	text = TrimBlank(text)
	switch string(text) {
	case "infinity", "-infinity":
		return time.Time{}, errInfinite
	}
	millis, ok := parseEpoch(text)
	if !ok {
		p := timeParser{text: text}
		if millis, ok = p.parse(); !ok {
			return time.Time{}, errNotTime
		}
	}
	if millis < 0 {
		return time.Time{}, errTooEarly
	}
	return time.UnixMilli(millis).UTC(), nil
}

func parseEpoch(text []byte) (millis int64, ok bool) {
	digits := text
	if len(digits) > 0 && digits[0] == '-' {
		digits = digits[1:]
	}
	if len(digits) == 0 || len(digits) > 19 {
		return 0, false
	}
	var v uint64
	for _, c := range digits {
		if c < '0' || c > '9' {
			return 0, false
		}
		v = v*10 + uint64(c-'0')
	}
	if len(digits) < len(text) {
		return -1, true // whatever its unit, it lies before 1970
	}
	switch {
	case v < 1e11:
		return int64(v) * 1000, true
	case v < 1e14:
		return int64(v), true
	case v < 1e17:
		return int64(v / 1e3), true
	}
	return int64(v / 1e6), true
}

// timeParser reads YYYY-MM-DD[( |T)HH:MM[:SS[.f]][Z|±HH[[:]MM[[:]SS]]]][ BC].
type timeParser struct {
	text []byte
	at   int
}

func (p *timeParser) parse() (millis int64, ok bool) {
	year, digits := p.number(6)
	if digits < 4 || !p.take('-') {
		return 0, false
	}
	month, md := p.number(2)
	if md != 2 || !p.take('-') {
		return 0, false
	}
	day, dd := p.number(2)
	if dd != 2 {
		return 0, false
	}
	var clock, offset int64
	if p.at < len(p.text) && (p.take('T') || p.take('t') || p.digitFollows() && p.take(' ')) {
		if clock, ok = p.clock(); !ok {
			return 0, false
		}
		if offset, ok = p.zone(); !ok {
			return 0, false
		}
	}
	if string(p.text[p.at:]) == " BC" {
		p.at, year = len(p.text), 1-year
	} else if year == 0 {
		return 0, false
	}
	if p.at != len(p.text) || month < 1 || month > 12 || day < 1 || day > daysIn(year, month) {
		return 0, false
	}
	days := time.Date(int(year), time.Month(month), int(day), 0, 0, 0, 0, time.UTC).Unix() / 86400
	millis = days*86_400_000 + clock - offset
	return millis, true
}

func daysIn(year, month int64) int64 {
	return int64(time.Date(int(year), time.Month(month+1), 0, 0, 0, 0, 0, time.UTC).Day())
}

// digitFollows distinguishes a space before a time of day from the one of ` BC`.
func (p *timeParser) digitFollows() bool {
	return p.at+1 < len(p.text) && p.text[p.at+1] >= '0' && p.text[p.at+1] <= '9'
}

// clock reads HH:MM[:SS[.f]] in milliseconds. 24:00 and a 60th second are legal.
func (p *timeParser) clock() (millis int64, ok bool) {
	hour, hd := p.number(2)
	if hd != 2 || hour > 24 || !p.take(':') {
		return 0, false
	}
	minute, md := p.number(2)
	if md != 2 || minute > 59 {
		return 0, false
	}
	var second, fraction int64
	if p.take(':') {
		var sd int
		if second, sd = p.number(2); sd != 2 || second > 60 {
			return 0, false
		}
		if p.take('.') || p.take(',') {
			if fraction, ok = p.fraction(); !ok {
				return 0, false
			}
		}
	}
	millis = ((hour*60+minute)*60+second)*1000 + fraction
	return millis, millis <= 86_400_000
}

// fraction reads digits after the point; what is finer than a millisecond is cut.
func (p *timeParser) fraction() (millis int64, ok bool) {
	scale := int64(100)
	start := p.at
	for p.at < len(p.text) && p.text[p.at] >= '0' && p.text[p.at] <= '9' {
		millis += int64(p.text[p.at]-'0') * scale
		scale /= 10
		p.at++
	}
	return millis, p.at > start
}

// zone reads Z or an offset; none is UTC.
func (p *timeParser) zone() (millis int64, ok bool) {
	sign := int64(1)
	switch {
	case p.take('Z'), p.take('z'):
		return 0, true
	case p.take('+'):
	case p.take('-'):
		sign = -1
	default:
		return 0, true
	}
	var parts [3]int64
	for i := range parts {
		if i > 0 {
			colon := p.take(':')
			if !colon && (p.at >= len(p.text) || p.text[p.at] < '0' || p.text[p.at] > '9') {
				break
			}
		}
		v, digits := p.number(2)
		if digits != 2 || v > 59 {
			return 0, false
		}
		parts[i] = v
	}
	if parts[0] > 23 {
		return 0, false
	}
	return sign * ((parts[0]*60+parts[1])*60 + parts[2]) * 1000, true
}

func (p *timeParser) take(c byte) bool {
	if p.at < len(p.text) && p.text[p.at] == c {
		p.at++
		return true
	}
	return false
}

func (p *timeParser) number(most int) (v int64, digits int) {
	for p.at < len(p.text) && digits < most && p.text[p.at] >= '0' && p.text[p.at] <= '9' {
		v = v*10 + int64(p.text[p.at]-'0')
		p.at++
		digits++
	}
	return v, digits
}

// TrimBlank cuts characters up to U+0020 at both ends, as Java's trim does.
func TrimBlank(b []byte) []byte {
	for len(b) > 0 && b[0] <= ' ' {
		b = b[1:]
	}
	for len(b) > 0 && b[len(b)-1] <= ' ' {
		b = b[:len(b)-1]
	}
	return b
}
