package metrics

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/cdc-relay/cdc-relay/relay/status"
)

// Two shards share a registry, and neither counts for the other.
func TestNewShards_AreToldApart(t *testing.T) {
	all := NewShards(Options{Pipeline: "orders"}, []int{0, 3})
	all[0].Events().Reconnecting("network", nil)
	all[1].Events().DeadLettered("route")
	all[0].Watch(func() status.Status { return status.Status{State: status.Streaming} })
	all[1].Watch(func() status.Status { return status.Status{State: status.Blocked, Reason: "route"} })
	w := httptest.NewRecorder()
	all[0].Registry().ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	if w.Code != http.StatusOK {
		t.Fatalf("status %d: %s", w.Code, w.Body)
	}
	for _, want := range []string{
		`cdc_relay_reconnects_total{pipeline="orders",reason="network",shard="0"} 1`,
		`cdc_relay_reconnects_total{pipeline="orders",reason="network",shard="3"} 0`,
		`cdc_relay_dead_letters_total{pipeline="orders",reason="route",shard="3"} 1`,
		`cdc_relay_state{pipeline="orders",shard="0",state="streaming"} 1`,
		`cdc_relay_state{pipeline="orders",shard="3",state="blocked"} 1`,
		`cdc_relay_state_reason{pipeline="orders",reason="route",shard="3",state="blocked"} 1`,
		`go_goroutines{pipeline="orders"}`,
	} {
		if !strings.Contains(w.Body.String(), want) {
			t.Errorf("%s is missing", want)
		}
	}
	if strings.Count(w.Body.String(), "\ngo_goroutines") != 1 {
		t.Error("what is about the process is there more than once")
	}
}
