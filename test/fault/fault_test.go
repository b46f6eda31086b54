package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/cdc-relay/cdc-relay/test/harness"
	"github.com/cdc-relay/cdc-relay/test/harness/relaytest"
)

func TestMain(m *testing.M) {
	harness.Parallel("2")
	harness.Main(m)
}

// A short sample of the programme: two seeds on real PostgreSQL servers and
// in-process brokers. `make fault` and `make fault-full` do the rest.
func TestFault_SampleHoldsEveryProperty(t *testing.T) {
	harness.NeedsServer(t, "PostgreSQL")
	binary := relaytest.Binary(t)
	s := newServers()
	t.Cleanup(func() {
		if err := s.close(); err != nil {
			t.Error(err)
		}
	})
	for i, version := range harness.Versions() {
		t.Run("postgres"+version, func(t *testing.T) {
			plan, err := NewPlan(sampleSeed+uint64(i), Options{
				Duration: 7 * time.Second, Gap: 700 * time.Millisecond, Postgres: version, Broker: "kfake", Large: 1500,
				Faults: []string{"relay_kill", "relay_term", "pg_terminate_walsender", "pg_checkpoint", "pg_ddl", "net_pg_cut*", "net_kafka_cut*", "net_writers_cut", "leader_move", "lost_acknowledgements", "record_too_large", "acl_revoked", "topic_recreate", "pg_immediate"},
			})
			if err != nil {
				t.Fatal(err)
			}
			v, err := run(t.Context(), s, plan, binary, t.TempDir())
			if err != nil {
				t.Fatalf("%v\n%s", err, plan)
			}
			if len(v.Violations) > 0 {
				t.Errorf("%s\n%s", strings.Join(v.Violations, "\n"), plan)
			}
			if v.Rows == 0 || v.Sessions == 0 || len(v.Faults) == 0 {
				t.Errorf("nothing was proven: %d rows, %d sessions, faults %v", v.Rows, v.Sessions, v.Faults)
			}
			t.Logf("%d rows, %d sessions, %d samples, %d duplicates (at most %d), faults %v", v.Rows, v.Sessions, v.Samples, v.Duplicates, v.Bound, v.Faults)
		})
	}
}

// sampleSeed is fixed, so that a failure here is one that was caused here.
const sampleSeed = 11

func TestPlan_IsDecidedByTheSeed(t *testing.T) {
	o := Options{Duration: 30 * time.Second, Postgres: "18", Broker: "kfake"}
	first, err := NewPlan(42, o)
	if err != nil {
		t.Fatal(err)
	}
	second, _ := NewPlan(42, o)
	if !reflect.DeepEqual(first, second) {
		t.Error("one seed makes two plans")
	}
	other, _ := NewPlan(43, o)
	if reflect.DeepEqual(first.Actions, other.Actions) {
		t.Error("two seeds make one schedule")
	}
	file := filepath.Join(t.TempDir(), "plan.json")
	if err := first.store(file); err != nil {
		t.Fatal(err)
	}
	stored, err := loadPlan(file)
	if err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(first, stored) {
		t.Errorf("stored and read again:\n%+v\nwas\n%+v", stored, first)
	}
}

func TestPlan_SeedsDealEveryKindOut(t *testing.T) {
	for _, broker := range []string{"kfake", "apache", "apache3"} {
		deck, err := applicable(nil, broker, false)
		if err != nil {
			t.Fatal(err)
		}
		if len(deck) < 30 {
			t.Errorf("%s: only %d kinds of faults", broker, len(deck))
		}
		seen := map[string]bool{}
		for seed := range uint64(len(deck)) {
			plan, err := NewPlan(seed, Options{Duration: 20 * time.Second, Gap: 2 * time.Second, Broker: broker})
			if err != nil {
				t.Fatal(err)
			}
			for _, a := range plan.Actions {
				seen[a.Kind] = true
			}
		}
		if len(seen) != len(deck) {
			t.Errorf("%s: %d of %d kinds were dealt", broker, len(seen), len(deck))
		}
	}
	if _, err := NewPlan(1, Options{Duration: time.Second, Faults: []string{"nonsense"}, Broker: "kfake"}); err == nil {
		t.Error("an unknown kind was accepted")
	}
}

