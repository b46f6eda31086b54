package explain

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/cdc-relay/cdc-relay/config"
	"github.com/cdc-relay/cdc-relay/replication/wal"
	"github.com/cdc-relay/cdc-relay/router"
	"github.com/cdc-relay/cdc-relay/router/column"
	"github.com/cdc-relay/cdc-relay/router/format"
)

// Who decided something about a table.
const (
	byConfiguration = "configuration"
	byPreset        = "preset" // one that the configuration names
	byAuto          = "auto"   // the preset that fits the columns
	byDefault       = "default"
)

// decision is one thing that was settled about a table.
type decision struct {
	Value  string `json:"value"`
	Origin string `json:"origin"`       // configuration, preset, auto or default
	At     string `json:"at,omitempty"` // where in the configuration
}

func (d decision) String() string {
	if d.At != "" {
		return fmt.Sprintf("%s (%s, %s)", d.Value, d.Origin, d.At)
	}
	return fmt.Sprintf("%s (%s)", d.Value, d.Origin)
}

// Column is what a column is used for, and who decided so.
type Column struct {
	Name   string   `json:"name"`
	Type   string   `json:"type"`
	Roles  []string `json:"roles"` // empty: no record shows the column
	Origin string   `json:"origin,omitempty"`
	At     string   `json:"at,omitempty"`
}

// Table is what explain has to say about one table.
type Table struct {
	Table       string    `json:"table"`
	Error       string    `json:"error,omitempty"` // why it cannot be explained; the rest is then empty
	Preset      *decision `json:"preset,omitempty"`
	Topic       *decision `json:"topic,omitempty"`
	KeyFormat   *decision `json:"key_format,omitempty"`
	ValueFormat *decision `json:"value_format,omitempty"`
	Headers     []string  `json:"headers,omitempty"`
	Columns     []Column  `json:"columns,omitempty"`
	Ignored     []string  `json:"ignored,omitempty"`
	Published   []string  `json:"published,omitempty"` // columns by which backfill and cutover know what a polling publisher has sent
	Warnings    []string  `json:"warnings,omitempty"`
	Record      *Record   `json:"record,omitempty"`
	Note        string    `json:"note,omitempty"`    // why there is no record, and nothing is wrong
	Problem     string    `json:"problem,omitempty"` // why there is no record
	Grant       string    `json:"grant,omitempty"`   // SQL that lets explain read the table

	messages bool // Table is the prefix of logical messages
}

// tableView is a table beside what the router made of it.
type tableView struct {
	cfg     *config.Config
	mapping router.Mapping
	rel     *wal.Relation
	made    *router.Explanation
}

func (v *tableView) path(key string) string { return v.mapping.Path + "." + key }

// decided says who settled a key whose value is not the configuration's default.
func (v *tableView) decided(key, value string, configured bool) decision {
	path := v.path(key)
	switch {
	case configured && v.cfg.Given(path):
		return decision{value, byConfiguration, strings.TrimPrefix(v.cfg.Origin(path), "from ")}
	case v.named():
		return decision{value, byPreset, ""}
	}
	return decision{value, byAuto, ""}
}

// format is decided for key and value: a format that is neither configured nor
// raw is the preset's.
func (v *tableView) format(key, value, configured string) decision {
	if value == format.Raw && !v.cfg.Given(v.path(key)) {
		return decision{value, byDefault, ""}
	}
	return v.decided(key, value, value == configured)
}

// named reports whether the configuration names the preset.
func (v *tableView) named() bool { return v.mapping.Preset != "" && v.mapping.Preset != "auto" }

func (r *Table) describe(v *tableView) {
	preset := v.decided("preset", v.made.Preset, v.named())
	if preset.Origin == byPreset { // it is not named in the file, so it is that of logical messages
		preset.Origin = byDefault
	}
	topic := v.decided("topic", v.made.Topic, v.mapping.Topic != "")
	key, value := v.format("key", v.made.Key, v.mapping.Key), v.format("value", v.made.Value, v.mapping.Value)
	r.Preset, r.Topic, r.KeyFormat, r.ValueFormat = &preset, &topic, &key, &value
	r.Headers, r.Ignored, r.Warnings = v.made.Headers, v.made.Ignored, v.made.Warnings
	for _, c := range v.rel.Columns {
		r.Columns = append(r.Columns, v.column(c))
	}
}

