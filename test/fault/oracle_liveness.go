package main

import (
	"slices"
	"strings"
	"time"
)

// cause is the fault that began last before a moment, among those that end a
// session if there is one that ended lately.
func (j *judgement) cause(at time.Time) string {
	name, began, likely := "none", time.Time{}, false
	for _, d := range j.Actions {
		ends := endsSessions.MatchString(d.Kind) && d.Healed.After(at.Add(-10*time.Second))
		if d.Began.After(at.Add(20*time.Millisecond)) || likely && !ends {
			continue
		}
		if ends && !likely || d.Began.After(began) {
			name, began, likely = d.Kind, d.Began, ends
		}
	}
	return name
}

// liveness is P7.
func (j *judgement) liveness() {
	if j.History.Settled < 0 || j.History.Settled > settleLimit {
		j.fail("P7: %d bytes of WAL were not confirmed %s after the last fault", j.Behind, settleLimit)
	}
	if j.Retained > retainLimit {
		j.fail("P7: the slot still holds %d bytes of WAL %s after everything was confirmed", j.Retained, releaseLimit)
	}
	if j.Code != 0 {
		j.fail("P7: the last relay ended with code %d instead of a clean stop", j.Code)
	}
}

// stops is P8.
func (j *judgement) stops() {
	for _, d := range j.Actions {
		if !strings.HasPrefix(d.Kind, "pg_fast") {
			continue
		}
		limit := stopLimit
		switch {
		case j.Plan.Huge > 0:
			limit = hugeStopLimit
		case j.brokersTroubled(d.Began.Add(-6*time.Second), d.Began.Add(time.Duration(d.Took))):
			limit = blockedStopLimit
		}
		if time.Duration(d.Took) > limit {
			j.fail("P8: %s: a fast stop of PostgreSQL took %s; the bound is %s", d.Kind, d.Took, limit)
		}
	}
}

// brokersTroubled says that a fault between relay and brokers was about.
func (j *judgement) brokersTroubled(from, to time.Time) bool {
	return slices.ContainsFunc(j.Actions, func(d Done) bool {
		k := kindNamed(d.Kind)
		return d.Began.Before(to) && d.Healed.After(from) && k != nil && (slices.Contains(k.takes, onKafka[0]) || slices.Contains(k.takes, onKafkaNet[0]))
	})
}

// resources is P9.
func (j *judgement) resources() {
	if j.History.Peak > memoryLimit {
		j.fail("P9: a relay had %d MiB resident", j.History.Peak>>20)
	}
	if j.moreFiles() {
		j.fail("P9: %d open files, %d at the start", j.Last.Files, j.Base.Files)
	}
	if j.moreGoroutines() {
		j.fail("P9: %d goroutines, %d at the start", j.Last.Goroutines, j.Base.Goroutines)
	}
}

func (h *History) moreFiles() bool {
	more := 15
	if h.Plan.Jobs != nil {
		more += 20 // the connections of work on rows, which begins a little later than the stream
	}
	return h.Base.Files > 0 && h.Last.Files > h.Base.Files+more
}

func (h *History) moreGoroutines() bool {
	return h.Base.Goroutines > 0 && h.Last.Goroutines > h.Base.Goroutines+25
}

// states is P11.
func (j *judgement) states() {
	for _, s := range j.States {
		switch {
		case s.State == "blocked" && (s.Reason == "" || s.Message == ""):
			j.fail("P11: blocked without a reason or a message: %+v", s.Status)
		case s.State == "blocked" && s.LSN.Confirmed == "":
			j.fail("P11: blocked (%s) without a position", s.Reason)
		case s.State == "blocked" && slices.Contains(rowReasons, s.Reason) && !position.MatchString(s.Message):
			j.fail("P11: blocked at a row whose position is not told: %s", s.Message)
		case s.State == "reconnecting" && s.Reason == "":
			j.fail("P11: reconnecting without a reason: %s", s.Message)
		}
	}
	for _, e := range j.Exits {
		if strings.Contains(e.Last, "panic:") || strings.Contains(e.Last, "fatal error:") || strings.Contains(e.Last, "DATA RACE") {
			j.fail("P11: a relay crashed: %s", e.Last)
		} else if !e.Asked && e.Code != 1 && e.Code != 3 {
			j.fail("P11: a relay ended by itself with code %d: %s", e.Code, e.Last)
		} else if !e.Asked && e.Last == "" {
			j.fail("P11: a relay ended by itself with code %d and said nothing", e.Code)
		}
	}
	for i := 12; i < len(j.Starts); i++ {
		if j.Starts[i].Sub(j.Starts[i-12]) < 5*time.Second && j.unasked(j.Starts[i-12], j.Starts[i]) > 6 {
			j.fail("P11: 12 starts within five seconds, at %s", j.Starts[i].Format("15:04:05"))
			return
		}
	}
}

func (j *judgement) unasked(from, to time.Time) int {
	n := 0
	for _, e := range j.Exits {
		if !e.Asked && e.At.After(from) && e.At.Before(to) {
			n++
		}
	}
	return n
}
