package main

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/cdc-relay/cdc-relay/sandbox"
	"github.com/cdc-relay/cdc-relay/test/harness"
)

func TestLookEvery_IsSeldomerWithManyTopics(t *testing.T) {
	for topics, want := range map[int]int64{0: 50, 4: 50, 20: 50, 100: 250, 1000: 500} {
		if got := lookEvery(topics).Milliseconds(); got != want {
			t.Errorf("%d topics: every %d ms, want %d", topics, got, want)
		}
	}
}

func TestLatencyRounds(t *testing.T) {
	for repeat, want := range map[int]int{1: 1, 2: 1, 3: 2, 5: 3} {
		if got := latencyRounds(repeat); got != want {
			t.Errorf("%d gives %d rounds, want %d", repeat, got, want)
		}
	}
}

// Each rate has a median of its own, and the standstill is never averaged away.
func TestTypical_IsTheMedianRunOfEachRate(t *testing.T) {
	run := func(slow, fast, still float64) []Latency {
		return []Latency{{Rate: 100, P50: slow, P99: 10 * slow, ConfirmedAge: still}, {Rate: 1000, P50: fast, P99: 10 * fast, ConfirmedAge: still / 2}}
	}
	got := typical([][]Latency{run(3, 1, 0.1), run(1, 3, 0.8), run(2, 2, 0.2)})
	if len(got) != 2 {
		t.Fatalf("%d lines, want 2", len(got))
	}
	for i, still := range []float64{0.8, 0.4} {
		if l := got[i]; l.P50 != 2 || l.P99 != 20 || l.ConfirmedAge != still || len(l.P50s) != 3 {
			t.Errorf("%+v, want that with a p50 of 2, %g s of standstill and 3 runs", l, still)
		}
	}
	if got[0].P50s[0] != 3 {
		t.Errorf("the runs are not in their order: %v", got[0].P50s)
	}
	if two := typical([][]Latency{run(1, 1, 0), run(2, 2, 0)}); two[0].P50 != 2 {
		t.Errorf("of two it is the better one: %+v", two[0])
	}
	if none := typical(nil); none != nil {
		t.Errorf("no run gives %v", none)
	}
}

func TestReport_SaysHowManyRunsALatencyIsOf(t *testing.T) {
	r := sample()
	if text := r.markdown(); !strings.Contains(text, "| 0.0 | 2 | 0.9–1.2 |\n") {
		t.Error(text)
	}
	r.Latencies[0].P50s = nil // written before runs were repeated
	if text := r.markdown(); !strings.Contains(text, "| 0.0 | 1 | 1.2–1.2 |\n") {
		t.Error(text)
	}
}

// A section that was measured two runs ago on the machine of the last one is still of
// that machine when the next run is on another.
func TestKeep_ASectionStaysWithItsMachineAndVersions(t *testing.T) {
	first := sample()
	second := &Results{Started: "t2", Machine: first.Machine, Versions: first.Versions, Idles: []Idle{{relayKafka, 0.25, 22}}}
	second.keep(first)
	if text := second.markdown(); !strings.Contains(text, "another run: "+first.Started+".\n") {
		t.Errorf("the same machine is named again, or the run is not:\n%s", text)
	}
	third := &Results{Started: "t3", Machine: "new box", Versions: map[string]string{"PostgreSQL": "18.1"}, Starts: []Start{{relayKafka, 1, []float64{1}}}}
	third.keep(second)
	text := third.markdown()
	for section, when := range map[string]string{"### Drain `drain`": first.Started, "### Latency": first.Started, "### Idle": "t2"} {
		_, rest, _ := strings.Cut(text, section)
		rest, _, _ = strings.Cut(rest, "|")
		if want := "another run: " + when + " on 2 cores, with PostgreSQL 15.20.\n"; !strings.Contains(rest, want) {
			t.Errorf("%s lacks %q:\n%s", section, want, text)
		}
	}
	if n := strings.Count(text, "another run"); n != 3 {
		t.Errorf("%d sections are of other runs, want 3", n)
	}
}

