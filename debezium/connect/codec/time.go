package codec

import (
	"bytes"
	"errors"
	"math"

	"github.com/cdc-relay/cdc-relay/debezium/connect"
	"github.com/cdc-relay/cdc-relay/debezium/connect/java"
)

const (
	// What a date and a timestamp of infinity become on the way through the driver.
	infiniteDay, minusInfiniteDay       = -2147472692, -2147472691
	infiniteMicros, minusInfiniteMicros = 9223372036825200000, -9223372036832400000
)

var (
	errTime      = errors.New("not a time of day")
	errDate      = errors.New("not a date")
	errTimestamp = errors.New("not a timestamp")
)

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
	sh.decode = func(text []byte) (connect.Value, error) {
		micros, err := parse(text)
		if err == nil && m.Time == TimeNanos && !fitsNanos(micros) {
			err = errors.New("too far from 1970 for a number of nanoseconds")
		}
		if err != nil {
			return connect.Null, err
		}
		return value(micros), nil
	}
	sh.element = func(text []byte) (connect.Value, error) {
		micros, err := element(text)
		if err != nil || m.Time == TimeNanos && !fitsNanos(micros) {
			return connect.Null, err
		}
		return value(micros), nil
	}
	return sh
}

// timeValue is the schema of a time or timestamp, and what makes its value.
func timeValue(t TypeInfo, m Modes) (*connect.Schema, func(micros int64) connect.Value) {
	kinds := [...]string{"Time", "MicroTime", "NanoTime", "IsoTime"}
	connectName, connectType, iso := connect.TimeName, connect.Int32, java.AppendISOTime
	if t.OID == oidTimestamp {
		kinds = [...]string{"Timestamp", "MicroTimestamp", "NanoTimestamp", "IsoTimestamp"}
		connectName, connectType, iso = connect.TimestampName, connect.Int64, java.AppendISOTimestamp
	}
	switch {
	case m.Time == TimeConnect:
		return named(connectType, connectName), func(micros int64) connect.Value { ms, _ := java.FloorDiv(micros, 1000); return connect.DateValue(ms) }
	case m.Time == TimeISO:
		return named(connect.String, "io.debezium.time."+kinds[3]), func(micros int64) connect.Value { return connect.TextValue(iso(nil, micros)) }
	case m.Time == TimeNanos:
		return named(connect.Int64, "io.debezium.time."+kinds[2]), nanosValue
	case fraction(t) > 3 || m.Time == TimeMicros || m.Time == TimeAdaptiveMicros && t.OID == oidTime:
		return named(connect.Int64, "io.debezium.time."+kinds[1]), connect.Int64Value
	case t.OID == oidTime:
		return named(connect.Int32, "io.debezium.time."+kinds[0]), func(micros int64) connect.Value { return connect.Int32Value(int32(micros / 1000)) }
	}
	return named(connect.Int64, "io.debezium.time."+kinds[0]), func(micros int64) connect.Value { ms, _ := java.FloorDiv(micros, 1000); return connect.Int64Value(ms) }
}

// nanosValue takes what fitsNanos; an infinite time is the end of the numbers.
func nanosValue(micros int64) connect.Value {
	switch micros {
	case infiniteMicros:
		return connect.Int64Value(math.MaxInt64)
	case minusInfiniteMicros:
		return connect.Int64Value(math.MinInt64)
	}
	return connect.Int64Value(micros * 1000)
}

// fitsNanos reports whether int64 holds the nanoseconds of the whole day that the
// time lies in, and of the time: Java counts the one after the other.
func fitsNanos(micros int64) bool {
	const days = math.MaxInt64 / (java.MicrosPerDay * 1000)
	day, _ := java.FloorDiv(micros, java.MicrosPerDay)
	return micros == infiniteMicros || micros == minusInfiniteMicros || day >= -days && micros <= math.MaxInt64/1000
}

