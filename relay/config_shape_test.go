package relay

import (
	"testing"

	"github.com/cdc-relay/cdc-relay/postgres"
	"github.com/cdc-relay/cdc-relay/replication/wal"
)

// A checkpoint inside a transaction names a row by its number, so other rules of numbering
// are another shape.
func TestShape_DiffersByConfigurationAndRules(t *testing.T) {
	one := postgres.Config{Publication: "p", Tables: []wal.Table{{Schema: "public", Name: "outbox"}}}
	two := one
	two.Publication = "q"
	if shapeOf(&one, 1) == shapeOf(&two, 1) || shapeOf(&one, 1) == shapeOf(&one, 2) {
		t.Error("the shapes are equal")
	}
}
