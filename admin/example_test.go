package admin_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"

	"github.com/cdc-relay/cdc-relay/admin"
	"github.com/cdc-relay/cdc-relay/relay/status"
)

// The health checks answer from the status alone. A relay that does not stream is alive and not ready.
func ExampleHandler() {
	now := func() status.Status { return status.Status{State: status.Starting} }
	handler := admin.Handler(admin.Config{}, now, http.NotFoundHandler())
	for _, path := range []string{"/livez", "/readyz"} {
		answer := httptest.NewRecorder()
		handler.ServeHTTP(answer, httptest.NewRequest(http.MethodGet, path, nil))
		fmt.Println(path, answer.Code)
	}
	// Output:
	// /livez 200
	// /readyz 503
}
