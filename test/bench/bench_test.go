package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime/debug"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

func payload(n int) []byte {
	return fmt.Appendf(nil, `{"n": %d, "note": "77"}`, n)
}

func TestLedger_TakesOnlyWhatWasWritten(t *testing.T) {
	const rows = 25_000
	for _, c := range []struct {
		name   string
		change func(l *ledger)
		whole  bool
	}{
		{"every row once", func(*ledger) {}, true},
		{"one more", func(l *ledger) { l.add(payload(7)) }, false},
		{"a stranger", func(l *ledger) { l.add([]byte(`{"x": 1}`)) }, false},
		{"beyond the last", func(l *ledger) { l.add(payload(rows + 1)) }, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			l := newLedger(rows)
			for n := 1; n <= rows; n++ {
				l.add(payload(n))
			}
			c.change(l)
			if err := l.verdict(); (err == nil) != c.whole || err != nil && !errors.Is(err, errUnverified) {
				t.Error(err)
			}
		})
	}
	t.Run("one missing", func(t *testing.T) {
		l := newLedger(rows)
		for n := 1; n < rows; n++ {
			l.add(payload(n))
		}
		if l.verdict() == nil {
			t.Error("a row is missing, and nothing is said")
		}
	})
	t.Run("a key out of order", func(t *testing.T) {
		l := newLedger(rows)
		l.add(payload(5 + keys))
		for n := 1; n <= rows; n++ {
			if n != 5+keys {
				l.add(payload(n))
			}
		}
		if l.disordered != 1 || l.verdict() == nil {
			t.Errorf("%d out of order", l.disordered)
		}
	})
}

func TestLedger_TheHeaderNamesTheRow(t *testing.T) {
	header := func(key, value string) []kgo.RecordHeader {
		return []kgo.RecordHeader{{Key: key, Value: []byte(value)}}
	}
	const id = idPrefix + "000000000001"
	for _, c := range []struct {
		name    string
		headers []kgo.RecordHeader
		ids     bool
		whole   bool
	}{
		{"its own", append(header("eventType", "x"), header("id", id)...), true, true},
		{"none", nil, true, false},
		{"another row's", header("id", idPrefix+"000000000002"), true, false},
		{"of another kind", header("id", "1"), true, false},
		{"with more digits", header("id", id+"1"), true, false},
		{"of other letters", header("id", idPrefix+"00000000000x"), true, false},
		{"none of one that is not ours", nil, false, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			l := newLedger(1)
			l.ids = c.ids
			l.take(&kgo.Record{Value: payload(1), Headers: c.headers})
			if err := l.verdict(); (err == nil) != c.whole || err != nil && !errors.Is(err, errUnverified) {
				t.Error(err)
			}
		})
	}
}

func TestNumber(t *testing.T) {
	for text, want := range map[string]int{
		`{"n": 12, "text": "x"}`: 12, `{"n":7}`: 7, `"{\"n\": 991, \"text\": \"n\"}"`: 991, `{"payload":{"n": 3}}`: 3,
		`{"m": 12}`: -1, ``: -1, `{"n": "x"}`: -1, `{"n": 12345678901}`: -1,
	} {
		got, ok := number([]byte(text))
		if !ok {
			got = -1
		}
		if got != want {
			t.Errorf("%s gives %d, want %d", text, got, want)
		}
	}
}