func TestKinds_HaveNamesOfTheirOwn(t *testing.T) {
	seen := map[string]bool{}
	for _, k := range kinds {
		if seen[k.name] || k.about == "" || len(k.takes) == 0 {
			t.Errorf("kind %q: twice %t, about %q, takes %v", k.name, seen[k.name], k.about, k.takes)
		}
		seen[k.name] = true
	}
}

func TestShrink_KeepsWhatIsNeeded(t *testing.T) {
	var plan Plan
	for i := range 13 {
		plan.Actions = append(plan.Actions, Action{Kind: fmt.Sprint(i)})
	}
	needed := []string{"3", "9"}
	smaller := shrink(plan, func(candidate Plan) bool {
		n := 0
		for _, a := range candidate.Actions {
			if slices.Contains(needed, a.Kind) {
				n++
			}
		}
		return n == len(needed)
	})
	if got := fmt.Sprint(smaller.Actions[0].Kind, smaller.Actions[1].Kind); len(smaller.Actions) != 2 || got != "39" {
		t.Errorf("left %+v", smaller.Actions)
	}
}

func TestFigures_AddUp(t *testing.T) {
	f := newFigures()
	v := judge(fine())
	f.add(Plan{Postgres: "18", Broker: "kfake"}, v)
	f.add(Plan{Postgres: "18", Broker: "kfake"}, v)
	if f.Seeds != 2 || f.Rows != 2*v.Rows || f.Faults["relay_kill"] != 2 {
		t.Errorf("figures %+v", f)
	}
	for _, want := range []string{"seeds", "relay_kill", "lost", "recovery"} {
		if !strings.Contains(f.String(), want) {
			t.Errorf("no %s in\n%s", want, f)
		}
	}
	file := filepath.Join(t.TempDir(), "figures.json")
	if err := errors.Join(f.store(file), func() error { _, err := os.Stat(file); return err }()); err != nil {
		t.Error(err)
	}
}

// A part that runs again replaces what it had; the others stay.
func TestFigures_OfPartsAreDocumented(t *testing.T) {
	parts := func(names ...string) []Part {
		var all []Part
		for _, name := range names {
			f := newFigures()
			f.add(Plan{Postgres: "18", Broker: "kfake", ExactlyOnce: name == "once"}, judge(fine()))
			all = append(all, Part{Name: name, About: "about " + name, Outcome: "passed", Figures: f})
		}
		return all
	}
	f := sum(parts("kills", "once"))
	if f.Seeds != 2 || f.part("once").Seeds != 1 || f.part("none") != nil || f.Servers["PostgreSQL 18, kfake, exactly once"] != 1 {
		t.Errorf("figures %+v", f)
	}
	file, page := filepath.Join(t.TempDir(), "figures.json"), filepath.Join(t.TempDir(), "page.md")
	if err := errors.Join(f.store(file), os.WriteFile(page, []byte("before\n"+beginMark+"\nold\n"+endMark+"\nafter\n"), 0o644)); err != nil {
		t.Fatal(err)
	}
	stored, err := load(file)
	if err != nil {
		t.Fatal(err)
	}
	if err := stored.document(page); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"before\n" + beginMark, "| `relay_kill` | 2 | 2 | ", "| about once | passed |", endMark + "\nafter\n", "| rows | 12 |"} {
		if !strings.Contains(string(text), want) {
			t.Errorf("no %q in\n%s", want, text)
		}
	}
	if strings.Contains(string(text), "old") {
		t.Error("the old figures are still there")
	}
	if err := os.WriteFile(page, []byte("no place"), 0o644); err != nil {
		t.Fatal(err)
	}
	if stored.document(page) == nil {
		t.Error("a page without a place for figures was written")
	}
}

var noon = time.Date(2026, 1, 2, 12, 0, 0, 0, time.UTC)

func tick(n int) time.Time { return noon.Add(time.Duration(n) * period) }

