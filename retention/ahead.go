package retention

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/cdc-relay/cdc-relay/postgres/maintenance"
)

// span is the time of one partition. Bounds are read and written in UTC.
type span struct{ from, to time.Time }

// partition is one to be made.
type partition struct {
	name, from, to string
	ahead          bool // it begins after now
}

// mostAhead is how many partitions may be made at once.
const mostAhead = 100

// missing are the partitions that are to be made so that Ahead of them are there before they are
// needed, and the one that now belongs to. Each is as long as the newest one, or a day where there
// is none. ahead counts those that are there.
func (p *Policy) missing(all []maintenance.Partition, now time.Time, zoneless bool) (missing []partition, ahead int, err error) {
	var spans []span
	for i := range all {
		if all[i].Ahead {
			ahead++
		}
		if all[i].Default || p.Ahead == 0 {
			continue
		}
		if all[i].To == "" {
			return nil, ahead, nil // without end: nothing is ever missing
		}
		to, err := readBound(all[i].To)
		from := time.Time{}
		if err == nil && all[i].From != "" {
			from, err = readBound(all[i].From)
		}
		if err != nil {
			return nil, ahead, p.Mistake("create_ahead", "set it to 0, and make partitions otherwise", "partition %s of table %s: %v", all[i].Table, p.Table, err)
		}
		spans = append(spans, span{from, to})
	}
	if p.Ahead == 0 {
		return nil, ahead, nil
	}
	next := following(spans, now)
	for n := ahead; len(missing) < mostAhead; {
		one := next()
		if !one.from.After(now) && !one.to.After(now) {
			continue // its time is over
		}
		if one.from.After(now) {
			if n++; n > p.Ahead {
				break
			}
		}
		missing = append(missing, partition{p.partitionName(one), writeBound(one.from, zoneless), writeBound(one.to, zoneless), one.from.After(now)})
	}
	return missing, ahead, nil
}

// following returns a function that gives the spans after the newest one, one after the other.
func following(spans []span, now time.Time) func() span {
	if len(spans) == 0 {
		day := now.UTC().Truncate(24 * time.Hour)
		spans = []span{{day.Add(-24 * time.Hour), day}}
	}
	newest := slices.MaxFunc(spans, func(a, b span) int { return a.to.Compare(b.to) })
	step := newest.step()
	at := newest.to
	if years := now.Sub(at); years > 0 && newest.months() == 0 { // not one by one through years
		if length := newest.length(); length > 0 {
			at = at.Add(years - years%length)
		}
	}
	return func() span {
		one := span{at, step(at)}
		at = one.to
		return one
	}
}

func (s span) length() time.Duration {
	if s.from.IsZero() {
		return 24 * time.Hour
	}
	return s.to.Sub(s.from)
}

// months is how many calendar months a span has; zero: it is not of months.
func (s span) months() int {
	first := func(t time.Time) bool { return t.Day() == 1 && t.Truncate(24*time.Hour).Equal(t) }
	if s.from.IsZero() || !first(s.from) || !first(s.to) {
		return 0
	}
	return 12*(s.to.Year()-s.from.Year()) + int(s.to.Month()) - int(s.from.Month())
}

func (s span) step() func(time.Time) time.Time {
	if months := s.months(); months > 0 {
		return func(t time.Time) time.Time { return t.AddDate(0, months, 0) }
	}
	return func(t time.Time) time.Time { return t.Add(s.length()) }
}

func (p *Policy) partitionName(s span) string {
	suffix := s.from.Format("_p20060102")
	if !s.from.Truncate(24*time.Hour).Equal(s.from) || s.to.Sub(s.from) < 24*time.Hour {
		suffix = s.from.Format("_p20060102_150405")
	}
	name := p.Table.Name
	for len(name) > 63-len(suffix) { // whole characters of what PostgreSQL keeps of a name
		runes := []rune(name)
		name = string(runes[:len(runes)-1])
	}
	return name + suffix
}

var boundForms = []string{"2006-01-02 15:04:05.999999-07", "2006-01-02 15:04:05.999999"}

func readBound(text string) (time.Time, error) {
	for _, form := range boundForms {
		if t, err := time.Parse(form, text); err == nil {
			return t.UTC(), nil
		}
	}
	return time.Time{}, fmt.Errorf("its end %q is no time from which the next one can be told", text)
}

func writeBound(t time.Time, zoneless bool) string {
	return t.Format(cmp.Or(map[bool]string{true: boundForms[1]}[zoneless], "2006-01-02 15:04:05.999999+00"))
}
