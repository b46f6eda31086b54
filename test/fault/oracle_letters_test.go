package main

import (
	"slices"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"
)

// setAside is a good run in which a3 was rejected and a4 followed it: both were re-driven,
// and the position had passed them before. Letters lie in partition 2.
func setAside() *History {
	h := fine()
	h.Plan.Letters = &Letters{ParkKey: true}
	h.Discarded = map[string]bool{}
	h.remove("a3")
	h.remove("a4")
	for i := range h.Samples {
		h.Samples[i].Ends = append(h.Samples[i].Ends, 0)
	}
	h.letter("a3", 16, "sent")
	h.letter("a4", 20, "sent")
	h.deliver("a3", 30)
	h.deliver("a4", 30)
	h.Redrives = []Redrive{{Began: tick(29), Ended: tick(31)}}
	h.recount()
	return h
}

// recount has the samples see what is there.
func (h *History) recount() {
	for i := range h.Samples {
		s := &h.Samples[i]
		clear(s.Ends)
		for _, d := range h.Records {
			if !d.Timestamp.After(s.At) {
				s.Ends[d.Part]++
			}
		}
		for _, l := range h.Letters {
			if !l.Timestamp.After(s.At) {
				s.Ends[2]++
			}
		}
	}
}

func (h *History) letter(id string, at int, outcome string) {
	row, pos := h.Rows[id], int64(len(h.Letters))
	h.Letters = append(h.Letters, &Letter{Row: id, Outcome: outcome, Delivery: &Delivery{Part: 2, Pos: pos, Record: &kgo.Record{
		Partition: 2, Offset: pos, Key: []byte(row.Key), Value: []byte(row.Value), Timestamp: tick(at),
	}}})
}

func TestOracle_IsContentWhereRowsWereSetAside(t *testing.T) {
	for name, change := range map[string]func(*History){
		"re-driven": func(*History) {},
		"one waits": func(h *History) {
			h.Plan.Letters.Leave = true
			h.remove("a4")
			h.Letters[1].Outcome = ""
		},
		"one was discarded": func(h *History) {
			h.Discarded["a3"] = true
			h.remove("a3")
			h.Letters[0].Outcome = "discarded"
		},
		"a later row of its key went on without park_key": func(h *History) {
			h.Plan.Letters.ParkKey = false
			h.Letters = h.Letters[:1]
			h.remove("a3")
			h.remove("a4")
			h.deliver("a4", 20)
			h.deliver("a3", 31)
			h.recount()
		},
		"a redrive that was killed sent one twice, with exactly_once": func(h *History) {
			h.Plan.ExactlyOnce = true
			h.Records = slices.Delete(h.Records, 3, 4) // what the relay sent twice
			for _, c := range []struct {
				at  int
				end uint64
			}{{2, 110}, {15, 210}, {17, 310}, {21, 410}, {22, 500}} {
				h.Checkpoints = append(h.Checkpoints, Checkpoint{tick(c.at), c.end})
			}
			h.deliver("a3", 31)
			h.deliver("a4", 31)
		},
		"a letter lacks its value": func(h *History) {
			h.Letters[0].Value, h.Letters[0].Missing = nil, "value"
		},
	} {
		t.Run(name, func(t *testing.T) {
			h := setAside()
			change(h)
			if v := judge(h); len(v.Violations) > 0 || v.Lost > 0 || v.Letters != len(h.Letters) {
				t.Errorf("violations %q, %d lost, %d letters", v.Violations, v.Lost, v.Letters)
			}
		})
	}
}

func TestOracle_FindsWhatIsDoneWrongWithLetters(t *testing.T) {
	for _, c := range []struct {
		name, want string
		spoil      func(*History)
	}{
		{"a row is marked and was not sent", "P1:", func(h *History) { h.remove("a4") }},
		{"a row was discarded, and nobody knows of its letter", "P1:", func(h *History) {
			h.Discarded["b2"] = true
			h.remove("b2")
		}},
		{"a letter was discarded that nobody chose", "P13:", func(h *History) { h.Letters[1].Outcome = "discarded" }},
		{"a letter waits after everything was re-driven", "P13:", func(h *History) { h.Letters[0].Outcome = "" }},
		{"a letter is of no row", "P13:", func(h *History) { h.Letters[0].Row = "gone" }},
		{"a letter has other bytes", "P13:", func(h *History) { h.Letters[0].Value = []byte("{}") }},
		{"a letter has another key", "P13:", func(h *History) { h.Letters[0].Key = []byte("b") }},
		{"a later row overtakes one that waits", "P4:", func(h *History) {
			h.Plan.Letters.Leave = true
			h.remove("a3")
			h.Letters[0].Outcome = ""
		}},
		{"a parked key comes in the wrong order", "P4:", func(h *History) {
			h.remove("a3")
			h.deliver("a3", 31)
		}},
		{"rows of other keys are out of order without park_key", "P4:", func(h *History) {
			h.Plan.Letters.ParkKey = false
			h.remove("b1")
			h.deliver("b1", 31)
		}},
		{"the position passes a row before its letter is there", "P6:", func(h *History) {
			h.Letters[0].Timestamp = tick(25)
			h.recount()
		}},
		{"a row that was not set aside comes twice, with exactly_once", "P10:", func(h *History) { h.Plan.ExactlyOnce = true }},
		{"a replay that no session explains leaves something out", "P5:", func(h *History) {
			h.deliver("a1", 600)
			h.deliver("a4", 600)
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			h := setAside()
			c.spoil(h)
			v := judge(h)
			if !slices.ContainsFunc(v.Violations, func(text string) bool { return strings.HasPrefix(text, c.want) }) {
				t.Errorf("violations %q, want one of %s", v.Violations, c.want)
			}
		})
	}
}

