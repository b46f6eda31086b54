package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/cdc-relay/cdc-relay/sandbox/ledger"
)

// Letter is a dead letter, read with no help of the relay's.
type Letter struct {
	*Delivery
	Row     string // id of its event
	Source  string
	Group   string
	Missing string // parts that it lacks
	Outcome string // of the marker that covers it: sent, discarded; empty: it waits
}

// The headers of letters and markers that are looked at.
const (
	letterReason  = "cdc-relay-error-reason"
	letterSource  = "cdc-relay-error-source"
	letterGroup   = "cdc-relay-error-group"
	letterMissing = "cdc-relay-error-missing"
	markerDone    = "cdc-relay-redrive"
	markerOffsets = "cdc-relay-redrive-offsets"
)

// lettersOf reads records of the dead-letter topic, which are in the order of each
// partition: a marker covers letters of its source and group before it.
func lettersOf(records []*Delivery) ([]*Letter, error) {
	var all []*Letter
	for _, d := range records {
		values := map[string]string{}
		for _, h := range d.Headers {
			values[h.Key] = string(h.Value)
		}
		if values[letterReason] != "" {
			all = append(all, &Letter{Delivery: d, Row: ledger.ID(d.Record), Source: values[letterSource], Group: values[letterGroup], Missing: values[letterMissing]})
			continue
		}
		covers, err := offsets(values[markerOffsets])
		if values[markerDone] == "" {
			err = errors.New("no header says so")
		}
		if err != nil {
			return nil, fmt.Errorf("record %d/%d of the dead-letter topic is neither letter nor marker: %w", d.Partition, d.Offset, err)
		}
		for _, l := range all {
			if l.Partition == d.Partition && l.Source == values[letterSource] && l.Group == values[letterGroup] && l.Outcome == "" && covers(l.Offset) {
				l.Outcome = values[markerDone]
			}
		}
	}
	return all, nil
}

// offsets reads 0-5,9.
func offsets(text string) (covers func(int64) bool, err error) {
	type span struct{ first, last int64 }
	var spans []span
	for part := range strings.SplitSeq(text, ",") {
		from, to, ranged := strings.Cut(part, "-")
		if !ranged {
			to = from
		}
		first, err := strconv.ParseInt(from, 10, 64)
		if err != nil {
			return nil, err
		}
		last, err := strconv.ParseInt(to, 10, 64)
		if err != nil {
			return nil, err
		}
		spans = append(spans, span{first, last})
	}
	return func(at int64) bool {
		for _, s := range spans {
			if s.first <= at && at <= s.last {
				return true
			}
		}
		return false
	}, nil
}

// readLetters reads the letters of one slot's rows.
func (w *world) readLetters(ctx context.Context, slot string) ([]*Letter, error) {
	if w.plan.Letters == nil {
		return nil, nil
	}
	records, err := w.readSink(ctx, []string{w.letterTopic()})
	if err != nil {
		return nil, fmt.Errorf("read the dead letters: %w", err)
	}
	all, err := lettersOf(records)
	var own []*Letter
	for _, l := range all {
		if strings.HasSuffix(l.Source, "/"+slot) {
			own = append(own, l)
		}
	}
	return own, err
}

// sort puts letters to their rows and sees which have no place in the order of their
// key: those that were discarded, and without park_key all that were set aside.
func (j *judgement) sort() {
	j.aside, j.loose = map[string][]*Letter{}, map[string]bool{}
	for _, l := range j.History.Letters {
		j.aside[l.Row] = append(j.aside[l.Row], l)
		j.loose[l.Row] = j.History.Discarded[l.Row] || j.Plan.Letters != nil && !j.Plan.Letters.ParkKey
	}
}

// letters is P13: each letter is of a committed row and has its bytes, only what was
// chosen is discarded, and nothing waits in the end unless it was left.
func (j *judgement) letters() {
	for _, l := range j.History.Letters {
		row, known := j.History.Rows[l.Row]
		switch {
		case !known:
			j.fail("P13: the letter at %d/%d is of a row that was never committed", l.Partition, l.Offset)
		case string(l.Key) != row.Key || !strings.Contains(l.Missing, "value") && string(l.Value) != row.Value:
			j.fail("P13: the letter at %d/%d differs from its row %s", l.Partition, l.Offset, l.Row)
		case l.Outcome == "discarded" && !j.History.Discarded[l.Row]:
			j.fail("P13: the letter at %d/%d of %s is discarded, which nobody asked for", l.Partition, l.Offset, j.describe(l.Row))
		case l.Outcome == "" && !j.Plan.Letters.Leave:
			j.fail("P13: the letter at %d/%d of %s waits although everything was re-driven", l.Partition, l.Offset, j.describe(l.Row))
		default:
			continue
		}
		return
	}
	j.Verdict.Letters = len(j.History.Letters)
}

// accounted says that a row that was not delivered is a letter that waits, or was
// discarded on purpose.
func (j *judgement) accounted(id string) bool {
	for _, l := range j.aside[id] {
		if l.Outcome == "" {
			j.Waiting++
			return true
		}
	}
	for _, l := range j.aside[id] {
		if l.Outcome == "discarded" && j.History.Discarded[id] {
			j.Verdict.Discarded++
			return true
		}
	}
	return false
}

// arrived is when a row was given to the brokers, as a record or as a letter.
func (j *judgement) arrived(id string) (at time.Time) {
	if d := j.first[id]; d != nil {
		at = d.Timestamp
	}
	for _, l := range j.aside[id] {
		if at.IsZero() || l.Timestamp.Before(at) {
			at = l.Timestamp
		}
	}
	return at
}

// there says that brokers with such ends have a row, as a record or as a letter.
func (j *judgement) there(id string, ends []int64) bool {
	within := func(d *Delivery) bool { return d.Part >= len(ends) || d.Pos < ends[d.Part] }
	if d := j.first[id]; d != nil && within(d) {
		return true
	}
	for _, l := range j.aside[id] {
		if within(l.Delivery) {
			return true
		}
	}
	return j.first[id] == nil && len(j.aside[id]) == 0 // which is P1's
}

// redriven says that a record of a key that was parked may have jumped back there: rows
// from before the first letter come again to their own topic when a session begins, and
// a redrive sends the others meanwhile. Where the slot has several owners, a letter of
// the old one may be another copy, and is sent again with the next redrive.
func (j *judgement) redriven(key string, at time.Time) bool {
	if !j.parkedOnce[key] {
		return false
	}
	if j.Plan.Relays > 1 {
		return true
	}
	for _, r := range j.Redrives {
		if at.Before(r.Began.Add(-time.Second)) || at.After(r.Ended.Add(10*time.Second)) {
			continue
		}
		for _, s := range j.starts {
			if s.After(r.Began.Add(-10*time.Second)) && s.Before(r.Ended.Add(10*time.Second)) {
				return true
			}
		}
	}
	return false
}
