package setup

import (
	"fmt"
	"slices"

	"github.com/cdc-relay/cdc-relay/config"
	"github.com/cdc-relay/cdc-relay/migrations"
	"github.com/cdc-relay/cdc-relay/relay"
	"github.com/cdc-relay/cdc-relay/replication/wal"
	"github.com/cdc-relay/cdc-relay/router"
	"github.com/cdc-relay/cdc-relay/wording"
)

// shapeOf is the preset in whose shape the i-th table is made. Options of Debezium
// are about a table with Debezium's columns.
func shapeOf(mappings []router.Mapping, i int) string {
	if i >= len(mappings) {
		return migrations.DefaultPreset
	}
	switch m := &mappings[i]; {
	case m.Preset != "" && m.Preset != "auto":
		return m.Preset
	case m.Connector != nil:
		return "debezium"
	}
	return migrations.DefaultPreset
}

// ConfiguredShape stands for the preset that the configuration names for a table.
const ConfiguredShape = "configured"

// MappedColumns are the columns of a table that its mapping reads.
func MappedColumns(cfg relay.Config) (func(*wal.Relation) ([]string, error), error) {
	routes, err := router.New(cfg.WithDefaults().Router)
	if err != nil {
		return nil, err
	}
	return routes.PublishedColumns, nil
}

// Mappable refuses a table that run would refuse for its mapping: a slot for it would hold
// back WAL for rows that nobody can read.
func Mappable(cfg *config.Config) (func(*wal.Relation) error, error) {
	routes, err := router.New(cfg.Relay().WithDefaults().Router)
	if err != nil {
		return nil, &relay.ConfigError{Err: err}
	}
	return func(table *wal.Relation) error {
		if _, err := routes.Pin(table); err != nil {
			return &relay.ConfigError{Err: cfg.Locate(err)}
		}
		return nil
	}, nil
}

// TableSQL gives the statements that make a table in the shape of a preset.
func TableSQL(cfg relay.Config, preset string) (func(wal.Table) (string, error), error) {
	shapes := make(map[wal.Table]string)
	for i, t := range cfg.Replication.Tables {
		shapes[t] = preset
		if preset == ConfiguredShape {
			shapes[t] = shapeOf(cfg.Router.Mappings, i)
		}
		if !slices.Contains(migrations.Presets(), shapes[t]) {
			return nil, fmt.Errorf("--create-table: there is no SQL for preset %q: %s", shapes[t], wording.DidYouMean(shapes[t], migrations.Presets()))
		}
	}
	return func(t wal.Table) (string, error) { return migrations.Table(shapes[t], t.Schema, t.Name) }, nil
}