// The letters are read without the relay's code: a marker covers what lies before it in its
// partition, of its source and group, at its offsets.
func TestLetters_AreCoveredByTheirMarkersOnly(t *testing.T) {
	record := func(partition int32, offset int64, headers ...string) *Delivery {
		d := &Delivery{Record: &kgo.Record{Partition: partition, Offset: offset}}
		for i := 0; i < len(headers); i += 2 {
			d.Headers = append(d.Headers, kgo.RecordHeader{Key: headers[i], Value: []byte(headers[i+1])})
		}
		return d
	}
	letter := func(partition int32, offset int64, id, source, group string) *Delivery {
		return record(partition, offset, "id", id, letterReason, "parked", letterSource, source, letterGroup, group)
	}
	done := func(partition int32, offset int64, source, group, outcome, offsets string) *Delivery {
		return record(partition, offset, markerDone, outcome, letterSource, source, letterGroup, group, markerOffsets, offsets)
	}
	all, err := lettersOf([]*Delivery{
		letter(0, 0, "sent", "1/a", "g"), letter(0, 1, "between", "1/a", "g"), letter(0, 2, "gone", "1/a", "g"),
		letter(0, 3, "of another key", "1/a", "h"), letter(0, 4, "of another source", "1/b", "g"), letter(1, 0, "elsewhere", "1/a", "g"),
		done(0, 5, "1/a", "g", "sent", "0,3-4"), done(0, 6, "1/a", "g", "discarded", "0,2-9"),
		letter(0, 7, "again", "1/a", "g"),
	})
	if err != nil {
		t.Fatal(err)
	}
	outcomes := map[string]string{"sent": "sent", "gone": "discarded"}
	for _, l := range all {
		if l.Outcome != outcomes[l.Row] {
			t.Errorf("letter %q is %q", l.Row, l.Outcome)
		}
	}
	if len(all) != 7 {
		t.Errorf("%d letters", len(all))
	}
	for _, foreign := range []*Delivery{record(0, 0), done(0, 0, "1/a", "g", "sent", "x"), done(0, 0, "1/a", "g", "sent", "1-x")} {
		if _, err := lettersOf([]*Delivery{foreign}); err == nil {
			t.Errorf("a record was taken that is neither letter nor marker: %v", foreign.Headers)
		}
	}
}

// A third of the seeds sets rows aside, and their faults are of dead letters by a third;
// no other seed has one. Seeds that are asked for such kinds all do.
func TestPlan_SetsRowsAsideInAThirdOfTheSeeds(t *testing.T) {
	seen, parked, left := map[string]bool{}, 0, 0
	for seed := range uint64(60) {
		plan, err := NewPlan(seed, Options{Duration: 30e9, Gap: 2e9, Broker: "kfake", Huge: 10})
		if err != nil {
			t.Fatal(err)
		}
		of := 0
		for _, a := range plan.Actions {
			k := kindNamed(a.Kind)
			if k.letters {
				of++
				seen[k.name] = true
			}
			if plan.Letters != nil && k.unsettles {
				t.Errorf("seed %d: %s takes records away", seed, k.name)
			}
		}
		if lettered := seed%3 == 1; lettered != (plan.Letters != nil) || lettered != (of == 5) || !lettered && of > 0 {
			t.Errorf("seed %d: letters %v, %d of %d faults are of letters", seed, plan.Letters, of, len(plan.Actions))
		}
		if plan.Letters != nil && plan.Letters.ParkKey {
			parked++
		}
		if plan.Letters != nil && plan.Letters.Leave {
			left++
		}
		if asked, err := NewPlan(seed, Options{Duration: 30e9, Broker: "kfake", Faults: []string{"letters_*"}}); err != nil || asked.Letters == nil {
			t.Errorf("seed %d was asked for letters: %v, %v", seed, asked.Letters, err)
		}
	}
	if len(seen) != len(letterKinds) || parked < 5 || parked > 18 || left < 2 || left > 15 {
		t.Errorf("kinds %v; of 20 seeds %d park keys and %d leave what waits", seen, parked, left)
	}
}
