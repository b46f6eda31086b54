package router

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/cdc-relay/cdc-relay/replication/wal"
)

// rivals fails when columns beside those of a strict shape could have its roles as
// well: which ones were meant is not for auto to guess.
func (g *given) rivals(s *shape, rel *wal.Relation) error {
	var first string
	var what, lines []string
	for r := range roleCount {
		configured := g.columns[r]
		var found []string
		if configured == "" && s.columns[r] != "" && g.matters(s.preset, r) {
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
	case g.topic != "":
		lines = append(lines, "    topic: "+yamlName(g.topic))
	case len(topics) > 0 && g.columns[roleRoute] == "":
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
		Block: fmt.Sprintf("outbox:\n  - table: %s\n    preset: %s\n%s", g.table, s.preset.name, strings.Join(lines, "\n")),
	}}
}

// others are the columns that might have had role r as well.
func (s *shape) others(r role, rel *wal.Relation) []string {
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

// block is configuration to paste: the best guess for each role, the other
// candidates beside it, and what is still to be filled in.
func (g *given) block(rel *wal.Relation) string {
	var b strings.Builder
	fmt.Fprintf(&b, "outbox:\n  - table: %s\n    columns:\n", g.table)
	topic := g.topic
	for _, r := range []role{roleID, roleKey, roleRoute, roleType, rolePayload, roleHeaders, roleTrace} {
		found := candidates(recognised[r], false, r, rel)
		if r == roleRoute {
			found = append(found, candidates(recognised[roleTopic], false, roleTopic, rel)...)
		}
		if configured := g.columns[r]; configured != "" {
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
