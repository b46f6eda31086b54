package admin

import (
	"encoding/json"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/cdc-relay/cdc-relay/figures"
	"github.com/cdc-relay/cdc-relay/relay/status"
)

// flowKinds are what a number is kept of every ten seconds: the rate of each table and topic, and the bytes of
// WAL that each shard has not confirmed.
var flowKinds = []string{"tables", "topics", "shards"}

const flowEvery = 10 * time.Second

// flows are the figures by name, of the same time as the ring.
type flows struct {
	last int64 // number of the ten seconds of the last point
	kept map[string]*figures.Flows
}

func newFlows(keep time.Duration) flows {
	f := flows{kept: map[string]*figures.Flows{}}
	for _, kind := range flowKinds {
		f.kept[kind] = figures.NewFlows(keep)
	}
	return f
}

// sample takes a point every ten seconds.
func (f *flows) sample(now time.Time, st *status.Status) {
	number := now.Unix() / int64(flowEvery/time.Second)
	if f.kept == nil || number == f.last {
		return
	}
	f.last = number
	rates := func(all []status.Flow) map[string]float64 {
		values := make(map[string]float64, len(all))
		for i := range all {
			values[all[i].Name] = all[i].PerSecond
		}
		return values
	}
	lags := make(map[string]float64, len(st.Shards))
	for i := range st.Shards {
		if one := &st.Shards[i]; one.LagBytes != nil {
			lags[one.Slot] = float64(*one.LagBytes)
		}
	}
	f.kept["tables"].Add(now, rates(st.Tables))
	f.kept["topics"].Add(now, rates(st.TopicRates))
	f.kept["shards"].Add(now, lags)
}

// flowHistory gives what was kept of each table, topic or shard.
func (a *api) flowHistory(w http.ResponseWriter, r *http.Request) {
	of := flowKinds[0]
	if r.URL.Query().Has("of") {
		of = r.URL.Query().Get("of")
	}
	if !slices.Contains(flowKinds, of) {
		problem(w, http.StatusBadRequest, "unknown_kind", "of: "+strconv.Quote(cut(of))+" is not allowed; allowed: "+strings.Join(flowKinds, ", "))
		return
	}
	c := a.console
	if c.ring == nil {
		problem(w, http.StatusNotFound, "no_history", "no figures are kept: http.console.history is 0s")
		return
	}
	c.looked(a.now())
	c.mu.Lock()
	columns := c.flows.kept[of].Read(a.now())
	c.mu.Unlock()
	body := []byte(`{"from":"` + columns.From.UTC().Format(time.RFC3339) + `","step_seconds":` + strconv.Itoa(int(columns.Step.Seconds())) + `,"left_out":` + strconv.Itoa(columns.LeftOut) + `,"series":{`)
	for i, name := range columns.Names {
		if i > 0 {
			body = append(body, ',')
		}
		quoted, _ := json.Marshal(name)
		body = appendNumbers(append(append(body, quoted...), ':'), columns.Values[i])
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(append(body, "}}\n"...))
}
