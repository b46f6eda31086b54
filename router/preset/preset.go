package preset

import (
	"slices"

	"github.com/cdc-relay/cdc-relay/replication/wal"
	"github.com/cdc-relay/cdc-relay/router/column"
)

// Preset is a table shape as data.
type Preset struct {
	Name string

	// columns holds, for each role, the names that a column may have; a role
	// without names is not mapped. Names are normalised, or exact when exact is set.
	columns [RoleCount][]string
	exact   bool

	spareKeys []string // taken for the key where columns has none; normalised

	// required roles must have a column for the preset to fit.
	required []Role

	// strict shapes are taken by auto only for their own columns, whatever roles the
	// configuration gives to others, and only if no other column could have one of
	// their roles as well.
	strict bool

	Topic   string // template; empty needs one in the configuration
	Headers []Header

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

	Fallback    [RoleCount]string // column for rows in which the role's own is NULL or empty
	TopicElse   string            // the topic where the table lacks a column that topic needs
	TablePrefix string            // the topic is the table's name without it
	Regex       string            // topic_regex, when the configuration sets neither that nor topic

	HeaderValues string // column of values; the headers column then has the names
	textHeaders  bool   // the headers column is text that holds a JSON object
	Base64       bool   // the payload is base64
	Value        string // format; empty is raw

	PayloadForms []column.Form // what the payload's type must be; nil takes any
	PayloadWhy   string

	notes  []string          // conditions that no catalog shows
	noteIf map[string]string // the same, for tables that have the column
}

// Named distinguishes the presets of frameworks and recipes from the generic ones.
func (p *Preset) Named() bool { return p.explicit || p.signature != nil }

// Header adds a header after id when its column is there and not NULL.
type Header struct {
	Name   string
	Role   Role   // whose column, when column is empty
	Column string // normalised
}

// ColumnIn is rel's column for a header that has one of its own; empty: there is none.
func (h *Header) ColumnIn(rel *wal.Relation) string {
	if found := candidates([]string{h.Column}, false, RoleCount, rel); len(found) > 0 {
		return found[0]
	}
	return ""
}

const eventTypeHeader = "eventType"

// Auto looks for the first of presets that fits.
const Auto = "auto"

// presets in the order in which auto tries them, once no signature fits.
var presets = slices.Concat(genericPresets, javaPresets, dotnetPresets, goPresets, scriptPresets, recipePresets)

var genericPresets = []Preset{
	{
		Name: "debezium",
		columns: [RoleCount][]string{
			RoleID:      {"id"},
			RoleKey:     {"aggregateid"},
			RoleRoute:   {"aggregatetype"},
			RoleType:    {"type"},
			RolePayload: {"payload"},
		},
		exact:    true,
		required: []Role{RoleID, RoleKey, RoleRoute, RolePayload},
		strict:   true,
		Topic:    "outbox.event.${routedByValue}",
	},
	{
		Name:      "generic-topic",
		columns:   withRecognised(RoleID, RoleKey, RoleTopic, RoleType, RolePayload, RoleHeaders, RoleTrace),
		spareKeys: spareKeys,
		required:  []Role{RoleID, RoleTopic, RolePayload},
		Topic:     "${topic}",
		Headers:   []Header{{Name: eventTypeHeader, Role: RoleType}},
	},
	{
		Name: "outbox",
		columns: [RoleCount][]string{
			RoleID:      {"id"},
			RoleKey:     {"aggregateid"},
			RoleRoute:   {"aggregatetype"},
			RoleType:    {"eventtype"},
			RolePayload: {"payload"},
			RoleHeaders: recognised[RoleHeaders],
			RoleTrace:   recognised[RoleTrace],
		},
		required: []Role{RoleID, RoleKey, RoleRoute, RolePayload},
		strict:   true,
		Topic:    "${routedByValue}-events",
		Headers:  []Header{{Name: eventTypeHeader, Role: RoleType}, {Name: "idempotency_key", Column: "idempotencykey"}},
	},
	{
		Name:     "generic-aggregate",
		columns:  withRecognised(RoleID, RoleKey, RoleRoute, RoleType, RolePayload, RoleHeaders, RoleTrace),
		required: []Role{RoleID, RoleRoute, RolePayload},
		Topic:    "${routedByValue}-events",
		Headers:  []Header{{Name: eventTypeHeader, Role: RoleType}},
	},
	{
		Name:     "generic-event",
		columns:  withRecognised(RoleID, RoleKey, RoleType, RolePayload, RoleHeaders, RoleTrace),
		required: []Role{RoleID, RoleType, RolePayload},
		Topic:    "${type}",
		Headers:  []Header{{Name: eventTypeHeader, Role: RoleType}},
	},
	{
		Name:     "generic",
		columns:  withRecognised(RoleID, RoleKey, RolePayload, RoleHeaders, RoleTrace),
		required: []Role{RoleID, RolePayload},
	},
}

func withRecognised(roles ...Role) (columns [RoleCount][]string) {
	for _, r := range roles {
		columns[r] = recognised[r]
	}
	return columns
}

// ByName is the preset of that name, or nil.
func ByName(name string) *Preset {
	i := slices.IndexFunc(presets, func(p Preset) bool { return p.Name == name })
	if i < 0 {
		return nil
	}
	return &presets[i]
}

// Names lists what Mapping.Preset may be.
func Names() []string {
	names := []string{Auto}
	for _, p := range presets {
		names = append(names, p.Name)
	}
	return names
}

// RoutedByValue is what a topic template calls the value of the route column
// after topic_regex; without a regex it is that value itself.
const RoutedByValue = "routedByValue"
