package connect

import (
	"bytes"
	"errors"
	"math"
)

const (
	microsPerSecond = 1_000_000
	microsPerDay    = 86_400 * microsPerSecond

	// What a date and a timestamp of infinity become on the way through the driver.
	infiniteDay, minusInfiniteDay       = -2147472692, -2147472691
	infiniteMicros, minusInfiniteMicros = 9223372036825200000, -9223372036832400000
)

var (
	errTime      = errors.New("not a time of day")
	errDate      = errors.New("not a date")
	errTimestamp = errors.New("not a timestamp")
)

func floorDiv(n, by int64) (quotient, rest int64) {
	quotient, rest = n/by, n%by
	if rest < 0 {
		quotient, rest = quotient-1, rest+by
	}
	return quotient, rest
}

// fraction is the declared number of fraction digits of a time type.
func fraction(t TypeInfo) int {
	if t.TypeMod < 0 || t.TypeMod > 6 {
		return 6
	}
	return int(t.TypeMod)
}

// timeShape is date, time and timestamp under time.precision.mode.
func timeShape(t TypeInfo, m Modes) *shape {
	if t.OID == oidDate {
		return dateShape(m)
	}
	parse, element := parseTime, parseTimeElement
	if t.OID == oidTimestamp {
		parse, element = parseTimestamp, parseTimestampElement
	}
	s, value := timeValue(t, m)
	sh := &shape{schema: s}
	sh.decode = func(text []byte) (Value, error) {
		micros, err := parse(text)
		if err == nil && m.Time == TimeNanos && !fitsNanos(micros) {
			err = errors.New("too far from 1970 for a number of nanoseconds")
		}
		if err != nil {
			return Null, err
		}
		return value(micros), nil
	}
	sh.element = func(text []byte) (Value, error) {
		micros, err := element(text)
		if err != nil || m.Time == TimeNanos && !fitsNanos(micros) {
			return Null, err
		}
		return value(micros), nil
	}
	return sh
}

// timeValue is the schema of a time or timestamp, and what makes its value.
func timeValue(t TypeInfo, m Modes) (*Schema, func(micros int64) Value) {
	kinds := [...]string{"Time", "MicroTime", "NanoTime", "IsoTime"}
	connectName, connectType, iso := TimeName, Int32, appendISOTime
	if t.OID == oidTimestamp {
		kinds = [...]string{"Timestamp", "MicroTimestamp", "NanoTimestamp", "IsoTimestamp"}
		connectName, connectType, iso = TimestampName, Int64, appendISOTimestamp
	}
	switch {
	case m.Time == TimeConnect:
		return named(connectType, connectName), func(micros int64) Value { ms, _ := floorDiv(micros, 1000); return DateValue(ms) }
	case m.Time == TimeISO:
		return named(String, "io.debezium.time."+kinds[3]), func(micros int64) Value { return TextValue(iso(nil, micros)) }
	case m.Time == TimeNanos:
		return named(Int64, "io.debezium.time."+kinds[2]), nanosValue
	case fraction(t) > 3 || m.Time == TimeMicros || m.Time == TimeAdaptiveMicros && t.OID == oidTime:
		return named(Int64, "io.debezium.time."+kinds[1]), Int64Value
	case t.OID == oidTime:
		return named(Int32, "io.debezium.time."+kinds[0]), func(micros int64) Value { return Int32Value(int32(micros / 1000)) }
	}
	return named(Int64, "io.debezium.time."+kinds[0]), func(micros int64) Value { ms, _ := floorDiv(micros, 1000); return Int64Value(ms) }
}

// nanosValue takes what fitsNanos; an infinite time is the end of the numbers.
func nanosValue(micros int64) Value {
	switch micros {
	case infiniteMicros:
		return Int64Value(math.MaxInt64)
	case minusInfiniteMicros:
		return Int64Value(math.MinInt64)
	}
	return Int64Value(micros * 1000)
}

// fitsNanos says whether int64 holds the nanoseconds of the whole day that the
// time lies in, and of the time: Java counts the one after the other.
func fitsNanos(micros int64) bool {
	const days = math.MaxInt64 / (microsPerDay * 1000)
	day, _ := floorDiv(micros, microsPerDay)
	return micros == infiniteMicros || micros == minusInfiniteMicros || day >= -days && micros <= math.MaxInt64/1000
}