// roleOrder is that of the report; what else the router knows comes after.
var roleOrder = []string{"id", "key", "route", "topic", "type", "payload", "headers", "trace", "timestamp", "partition"}

// column lists everything that a column is used for.
func (v *tableView) column(c wal.Column) Column {
	out := Column{Name: c.Name, Type: column.TypeName(c), Roles: []string{}}
	add := func(role string, d decision) {
		if slices.Contains(out.Roles, role) {
			return
		}
		out.Roles = append(out.Roles, role)
		// The strongest word stands for the column.
		if out.Origin == "" || d.Origin == byConfiguration {
			out.Origin, out.At = d.Origin, d.At
		}
	}
	roles := slices.Clone(roleOrder)
	for role := range v.made.Roles {
		if !slices.Contains(roles, role) {
			roles = append(roles, role)
		}
	}
	slices.Sort(roles[len(roleOrder):])
	for _, role := range roles {
		name, pointer, _ := strings.Cut(v.made.Roles[role], "#")
		if v.made.Roles[role] != c.Name && name != c.Name {
			continue
		}
		key := "columns." + role
		if role == "partition" {
			key = role
		}
		label := role
		if pointer != "" {
			label += " (#" + pointer + ")"
		}
		add(label, v.decided(key, "", v.cfg.Given(v.path(key))))
	}
	for _, use := range v.made.Uses[c.Name] {
		key := use
		if name, header := strings.CutPrefix(use, "header "); header {
			key = "headers." + name
		} else if name, field := strings.CutPrefix(use, "value field "); field {
			key = "value_fields." + name
		}
		add(use, v.decided(key, "", use != "topic" || v.mapping.Topic != ""))
	}
	if len(out.Roles) == 0 && !slices.Contains(v.made.Ignored, c.Name) {
		label := "read by the preset"
		if slices.Contains(v.made.Headers, c.Name) {
			label = "header " + c.Name
		}
		add(label, v.decided("", "", false))
	}
	return out
}

func (r *Table) Print(w io.Writer) error {
	what := "table"
	if r.messages {
		what = "logical messages with prefix"
	}
	fmt.Fprintf(w, "%s %s\n", what, r.Table)
	lines := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintf(lines, "  preset\t%v\n  topic\t%v\n  key\t%v\n  value\t%v\n  headers\t%s\n",
		r.Preset, r.Topic, r.KeyFormat, r.ValueFormat, strings.Join(r.Headers, ", "))
	if err := lines.Flush(); err != nil {
		return err
	}
	fmt.Fprintln(w)
	fmt.Fprintf(lines, "  column\ttype\trole\tdecided by\n")
	for _, c := range r.Columns {
		roles, origin := strings.Join(c.Roles, ", "), c.Origin
		if c.At != "" {
			origin += ", " + c.At
		}
		if len(c.Roles) == 0 {
			roles, origin = "ignored", "-"
		}
		fmt.Fprintf(lines, "  %s\t%s\t%s\t%s\n", c.Name, c.Type, roles, origin)
	}
	if err := lines.Flush(); err != nil {
		return err
	}
	if len(r.Published) > 0 {
		fmt.Fprintf(w, "\n  published: %s, by which backfill and cutover know what a polling publisher has sent\n", strings.Join(r.Published, ", "))
	}
	for _, warning := range r.Warnings {
		fmt.Fprintf(w, "\n  warning: %s\n", warning)
	}
	switch {
	case r.Problem != "":
		fmt.Fprintf(w, "\n  no record: %s\n", r.Problem)
	case r.Note != "":
		fmt.Fprintf(w, "\n  no record: %s\n", r.Note)
	case r.Record != nil:
		return r.Record.Print(w)
	}
	return nil
}
