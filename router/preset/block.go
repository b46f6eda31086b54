package preset

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/cdc-relay/cdc-relay/replication/wal"
	"github.com/cdc-relay/cdc-relay/router/advice"
	"github.com/cdc-relay/cdc-relay/router/column"
	"github.com/cdc-relay/cdc-relay/router/record"
)

// rivals fails when columns beside those of a strict shape could have its roles as
// well: which ones were meant is not for auto to guess.
func (g *Given) rivals(s *Shape, rel *wal.Relation) error {
	var first string
	var what, lines []string
	for r := range RoleCount {
		configured := g.Columns[r]
		var found []string
		if configured == "" && s.Columns[r] != "" && g.matters(s.Preset, r) {
			found = s.others(r, rel)
		}
		switch {
		case len(found) > 0:
			what = append(what, fmt.Sprintf("any of %s could be the %s", strings.Join(append([]string{s.Columns[r]}, found...), ", "), r))
			lines = append(lines, fmt.Sprintf("      %s: %s # or %s", r, yamlName(s.Columns[r]), strings.Join(found, ", ")))
			first = cmp.Or(first, found[0])
		case configured != "":
			lines = append(lines, fmt.Sprintf("      %s: %s", r, yamlName(configured)))
		}
	}
	if len(lines) > 0 {
		lines = slices.Insert(lines, 0, "    columns:")
	}
	topics := candidates(recognised[RoleTopic], false, RoleTopic, rel)
	switch route := s.Columns[RoleRoute]; {
	case g.Topic != "":
		lines = append(lines, "    topic: "+yamlName(g.Topic))
	case len(topics) > 0 && g.Columns[RoleRoute] == "":
		what = append(what, fmt.Sprintf("the topic could be made of %s or be any of %s", route, strings.Join(topics, ", ")))
		lines = append(lines, fmt.Sprintf("    topic: %s # or ${%s}", strings.ReplaceAll(s.Preset.Topic, RoutedByValue, route), strings.Join(topics, "}, ${")))
		first = cmp.Or(first, topics[0])
	}
	if len(what) == 0 {
		return nil
	}
	return &record.ColumnError{Column: first, Err: &advice.Advised{
		What:  fmt.Errorf("table %s is ambiguous: it has the columns of preset %s, and %s", column.TableName(rel), s.Preset.Name, strings.Join(what, "; ")),
		Hint:  "say which",
		Block: fmt.Sprintf("outbox:\n  - table: %s\n    preset: %s\n%s", g.Table, s.Preset.Name, strings.Join(lines, "\n")),
	}}
}

// others are the columns that might have had role r as well.
func (s *Shape) others(r Role, rel *wal.Relation) []string {
	names := recognised[r]
	if r == RoleKey {
		names = slices.Concat(names, s.Preset.spareKeys)
	}
	var found []string
	for _, name := range candidates(names, false, r, rel) {
		plausible := r.plausible(column.TypeOf(rel.Columns[column.Index(rel, name)]))
		if plausible && !slices.Contains(s.Columns[:], name) && !isID(r, []string{s.Columns[r], name}) {
			found = append(found, name)
		}
	}
	return found
}

// Block is configuration to paste: the best guess for each role, the other
// candidates beside it, and what is still to be filled in.
func (g *Given) Block(rel *wal.Relation) string {
	var b strings.Builder
	fmt.Fprintf(&b, "outbox:\n  - table: %s\n    columns:\n", g.Table)
	topic := g.Topic
	for _, r := range []Role{RoleID, RoleKey, RoleRoute, RoleType, RolePayload, RoleHeaders, RoleTrace} {
		found := candidates(recognised[r], false, r, rel)
		if r == RoleRoute {
			found = append(found, candidates(recognised[RoleTopic], false, RoleTopic, rel)...)
		}
		if configured := g.Columns[r]; configured != "" {
			found = []string{configured}
		}
		if len(found) == 0 && (r == RoleID || r == RolePayload) {
			fmt.Fprintf(&b, "      %s: COLUMN # one of %s\n", r, column.List(rel))
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
		case r == RoleRoute && slices.Contains(recognised[RoleTopic], column.Normal(found[0])):
			topic = "${" + found[0] + "}"
		case r == RoleRoute:
			topic = "${" + found[0] + "}-events"
		case r == RoleType:
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