// fine is a run in which all went well: four transactions of two keys, a kill in
// the middle, one transaction sent twice.
func fine() *History {
	h := &History{
		Plan: Plan{Relays: 1}, Rows: map[string]Row{}, Committed: map[string]bool{}, Aborted: map[string]bool{"gone": true}, Settled: time.Second,
		Actions: []Done{{Action: Action{Kind: "relay_kill", N: 1}, Began: tick(10), Healed: tick(11)}},
		Exits:   []Exit{{At: tick(10), Code: -1, Asked: true}},
		Starts:  []time.Time{tick(0), tick(11)},
	}
	for i, ids := range [][]string{{"a1", "b1"}, {"a2"}, {"b2", "a3"}, {"a4"}} {
		commit := uint64(100 * (i + 1))
		h.Txns = append(h.Txns, Txn{XID: uint32(i), Commit: commit, End: commit + 10, Rows: ids})
		for n, id := range ids {
			h.Rows[id] = Row{Topic: "t", Key: id[:1], Type: "Event", Value: payloadOf(10*i+n, 3)}
			h.Committed[id] = true
		}
	}
	for _, each := range []struct {
		id string
		at int
	}{{"a1", 1}, {"b1", 1}, {"a2", 5}, {"a2", 14}, {"b2", 16}, {"a3", 16}, {"a4", 20}} {
		h.deliver(each.id, each.at)
	}
	for n := range 40 {
		s := Sample{At: tick(n), WAL: 500, PID: 7, Ends: []int64{0, 0}}
		if n >= 10 {
			s.PID = 8
		}
		if n == 10 {
			s.PID = 0
		}
		switch {
		case n > 21:
			s.Confirmed = 500
		case n > 17:
			s.Confirmed = 310
		case n > 2:
			s.Confirmed = 110
		default:
			s.Confirmed = 50
		}
		for _, d := range h.Records {
			if !d.Timestamp.After(tick(n)) {
				s.Ends[d.Part]++
			}
		}
		h.Samples = append(h.Samples, s)
	}
	return h
}

// deliver adds a record; keys lie on partitions of their own.
func (h *History) deliver(id string, at int) {
	row := h.Rows[id]
	part := 0
	if row.Key == "b" {
		part = 1
	}
	pos := int64(0)
	for _, d := range h.Records {
		if d.Part == part {
			pos++
		}
	}
	h.Records = append(h.Records, &Delivery{Part: part, Pos: pos, Record: &kgo.Record{
		Topic: row.Topic, Partition: int32(part), Offset: pos, Key: []byte(row.Key), Value: []byte(row.Value), Timestamp: tick(at),
		Headers: []kgo.RecordHeader{{Key: "id", Value: []byte(id)}, {Key: "eventType", Value: []byte(row.Type)}},
	}})
}

func (h *History) remove(id string) {
	h.Records = slices.DeleteFunc(h.Records, func(d *Delivery) bool { return recordID(d) == id })
}

// stop adds a fast stop of PostgreSQL, beside brokers that take nothing if it is blocked.
func (h *History) stop(kind string, took time.Duration, blocked bool) {
	began := tick(1000)
	h.Actions = append(h.Actions, Done{Action: Action{Kind: kind, N: 5}, Began: began, Healed: began.Add(took), Took: Span(took)})
	if blocked {
		h.Actions = append(h.Actions, Done{Action: Action{Kind: "net_kafka_stall", N: 6}, Began: began, Healed: began.Add(time.Second)})
	}
}

// A stop that the brokers hold up has more room, and a huge transaction more still.
func TestOracle_AllowsAFastStopWhatIsDocumented(t *testing.T) {
	for _, c := range []struct {
		took    time.Duration
		blocked bool
		huge    int
	}{{8 * time.Second, false, 0}, {14 * time.Second, true, 0}, {29 * time.Second, true, 1}} {
		h := fine()
		h.Plan.Huge = c.huge
		h.stop("pg_fast", c.took, c.blocked)
		if v := judge(h); len(v.Violations) > 0 {
			t.Errorf("%+v: %v", c, v.Violations)
		}
	}
	h := fine()
	h.stop("pg_fast_blocked", 14*time.Second, false) // it stalls the brokers itself
	if v := judge(h); len(v.Violations) > 0 {
		t.Error(v.Violations)
	}
}

