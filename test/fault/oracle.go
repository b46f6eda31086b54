package main

import (
	"cmp"
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"sort"
	"strconv"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/cdc-relay/cdc-relay/sandbox/ledger"
)

// Verdict is what the oracle says of a run. It knows the relay only from outside:
// the table, a second slot, the brokers, the slot's row and the status page.
type Verdict struct {
	Violations []string `json:"violations"`

	Rows        int              `json:"rows"`
	Records     int              `json:"records"`
	Lost        int              `json:"lost"`
	Disordered  int              `json:"order_violations"`
	Late        int              `json:"late_records"` // of an owner that was gone
	Letters     int              `json:"dead_letters"`
	Waiting     int              `json:"dead_letters_waiting"` // rows that were left
	Removed     int              `json:"removed"`              // rows, by the relay
	Marked      int              `json:"marked"`
	Discarded   int              `json:"dead_letters_discarded"` // rows, on purpose
	Duplicates  int              `json:"duplicates"`
	Bound       int              `json:"duplicates_bound"`
	DuplicateBy map[string]int   `json:"duplicates_by_fault"`
	BoundBy     map[string]int   `json:"duplicates_bound_by_fault"`
	Faults      map[string]int   `json:"faults"`
	Kills       int              `json:"kills"`
	Sessions    int              `json:"sessions"`
	Unknown     int64            `json:"unknown_commits"`
	Recovery    []Span           `json:"recovery"`
	Takeover    map[string]Spans `json:"takeover"`
	PgStop      []Span           `json:"postgres_fast_stop"`
	Drain       []Span           `json:"drain"`
	Stall       Span             `json:"longest_stall_without_a_fault"`
	Settled     Span             `json:"settled"`
	Peak        int64            `json:"peak_memory"`
	Samples     int              `json:"samples"`
}

// Spans are several durations.
type Spans = []Span

const (
	settleLimit  = 75 * time.Second // P7: two of the relay's longest back-offs and some
	memoryLimit  = 200 << 20        // P9
	retainLimit  = 64 << 20         // P7: a few segments
	releaseLimit = 20 * time.Second // P7: a few rounds of checkpoint and confirmation
)

// P8: how long a fast stop of PostgreSQL may take. Debezium holds it up for 8.9 s.
const (
	stopLimit        = 8500 * time.Millisecond // brokers answer, or are known to be away
	blockedStopLimit = 15 * time.Second        // they take nothing: 5 s, behind a full window 5 more, and a busy machine
	hugeStopLimit    = 30 * time.Second        // the server sends the rest of a huge transaction first
)

// judge checks P1 to P14 of a history.
func judge(h *History) *Verdict {
	v := &Verdict{DuplicateBy: map[string]int{}, BoundBy: map[string]int{}, Faults: map[string]int{}, Takeover: map[string]Spans{}, Rows: len(h.Rows), Records: len(h.Records), Unknown: h.Unknown, Samples: len(h.Samples), Peak: h.Peak, Settled: Span(h.Settled)}
	v.Violations = append(v.Violations, h.Problems...)
	j := &judgement{History: h, Verdict: v}
	j.sort()
	j.truth()
	j.contents()
	j.letters()
	j.sessions()
	j.order()
	j.headers()
	j.positions()
	j.duplicates()
	j.checkpoints()
	j.upkeep()
	j.liveness()
	j.stops()
	j.resources()
	j.states()
	j.measure()
	return v
}

type judgement struct {
	*History
	*Verdict

	commit map[string]int // id → index of its transaction
	place  map[string]int // id → place among its key's, from 0
	stream map[string]string
	first  map[string]*Delivery

	aside      map[string][]*Letter // by row
	loose      map[string]bool      // rows that have no place in the order of their key
	parkedOnce map[string]bool      // keys of which a row was set aside
	starts     []time.Time          // of sessions
}

func (j *judgement) fail(format string, args ...any) {
	j.Violations = append(j.Violations, fmt.Sprintf(format, args...))
}