func dateShape(m Modes) *shape {
	s, value := named(connect.Int32, "io.debezium.time.Date"), func(days int64) connect.Value { return connect.Int32Value(int32(days)) }
	switch m.Time {
	case TimeConnect:
		s, value = named(connect.Int32, connect.DateName), func(days int64) connect.Value { return connect.DateValue(int64(int32(days)) * java.MillisPerDay) }
	case TimeISO:
		s = named(connect.String, "io.debezium.time.IsoDate")
		value = func(days int64) connect.Value { return connect.TextValue(append(java.AppendISODate(nil, days), 'Z')) }
	default: // days in every other mode
	}
	with := func(parse func([]byte) (int64, error)) decoder {
		return func(text []byte) (connect.Value, error) {
			days, err := parse(text)
			if err != nil {
				return connect.Null, err
			}
			return value(days), nil
		}
	}
	return &shape{schema: s, decode: with(parseDate), element: with(parseDateElement)}
}

// timestampTZShape writes UTC with as many fraction digits as are declared.
func timestampTZShape(t TypeInfo) *shape {
	digits := fraction(t)
	value := func(days, rest int64) connect.Value {
		out := append(java.AppendISODate(make([]byte, 0, 32), days), 'T')
		out = java.AppendClock(out, rest/java.MicrosPerSecond)
		if digits > 0 {
			out = java.AppendPadded(append(out, '.'), rest%java.MicrosPerSecond, 6)
			out = out[:len(out)-6+digits]
		}
		return connect.TextValue(append(out, 'Z'))
	}
	decode := func(text []byte) (connect.Value, error) {
		switch string(text) {
		case "infinity", "-infinity":
			return connect.TextValue(text), nil
		}
		micros, err := parseTimestampTZ(text)
		if err != nil {
			return connect.Null, err
		}
		return value(java.FloorDiv(micros, java.MicrosPerDay)), nil
	}
	element := func(text []byte) (connect.Value, error) {
		switch string(text) {
		case "infinity":
			return connect.TextValue(text), nil
		case "-infinity":
			return value(minusInfiniteElementDay, minusInfiniteElementHour*3600*java.MicrosPerSecond), nil
		}
		micros, err := parseTimestampTZ(text)
		if err != nil {
			return connect.Null, err
		}
		days, rest := java.FloorDiv(micros, java.MicrosPerDay)
		return value(withoutEra(days), rest), nil
	}
	return &shape{schema: named(connect.String, "io.debezium.time.ZonedTimestamp"), decode: decode, element: element}
}

func decodeTimeTZ(text []byte) (connect.Value, error) { return timeTZ(text, 1) }

// timeTZ writes a time in UTC, in whole multiples of unit microseconds.
func timeTZ(text []byte, unit int64) (connect.Value, error) {
	clock, offset, ok := cutOffset(text)
	if !ok {
		return connect.Null, errTime
	}
	micros, err := parseTime(clock)
	if err != nil {
		return connect.Null, err
	}
	_, micros = java.FloorDiv(micros-offset*java.MicrosPerSecond, java.MicrosPerDay)
	return connect.TextValue(java.AppendISOTime(nil, micros/unit*unit)), nil
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
	days := java.DayNumber(year, month, day)
	if _, m, d := java.Civil(days); m != month || d != day {
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
	micros += (h*3600 + m*60 + s) * java.MicrosPerSecond
	if !ok1 || !ok2 || !ok3 || !ok4 || m > 59 || s > 59 || micros > java.MicrosPerDay {
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
	return days*java.MicrosPerDay + micros, nil
}

func parseTimestampTZ(text []byte) (int64, error) {
	text, before := bytes.CutSuffix(text, []byte(" BC"))
	moment, offset, ok := cutOffset(text)
	if !ok {
		return 0, errTimestamp
	}
	micros, err := parseMoment(moment, before)
	return micros - offset*java.MicrosPerSecond, err
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
