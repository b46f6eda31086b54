package main

import (
	"slices"
	"sort"
	"strconv"
	"strings"
	"time"

	"github.com/cdc-relay/cdc-relay/sandbox/ledger"
)

// positions is P6: at every sample, everything that commits before the confirmed
// position was with the brokers. It finds a loss that no crash made real.
func (j *judgement) positions() {
	// need[i] is how far each partition must reach for transactions 0 to i-1.
	parts := 0
	for _, s := range j.History.Samples {
		parts = max(parts, len(s.Ends))
	}
	need := make([][]int64, len(j.Txns)+1)
	need[0] = make([]int64, parts)
	var aside []string // rows that may be there in two ways, in the order of commits
	for i, t := range j.Txns {
		need[i+1] = slices.Clone(need[i])
		for _, id := range t.Rows {
			if len(j.aside[id]) > 0 {
				aside = append(aside, id)
			} else if d := j.first[id]; d != nil && d.Part < parts {
				need[i+1][d.Part] = max(need[i+1][d.Part], d.Pos+1)
			}
		}
	}
	bad := 0
	for n, s := range j.History.Samples {
		if s.Confirmed > s.WAL {
			j.fail("P6: confirmed %s lies beyond the server's %s", showLSN(s.Confirmed), showLSN(s.WAL))
			return
		}
		ends := s.Ends
		for k := n + 1; ends == nil && k < len(j.History.Samples); k++ {
			ends = j.History.Samples[k].Ends // weaker, and never wrong
		}
		if ends == nil {
			continue
		}
		covered := j.before(s.Confirmed)
		for part, end := range ends {
			if need[covered][part] > end {
				if bad++; bad == 1 {
					j.fail("P6: at %s the slot confirmed %s, but partition %d ended at %d and had to reach %d", s.At.Format("15:04:05.000"), showLSN(s.Confirmed), part, end, need[covered][part])
				}
			}
		}
	}
	j.asideBefore(aside)
	if len(j.History.Samples) < 10 {
		j.fail("P6: only %d samples", len(j.History.Samples))
	}
}

// asideBefore is P6 for rows that were set aside: their letter was there, or they were.
func (j *judgement) asideBefore(rows []string) {
	for _, s := range j.History.Samples {
		covered := j.before(s.Confirmed)
		for _, id := range rows {
			if s.Ends == nil || j.commit[id] >= covered {
				break
			}
			if !j.there(id, s.Ends) {
				j.fail("P6: at %s the slot confirmed %s, but the brokers had neither %s nor a letter of it", s.At.Format("15:04:05.000"), showLSN(s.Confirmed), j.describe(id))
				return
			}
		}
	}
}

// before is the number of transactions whose commit record starts before a position.
func (j *judgement) before(lsn uint64) int {
	return sort.Search(len(j.Txns), func(i int) bool { return j.Txns[i].Commit >= lsn })
}

// sessions notes when each began.
func (j *judgement) sessions() {
	pid := 0
	for _, s := range j.History.Samples {
		if s.PID != 0 && s.PID != pid {
			pid = s.PID
			j.starts = append(j.starts, s.At)
		}
	}
}

// duplicates is P10. When a session begins, the server sends again what commits
// after the confirmed position; what of that is with the brokers already comes
// twice, and nothing else may.
func (j *judgement) duplicates() {
	pid := 0
	for i, s := range j.History.Samples {
		if s.PID == 0 || s.PID == pid {
			continue
		}
		pid = s.PID
		if j.Sessions++; j.Sessions == 1 || j.Plan.ExactlyOnce {
			continue
		}
		n := j.delivered(j.before(s.Confirmed), j.endsBy(i+1))
		j.Bound += n
		j.BoundBy[j.cause(s.At)] += n
	}
	if !j.Plan.ExactlyOnce {
		// What the dead session had sent may still arrive, and sessions shorter than a
		// period are not seen.
		j.Bound += 200 * (1 + j.Sessions)
		if j.Plan.Relays > 1 {
			j.Bound += j.Sessions * j.inFlight()
		}
	}
	if j.Duplicates > j.Bound {
		j.fail("P10: %d duplicates; %d sessions explain at most %d", j.Duplicates, j.Sessions, j.Bound)
	}
	j.cleanStops()
	seen := map[string]bool{}
	for _, d := range j.History.Records {
		id := ledger.ID(d.Record)
		if seen[id] && len(j.aside[id]) == 0 {
			j.DuplicateBy[j.cause(d.Timestamp)]++
		}
		seen[id] = true
	}
}

