package setup

import (
	"testing"

	"github.com/cdc-relay/cdc-relay/debezium"
	"github.com/cdc-relay/cdc-relay/router"
)

func TestShapeOf_OptionsOfDebeziumMeanItsTable(t *testing.T) {
	options := debezium.Config{{Name: "topic.prefix", Value: "shop"}}
	mappings := []router.Mapping{{}, {Preset: "auto"}, {Preset: "laravel"}, {Connector: options}, {Preset: "auto", Connector: options}, {Preset: "prisma", Connector: options}}
	for i, want := range []string{"outbox", "outbox", "laravel", "debezium", "debezium", "prisma", "outbox"} {
		if got := shapeOf(mappings, i); got != want {
			t.Errorf("table %d: %s, want %s", i, got, want)
		}
	}
}
