package snapshot

import (
	"testing"

	"github.com/cdc-relay/cdc-relay/test/harness"
)

func TestMain(m *testing.M) {
	harness.Parallel("2")
	harness.Main(m)
}
