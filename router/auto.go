package router

import (
	"cmp"
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/cdc-relay/cdc-relay/replication/wal"
)

// shape is what a preset and the configured columns say about one relation: the
// column of each role, empty where there is none.
type shape struct {
	preset   *preset
	columns  [roleCount]string
	warnings []string
}

// given is what the configuration of a table says without a preset.
type given struct {
	table   string // as the configuration has it
	columns [roleCount]string
	topic   string // template; empty: none
	routed  bool   // the topic needs the route column
	value   string // format; empty: none
}

// recognise finds the preset by the columns that rel has.
func (g *given) recognise(rel *wal.Relation) (*shape, error) {
	if err := refused(rel); err != nil {
		return nil, &presetError{err}
	}
	p, err := signed(rel)
	if err != nil {
		return nil, &presetError{err}
	}
	if p == nil {
		i := slices.IndexFunc(presets, func(p preset) bool { return !p.named() && g.fits(&p, rel) })
		if i < 0 {
			return nil, g.unrecognised(rel)
		}
		p = &presets[i]
	}
	s, err := g.resolve(p, rel)
	if err == nil && p.strict {
		err = g.rivals(s, rel)
	}
	if err != nil {
		return nil, err
	}
	return s, nil
}

// presetError is about the choice of the preset.
type presetError struct{ err error }

func (e *presetError) Error() string { return e.err.Error() }

func (e *presetError) Unwrap() error { return e.err }

