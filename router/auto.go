package router

import (
	"cmp"
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/cdc-relay/cdc-relay/replication"
	"github.com/jackc/pglogrepl"
)

// shape is what a preset and the configured columns say about one relation: the
// column of each role, empty where there is none.
type shape struct {
	preset   *preset
	columns  [roleCount]string
	warnings []string
}

// shapeOf resolves the mapping's columns against rel. Configured columns win over
// the preset's; whether they exist is for compile to say.
//
// at is a row that has the relation's shape.
func (m *mapping) shapeOf(rel *replication.Relation, at position) (*shape, error) {
	if m.pin != nil {
		return m.pinned(rel, at), nil
	}
	if m.preset != nil {
		return m.resolve(m.preset, rel)
	}
	if err := refused(rel); err != nil {
		return nil, &presetError{err}
	}
	p, err := signed(rel)
	if err != nil {
		return nil, &presetError{err}
	}
	if p == nil {
		i := slices.IndexFunc(presets, func(p preset) bool { return !p.named() && m.fits(&p, rel) })
		if i < 0 {
			return nil, m.unrecognised(rel)
		}
		p = &presets[i]
	}
	s, err := m.resolve(p, rel)
	if err == nil && p.strict {
		err = m.rivals(s, rel)
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
func signed(rel *replication.Relation) (*preset, error) {
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

// pin keeps what was decided about the table at start: a column that appears in
// mid-stream must not turn into the key or the topic.
type pin struct {
	shape
	streamed [roleCount]position // first row that had the role's column; zero: none was seen
}

// position is a row's in the order of the stream. Rows of one transaction, whose table may
// change inside it, share the commit.
type position struct {
	commit  pglogrepl.LSN
	ordinal uint64
}

func positionOf(row *replication.Row) position {
	commit, ordinal := row.Place()
	return position{commit, ordinal}
}

func (p position) before(q position) bool {
	return p.commit < q.commit || p.commit == q.commit && p.ordinal < q.ordinal
}

// pinned is the shape decided at start, for the shape that the table had at a row.
// Rows from before a column was added lack it, which is no error for a role that the
// table need not have. Behind a row that had the column its absence means that the column
// was dropped or renamed, and compile reports it. A session may go back to rows that an
// earlier one delivered, so the position decides and not what was seen before.
func (m *mapping) pinned(rel *replication.Relation, at position) *shape {
	s := &shape{preset: m.pin.preset, columns: m.pin.columns}
	for _, r := range dispensable {
		seen := m.pin.streamed[r]
		if m.Columns.column(r) == "" && (seen == position{} || at.before(seen)) && !has(rel, s.columns[r]) {
			s.columns[r] = ""
		}
	}
	return s
}

// dispensable roles have a column only if the table happens to have one.
var dispensable = []role{roleType, roleHeaders, roleTrace}

// note remembers from which row on the dispensable columns came with the stream.
func (p *pin) note(rel *replication.Relation, at position) {
	for _, r := range dispensable {
		if p.columns[r] != "" && has(rel, p.columns[r]) && (p.streamed[r] == position{} || at.before(p.streamed[r])) {
			p.streamed[r] = at
		}
	}
}

// fits tells whether auto may take p.
func (m *mapping) fits(p *preset, rel *replication.Relation) bool {
	if p.topic == "" && m.Topic == "" {
		return false
	}
	for _, r := range p.required {
		if r == roleTopic && (m.Topic != "" || m.Columns.Route != "") {
			return false // the configuration says what the topic is made of
		}
		configured := m.Columns.column(r) != "" && !p.strict
		if !configured && len(p.candidates(r, rel)) == 0 {
			return false
		}
	}
	return true
}

// candidates are rel's columns that p takes for role r, best name first.
func (p *preset) candidates(r role, rel *replication.Relation) []string {
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

func candidates(names []string, exact bool, r role, rel *replication.Relation) []string {
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
func (m *mapping) resolve(p *preset, rel *replication.Relation) (*shape, error) {
	s := &shape{preset: p}
	for r := range roleCount {
		s.columns[r] = m.Columns.column(r)
		if s.columns[r] != "" || p.columns[r] == nil {
			continue
		}
		found := p.candidates(r, rel)
		switch {
		case len(found) == 0:
			if slices.Contains(p.required, r) && !m.unneeded(r) {
				return nil, m.missing(p, r, rel)
			}
			continue
		case p.named():
			s.columns[r] = found[0]
			continue
		case len(found) > 1 && !isID(r, found):
			return nil, m.ambiguous(r, found, rel)
		case r == roleTopic && (normal(found[0]) == "destination" || normal(found[0]) == "channel"):
			// Next to a route column it may as well be where a notification goes.
			if routes := candidates(recognised[roleRoute], false, roleRoute, rel); len(routes) > 0 {
				return nil, m.ambiguous(roleRoute, append(routes, found...), rel)
			}
		}
		s.columns[r] = found[0]
		if m.matters(p, r) {
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

// rivals fails when columns beside those of a strict shape could have its roles as
// well: which ones were meant is not for auto to guess.
func (m *mapping) rivals(s *shape, rel *replication.Relation) error {
	var first string
	var what, lines []string
	for r := range roleCount {
		configured := m.Columns.column(r)
		var found []string
		if configured == "" && s.columns[r] != "" && m.matters(s.preset, r) {
			found = s.others(r, rel)
		}
		switch {
		case len(found) > 0:
			what = append(what, fmt.Sprintf("any of %s could be the %s", strings.Join(append([]string{s.columns[r]}, found...), ", "), r))
			lines = append(lines, fmt.Sprintf("      %s: %s # or %s", r, yamlName(s.columns[r]), strings.Join(found, ", ")))
			first = cmp.Or(first, found[0])
		case configured != "":
			lines = append(lines, fmt.Sprintf("      %s: %s", r, yamlName(configured)))
		}
	}
	if len(lines) > 0 {
		lines = slices.Insert(lines, 0, "    columns:")
	}
	topics := candidates(recognised[roleTopic], false, roleTopic, rel)
	switch route := s.columns[roleRoute]; {
	case m.Topic != "":
		lines = append(lines, "    topic: "+yamlName(m.Topic))
	case len(topics) > 0 && m.Columns.Route == "":
		what = append(what, fmt.Sprintf("the topic could be made of %s or be any of %s", route, strings.Join(topics, ", ")))
		lines = append(lines, fmt.Sprintf("    topic: %s # or ${%s}", strings.ReplaceAll(s.preset.topic, routedByValue, route), strings.Join(topics, "}, ${")))
		first = cmp.Or(first, topics[0])
	}
	if len(what) == 0 {
		return nil
	}
	return &columnError{column: first, err: &Advised{
		What:  fmt.Errorf("table %s is ambiguous: it has the columns of preset %s, and %s", tableName(rel), s.preset.name, strings.Join(what, "; ")),
		Hint:  "say which",
		Block: fmt.Sprintf("outbox:\n  - table: %s\n    preset: %s\n%s", m.Table, s.preset.name, strings.Join(lines, "\n")),
	}}
}

// others are the columns that might have had role r as well.
func (s *shape) others(r role, rel *replication.Relation) []string {
	names := recognised[r]
	if r == roleKey {
		names = slices.Concat(names, s.preset.spareKeys)
	}
	var found []string
	for _, name := range candidates(names, false, r, rel) {
		plausible := r.plausible(typeOf(rel.Columns[columnIndex(rel, name)]))
		if plausible && !slices.Contains(s.columns[:], name) && !isID(r, []string{s.columns[r], name}) {
			found = append(found, name)
		}
	}
	return found
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
func (m *mapping) matters(p *preset, r role) bool {
	switch r {
	case roleRoute:
		return !m.unneeded(r)
	case roleType:
		return isCloudEvents(cmp.Or(m.Value, p.value)) || slices.ContainsFunc(p.headers, func(h presetHeader) bool { return h.column == "" && h.role == r })
	default:
		return true
	}
}

// isID tells whether a column called id settles which one the event id is.
func isID(r role, found []string) bool {
	return r == roleID && normal(found[0]) == "id" && normal(found[1]) != "id"
}

// warn names the columns that might have had role r as well.
func (s *shape) warn(r role, rel *replication.Relation) {
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
func (m *mapping) unneeded(r role) bool {
	return r == roleTopic && m.topic != nil ||
		r == roleRoute && m.topic != nil && m.regex == nil && !slices.Contains(m.topic.names(), routedByValue) ||
		r == roleType && m.topic != nil
}

func (m *mapping) missing(p *preset, r role, rel *replication.Relation) error {
	if found := hidden(p.columns[r], p.exact, rel); len(found) > 0 {
		return &columnError{column: found[0], err: fmt.Errorf("preset %s: %w", p.name, hiddenColumn(rel, found[0]))}
	}
	return &columnError{column: p.columns[r][0], err: advise(fmt.Errorf(
		"preset %s needs a column for the %s (%s), and table %s has none; it has %s",
		p.name, r, strings.Join(p.columns[r], ", "), tableName(rel), columnList(rel)), "set "+r.key())}
}

func (m *mapping) ambiguous(r role, found []string, rel *replication.Relation) error {
	return &columnError{column: found[0], err: &Advised{
		What: fmt.Errorf("table %s is ambiguous: any of %s could be the %s", tableName(rel), strings.Join(found, ", "), r),
		Hint: "say which", Block: m.block(rel),
	}}
}

func (m *mapping) unrecognised(rel *replication.Relation) error {
	var missing []string
	for _, r := range []role{roleID, rolePayload} {
		if m.Columns.column(r) == "" && len(candidates(recognised[r], false, r, rel)) == 0 {
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
		Hint: "say what they mean", Block: m.block(rel),
	}
}

// block is configuration to paste: the best guess for each role, the other
// candidates beside it, and what is still to be filled in.
func (m *mapping) block(rel *replication.Relation) string {
	var b strings.Builder
	fmt.Fprintf(&b, "outbox:\n  - table: %s\n    columns:\n", m.Table)
	topic := m.Topic
	for _, r := range []role{roleID, roleKey, roleRoute, roleType, rolePayload, roleHeaders, roleTrace} {
		found := candidates(recognised[r], false, r, rel)
		if r == roleRoute {
			found = append(found, candidates(recognised[roleTopic], false, roleTopic, rel)...)
		}
		if configured := m.Columns.column(r); configured != "" {
			found = []string{configured}
		}
		if len(found) == 0 && (r == roleID || r == rolePayload) {
			fmt.Fprintf(&b, "      %s: COLUMN # one of %s\n", r, columnList(rel))
			continue
		}
		if len(found) == 0 {
			continue
		}
		fmt.Fprintf(&b, "      %s: %s", r, yamlName(found[0]))
		if len(found) > 1 {
			fmt.Fprintf(&b, " # or %s", strings.Join(found[1:], ", "))
		}
		b.WriteByte('\n')
		switch {
		case topic != "":
		case r == roleRoute && slices.Contains(recognised[roleTopic], normal(found[0])):
			topic = "${" + found[0] + "}"
		case r == roleRoute:
			topic = "${" + found[0] + "}-events"
		case r == roleType:
			topic = "${" + found[0] + "}"
		}
	}
	if topic == "" {
		topic = "events"
	}
	fmt.Fprintf(&b, "    topic: %s", yamlName(topic))
	return b.String()
}

// yamlName quotes what YAML would read as something else than this string.
func yamlName(s string) string {
	if strings.ContainsAny(s, ":#'\"{}[],&*!|>%@` \t\\") && !strings.HasPrefix(s, "${") || s == "" {
		return "'" + strings.ReplaceAll(s, "'", "''") + "'"
	}
	return s
}