// truth joins table and witness, and holds both against what the writers know. A
// difference is no fault of the relay; nothing is proven then.
func (j *judgement) truth() {
	j.commit, j.place, j.stream, j.first, j.parkedOnce = map[string]int{}, map[string]int{}, map[string]string{}, map[string]*Delivery{}, map[string]bool{}
	next := map[string]int{}
	for i, t := range j.Txns {
		if i > 0 && t.Commit <= j.Txns[i-1].Commit {
			j.fail("witness: transactions %d and %d are not in the order of their commits", j.Txns[i-1].XID, t.XID)
		}
		for _, id := range t.Rows {
			row, known := j.History.Rows[id]
			if !known {
				j.fail("witness: row %s was committed but is not in the table", id)
				continue
			}
			if _, twice := j.commit[id]; twice {
				j.fail("witness: row %s was committed twice", id)
			}
			key := row.Topic + " " + row.Key
			j.commit[id] = i
			if len(j.aside[id]) > 0 {
				j.parkedOnce[key] = true
			}
			if j.loose[id] {
				continue
			}
			j.place[id], j.stream[id] = next[key], key
			next[key]++
		}
	}
	if len(j.commit) != len(j.History.Rows) {
		j.fail("witness: the slot has %d rows, the table %d", len(j.commit), len(j.History.Rows))
	}
	for id := range j.Committed {
		if _, there := j.History.Rows[id]; !there {
			j.fail("writers: row %s was committed and is not in the table", id)
		}
	}
	for id := range j.Aborted {
		if _, there := j.History.Rows[id]; there {
			j.fail("writers: row %s was rolled back and is in the table", id)
		}
	}
}

// contents is P1 to P4: the ledger's comparison, with order as the witness has it.
func (j *judgement) contents() {
	book := ledger.New()
	for _, t := range j.Txns {
		for _, id := range t.Rows {
			if row, known := j.History.Rows[id]; known {
				book.Committed(ledger.Event{ID: id, Topic: row.Topic, Key: row.Key, Value: []byte(row.Value)})
			}
		}
	}
	records := make([]*kgo.Record, len(j.History.Records))
	for i, d := range j.History.Records {
		records[i] = d.Record
		if id := ledger.ID(d.Record); j.first[id] == nil {
			j.first[id] = d
		}
	}
	report := book.Check(records)
	report.Missing = slices.DeleteFunc(report.Missing, j.accounted)
	j.Lost, j.Duplicates = len(report.Missing), report.Duplicates-j.resent()
	for _, each := range []struct {
		name string
		ids  []string
	}{
		{"P1: committed and never delivered", report.Missing},
		{"P2: delivered and never committed", report.Phantom},
		{"P3: wrong topic, key or value", report.Altered},
	} {
		if n := len(each.ids); n > 0 {
			j.fail("%s: %d rows, such as %s", each.name, n, j.describe(each.ids[0]))
		}
	}
}

// resent counts the records beyond the first of rows that were set aside. A redrive that
// is cut short repeats what it could not mark, with exactly_once too.
func (j *judgement) resent() int {
	n := 0
	for _, d := range j.History.Records {
		if id := ledger.ID(d.Record); len(j.aside[id]) > 0 && j.first[id] != d {
			n++
		}
	}
	return n
}

func (j *judgement) describe(id string) string {
	i, known := j.commit[id]
	if !known {
		return id
	}
	at := "never delivered"
	if d := j.first[id]; d != nil {
		at = fmt.Sprintf("first at %s/%d offset %d", d.Topic, d.Partition, d.Offset)
	}
	return fmt.Sprintf("%s (commit %s, %d rows, place %d of its key, %s)", id, showLSN(j.Txns[i].Commit), len(j.Txns[i].Rows), j.place[id], at)
}

