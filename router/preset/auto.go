package preset

import (
	"cmp"
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/cdc-relay/cdc-relay/advice"
	"github.com/cdc-relay/cdc-relay/replication/wal"
	"github.com/cdc-relay/cdc-relay/router/column"
	"github.com/cdc-relay/cdc-relay/router/format"
	"github.com/cdc-relay/cdc-relay/router/record"
)

// Shape is what a preset and the configured columns say about one relation: the
// column of each role, empty where there is none.
type Shape struct {
	Preset   *Preset
	Columns  [RoleCount]string
	Warnings []string
}

// Given is what the configuration of a table says without a preset.
type Given struct {
	Table   string // as the configuration has it
	Columns [RoleCount]string
	Topic   string // template; empty: none
	Routed  bool   // the topic needs the route column
	Value   string // format; empty: none
}

// Recognise finds the preset by the columns that rel has.
func (g *Given) Recognise(rel *wal.Relation) (*Shape, error) {
	if err := refused(rel); err != nil {
		return nil, &Error{err}
	}
	p, err := signed(rel)
	if err != nil {
		return nil, &Error{err}
	}
	if p == nil {
		i := slices.IndexFunc(presets, func(p Preset) bool { return !p.Named() && g.fits(&p, rel) })
		if i < 0 {
			return nil, g.unrecognised(rel)
		}
		p = &presets[i]
	}
	s, err := g.Resolve(p, rel)
	if err == nil && p.strict {
		err = g.rivals(s, rel)
	}
	if err != nil {
		return nil, err
	}
	return s, nil
}

// Error is about the choice of the preset.
type Error struct{ err error }

func (e *Error) Error() string { return e.err.Error() }

func (e *Error) Unwrap() error { return e.err }

// signed is the preset whose signature the table bears; nil for none.
func signed(rel *wal.Relation) (*Preset, error) {
	var found []*Preset
	for i := range presets {
		p := &presets[i]
		inTable, _ := path.Match(p.tables, rel.Name)
		if p.signature == nil || p.tables != "" && !inTable {
			continue
		}
		if slices.ContainsFunc(p.signature, func(name string) bool { return column.Index(rel, name) < 0 }) {
			continue
		}
		if p.tables == rel.Name {
			return p, nil // nothing says it better than the table's whole name
		}
		found = append(found, p)
	}
	switch len(found) {
	case 0:
		return nil, nil //nolint:nilnil // no signature is no fault
	case 1:
		return found[0], nil
	}
	names := make([]string, len(found))
	for i, p := range found {
		names[i] = p.Name
	}
	return nil, &advice.Error{
		Cause: fmt.Errorf("table %s is ambiguous: it has all the columns of %s", column.TableName(rel), strings.Join(names, " and of ")),
		Next:  "say which", Block: "    preset: " + names[0],
	}
}

// fits reports whether auto may take p.
func (g *Given) fits(p *Preset, rel *wal.Relation) bool {
	if p.Topic == "" && g.Topic == "" {
		return false
	}
	for _, r := range p.required {
		if r == RoleTopic && (g.Topic != "" || g.Columns[RoleRoute] != "") {
			return false // the configuration says what the topic is made of
		}
		configured := g.Columns[r] != "" && !p.strict
		if !configured && len(p.candidates(r, rel)) == 0 {
			return false
		}
	}
	return true
}

// candidates are rel's columns that p takes for role r, best name first.
func (p *Preset) candidates(r Role, rel *wal.Relation) []string {
	suited := r
	if p.textHeaders && r == RoleHeaders {
		suited = RoleCount // any type will do
	}
	found := candidates(p.columns[r], p.exact, suited, rel)
	if r == RoleKey && len(found) == 0 {
		found = candidates(p.spareKeys, false, suited, rel)
	}
	return found
}

func candidates(names []string, exact bool, r Role, rel *wal.Relation) []string {
	var found []string
	for _, name := range names {
		name, pointer := column.SplitPointer(name)
		for _, c := range rel.Columns {
			if c.Name != name && (exact || column.Normal(c.Name) != name) {
				continue
			}
			switch {
			case pointer != "":
				found = append(found, c.Name+"#"+pointer)
			case suits(r, column.TypeOf(c)):
				found = append(found, c.Name)
			}
		}
	}
	return found
}

// suits reports whether a recognised name goes with its column's type. Text that
// is called metadata may be anything, so only structured types are taken.
func suits(r Role, t column.Type) bool {
	switch r {
	case RoleHeaders:
		return t.Form == column.FormJSON || t.Form == column.FormHstore || t.Form == column.FormArray
	case RoleTrace:
		return t.Form == column.FormJSON || t.Form == column.FormText
	default:
		return true
	}
}

