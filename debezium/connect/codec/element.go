package codec

import (
	"bytes"
	"errors"

	"github.com/cdc-relay/cdc-relay/debezium/connect"
	"github.com/cdc-relay/cdc-relay/debezium/connect/java"
)

// The driver makes elements of arrays out of Java's old classes for time: their
// calendar is the Julian one before 1582-10-15, their years have no era when they
// are read, and their times of day have no microseconds.

// Days of the Gregorian calendar's beginning, and how many it left out then.
const (
	gregorianDay  = -141_427 // 1582-10-15
	lastJulianDay = -141_438 // 1582-10-04
	leftOut       = 10
)

// What happens to a date and a timestamp of infinity.
var (
	infiniteElementDay      = java.DayNumber(292_278_994, 8, 16)
	minusInfiniteElementDay = java.DayNumber(292_269_055, 12, 2)
)

const minusInfiniteElementHour = 23

// withoutEra is a day whose year lost its era: 44 BC is 44. Days that the
// calendar left out are those behind.
func withoutEra(days int64) int64 {
	year, month, day := java.Civil(days)
	switch {
	case year <= 0:
		return java.DayNumber(1-year, month, day)
	case days > lastJulianDay && days < gregorianDay:
		return days + leftOut
	}
	return days
}

func parseDateElement(text []byte) (int64, error) {
	switch string(text) {
	case "infinity":
		return infiniteElementDay, nil
	case "-infinity":
		return minusInfiniteElementDay, nil
	}
	text, before := bytes.CutSuffix(text, []byte(" BC"))
	days, err := parseDay(text, before)
	if err != nil {
		return 0, err
	}
	if _, month, day := java.Civil(days); before && month == 2 && day == 29 {
		if _, err := parseDay(text, false); err != nil {
			return 0, errors.New("not a date once its era is lost")
		}
	}
	return withoutEra(days), nil
}

// parseTimestampElement takes the date as one of the Julian calendar where that
// was in use.
func parseTimestampElement(text []byte) (int64, error) {
	micros, err := parseTimestamp(text)
	if err != nil || micros == infiniteMicros || micros == minusInfiniteMicros {
		return micros, err
	}
	days, rest := java.FloorDiv(micros, java.MicrosPerDay)
	if days >= gregorianDay {
		return micros, nil
	}
	return julianDayNumber(java.Civil(days))*java.MicrosPerDay + rest, nil
}

// julianDayNumber is the day since 1970-01-01 of a date in the Julian calendar.
func julianDayNumber(year, month, day int64) int64 {
	if month <= 2 {
		year, month = year-1, month+12
	}
	leaps, _ := java.FloorDiv(year, 4)
	return year*365 + leaps + (153*(month-3)+2)/5 + day - 1 - 719_470
}

// parseTimeElement has milliseconds, and no end of the day.
func parseTimeElement(text []byte) (int64, error) {
	micros, err := parseTime(text)
	return micros / 1000 * 1000 % java.MicrosPerDay, err
}

// finiteElement decodes the elements of a numeric array: the driver has no arrays with
// one that is not a number.
func finiteElement(decode decoder) decoder {
	return func(text []byte) (connect.Value, error) {
		switch string(text) {
		case "NaN", "Infinity", "-Infinity":
			return connect.Null, errNotDecimal(text)
		}
		return decode(text)
	}
}