// signed is the preset whose signature the table bears; nil for none.
func signed(rel *wal.Relation) (*preset, error) {
	var found []*preset
	for i := range presets {
		p := &presets[i]
		inTable, _ := path.Match(p.tables, rel.Name)
		if p.signature == nil || p.tables != "" && !inTable {
			continue
		}
		if slices.ContainsFunc(p.signature, func(name string) bool { return columnIndex(rel, name) < 0 }) {
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
		names[i] = p.name
	}
	return nil, &Advised{
		What: fmt.Errorf("table %s is ambiguous: it has all the columns of %s", tableName(rel), strings.Join(names, " and of ")),
		Hint: "say which", Block: "    preset: " + names[0],
	}
}

// fits tells whether auto may take p.
func (g *given) fits(p *preset, rel *wal.Relation) bool {
	if p.topic == "" && g.topic == "" {
		return false
	}
	for _, r := range p.required {
		if r == roleTopic && (g.topic != "" || g.columns[roleRoute] != "") {
			return false // the configuration says what the topic is made of
		}
		configured := g.columns[r] != "" && !p.strict
		if !configured && len(p.candidates(r, rel)) == 0 {
			return false
		}
	}
	return true
}

// candidates are rel's columns that p takes for role r, best name first.
func (p *preset) candidates(r role, rel *wal.Relation) []string {
	suited := r
	if p.textHeaders && r == roleHeaders {
		suited = roleCount // any type will do
	}
	found := candidates(p.columns[r], p.exact, suited, rel)
	if r == roleKey && len(found) == 0 {
		found = candidates(p.spareKeys, false, suited, rel)
	}
	return found
}

func candidates(names []string, exact bool, r role, rel *wal.Relation) []string {
	var found []string
	for _, name := range names {
		name, pointer := splitPointer(name)
		for _, c := range rel.Columns {
			if c.Name != name && (exact || normal(c.Name) != name) {
				continue
			}
			switch {
			case pointer != "":
				found = append(found, c.Name+"#"+pointer)
			case suits(r, typeOf(c)):
				found = append(found, c.Name)
			}
		}
	}
	return found
}

// suits tells whether a recognised name goes with its column's type. Text that
// is called metadata may be anything, so only structured types are taken.
func suits(r role, t columnType) bool {
	switch r {
	case roleHeaders:
		return t.form == formJSON || t.form == formHstore || t.form == formArray
	case roleTrace:
		return t.form == formJSON || t.form == formText
	default:
		return true
	}
}

// resolve gives every role its column under p.
func (g *given) resolve(p *preset, rel *wal.Relation) (*shape, error) {
	s := &shape{preset: p}
	for r := range roleCount {
		s.columns[r] = g.columns[r]
		if s.columns[r] != "" || p.columns[r] == nil {
			continue
		}
		found := p.candidates(r, rel)
		switch {
		case len(found) == 0:
			if slices.Contains(p.required, r) && !g.unneeded(r) {
				return nil, g.missing(p, r, rel)
			}
			continue
		case p.named():
			s.columns[r] = found[0]
			continue
		case len(found) > 1 && !isID(r, found):
			return nil, g.ambiguous(r, found, rel)
		case r == roleTopic && (normal(found[0]) == "destination" || normal(found[0]) == "channel"):
			// Next to a route column it may as well be where a notification goes.
			if routes := candidates(recognised[roleRoute], false, roleRoute, rel); len(routes) > 0 {
				return nil, g.ambiguous(roleRoute, append(routes, found...), rel)
			}
		}
		s.columns[r] = found[0]
		if g.matters(p, r) {
			s.warn(r, rel)
		}
	}
	s.warnings = append(s.warnings, p.notes...)
	for _, c := range rel.Columns {
		if note := p.noteIf[c.Name]; note != "" {
			s.warnings = append(s.warnings, note)
		}
		if slices.Contains(delayed, normal(c.Name)) {
			s.warnings = append(s.warnings, fmt.Sprintf("column %s is ignored: a row is sent when its transaction commits, never later", c.Name))
		}
	}
	return s, nil
}

// plausible tells whether somebody may have meant a column of type t for the role.
func (r role) plausible(t columnType) bool {
	switch r {
	case roleKey:
		return keyable(t)
	case roleRoute, roleTopic, roleType:
		return t.form == formText
	case rolePayload:
		return t.form == formText || t.form == formJSON || t.form == formBytes
	default:
		return true
	}
}

// matters tells whether any record depends on which column has role r.
func (g *given) matters(p *preset, r role) bool {
	switch r {
	case roleRoute:
		return !g.unneeded(r)
	case roleType:
		return isCloudEvents(cmp.Or(g.value, p.value)) || slices.ContainsFunc(p.headers, func(h presetHeader) bool { return h.column == "" && h.role == r })
	default:
		return true
	}
}

// isID tells whether a column called id settles which one the event id is.
func isID(r role, found []string) bool {
	return r == roleID && normal(found[0]) == "id" && normal(found[1]) != "id"
}

// warn names the columns that might have had role r as well.
func (s *shape) warn(r role, rel *wal.Relation) {
	names := recognised[r]
	if r == roleKey {
		names = slices.Concat(names, s.preset.spareKeys)
	}
	for _, other := range candidates(names, false, r, rel) {
		if other != s.columns[r] && r.plausible(typeOf(rel.Columns[columnIndex(rel, other)])) {
			s.warnings = append(s.warnings, fmt.Sprintf("column %s could be the %s too; %s is taken (set %s to change that)", other, r, s.columns[r], r.key()))
		}
	}
}

// unneeded tells whether a configured topic makes the route column superfluous.
func (g *given) unneeded(r role) bool {
	return r == roleTopic && g.topic != "" || r == roleRoute && g.topic != "" && !g.routed || r == roleType && g.topic != ""
}

func (g *given) missing(p *preset, r role, rel *wal.Relation) error {
	if found := hidden(p.columns[r], p.exact, rel); len(found) > 0 {
		return &columnError{column: found[0], err: fmt.Errorf("preset %s: %w", p.name, hiddenColumn(rel, found[0]))}
	}
	return &columnError{column: p.columns[r][0], err: advise(fmt.Errorf(
		"preset %s needs a column for the %s (%s), and table %s has none; it has %s",
		p.name, r, strings.Join(p.columns[r], ", "), tableName(rel), columnList(rel)), "set "+r.key())}
}

func (g *given) ambiguous(r role, found []string, rel *wal.Relation) error {
	return &columnError{column: found[0], err: &Advised{
		What: fmt.Errorf("table %s is ambiguous: any of %s could be the %s", tableName(rel), strings.Join(found, ", "), r),
		Hint: "say which", Block: g.block(rel),
	}}
}

func (g *given) unrecognised(rel *wal.Relation) error {
	var missing []string
	for _, r := range []role{roleID, rolePayload} {
		if g.columns[r] == "" && len(candidates(recognised[r], false, r, rel)) == 0 {
			if found := hidden(recognised[r], false, rel); len(found) > 0 {
				return &columnError{column: found[0], err: fmt.Errorf("auto does not recognise table %s: %w", tableName(rel), hiddenColumn(rel, found[0]))}
			}
			missing = append(missing, "no column for the "+r.String())
		}
	}
	if len(missing) == 0 {
		missing = append(missing, "nothing to make the topic of")
	}
	return &Advised{
		What: fmt.Errorf("auto does not recognise table %s: it sees %s; it has %s", tableName(rel), strings.Join(missing, " and "), columnList(rel)),
		Hint: "say what they mean", Block: g.block(rel),
	}
}
