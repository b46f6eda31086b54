package progress

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// Budget compares how long a backfill takes with how long its slot lasts.
type Budget struct {
	Limit int64   // of the WAL that a slot may hold, in bytes; negative: none
	WAL   float64 // bytes that the server writes in a second
	Rows  int64
	Rate  float64 // rows a second
}

// Takes is the time for the rows.
func (b Budget) Takes() time.Duration {
	if b.Rate <= 0 {
		return 0
	}
	return Seconds(float64(b.Rows) / b.Rate)
}

// Lasts is when the server gives up the slot; false: it never does at the present rate.
func (b Budget) Lasts() (time.Duration, bool) {
	if b.Limit < 0 || b.WAL <= 0 {
		return 0, false
	}
	return Seconds(float64(b.Limit) / b.WAL), true
}

// Warning is empty when the slot lasts long enough.
func (b Budget) Warning() string {
	lasts, ends := b.Lasts()
	if !ends || lasts > b.Takes() {
		return ""
	}
	return fmt.Sprintf("the slot would be lost after about %s (max_slot_wal_keep_size is %s, and the server writes %s a second), and the backfill takes about %s",
		Shown(lasts), Size(float64(b.Limit)), Size(b.WAL), Shown(b.Takes()))
}

// longest keeps a rate near zero from being no duration.
const longest = 10 * 365 * 24 * time.Hour

// Seconds is a duration, however long.
func Seconds(s float64) time.Duration {
	return time.Duration(min(s, longest.Seconds()) * float64(time.Second))
}

// Shown rounds as people do.
func Shown(d time.Duration) string {
	switch {
	case d < time.Minute:
		return d.Round(time.Second).String()
	case d < time.Hour:
		return fmt.Sprintf("%dm%02ds", int(d.Minutes()), int(d.Seconds())%60)
	}
	return fmt.Sprintf("%dh%02dm", int(d.Hours()), int(d.Minutes())%60)
}

// Size is a number of bytes for people: three digits, or all of a number that has no point.
func Size(bytes float64) string {
	if bytes < 0 {
		return "-" + Size(-bytes)
	}
	units := []string{"B", "KiB", "MiB", "GiB", "TiB"}
	unit := 0
	for ; unit < len(units)-1 && bytes >= 1023.5; unit++ { // which is shown as 1024
		bytes /= 1024
	}
	decimals := 0
	switch {
	case bytes < 9.995:
		decimals = 2
	case bytes < 99.95:
		decimals = 1
	}
	text := strconv.FormatFloat(bytes, 'f', decimals, 64)
	if decimals > 0 {
		text = strings.TrimRight(strings.TrimRight(text, "0"), ".")
	}
	return text + " " + units[unit]
}
