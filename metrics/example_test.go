package metrics_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"

	"github.com/cdc-relay/cdc-relay/metrics"
	"github.com/cdc-relay/cdc-relay/relay/status"
)

// Gauges are read from the status at each scrape.
func ExampleMetrics_Handler() {
	registry := metrics.New(metrics.Options{Pipeline: "orders"})
	handler := registry.Handler(func() status.Status { return status.Status{State: status.Streaming} })
	answer := httptest.NewRecorder()
	handler.ServeHTTP(answer, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	for line := range strings.Lines(answer.Body.String()) {
		if strings.HasPrefix(line, "cdc_relay_state{") && !strings.HasSuffix(line, " 0\n") {
			fmt.Print(line)
		}
	}
	// Output:
	// cdc_relay_state{pipeline="orders",state="streaming"} 1
}