// checkpoints is P12, of exactly_once: a position in the checkpoint topic covers
// nothing that was not given to the brokers before it, and no position that the slot
// confirmed lies beyond the last one in the topic.
func (j *judgement) checkpoints() {
	if !j.Plan.ExactlyOnce {
		return
	}
	if len(j.Checkpoints) == 0 {
		j.fail("P12: no position was committed to the checkpoint topic")
		return
	}
	// latest[i] is when the last of transactions 0 to i-1 was given away.
	latest := make([]time.Time, len(j.Txns)+1)
	for i, t := range j.Txns {
		latest[i+1] = latest[i]
		for _, id := range t.Rows {
			if at := j.arrived(id); at.After(latest[i+1]) {
				latest[i+1] = at
			}
		}
	}
	for _, c := range j.Checkpoints {
		if last := latest[j.before(c.End)]; last.After(c.At) {
			j.fail("P12: the checkpoint %s of %s covers a row that was given to the brokers at %s", showLSN(c.End), c.At.Format("15:04:05.000"), last.Format("15:04:05.000"))
			return
		}
	}
	var first uint64
	next, end := 0, uint64(0)
	for _, s := range j.History.Samples {
		if first == 0 {
			first = s.Confirmed // of the slot when it was made
		}
		for ; next < len(j.Checkpoints) && !j.Checkpoints[next].At.After(s.At.Add(2*time.Second)); next++ {
			end = max(end, j.Checkpoints[next].End)
		}
		if s.Confirmed > first && s.Confirmed > end {
			j.fail("P12: at %s the slot confirmed %s, and the checkpoint topic was at %s", s.At.Format("15:04:05.000"), showLSN(s.Confirmed), showLSN(end))
			return
		}
	}
}

// cleanStops is the rest of P10: a relay that drained and ended with 0 leaves
// nothing that its successor has to send again.
func (j *judgement) cleanStops() {
	for _, d := range j.Actions {
		if d.Kind != "relay_term" || d.Detail != "streaming" || j.Plan.Relays > 1 {
			continue
		}
		for _, e := range j.Exits {
			if e.Code != 0 || e.At.Before(d.Began) || e.At.After(d.Healed) || j.disturbed(d) {
				continue
			}
			for i, s := range j.History.Samples {
				if s.At.After(d.Healed) { // another relay may have come and gone unseen
					break
				}
				if s.PID != 0 || s.At.Before(e.At) {
					continue
				}
				if n := j.delivered(j.before(s.Confirmed), s.Ends); n > 0 && s.Ends != nil {
					j.fail("P10: after a clean stop at %s the slot stood at %s, with %d later rows delivered already (sample %d)", e.At.Format("15:04:05.000"), showLSN(s.Confirmed), n, i)
				}
				break
			}
		}
	}
}

// disturbed says that another fault was about, or just over, when one was made.
func (j *judgement) disturbed(d Done) bool {
	return slices.ContainsFunc(j.Actions, func(other Done) bool {
		return other.N != d.N && other.Began.Before(d.Healed) && other.Healed.After(d.Began.Add(-2*time.Second)) && other.Kind != "relay_term"
	})
}

// inFlight is about how many rows the window of the relay holds: what a relay that
// lost the slot may still bring to the brokers beside its successor.
func (j *judgement) inFlight() int {
	bytes := 8 << 20
	for _, setting := range j.Plan.Settings {
		if text, found := strings.CutPrefix(setting, "relay.max_in_flight_bytes="); found {
			switch {
			case strings.HasSuffix(text, "KiB"):
				bytes = atoi(strings.TrimSuffix(text, "KiB")) << 10
			case strings.HasSuffix(text, "MiB"):
				bytes = atoi(strings.TrimSuffix(text, "MiB")) << 20
			}
		}
	}
	return bytes / 150
}

func atoi(text string) int {
	n, _ := strconv.Atoi(text)
	return n
}

// endsBy are the ends that the brokers gave at a sample or at the next that has
// them.
func (j *judgement) endsBy(i int) []int64 {
	for ; i < len(j.History.Samples); i++ {
		if j.History.Samples[i].Ends != nil {
			return j.History.Samples[i].Ends
		}
	}
	return nil
}

// delivered counts rows of transactions from one on that the brokers had. Those that
// were set aside are left out: a redrive delivers them too.
func (j *judgement) delivered(from int, ends []int64) int {
	n := 0
	for _, t := range j.Txns[from:] {
		for _, id := range t.Rows {
			if d := j.first[id]; d != nil && len(j.aside[id]) == 0 && (ends == nil || d.Pos < ends[d.Part]) {
				n++
			}
		}
	}
	return n
}
