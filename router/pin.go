package router

import (
	"slices"

	"github.com/cdc-relay/cdc-relay/replication/wal"
	"github.com/cdc-relay/cdc-relay/router/column"
	"github.com/cdc-relay/cdc-relay/router/preset"
)

// shapeOf resolves the mapping's columns against rel. Configured columns win over
// the preset's; compile reports those that do not exist. at is the place of a row
// that has the relation's shape.
func (m *mapping) shapeOf(rel *wal.Relation, at wal.Place) (*preset.Shape, error) {
	if m.pin != nil {
		return m.pinned(rel, at), nil
	}
	g := m.given()
	if m.preset != nil {
		return g.Resolve(m.preset, rel)
	}
	return g.Recognise(rel)
}

// given is what the mapping says without a preset.
func (m *mapping) given() *preset.Given {
	g := &preset.Given{Table: m.Table, Topic: m.Topic, Value: m.Value}
	for r := range preset.RoleCount {
		g.Columns[r] = m.Columns.column(r)
	}
	g.Routed = m.regex != nil || m.topic != nil && slices.Contains(m.topic.Names(), preset.RoutedByValue)
	return g
}

// pin keeps what was decided about the table at start: a column that appears in
// mid-stream must not turn into the key or the topic.
type pin struct {
	preset.Shape
	streamed [preset.RoleCount]wal.Place // first row that had the role's column; zero: none was seen
}

// pinned is the shape decided at start, as it applies at one row. A row from before an optional
// role's column was added lacks that column: no error. A row after one that had it lacks it
// because it was dropped or renamed: compile reports that. The rows' places decide, not the order of
// seeing them, as a session may go back.
func (m *mapping) pinned(rel *wal.Relation, at wal.Place) *preset.Shape {
	s := &preset.Shape{Preset: m.pin.Preset, Columns: m.pin.Columns}
	for _, r := range optionalRoles {
		seen := m.pin.streamed[r]
		if m.Columns.column(r) == "" && (seen == wal.Place{} || at.Compare(seen) < 0) && !column.Has(rel, s.Columns[r]) {
			s.Columns[r] = ""
		}
	}
	return s
}

// optionalRoles have a column only if the table happens to have one.
var optionalRoles = []preset.Role{preset.RoleType, preset.RoleHeaders, preset.RoleTrace}

// note remembers from which row on the columns of optional roles came with the stream.
func (p *pin) note(rel *wal.Relation, at wal.Place) {
	for _, r := range optionalRoles {
		if p.Columns[r] != "" && column.Has(rel, p.Columns[r]) && (p.streamed[r] == wal.Place{} || at.Compare(p.streamed[r]) < 0) {
			p.streamed[r] = at
		}
	}
}