// The next kill must not take a slow recovery out of the figures.
func TestOracle_CountsARecoveryThatLastsBeyondTheNextKill(t *testing.T) {
	next := Done{Action: Action{Kind: "relay_kill", N: 2}, Began: tick(13), Healed: tick(14)}
	h := fine()
	h.Actions = append(h.Actions, next)
	if v := judge(h); len(v.Recovery) != 2 {
		t.Errorf("%d of 2 recoveries were counted", len(v.Recovery))
	}
	h = fine()
	next.Kind = "net_kafka_stall"
	h.Actions = append(h.Actions, next)
	if v := judge(h); len(v.Recovery) != 1 { // the other fault's
		t.Errorf("recoveries %v", v.Recovery)
	}
}

func TestKills_KeepTheirBounds(t *testing.T) {
	figures := func(kills, recoveries, duplicates int, slow ...time.Duration) *Figures {
		f := newFigures()
		f.Kills, f.Duplicates = kills, duplicates
		for range recoveries - len(slow) {
			f.Recovery = append(f.Recovery, Span(400*time.Millisecond))
		}
		for _, d := range slow {
			f.Recovery = append(f.Recovery, Span(d))
		}
		return f
	}
	const n = 200
	late := killRecovery + time.Second
	for _, c := range []struct {
		name string
		f    *Figures
		kept bool
	}{
		{"usual", figures(n, n, 90*n), true},
		{"one is slow", figures(n, n, 90*n, late), true},
		{"some are slow", figures(n, n, 90*n, late, late, late), false},
		{"recoveries were not seen", figures(n, n/2, 90*n), false},
		{"kills hit nothing", figures(n/2, n, 90*n), false},
		{"too many duplicates", figures(n, n, (killRepeats+1)*n), false},
	} {
		if beyond := c.f.beyond(n); (beyond == "") != c.kept {
			t.Errorf("%s: %q", c.name, beyond)
		}
	}
}

// Settings of users are what seeds have most: batching that adapts by itself.
func TestPlan_MostlyLeavesTheLingerAlone(t *testing.T) {
	counts := map[string]int{}
	for seed := range uint64(200) {
		plan, err := NewPlan(seed, Options{Duration: time.Second, Broker: "kfake"})
		if err != nil {
			t.Fatal(err)
		}
		i := slices.IndexFunc(plan.Settings, func(s string) bool { return strings.HasPrefix(s, "kafka.linger=") })
		if i < 0 {
			counts["unset"]++
		} else {
			counts[plan.Settings[i]]++
		}
	}
	if counts["unset"] < 120 || counts["kafka.linger=0s"] == 0 || counts["kafka.linger=5ms"] == 0 {
		t.Errorf("lingers %v", counts)
	}
}

// Every step is killed at with each guarantee that has it.
func TestSteps_AreOfTheirGuarantee(t *testing.T) {
	seen := map[string]bool{}
	for _, guarantee := range []string{atLeastOnce, exactlyOnce} {
		for _, a := range stepsOf(guarantee) {
			point := failpoints[a.N/1000]
			if !point.comes(guarantee) {
				t.Errorf("%s: step %s", guarantee, point.name)
			}
			seen[point.name] = true
		}
	}
	if len(seen) != len(failpoints) {
		t.Errorf("%d of %d steps, or two of one name", len(seen), len(failpoints))
	}
}

func TestOracle_IsContentWithAGoodRun(t *testing.T) {
	v := judge(fine())
	if len(v.Violations) > 0 {
		t.Fatal(v.Violations)
	}
	if v.Rows != 6 || v.Duplicates != 1 || v.DuplicateBy["relay_kill"] != 1 || v.Kills != 1 || v.Sessions != 2 || len(v.Recovery) != 1 {
		t.Errorf("figures %+v", v)
	}
}