func dateShape(m Modes) *shape {
	s, value := named(Int32, "io.debezium.time.Date"), func(days int64) Value { return Int32Value(int32(days)) }
	switch m.Time {
	case TimeConnect:
		s, value = named(Int32, DateName), func(days int64) Value { return DateValue(int64(int32(days)) * millisPerDay) }
	case TimeISO:
		s = named(String, "io.debezium.time.IsoDate")
		value = func(days int64) Value { return TextValue(append(appendISODate(nil, days), 'Z')) }
	default: // days in every other mode
	}
	with := func(parse func([]byte) (int64, error)) decoder {
		return func(text []byte) (Value, error) {
			days, err := parse(text)
			if err != nil {
				return Null, err
			}
			return value(days), nil
		}
	}
	return &shape{schema: s, decode: with(parseDate), element: with(parseDateElement)}
}

// timestampTZShape writes UTC with as many fraction digits as are declared.
func timestampTZShape(t TypeInfo) *shape {
	digits := fraction(t)
	value := func(days, rest int64) Value {
		out := append(appendISODate(make([]byte, 0, 32), days), 'T')
		out = appendClock(out, rest/microsPerSecond)
		if digits > 0 {
			out = appendPadded(append(out, '.'), rest%microsPerSecond, 6)
			out = out[:len(out)-6+digits]
		}
		return TextValue(append(out, 'Z'))
	}
	decode := func(text []byte) (Value, error) {
		switch string(text) {
		case "infinity", "-infinity":
			return TextValue(text), nil
		}
		micros, err := parseTimestampTZ(text)
		if err != nil {
			return Null, err
		}
		return value(floorDiv(micros, microsPerDay)), nil
	}
	element := func(text []byte) (Value, error) {
		switch string(text) {
		case "infinity":
			return TextValue(text), nil
		case "-infinity":
			return value(minusInfiniteElementDay, minusInfiniteElementHour*3600*microsPerSecond), nil
		}
		micros, err := parseTimestampTZ(text)
		if err != nil {
			return Null, err
		}
		days, rest := floorDiv(micros, microsPerDay)
		return value(withoutEra(days), rest), nil
	}
	return &shape{schema: named(String, "io.debezium.time.ZonedTimestamp"), decode: decode, element: element}
}

func decodeTimeTZ(text []byte) (Value, error) { return timeTZ(text, 1) }

// timeTZ writes a time in UTC, in whole multiples of unit microseconds.
func timeTZ(text []byte, unit int64) (Value, error) {
	clock, offset, ok := cutOffset(text)
	if !ok {
		return Null, errTime
	}
	micros, err := parseTime(clock)
	if err != nil {
		return Null, err
	}
	_, micros = floorDiv(micros-offset*microsPerSecond, microsPerDay)
	return TextValue(appendISOTime(nil, micros/unit*unit)), nil
}

// appendClock appends HH:mm:ss of a second of the day.
func appendClock(dst []byte, seconds int64) []byte {
	dst = append(appendPadded(dst, seconds/3600, 2), ':')
	dst = append(appendPadded(dst, seconds/60%60, 2), ':')
	return appendPadded(dst, seconds%60, 2)
}

// appendISOTime appends a time with the shortest fraction. 24:00 is 00:00.
func appendISOTime(dst []byte, micros int64) []byte {
	micros %= microsPerDay
	dst = appendClock(dst, micros/microsPerSecond)
	if f := micros % microsPerSecond; f != 0 {
		dst = appendPadded(append(dst, '.'), f, 6)
		dst = bytes.TrimRight(dst, "0")
	}
	return append(dst, 'Z')
}

func appendISOTimestamp(dst []byte, micros int64) []byte {
	days, rest := floorDiv(micros, microsPerDay)
	return appendISOTime(append(appendISODate(dst, days), 'T'), rest)
}

// appendISODate appends a proleptic date; years outside 0 to 9999 have a sign.
func appendISODate(dst []byte, days int64) []byte {
	year, month, day := civil(days)
	switch {
	case year < 0:
		dst, year = append(dst, '-'), -year
	case year > 9999:
		dst = append(dst, '+')
	}
	dst = append(appendPadded(dst, year, 4), '-')
	dst = append(appendPadded(dst, month, 2), '-')
	return appendPadded(dst, day, 2)
}

// civil is the proleptic Gregorian date of a day since 1970-01-01.
func civil(days int64) (year, month, day int64) {
	era, d := floorDiv(days+719_468, 146_097)
	y := (d - d/1460 + d/36_524 - d/146_096) / 365
	d -= 365*y + y/4 - y/100
	m := (5*d + 2) / 153
	year, month, day = y+era*400, m+3, d-(153*m+2)/5+1
	if month > 12 {
		year, month = year+1, month-12
	}
	return year, month, day
}

