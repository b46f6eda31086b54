package harness

import (
	"context"
	"testing"
	"time"

	"github.com/cdc-relay/cdc-relay/sandbox"
)

// Debezium starts a Kafka Connect worker with Debezium for one test.
func Debezium(t testing.TB, options sandbox.DebeziumOptions) *sandbox.Debezium {
	t.Helper()
	NeedsServer(t, "Debezium")
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	var err error
	if options.Java == "" {
		options.Java, _, err = sandbox.FindJava(ctx)
	}
	if err == nil && options.Jars == "" {
		options.Jars, err = sandbox.FetchDebezium(ctx, notice{})
	}
	if err != nil {
		missing(t, "Debezium", err, "install Java 17 or newer and Maven")
	}
	d, err := sandbox.StartDebezium(ctx, options)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := d.Close(); err != nil {
			t.Error(err)
		}
	})
	return d
}