// Each property has a run that breaks it and nothing before it.
func TestOracle_FindsEveryKindOfViolation(t *testing.T) {
	for _, c := range []struct {
		name, want string
		spoil      func(*History)
	}{
		{"a row is lost", "P1:", func(h *History) { h.remove("b2") }},
		{"a row that was rolled back is delivered", "P2:", func(h *History) { h.deliver("gone", 30) }},
		{"a value differs", "P3:", func(h *History) { h.Records[0].Value = []byte(`{"h": "x"}`) }},
		{"a key differs", "P3:", func(h *History) { h.Records[0].Key = []byte("b") }},
		{"a header differs", "P3:", func(h *History) { h.Records[2].Headers[1].Value = []byte("Other") }},
		{"a payload's hash differs", "P3:", func(h *History) {
			row := h.Rows["a4"]
			row.Value = strings.Replace(row.Value, `"s": 30`, `"s": 31`, 1)
			h.Rows["a4"] = row
			h.Records[6].Value = []byte(row.Value)
		}},
		{"first occurrences out of order", "P4:", func(h *History) { h.Records[0], h.Records[2] = h.Records[2], h.Records[0] }},
		{"a replay that leaves something out", "P5:", func(h *History) { h.deliver("a1", 600); h.deliver("a4", 600) }},
		{"a replay that does not end with the last", "P5:", func(h *History) { h.deliver("a2", 600) }},
		{"a position ahead of the brokers", "P6:", func(h *History) { h.Samples[15].Confirmed = 310 }},
		{"a position ahead of the server", "P6:", func(h *History) { h.Samples[39].Confirmed = 600 }},
		{"too few samples", "P6:", func(h *History) { h.Samples = h.Samples[:3] }},
		{"it never settles", "P7:", func(h *History) { h.Settled = -1 }},
		{"it holds back WAL", "P7:", func(h *History) { h.Retained = 1 << 30 }},
		{"the last stop is not clean", "P7:", func(h *History) { h.Code = 1 }},
		{"the server was held up", "P8:", func(h *History) { h.stop("pg_fast", 9*time.Second, false) }},
		{"the server was held up by brokers that took nothing", "P8:", func(h *History) { h.stop("pg_fast", 16*time.Second, true) }},
		{"the server was held up beside a huge transaction", "P8:", func(h *History) { h.Plan.Huge = 1; h.stop("pg_fast", 31*time.Second, false) }},
		{"memory", "P9:", func(h *History) { h.Peak = 1 << 30 }},
		{"open files", "P9:", func(h *History) { h.Base.Files, h.Last.Files = 10, 100 }},
		{"goroutines", "P9:", func(h *History) { h.Base.Goroutines, h.Last.Goroutines = 20, 200 }},
		{"too many duplicates", "P10:", func(h *History) {
			for range 700 {
				h.deliver("a4", 30)
			}
		}},
		{"a clean stop that was none", "P10:", func(h *History) {
			h.Actions = append(h.Actions, Done{Action: Action{Kind: "relay_term", N: 2}, Began: tick(8), Healed: tick(12), Detail: "streaming"})
			h.Actions[0].Kind = "relay_term"
			h.Exits = []Exit{{At: tick(10), Code: 0, Asked: true, Relay: 0}}
		}},
		{"blocked without a reason", "P11:", func(h *History) { h.States = []State{{Status: Status{State: "blocked", Message: "x"}}} }},
		{"blocked at a row without its position", "P11:", func(h *History) {
			s := State{Status: Status{State: "blocked", Reason: "record_too_large", Message: "too large"}}
			s.LSN.Confirmed = "0/10"
			h.States = []State{s}
		}},
		{"a crash", "P11:", func(h *History) { h.Exits = append(h.Exits, Exit{Code: 2, Last: "panic: no"}) }},
		{"an end by itself", "P11:", func(h *History) { h.Exits = append(h.Exits, Exit{Code: 0, Last: "bye"}) }},
		{"a crash loop", "P11:", func(h *History) {
			for i := range 30 {
				h.Starts = append(h.Starts, tick(100+i))
				h.Exits = append(h.Exits, Exit{At: tick(100 + i), Code: 1, Last: "no"})
			}
		}},
		{"the table disagrees with the writers", "writers:", func(h *History) { h.Committed["other"] = true }},
		{"the table has what was rolled back", "writers:", func(h *History) { h.Aborted["a1"] = true }},
		{"the witness disagrees with the table", "witness:", func(h *History) { h.Txns = h.Txns[:3] }},
	} {
		t.Run(c.name, func(t *testing.T) {
			h := fine()
			c.spoil(h)
			v := judge(h)
			if !slices.ContainsFunc(v.Violations, func(text string) bool { return strings.HasPrefix(text, c.want) }) {
				t.Errorf("violations %q, want one of %s", v.Violations, c.want)
			}
		})
	}
}