func FuzzNumber(f *testing.F) {
	f.Add([]byte(`{"n": 12}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		if n, ok := number(data); ok && n < 0 {
			t.Errorf("%q gives %d", data, n)
		}
	})
}

func TestRefusesTheRaceDetector(t *testing.T) {
	if !raced(&debug.BuildInfo{Settings: []debug.BuildSetting{{Key: "-race", Value: "true"}}}) {
		t.Error("a build with the race detector passes")
	}
	if raced(&debug.BuildInfo{Settings: []debug.BuildSetting{{Key: "-trimpath", Value: "true"}}}) {
		t.Error("a plain build does not pass")
	}
	if _, _, err := measure(t.Context(), options{relay: "/does/not/exist"}, nil); err == nil {
		t.Error("a relay that is not there passes")
	}
}

func TestChooseSuites(t *testing.T) {
	names := func(o options) string {
		chosen, err := chooseSuites(o)
		if err != nil {
			return err.Error()
		}
		var all []string
		for _, s := range chosen {
			all = append(all, s.name)
		}
		return strings.Join(all, " ")
	}
	for want, o := range map[string]options{
		"drain single large outage latency start idle": {},
		"drain single large outage latency start idle thousand payload topics shards columns ways formats subjects cluster backfill backlog resume cutover retention partition marks audit proof": {full: true},
		"single latency":                      {suites: "latency, single"},
		"there is no suite \"x\"":             {suites: "x"},
		"there is no contestant \"relay\"":    {only: "relay"},
		"there is no contestant \"kafkaesk\"": {without: "kafkaesk"},
	} {
		if got := names(o); !strings.HasPrefix(got, want) {
			t.Errorf("%+v gives %q, want %q", o, got, want)
		}
	}
	t.Setenv("CONTESTANT_mine", "true")
	if got := names(options{only: "mine", suites: "drain"}); got != "drain" {
		t.Errorf("a contestant from the environment: %s", got)
	}
}

func sample() *Results {
	run := func(rate, cpu, peak float64) Run {
		return Run{Seconds: 1, RowsPerSecond: rate, CPUPerMillion: map[string]float64{groupContestant: cpu}, PeakMB: map[string]float64{groupContestant: peak}}
	}
	return &Results{
		Started: "2026-11-21T10:00:00Z", Machine: "2 cores", Versions: map[string]string{"PostgreSQL": "15.20"},
		Drains: []Table{{Name: "drain", Rows: 1000, PerTxn: 10, Payload: 285, Topics: 4, Lines: []Line{
			{limit, []Run{run(100_000, 4, 9), run(90_000, 4, 9), run(110_000, 4, 9)}},
			{relayKafka, []Run{run(200_000, 2, 40), run(220_000, 2, 47)}},
			{debezium, []Run{run(50_000, 38, 1000)}},
		}}},
		Latencies: []Latency{{Contestant: relayKafka, Rate: 1000, P50: 1.2, P99: 3.4, P50s: []float64{1.2, 0.9}}},
		Missing:   map[string]string{polling: "there is no Apache Kafka here\nmore"},
	}
}

func TestReport_RatiosAndWorstMemory(t *testing.T) {
	text := sample().markdown()
	for _, want := range []string{
		"| relay-kafka | 210000 | 0.0 | 200000–220000 | 2.00 | - | - | 47.0 | - | - | 2.10 | 4.20 |",
		"| pg_recvlogical | 100000 |", "| relay-kafka | 1000 |", "* polling: there is no Apache Kafka here\n",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("%q is missing in\n%s", want, text)
		}
	}
	if got := ratio(1, 0); got != "–" {
		t.Errorf("a ratio without reference is %q", got)
	}
}

func TestDocs_OnlyTheMarkedPartIsRewritten(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, page)
	write := func(text string) {
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	write("before\n" + beginMark + "\nold\n" + endMark + "\nafter\n")
	r := sample()
	for range 2 { // the second time changes nothing
		if err := r.writeDocs(dir); err != nil {
			t.Fatal(err)
		}
	}
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	text := string(data)
	if !strings.HasPrefix(text, "before\n"+beginMark) || !strings.HasSuffix(text, endMark+"\nafter\n") || strings.Contains(text, "old") {
		t.Errorf("got\n%s", text)
	}
	if n := strings.Count(text, "relay-kafka | 210000"); n != 1 {
		t.Errorf("the result is there %d times", n)
	}
	for _, c := range r.charts() {
		svg, err := os.ReadFile(filepath.Join(dir, "benchmarks", c.file))
		if err != nil || !strings.HasPrefix(string(svg), "<svg") || strings.Count(text, "("+"benchmarks/"+c.file+")") != 1 {
			t.Errorf("%s: %v", c.file, err)
		}
		if _, behind, _ := strings.Cut(text, "\n"+questions[c.section]+"\n"); questions[c.section] == "" || !strings.Contains(behind, c.file) {
			t.Errorf("%s does not stand behind the question of %s", c.file, c.section)
		}
	}
	again, err := readResults(filepath.Join(dir, "benchmarks", "results.json"))
	if err != nil || again.markdown() != r.markdown() {
		t.Errorf("the data reads back differently: %v", err)
	}
	write("no marks")
	if err := r.writeDocs(dir); err == nil {
		t.Error("a page without marks is overwritten")
	}
}

// A run of some suites leaves the others' figures where they are, and says whose
// they are.
func TestDocs_OtherSuitesStay(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, page)
	if err := os.WriteFile(path, []byte(beginMark+"\n"+endMark+"\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	first := sample()
	first.Machine = "old box"
	first.Idles = []Idle{{relayKafka, 0.25, 22}}
	const when = "2026-11-22T10:00:00Z"
	second := &Results{Started: when, Machine: "new box", Versions: map[string]string{"PostgreSQL": "15.20"},
		Drains: []Table{{Name: "payload_100", Rows: 7}, {Name: "single", Rows: 8}}, Latencies: []Latency{{Contestant: relayKafka, Rate: 1000, P50: 7.7}}}
	third := &Results{Started: "2026-11-23T10:00:00Z", Machine: "new box", Versions: second.Versions, Drains: []Table{{Name: "single", Rows: 9}}}
	for _, r := range []*Results{first, second, third} {
		if err := r.writeDocs(dir); err != nil {
			t.Fatal(err)
		}
	}
	text := third.markdown()
	at := -1
	for _, want := range []string{
		"### Drain `drain`: 1000 rows", "Measured in another run: " + first.Started + " on old box.\n", "| relay-kafka | 210000 |",
		"### Drain `single`: 9 rows", "### Drain `payload_100`: 7 rows", "Measured in another run: " + when + ".\n",
		"### Latency", "Measured in another run: " + when + ".\n", " 7.7 |", "### Idle", "Measured in another run: " + first.Started + " on old box.\n",
	} {
		next := strings.Index(text[at+1:], want)
		if next < 0 {
			t.Fatalf("%q is missing, or not where it belongs, in\n%s", want, text)
		}
		at += 1 + next
	}
	if n := strings.Count(text, "Measured in another run"); n != 4 {
		t.Errorf("%d sections are said to be from earlier runs, want 4:\n%s", n, text)
	}
}

func TestMeter_NoFigureWhenARowIsMissingOrRepeated(t *testing.T) {
	m := newMeter()
	m.from, m.to = time.Unix(0, 0), time.Unix(1, 0)
	for n := int64(1); n <= 100; n++ {
		m.written.Store(n)
		m.sent[n].Store(n * int64(time.Millisecond))
		m.arrived[n] = m.sent[n].Load() + n*int64(time.Millisecond)
		m.got.Add(1)
	}
	line, err := m.line("x", 100)
	if err != nil || line.P50 != 50 || line.P99 != 99 || line.Max != 100 || line.Rows != 100 {
		t.Errorf("%+v, %v", line, err)
	}
	m.twice = 1
	if _, err := m.line("x", 100); !errors.Is(err, errUnverified) {
		t.Errorf("a row came twice: %v", err)
	}
	m.twice = 0
	m.written.Add(1)
	if _, err := m.line("x", 100); !errors.Is(err, errUnverified) {
		t.Errorf("a row is missing: %v", err)
	}
}

// Only what was written once and came in its order has a latency.
func TestMeter_TakesOnlyWhatWasWritten(t *testing.T) {
	const rows = keys + 20
	for _, c := range []struct {
		name    string
		records func(m *meter) []int64 // beside or instead of what was written
		whole   bool
	}{
		{"every row once", nil, true},
		{"one again", func(m *meter) []int64 { return []int64{m.base + 7} }, false},
		{"never written", func(m *meter) []int64 { return []int64{m.base + rows + 1} }, false},
		{"of no measurement", func(*meter) []int64 { return []int64{7} }, false},
		{"of a later one", func(m *meter) []int64 { return []int64{m.base + maxLatencyRows + 1} }, false},
		{"of an earlier one", func(m *meter) []int64 { return []int64{m.base - maxLatencyRows + 7} }, true},
		{"awaited before", func(*meter) []int64 { return []int64{firstProbe + 1, firstProbe + 2} }, true},
		{"awaited by nobody", func(*meter) []int64 { return []int64{firstProbe + 3} }, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			newMeter() // an earlier one
			m := written(rows)
			m.probes = 2
			for n := int64(1); n <= rows; n++ {
				m.take(payload(int(m.base+n)), time.Now().UnixNano())
			}
			if c.records != nil {
				for _, n := range c.records(m) {
					m.take(payload(int(n)), time.Now().UnixNano())
				}
			}
			if _, err := m.line("x", 1); (err == nil) != c.whole || err != nil && !errors.Is(err, errUnverified) {
				t.Error(err)
			}
		})
	}
	t.Run("no row at all", func(t *testing.T) {
		m := written(1)
		m.take(payload(int(m.base+1)), time.Now().UnixNano())
		m.take([]byte(mark), time.Now().UnixNano())
		if _, err := m.line("x", 1); !errors.Is(err, errUnverified) {
			t.Error(err)
		}
	})
	t.Run("a key out of order", func(t *testing.T) {
		m := written(rows)
		m.take(payload(int(m.base+5+keys)), time.Now().UnixNano())
		for n := int64(1); n <= rows; n++ {
			if n != 5+keys {
				m.take(payload(int(m.base+n)), time.Now().UnixNano())
			}
		}
		if _, err := m.line("x", 1); m.disordered != 1 || !errors.Is(err, errUnverified) {
			t.Errorf("%d out of order: %v", m.disordered, err)
		}
	})
}

// written is a meter behind whose back rows were written.
func written(rows int64) *meter {
	m := newMeter()
	m.from, m.to = time.Unix(0, 0), time.Unix(1, 0)
	m.written.Store(rows)
	for n := int64(1); n <= rows; n++ {
		m.sent[n].Store(n)
	}
	return m
}

// A key of two writers, or in two topics, has no order.
func TestWriters_HaveKeysOfTheirOwn(t *testing.T) {
	if keys%latencyWriters != 0 || keys%usual(0).topics != 0 {
		t.Errorf("%d keys, %d writers, %d topics", keys, latencyWriters, usual(0).topics)
	}
	for _, n := range []int64{1, 7, 9999} {
		if aggregate(n) != aggregate(n+keys) || aggregate(n) == aggregate(n+latencyWriters) {
			t.Errorf("%d does not have the key that is checked", n)
		}
	}
}

// A shard's slot is not the one that the suites of a steady stream look at.
func TestFollowers_AreWithoutShards(t *testing.T) {
	for _, c := range contestants() {
		if followers(c) && c.shards != 0 {
			t.Errorf("%s takes part", c.name)
		}
	}
}
