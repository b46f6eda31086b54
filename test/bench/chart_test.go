package main

import (
	"math"
	"slices"
	"strings"
	"testing"
)

func TestChart_SaysWhereItIsFromAndBendsItsAxisForWideSpreads(t *testing.T) {
	r := sample()
	r.Started, r.Machine = "2026-01-02T03:04:05Z", "a machine"
	r.Earlier = map[string]Origin{sectionLatency: {Started: "2025-12-31T00:00:00Z", Machine: "another one"}}
	for _, c := range r.charts() {
		svg := c.svg()
		want := []string{"cdc-relay", "2026-01-02", "a machine"}
		if strings.HasPrefix(c.file, "latency") {
			want = []string{"cdc-relay", "2025-12-31", "another one"}
		}
		for _, text := range append(want, c.unit) {
			if !strings.Contains(svg, text) {
				t.Errorf("%s does not say %q", c.file, text)
			}
		}
	}
	for _, c := range []struct {
		values      []float64
		logarithmic bool
	}{{[]float64{5, 100}, false}, {[]float64{4.9, 100}, true}, {[]float64{0, 100}, false}, {nil, false}, {[]float64{1, 1000}, true}} {
		var picture chart
		for _, v := range c.values {
			picture.bars = append(picture.bars, bar{"x", v})
		}
		scale := picture.axis()
		if got := scale.logarithmic(); got != c.logarithmic {
			t.Errorf("%v: logarithmic %t", c.values, got)
		}
		if got := strings.Contains(picture.svg(), "logarithmic axis"); got != c.logarithmic {
			t.Errorf("%v: the picture says logarithmic: %t", c.values, got)
		}
		for _, v := range c.values {
			if length := scale.length(v); length < 0 || length > chartFull+0.01 || v > 0 && length == 0 {
				t.Errorf("%v of %v is %.1f pixels long", v, c.values, length)
			}
		}
		if len(c.values) > 0 && math.Abs(scale.length(slices.Max(c.values))-chartFull) > 0.01 {
			t.Errorf("%v: the largest is %.1f pixels long", c.values, scale.length(slices.Max(c.values)))
		}
	}
}

// Who is tuned for one thing is measured at that.
func TestContestants_TakePartWhereTheyAreMeantTo(t *testing.T) {
	for name, want := range map[string][2]bool{
		relayKafka: {true, true}, debezium: {true, true}, debeziumWarm: {true, false}, debeziumHeap: {true, false}, debeziumSoon: {false, true}, relayShards2: {false, false},
	} {
		all := contestants()
		c := all[slices.IndexFunc(all, func(c contestant) bool { return c.name == name })]
		if got := [2]bool{everyone(c), followers(c)}; got != want {
			t.Errorf("%s drains and follows: %v, want %v", name, got, want)
		}
	}
	if got := (connect{heap: "512m"}).jvm(); !slices.Contains(got, "-Xmx512m") || slices.Contains(got, "-Xmx2g") {
		t.Errorf("a heap of 512 MB: %v", got)
	}
	soon, usual := connect{linger: "0", poll: "1"}, connect{}
	if soon.worker(&bench{})["producer.linger.ms"] != "0" || usual.worker(&bench{})["producer.linger.ms"] != "5" {
		t.Error("the linger is not what it should be")
	}
}