func TestReport_CPUTimeThatNobodySawIsNoFigure(t *testing.T) {
	seen := Run{CPUPerMillion: map[string]float64{groupServer: 2}}
	if got := (Line{Runs: []Run{seen, seen}}).cpuText(groupServer); got != "2.00" {
		t.Error(got)
	}
	if got := (Line{Runs: []Run{seen, {}}}).cpuText(groupServer); got != "-" {
		t.Error(got)
	}
}

func TestProbes_OtherRecordsAreNoFigure(t *testing.T) {
	w := &workload{probes: 3}
	with := func(n int) kgo.Fetches {
		records := []*kgo.Record{{Value: payload(n)}}
		return kgo.Fetches{{Topics: []kgo.FetchTopic{{Topic: "t", Partitions: []kgo.FetchPartition{{Records: records}}}}}}
	}
	for n, fine := range map[int]bool{firstProbe + 2: true, firstProbe + 3: true, firstProbe + 1: false, firstProbe + 4: false, 7: false} {
		if err := w.verifyProbes(with(n), firstProbe+2); (err == nil) != fine || err != nil && !errors.Is(err, errUnverified) {
			t.Errorf("%d: %v", n, err)
		}
	}
}

// Whoever stands by has each record that comes next, and none from before.
func TestFollow_StandsAtTheEndOfEveryPartition(t *testing.T) {
	brokers := harness.Kfake(t, sandbox.KafkaOptions{Brokers: 3})
	client, err := kgo.NewClient(kgo.SeedBrokers(brokers.Addrs...), kgo.RecordPartitioner(kgo.ManualPartitioner()))
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	c := &cluster{addrs: brokers.Addrs, client: client, admin: kadm.NewClient(client)}
	topics := []string{"a", "b"}
	if err := c.topics(t.Context(), topics, 4); err != nil {
		t.Fatal(err)
	}
	write := func(value string) {
		t.Helper()
		for _, topic := range topics {
			for partition := range int32(4) {
				if err := client.ProduceSync(t.Context(), &kgo.Record{Topic: topic, Partition: partition, Value: []byte(value)}).FirstErr(); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
	write("before")
	for range 2 { // the next contestant's finds the marks of the first
		consumer, err := c.follow(t.Context(), topics)
		if err != nil {
			t.Fatal(err)
		}
		write("behind")
		for left := 8; left > 0; {
			got := consumer.PollFetches(t.Context())
			if err := got.Err(); err != nil {
				t.Fatal(err)
			}
			got.EachRecord(func(r *kgo.Record) {
				left--
				if string(r.Value) != "behind" {
					t.Errorf("%q at %d of %s/%d", r.Value, r.Offset, r.Topic, r.Partition)
				}
			})
		}
		consumer.Close()
	}
}

// Two backlogs of one name would be two databases and two tables of it.
func TestBacklogs_AreNotTwiceTheSame(t *testing.T) {
	for rows, want := range map[int][]int{1: {1, 10}, 2: {1, 2, 20}, 10: {1, 10, 100}, 1_000_000: {100_000, 1_000_000, 10_000_000}} {
		if got := backlogs(rows); !slices.Equal(got, want) {
			t.Errorf("of %d rows %v, want %v", rows, got, want)
		}
	}
}

func TestReadResults_WithoutResultsIsRefused(t *testing.T) {
	path := t.TempDir() + "/results.json"
	if err := (&Results{Started: "now"}).writeJSON(path); err != nil {
		t.Fatal(err)
	}
	if _, err := readResults(path); err == nil {
		t.Error("a run without a figure passes")
	}
	if err := sample().writeJSON(path); err != nil {
		t.Fatal(err)
	}
	if _, err := readResults(path); err != nil {
		t.Error(err)
	}
}
