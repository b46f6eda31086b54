package config

import (
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/cdc-relay/cdc-relay/config/document"
)

const masked = document.Masked

// secret never shows in any formatting, marshalling or error. Convert it to
// string where it is used, and nowhere else.
type secret string

func (s secret) String() string {
	if s == "" {
		return ""
	}
	return masked
}

// Format covers every verb, so that %x or %#v cannot show what %v hides.
func (s secret) Format(f fmt.State, _ rune) { fmt.Fprint(f, s.String()) }

// MarshalJSON hides it.
func (s secret) MarshalJSON() ([]byte, error) { return json.Marshal(s.String()) }

// template is text whose ${…} belong to the router: they are not expanded.
type template string

// pair is one entry of a mapping with free names.
type pair struct{ Name, Value string }

// pairs keeps the order of the file: the order of headers is part of a record.
type pairs []pair

// templatePairs are pairs whose values are templates.
type templatePairs []pair

func (p pairs) mapping() map[string]string {
	if len(p) == 0 {
		return nil
	}
	m := make(map[string]string, len(p))
	for _, e := range p {
		m[e.Name] = e.Value
	}
	return m
}

// duration is written with a unit: 500ms, 30s, 1m30s.
type duration time.Duration

const durationForm = "a number with a unit (ms, s, m, h), for example 30s"

func parseDuration(text string) (duration, error) {
	if isBare(text) {
		return 0, fmt.Errorf("%q has no unit; allowed: %s", text, durationForm)
	}
	d, err := time.ParseDuration(text)
	if err != nil {
		return 0, fmt.Errorf("%q is not a duration; allowed: %s", text, durationForm)
	}
	if d < 0 {
		return 0, fmt.Errorf("%q is negative; allowed: %s", text, durationForm)
	}
	return duration(d), nil
}

func (d duration) String() string {
	s := time.Duration(d).String()
	if strings.HasSuffix(s, "m0s") {
		s = strings.TrimSuffix(s, "0s")
	}
	if strings.HasSuffix(s, "h0m") {
		s = strings.TrimSuffix(s, "0m")
	}
	return s
}

// age is a duration that may also be written in days: 7d, 1d12h. Zero is none.
type age time.Duration

const ageForm = "a number with a unit (m, h, d), at least 1h, for example 7d"

const day = 24 * time.Hour

// maxAge is a hundred years.
const maxAge = 36500 * day

func parseAge(text string) (age, error) {
	fail := func(why string) (age, error) { return 0, fmt.Errorf("%q %s; allowed: %s", text, why, ageForm) }
	switch {
	case text == "":
		return 0, nil
	case isBare(text):
		return fail("has no unit")
	}
	var total time.Duration
	rest := text
	if days, after, found := strings.Cut(text, "d"); found {
		n, err := strconv.ParseUint(days, 10, 16)
		if err != nil {
			return fail("is not an age")
		}
		total, rest = time.Duration(n)*day, after
	}
	if rest != "" {
		d, err := time.ParseDuration(rest)
		if err != nil {
			return fail("is not an age")
		}
		total += d
	}
	switch {
	case total < time.Hour:
		return fail("is too short")
	case total > maxAge || total%time.Second != 0:
		return fail("is not an age")
	}
	return age(total), nil
}

func (a age) String() string {
	d := time.Duration(a)
	days := ""
	if d >= day {
		days, d = strconv.FormatInt(int64(d/day), 10)+"d", d%day
	}
	if d == 0 && (days != "" || a == 0) {
		return days
	}
	return days + duration(d).String()
}

// size is a number of bytes, written with a unit: 64KiB, 16MiB, 1GB.
type size int64

const maxSize = 1 << 41

const sizeForm = "a whole number with a unit (B, KiB, MiB, GiB, kB, MB, GB), for example 16MiB"

// Largest first, so that String finds the shortest form.
var sizeUnits = []struct {
	name  string
	bytes int64
}{
	{"GiB", 1 << 30}, {"GB", 1e9}, {"MiB", 1 << 20}, {"MB", 1e6}, {"KiB", 1 << 10}, {"kB", 1e3}, {"B", 1},
}

// ParseSize reads a size as the configuration has it, in bytes.
func ParseSize(text string) (int64, error) {
	n, err := parseSize(text)
	return int64(n), err
}

func parseSize(text string) (size, error) {
	if isBare(text) {
		return 0, fmt.Errorf("%q has no unit; allowed: %s", text, sizeForm)
	}
	for _, u := range sizeUnits {
		digits, ok := strings.CutSuffix(text, u.name)
		if !ok {
			continue
		}
		n, err := strconv.ParseUint(strings.TrimSpace(digits), 10, 63)
		if err != nil {
			if errors.Is(err, strconv.ErrRange) {
				return 0, fmt.Errorf("%q is too large", text)
			}
			break
		}
		if n > maxSize/uint64(u.bytes) {
			return 0, fmt.Errorf("%q is too large", text)
		}
		return size(n) * size(u.bytes), nil
	}
	return 0, fmt.Errorf("%q is not a size; allowed: %s", text, sizeForm)
}

func (s size) String() string {
	for _, u := range sizeUnits {
		if s != 0 && int64(s)%u.bytes == 0 {
			return strconv.FormatInt(int64(s)/u.bytes, 10) + u.name
		}
	}
	return "0B"
}

func isBare(text string) bool {
	_, err := strconv.ParseFloat(text, 64)
	return err == nil
}
