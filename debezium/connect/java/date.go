package java

import "bytes"

const (
	MicrosPerSecond = 1_000_000
	MicrosPerDay    = 86_400 * MicrosPerSecond
	MillisPerDay    = 86_400_000
)

// FloorDiv divides as Math.floorDiv does: the rest has the sign of by.
func FloorDiv(n, by int64) (quotient, rest int64) {
	quotient, rest = n/by, n%by
	if rest < 0 {
		quotient, rest = quotient-1, rest+by
	}
	return quotient, rest
}

// AppendClock appends HH:mm:ss of a second of the day.
func AppendClock(dst []byte, seconds int64) []byte {
	dst = append(AppendPadded(dst, seconds/3600, 2), ':')
	dst = append(AppendPadded(dst, seconds/60%60, 2), ':')
	return AppendPadded(dst, seconds%60, 2)
}

// AppendISOTime appends a time with the shortest fraction. 24:00 is 00:00.
func AppendISOTime(dst []byte, micros int64) []byte {
	micros %= MicrosPerDay
	dst = AppendClock(dst, micros/MicrosPerSecond)
	if f := micros % MicrosPerSecond; f != 0 {
		dst = AppendPadded(append(dst, '.'), f, 6)
		dst = bytes.TrimRight(dst, "0")
	}
	return append(dst, 'Z')
}

// AppendISOTimestamp appends the instant of so many microseconds since 1970.
func AppendISOTimestamp(dst []byte, micros int64) []byte {
	days, rest := FloorDiv(micros, MicrosPerDay)
	return AppendISOTime(append(AppendISODate(dst, days), 'T'), rest)
}

// AppendISODate appends a proleptic date; years outside 0 to 9999 have a sign.
func AppendISODate(dst []byte, days int64) []byte {
	year, month, day := Civil(days)
	switch {
	case year < 0:
		dst, year = append(dst, '-'), -year
	case year > 9999:
		dst = append(dst, '+')
	}
	dst = append(AppendPadded(dst, year, 4), '-')
	dst = append(AppendPadded(dst, month, 2), '-')
	return AppendPadded(dst, day, 2)
}

// Civil is the proleptic Gregorian date of a day since 1970-01-01.
func Civil(days int64) (year, month, day int64) {
	era, d := FloorDiv(days+719_468, 146_097)
	y := (d - d/1460 + d/36_524 - d/146_096) / 365
	d -= 365*y + y/4 - y/100
	m := (5*d + 2) / 153
	year, month, day = y+era*400, m+3, d-(153*m+2)/5+1
	if month > 12 {
		year, month = year+1, month-12
	}
	return year, month, day
}

// DayNumber is the inverse of civil.
func DayNumber(year, month, day int64) int64 {
	if month <= 2 {
		year, month = year-1, month+12
	}
	era, y := FloorDiv(year, 400)
	return era*146_097 + y*365 + y/4 - y/100 + (153*(month-3)+2)/5 + day - 1 - 719_468
}