// Resolve gives every role its column under p.
func (g *Given) Resolve(p *Preset, rel *wal.Relation) (*Shape, error) {
	s := &Shape{Preset: p}
	for r := range RoleCount {
		s.Columns[r] = g.Columns[r]
		if s.Columns[r] != "" || p.columns[r] == nil {
			continue
		}
		found := p.candidates(r, rel)
		switch {
		case len(found) == 0:
			if slices.Contains(p.required, r) && !g.unneeded(r) {
				return nil, g.missing(p, r, rel)
			}
			continue
		case p.Named():
			s.Columns[r] = found[0]
			continue
		case len(found) > 1 && !isID(r, found):
			return nil, g.ambiguous(r, found, rel)
		case r == RoleTopic && (column.Normal(found[0]) == "destination" || column.Normal(found[0]) == "channel"):
			// Next to a route column it may as well be where a notification goes.
			if routes := candidates(recognised[RoleRoute], false, RoleRoute, rel); len(routes) > 0 {
				return nil, g.ambiguous(RoleRoute, append(routes, found...), rel)
			}
		}
		s.Columns[r] = found[0]
		if g.matters(p, r) {
			s.warn(r, rel)
		}
	}
	s.Warnings = append(s.Warnings, p.notes...)
	for _, c := range rel.Columns {
		if note := p.noteIf[c.Name]; note != "" {
			s.Warnings = append(s.Warnings, note)
		}
		if slices.Contains(delayed, column.Normal(c.Name)) {
			s.Warnings = append(s.Warnings, fmt.Sprintf("column %s is ignored: a row is sent when its transaction commits, never later", c.Name))
		}
	}
	return s, nil
}

// plausible reports whether somebody may have meant a column of type t for the role.
func (r Role) plausible(t column.Type) bool {
	switch r {
	case RoleKey:
		return column.Keyable(t)
	case RoleRoute, RoleTopic, RoleType:
		return t.Form == column.FormText
	case RolePayload:
		return t.Form == column.FormText || t.Form == column.FormJSON || t.Form == column.FormBytes
	default:
		return true
	}
}

// matters reports whether any record depends on which column has role r.
func (g *Given) matters(p *Preset, r Role) bool {
	switch r {
	case RoleRoute:
		return !g.unneeded(r)
	case RoleType:
		return format.IsCloudEvents(cmp.Or(g.Value, p.Value)) || slices.ContainsFunc(p.Headers, func(h Header) bool { return h.Column == "" && h.Role == r })
	default:
		return true
	}
}

// isID reports whether a column called id settles which one the event id is.
func isID(r Role, found []string) bool {
	return r == RoleID && column.Normal(found[0]) == "id" && column.Normal(found[1]) != "id"
}

// warn names the columns that might have had role r as well.
func (s *Shape) warn(r Role, rel *wal.Relation) {
	names := recognised[r]
	if r == RoleKey {
		names = slices.Concat(names, s.Preset.spareKeys)
	}
	for _, other := range candidates(names, false, r, rel) {
		if other != s.Columns[r] && r.plausible(column.TypeOf(rel.Columns[column.Index(rel, other)])) {
			s.Warnings = append(s.Warnings, fmt.Sprintf("column %s could be the %s too; %s is taken (set %s to change that)", other, r, s.Columns[r], r.Key()))
		}
	}
}

// unneeded reports whether a configured topic makes the route column superfluous.
func (g *Given) unneeded(r Role) bool {
	return r == RoleTopic && g.Topic != "" || r == RoleRoute && g.Topic != "" && !g.Routed || r == RoleType && g.Topic != ""
}

func (g *Given) missing(p *Preset, r Role, rel *wal.Relation) error {
	if found := column.Hidden(p.columns[r], p.exact, rel); len(found) > 0 {
		return &record.ColumnError{Column: found[0], Err: fmt.Errorf("preset %s: %w", p.Name, column.HiddenColumn(rel, found[0]))}
	}
	return &record.ColumnError{Column: p.columns[r][0], Err: advice.Give(fmt.Errorf(
		"preset %s needs a column for the %s (%s), and table %s has none; it has %s",
		p.Name, r, strings.Join(p.columns[r], ", "), column.TableName(rel), column.List(rel)), "set "+r.Key())}
}

func (g *Given) ambiguous(r Role, found []string, rel *wal.Relation) error {
	return &record.ColumnError{Column: found[0], Err: &advice.Error{
		Cause: fmt.Errorf("table %s is ambiguous: any of %s could be the %s", column.TableName(rel), strings.Join(found, ", "), r),
		Next:  "say which", Block: g.Block(rel),
	}}
}

func (g *Given) unrecognised(rel *wal.Relation) error {
	var missing []string
	for _, r := range []Role{RoleID, RolePayload} {
		if g.Columns[r] == "" && len(candidates(recognised[r], false, r, rel)) == 0 {
			if found := column.Hidden(recognised[r], false, rel); len(found) > 0 {
				return &record.ColumnError{Column: found[0], Err: fmt.Errorf("auto does not recognise table %s: %w", column.TableName(rel), column.HiddenColumn(rel, found[0]))}
			}
			missing = append(missing, "no column for the "+r.String())
		}
	}
	if len(missing) == 0 {
		missing = append(missing, "nothing to make the topic of")
	}
	return &advice.Error{
		Cause: fmt.Errorf("auto does not recognise table %s: it sees %s; it has %s", column.TableName(rel), strings.Join(missing, " and "), column.List(rel)),
		Next:  "say what they mean", Block: g.Block(rel),
	}
}