// order is P4 and P5. First occurrences come in the order of commits, always. A
// key's records may jump back, but go on from there without leaving anything out,
// and end with the last; that holds while the slot has one owner. What a dead or
// suspended owner had already given away may arrive among its successor's records,
// as nothing but fencing can prevent: such records are counted as late.
func (j *judgement) order() {
	last, highest, end := map[string]int{}, map[string]int{}, map[string]int{}
	for key := range j.stream {
		end[j.stream[key]] = max(end[j.stream[key]], j.place[key])
	}
	final := map[string]*Delivery{}
	var early, skips []*Delivery
	for _, d := range j.History.Records {
		id := ledger.ID(d.Record)
		key, known := j.stream[id]
		if !known {
			continue
		}
		place := j.place[id]
		if _, seen := last[key]; !seen {
			last[key], highest[key] = -1, -1
		}
		switch {
		case place > highest[key]+1 || place < highest[key] && j.first[id] == d:
			early = append(early, d)
		case place > last[key]+1:
			skips = append(skips, d)
		}
		last[key], highest[key], final[key] = place, max(highest[key], place), d
	}
	for key, d := range final {
		if last[key] != end[key] && highest[key] == end[key] {
			skips = append(skips, d)
		}
	}
	j.Disordered = len(early)
	if len(early) > 0 {
		j.fail("P4: %d first occurrences out of order, such as %s", len(early), j.describe(recordID(early[0])))
	}
	var wrong []*Delivery
	for _, d := range skips {
		if j.excused(d.Timestamp) || j.redriven(j.stream[recordID(d)], d.Timestamp) {
			j.Late++
		} else {
			wrong = append(wrong, d)
		}
	}
	if len(wrong) > 0 {
		j.Disordered += len(wrong)
		j.fail("P5: %d records out of order, such as %s, sent at %s", len(wrong), j.describe(recordID(wrong[0])), wrong[0].Timestamp.Format("15:04:05.000"))
	}
}

// excused says that the slot changed hands lately, between two relays or while
// something kept records under way to the brokers.
func (j *judgement) excused(at time.Time) bool {
	if j.Plan.ExactlyOnce {
		return false // the brokers shut an owner out that lost the slot
	}
	for _, d := range j.Actions {
		if !changesHands.MatchString(d.Kind) || kindNamed(d.Kind).link || d.Began.After(at) || d.Healed.Before(at.Add(-10*time.Second)) {
			continue
		}
		if j.Plan.Relays > 1 {
			return true
		}
		for _, other := range j.Actions {
			if delaysRecords.MatchString(other.Kind) && other.Began.Before(d.Healed.Add(time.Second)) && other.Healed.After(d.Began.Add(-time.Second)) {
				return true
			}
		}
	}
	return false
}

var (
	changesHands  = regexp.MustCompile(`^(relay|standby|pg|net_pg|slot|publication)_`)
	delaysRecords = regexp.MustCompile(`^(net_kafka|broker|leader_move|topic|pg_fast_blocked)`)
)

// headers is P3 for what the ledger does not compare, and the payload's own hash.
func (j *judgement) headers() {
	for _, d := range j.History.Records {
		row, known := j.History.Rows[ledger.ID(d.Record)]
		if !known {
			continue
		}
		kind := ""
		for _, h := range d.Headers {
			if h.Key == "eventType" {
				kind = string(h.Value)
			}
		}
		if kind != row.Type {
			j.fail("P3: record %s/%d offset %d has the type %q, not %q", d.Topic, d.Partition, d.Offset, kind, row.Type)
			return
		}
		var payload struct {
			H    string
			S    int
			Fill string
		}
		if err := json.Unmarshal(d.Value, &payload); err != nil || payload.H != "" && payload.H != hashOf(payload.S, payload.Fill) {
			j.fail("P3: record %s/%d offset %d does not match its own hash", d.Topic, d.Partition, d.Offset)
			return
		}
	}
}

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

var endsSessions = regexp.MustCompile(`^(relay|standby|pg|net_pg|slot|publication)_`)

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

var position = regexp.MustCompile(`[0-9A-F]+/[0-9A-F]+`)

// rowReasons block at a row, whose position must be told.
var rowReasons = []string{"record_too_large", "invalid_record", "route", "schema"}

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

func sortedKeys[K cmp.Ordered, V any](m map[K]V) []K {
	keys := make([]K, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}

func recordID(d *Delivery) string { return ledger.ID(d.Record) }