// dayNumber is the inverse of civil.
func dayNumber(year, month, day int64) int64 {
	if month <= 2 {
		year, month = year-1, month+12
	}
	era, y := floorDiv(year, 400)
	return era*146_097 + y*365 + y/4 - y/100 + (153*(month-3)+2)/5 + day - 1 - 719_468
}

// number reads exactly the digits of text.
func number(text []byte) (int64, bool) {
	if len(text) == 0 || len(text) > 9 {
		return 0, false
	}
	var n int64
	for _, b := range text {
		if b < '0' || b > '9' {
			return 0, false
		}
		n = n*10 + int64(b-'0')
	}
	return n, true
}

// parseDate reads a date in ISO style as days since 1970.
func parseDate(text []byte) (int64, error) {
	switch string(text) {
	case "infinity":
		return infiniteDay, nil
	case "-infinity":
		return minusInfiniteDay, nil
	}
	text, before := bytes.CutSuffix(text, []byte(" BC"))
	return parseDay(text, before)
}

func parseDay(text []byte, before bool) (int64, error) {
	n := len(text)
	if n < 7 || text[n-3] != '-' || text[n-6] != '-' {
		return 0, errDate
	}
	year, ok1 := number(text[:n-6])
	month, ok2 := number(text[n-5 : n-3])
	day, ok3 := number(text[n-2:])
	if !ok1 || !ok2 || !ok3 || year == 0 || month < 1 || month > 12 || day < 1 {
		return 0, errDate
	}
	if before {
		year = 1 - year
	}
	days := dayNumber(year, month, day)
	if _, m, d := civil(days); m != month || d != day {
		return 0, errDate
	}
	return days, nil
}

// parseTime reads HH:MM:SS with an optional fraction as microseconds; 24:00 is
// the end of the day.
func parseTime(text []byte) (int64, error) {
	clock, frac, _ := bytes.Cut(text, []byte("."))
	if len(clock) != 8 || clock[2] != ':' || clock[5] != ':' || len(frac) > 6 || len(frac) == 0 && len(clock) != len(text) {
		return 0, errTime
	}
	h, ok1 := number(clock[:2])
	m, ok2 := number(clock[3:5])
	s, ok3 := number(clock[6:])
	micros, ok4 := int64(0), true
	if len(frac) > 0 {
		micros, ok4 = number(frac)
		for i := len(frac); i < 6; i++ {
			micros *= 10
		}
	}
	micros += (h*3600 + m*60 + s) * microsPerSecond
	if !ok1 || !ok2 || !ok3 || !ok4 || m > 59 || s > 59 || micros > microsPerDay {
		return 0, errTime
	}
	return micros, nil
}

func parseTimestamp(text []byte) (int64, error) {
	switch string(text) {
	case "infinity":
		return infiniteMicros, nil
	case "-infinity":
		return minusInfiniteMicros, nil
	}
	text, before := bytes.CutSuffix(text, []byte(" BC"))
	return parseMoment(text, before)
}

func parseMoment(text []byte, before bool) (int64, error) {
	date, clock, ok := bytes.Cut(text, []byte(" "))
	if !ok {
		return 0, errTimestamp
	}
	days, err := parseDay(date, before)
	if err != nil {
		return 0, errTimestamp
	}
	micros, err := parseTime(clock)
	if err != nil || days > 107_000_000 || days < -107_000_000 { // int64 holds the microseconds of these
		return 0, errTimestamp
	}
	return days*microsPerDay + micros, nil
}

func parseTimestampTZ(text []byte) (int64, error) {
	text, before := bytes.CutSuffix(text, []byte(" BC"))
	moment, offset, ok := cutOffset(text)
	if !ok {
		return 0, errTimestamp
	}
	micros, err := parseMoment(moment, before)
	return micros - offset*microsPerSecond, err
}

// cutOffset takes +HH, +HH:MM or +HH:MM:SS, in seconds east, off the end.
func cutOffset(text []byte) (rest []byte, seconds int64, ok bool) {
	at := bytes.LastIndexAny(text, "+-")
	if at < 0 {
		return nil, 0, false
	}
	east := text[at+1:]
	for _, unit := range [...]int64{3600, 60, 1} {
		if len(east) < 2 {
			return nil, 0, false
		}
		n, isNumber := number(east[:2])
		if seconds += n * unit; !isNumber {
			return nil, 0, false
		}
		if east = east[2:]; len(east) == 0 {
			break
		}
		if unit == 1 || east[0] != ':' {
			return nil, 0, false
		}
		east = east[1:]
	}
	if text[at] == '-' {
		seconds = -seconds
	}
	return text[:at], seconds, true
}
