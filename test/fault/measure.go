package main

import (
	"slices"
	"strings"
	"time"
)

// measure takes the figures that are reported and not judged.
func (j *judgement) measure() {
	for _, d := range j.Actions {
		j.Faults[d.Kind]++
		switch {
		case strings.HasPrefix(d.Kind, "pg_fast"):
			j.PgStop = append(j.PgStop, d.Took)
		case strings.HasPrefix(d.Kind, "standby_takes_over") && d.Took > 0:
			j.Takeover[d.Kind] = append(j.Takeover[d.Kind], d.Took)
		case d.Kind == "relay_term" && d.Took > 0:
			j.Drain = append(j.Drain, d.Took)
		}
		if span, alone := j.recovery(d); alone {
			j.Recovery = append(j.Recovery, Span(span))
		}
	}
	for _, e := range j.Exits {
		if e.Asked && e.Code == -1 {
			j.Kills++
		}
	}
	slices.Sort(j.Recovery)
	j.Stall = Span(j.stall())
}

// recovery is the time from a fault's end until everything that was written by
// then is confirmed, for a fault that none of another kind overlapped. One of its own
// kind makes it longer, and must not hide it: in a row of them the slow ones would
// drop out.
func (j *judgement) recovery(d Done) (time.Duration, bool) {
	var goal uint64
	for _, s := range j.History.Samples {
		if s.At.Before(d.Healed) {
			continue
		}
		if goal == 0 {
			goal = s.WAL
		}
		if s.Confirmed >= goal {
			for _, other := range j.Actions {
				if other.Kind != d.Kind && other.Began.Before(s.At) && other.Healed.After(d.Began) {
					return 0, false
				}
			}
			return s.At.Sub(d.Healed), true
		}
	}
	return 0, false
}

// stall is the longest time that the confirmed position stood still while it was
// behind and no fault was about, counted from a second after the last one. What
// commits a large transaction is not a stall: the position moves at its end.
func (j *judgement) stall() time.Duration {
	var longest time.Duration
	var since time.Time
	var at uint64
	if j.Plan.Huge > 0 {
		return 0
	}
	for _, s := range j.History.Samples {
		if s.Confirmed != at || s.Confirmed >= s.WAL || j.troubled(s.At) {
			at, since = s.Confirmed, s.At
			continue
		}
		longest = max(longest, s.At.Sub(since))
	}
	return longest
}

func (j *judgement) troubled(at time.Time) bool {
	return slices.ContainsFunc(j.Actions, func(d Done) bool {
		return at.After(d.Began) && at.Before(d.Healed.Add(6*time.Second))
	})
}

// quantile of sorted spans.
func quantile(sorted []Span, q float64) Span {
	if len(sorted) == 0 {
		return 0
	}
	return sorted[min(len(sorted)-1, int(q*float64(len(sorted))))]
}
