package teardown_test

import (
	"testing"

	"github.com/cdc-relay/cdc-relay/test/harness"
)

// Parallel tests have a server of their own, or share one with nobody who looks at all
// of it; those of two versions of the server have two.
func TestMain(m *testing.M) {
	harness.Parallel("3")
	harness.Main(m)
}
