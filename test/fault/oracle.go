package main

import (
	"cmp"
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
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

var endsSessions = regexp.MustCompile(`^(relay|standby|pg|net_pg|slot|publication)_`)

var position = regexp.MustCompile(`[0-9A-F]+/[0-9A-F]+`)

// rowReasons block at a row, whose position must be told.
var rowReasons = []string{"record_too_large", "invalid_record", "route", "schema"}

func sortedKeys[K cmp.Ordered, V any](m map[K]V) []K {
	keys := make([]K, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}

func recordID(d *Delivery) string { return ledger.ID(d.Record) }