// With exactly_once nothing comes twice, and a position covers what is there.
func TestOracle_HoldsExactlyOnceToMore(t *testing.T) {
	once := func(spoil func(*History)) []string {
		h := fine()
		h.Plan.ExactlyOnce = true
		h.Records = slices.Delete(h.Records, 3, 4) // what was sent twice
		for _, c := range []struct {
			at  int
			end uint64
		}{{2, 110}, {15, 210}, {17, 310}, {21, 410}, {22, 500}} {
			h.Checkpoints = append(h.Checkpoints, Checkpoint{tick(c.at), c.end})
		}
		spoil(h)
		return judge(h).Violations
	}
	if found := once(func(*History) {}); len(found) > 0 {
		t.Fatal(found)
	}
	for _, c := range []struct {
		name, want string
		spoil      func(*History)
	}{
		{"a row comes twice", "P10:", func(h *History) { h.deliver("a4", 30) }},
		{"a record of a lost owner", "P5:", func(h *History) { h.Plan.Relays = 2; h.deliver("a2", 30) }},
		{"no checkpoint", "P12:", func(h *History) { h.Checkpoints = nil }},
		{"a checkpoint ahead of its rows", "P12:", func(h *History) { h.Checkpoints[1].End = 310 }},
		{"a slot ahead of the checkpoints", "P12:", func(h *History) { h.Checkpoints = h.Checkpoints[:2] }},
	} {
		t.Run(c.name, func(t *testing.T) {
			if found := once(c.spoil); !slices.ContainsFunc(found, func(text string) bool { return strings.HasPrefix(text, c.want) }) {
				t.Errorf("violations %q, want one of %s", found, c.want)
			}
		})
	}
}

// Records of an owner that lost the slot are counted apart, where there can be one.
func TestOracle_ExcusesLateRecordsOnlyWhereTheSlotChangedHands(t *testing.T) {
	spoil := func(relays, at int) *Verdict {
		h := fine()
		h.Plan.Relays = relays
		h.deliver("a2", at)
		return judge(h)
	}
	if v := spoil(2, 30); len(v.Violations) > 0 || v.Late != 1 {
		t.Errorf("two relays: %v, %d late", v.Violations, v.Late)
	}
	if v := spoil(1, 30); len(v.Violations) == 0 {
		t.Error("one relay: not found")
	}
	if v := spoil(2, 600); len(v.Violations) == 0 {
		t.Error("two relays, long after: not found")
	}
}

func TestWitness_DecodesWhatItNeeds(t *testing.T) {
	relation := []byte("R\x00\x00\x00\x09public\x00outbox\x00d\x00\x02\x00other\x00\x00\x00\x00\x19\x00\x00\x00\x00\x01id\x00\x00\x00\x00\x19\x00\x00\x00\x00")
	oid, place, err := idColumn(relation)
	if err != nil || oid != 9 || place != 1 {
		t.Fatalf("relation %d, place %d: %v", oid, place, err)
	}
	id, err := idOf([]byte("I\x00\x00\x00\x09N\x00\x02nt\x00\x00\x00\x02xy"), map[uint32]int{9: 1})
	if err != nil || id != "xy" {
		t.Errorf("id %q: %v", id, err)
	}
	for n := range relation[:30] {
		if _, _, err := idColumn(relation[:n]); err == nil {
			t.Errorf("%d bytes of a relation were enough", n)
		}
	}
	if _, err := idOf([]byte("I\x00\x00\x00\x09N\x00\x02nt\x00"), map[uint32]int{9: 1}); err == nil {
		t.Error("an insert that is cut was read")
	}
}
