package cutover

import (
	"testing"

	"github.com/cdc-relay/cdc-relay/test/harness"
)

func TestMain(m *testing.M) {
	harness.Parallel("3")
	harness.Main(m)
}
