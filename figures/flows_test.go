package figures

import (
	"fmt"
	"math"
	"testing"
	"time"
)

func TestFlows_KeepANumberOfEachNameEveryTenSeconds(t *testing.T) {
	f := NewFlows(2 * time.Minute)
	begin := time.Unix(1_000_000, 0)
	at := func(i int) time.Time { return begin.Add(time.Duration(i) * 10 * time.Second) }
	for i := range 30 {
		values := map[string]float64{"a": float64(i)}
		if i >= 28 {
			values["b"] = 7
		}
		f.Add(at(i), values)
	}
	c := f.Read(at(29))
	if !c.From.Equal(at(18)) || c.Step != 10*time.Second || fmt.Sprint(c.Names, c.LeftOut) != "[a b] 0" {
		t.Fatalf("%+v", c)
	}
	if got := fmt.Sprint(c.Values[0]); got != "[18 19 20 21 22 23 24 25 26 27 28 29]" {
		t.Error(got)
	}
	if got := fmt.Sprint(c.Values[1]); got != "[NaN NaN NaN NaN NaN NaN NaN NaN NaN NaN 7 7]" {
		t.Error(got)
	}
	f.Add(at(33), map[string]float64{"b": 1}) // three points are missing, and a is gone
	c = f.Read(at(34))
	if got := fmt.Sprint(c.Names, c.Values[1]); got != "[a b] [NaN NaN NaN NaN NaN 7 7 NaN NaN NaN 1 NaN]" {
		t.Error(got)
	}
	for i := 34; i < 50; i++ {
		f.Add(at(i), map[string]float64{"b": 1})
	}
	if c = f.Read(at(49)); fmt.Sprint(c.Names) != "[b]" {
		t.Errorf("a name without numbers is kept: %v", c.Names)
	}
	if c := NewFlows(time.Minute).Read(begin); len(c.Names) != 0 || c.From.After(begin) {
		t.Errorf("of nothing: %+v", c)
	}
}

// The busiest find room, and what is left out is counted.
func TestFlows_AreBounded(t *testing.T) {
	f := NewFlows(time.Hour)
	values := map[string]float64{}
	for i := range 100 {
		values[fmt.Sprintf("t%02d", i)] = float64(i)
	}
	f.Add(time.Unix(1_000_000, 0), values)
	c := f.Read(time.Unix(1_000_000, 0))
	if len(c.Names) != MaxFlows || c.Names[0] != "t80" || c.LeftOut != 80 {
		t.Errorf("%v, %d left out", c.Names, c.LeftOut)
	}
	f.Add(time.Unix(-5, 0), values) // a clock that is not set
	if v := c.Values[0][len(c.Values[0])-1]; math.IsNaN(float64(v)) {
		t.Error("the last one is not known")
	}
}
