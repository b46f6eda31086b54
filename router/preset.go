package router

import (
	"slices"

	"github.com/cdc-relay/cdc-relay/replication/wal"
)

// preset is a table shape as data.
type preset struct {
	name string

	// columns holds, for each role, the names that a column may have; a role
	// without names is not mapped. Names are normalised, or exact when exact is set.
	columns [roleCount][]string
	exact   bool

	spareKeys []string // taken for the key where columns has none; normalised

	// required roles must have a column for the preset to fit.
	required []role

	// strict shapes are taken by auto only for their own columns, whatever roles the
	// configuration gives to others, and only if no other column could have one of
	// their roles as well.
	strict bool

	topic   string // template; empty needs one in the configuration
	headers []presetHeader

	framework // what the tables of one framework or recipe have beyond that
}

// framework is what only presets named after a framework or a recipe use. Of
// the names of a role, the first one that the table has is taken.
type framework struct {
	// signature lists columns by their exact names; auto takes the preset for a
	// table that has them all, and for no other.
	signature []string
	tables    string // pattern (path.Match) that the table's name must fit for auto

	explicit bool // auto never takes it: its columns are no different from others'

	otherwise   [roleCount]string // column for rows in which the role's own is NULL or empty
	topicElse   string            // the topic where the table lacks a column that topic needs
	tablePrefix string            // the topic is the table's name without it
	regex       string            // topic_regex, when the configuration sets neither that nor topic

	headerValues string // column of values; the headers column then has the names
	textHeaders  bool   // the headers column is text that holds a JSON object
	base64       bool   // the payload is base64
	value        string // format; empty is raw

	payloadForms []form // what the payload's type must be; nil takes any
	payloadWhy   string

	notes  []string          // conditions that no catalog shows
	noteIf map[string]string // the same, for tables that have the column
}

// named tells the presets of frameworks and recipes from the generic ones.
func (p *preset) named() bool { return p.explicit || p.signature != nil }

// presetHeader adds a header behind id when its column is there and not NULL.
type presetHeader struct {
	name   string
	role   role   // whose column, when column is empty
	column string // normalised
}

// find is rel's column for a header that has one of its own; empty: there is none.
func (h *presetHeader) find(rel *wal.Relation) string {
	if found := candidates([]string{h.column}, false, roleCount, rel); len(found) > 0 {
		return found[0]
	}
	return ""
}

const eventTypeHeader = "eventType"

// presetAuto looks for the first of presets that fits.
const presetAuto = "auto"

// presets in the order in which auto tries them, once no signature fits.
var presets = slices.Concat(genericPresets, javaPresets, dotnetPresets, goPresets, scriptPresets, recipePresets)

var genericPresets = []preset{
	{
		name: "debezium",
		columns: [roleCount][]string{
			roleID:      {"id"},
			roleKey:     {"aggregateid"},
			roleRoute:   {"aggregatetype"},
			roleType:    {"type"},
			rolePayload: {"payload"},
		},
		exact:    true,
		required: []role{roleID, roleKey, roleRoute, rolePayload},
		strict:   true,
		topic:    "outbox.event.${routedByValue}",
	},
	{
		name:      "generic-topic",
		columns:   withRecognised(roleID, roleKey, roleTopic, roleType, rolePayload, roleHeaders, roleTrace),
		spareKeys: spareKeys,
		required:  []role{roleID, roleTopic, rolePayload},
		topic:     "${topic}",
		headers:   []presetHeader{{name: eventTypeHeader, role: roleType}},
	},
	{
		name: "outbox",
		columns: [roleCount][]string{
			roleID:      {"id"},
			roleKey:     {"aggregateid"},
			roleRoute:   {"aggregatetype"},
			roleType:    {"eventtype"},
			rolePayload: {"payload"},
			roleHeaders: recognised[roleHeaders],
			roleTrace:   recognised[roleTrace],
		},
		required: []role{roleID, roleKey, roleRoute, rolePayload},
		strict:   true,
		topic:    "${routedByValue}-events",
		headers:  []presetHeader{{name: eventTypeHeader, role: roleType}, {name: "idempotency_key", column: "idempotencykey"}},
	},
	{
		name:     "generic-aggregate",
		columns:  withRecognised(roleID, roleKey, roleRoute, roleType, rolePayload, roleHeaders, roleTrace),
		required: []role{roleID, roleRoute, rolePayload},
		topic:    "${routedByValue}-events",
		headers:  []presetHeader{{name: eventTypeHeader, role: roleType}},
	},
	{
		name:     "generic-event",
		columns:  withRecognised(roleID, roleKey, roleType, rolePayload, roleHeaders, roleTrace),
		required: []role{roleID, roleType, rolePayload},
		topic:    "${type}",
		headers:  []presetHeader{{name: eventTypeHeader, role: roleType}},
	},
	{
		name:     "generic",
		columns:  withRecognised(roleID, roleKey, rolePayload, roleHeaders, roleTrace),
		required: []role{roleID, rolePayload},
	},
}

func withRecognised(roles ...role) (columns [roleCount][]string) {
	for _, r := range roles {
		columns[r] = recognised[r]
	}
	return columns
}

func findPreset(name string) *preset {
	i := slices.IndexFunc(presets, func(p preset) bool { return p.name == name })
	if i < 0 {
		return nil
	}
	return &presets[i]
}

// PresetNames lists what Mapping.Preset may be.
func PresetNames() []string {
	names := []string{presetAuto}
	for _, p := range presets {
		names = append(names, p.name)
	}
	return names
}

// routedByValue is what a topic template calls the value of the route column
// after topic_regex; without a regex it is that value itself.
const routedByValue = "routedByValue"
