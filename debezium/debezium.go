package debezium

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/cdc-relay/cdc-relay/debezium/connect"
	"github.com/cdc-relay/cdc-relay/debezium/connect/codec"
	"github.com/cdc-relay/cdc-relay/debezium/connect/converter"
	"github.com/cdc-relay/cdc-relay/debezium/javaregex"
	"github.com/cdc-relay/cdc-relay/debezium/options"
	"github.com/cdc-relay/cdc-relay/debezium/transform"
	"github.com/cdc-relay/cdc-relay/replication/wal"
	"github.com/cdc-relay/cdc-relay/router"
	"github.com/cdc-relay/cdc-relay/router/format"
	"github.com/cdc-relay/cdc-relay/router/preset"
)

// connector is a connector's configuration, compiled: how a row becomes the
// records that Debezium, its transforms and Connect's converters make of it.
// Mappings that say the same share one, because some of what a record holds
// depends on what came before it (the envelope's schema is named after the first
// value that was routed).
type connector struct {
	prefix   string // topic.prefix
	database string
	modes    codec.Modes
	context  []transform.Header // __debezium.context.*; nil when they are off
	key      converter.Converter
	value    converter.Converter
	header   converter.Converter
	classes  [3]string // of the converters, for explanations
	chain    *transform.Chain
	router   *transform.EventRouter // the first one of the chain

	columnsIn, columnsOut   []*javaregex.Regex // nil: all, none
	sourceTypes             []*javaregex.Regex
	messagesIn, messagesOut []*javaregex.Regex
	skipTruncate            bool
	skipUpdate, skipDelete  bool

	heartbeat      time.Duration // 0: none
	heartbeatTopic string

	transactions *transactions // nil without provide.transaction.metadata

	settings Config // as opened
	mapping  *router.Mapping
	bare     bool // the EventRouter's options stand without their prefix

	scratch transform.Record
}

// debeziumConfig collects what is wrong while it is read.
type debeziumConfig struct {
	m       *router.Mapping
	options map[string]string
	bare    bool // the EventRouter's options stand without their prefix
	errs    []error
	runID   string
}

// fail blames one option; an empty name blames the whole.
func (c *debeziumConfig) fail(name string, format string, args ...any) {
	key := "debezium"
	if _, given := c.options[name]; given {
		key += "." + c.written(name)
	}
	c.errs = append(c.errs, configError(c.m, key, fmt.Errorf(format, args...)))
}

// configError names the key of m that is wrong.
func configError(m *router.Mapping, key string, err error) error {
	return &router.ConfigError{Path: m.Path + "." + key, Err: err}
}

// written is an option's name as the file has it.
func (c *debeziumConfig) written(name string) string { return writtenName(c.bare, name) }

// writtenName leaves out the prefix of an EventRouter that nobody named.
func writtenName(bare bool, name string) string {
	if bare {
		return strings.TrimPrefix(name, "transforms."+defaultRouter+".")
	}
	return name
}

// newConnector compiles the settings that stand in m. Every error is a *ConfigError.
func newConnector(m *router.Mapping, settings Config, runID string) (*connector, []error) {
	c := &debeziumConfig{m: m, options: make(map[string]string, len(settings)), runID: runID}
	for _, s := range settings {
		c.options[s.Name] = s.Value
	}
	c.ordinaryKeys()
	c.checkNames()
	d := &connector{prefix: c.options["topic.prefix"], database: c.options["database.dbname"], skipTruncate: true}
	switch {
	case d.prefix == "":
		c.fail("topic.prefix", "topic.prefix is missing: a value is required; it is in headers, in names of schemas and in heartbeats")
	case !prefixForm.MatchString(d.prefix) && !c.blamed("topic.prefix"):
		c.fail("topic.prefix", "topic.prefix %q has other signs than letters, digits, underscore, hyphen and dot", d.prefix)
	}
	c.records(d)
	c.lists(d)
	c.converters(d)
	d.chain = transform.NewChain(&transform.Options{Values: c.options, Fail: c.fail})
	d.router = d.chain.Router()
	if d.router == nil && len(c.errs) == 0 {
		c.fail("transforms", "transforms has no %s, without which a row does not become an event", transform.ClassEventRouter)
	}
	if len(c.errs) > 0 {
		return nil, c.errs
	}
	d.bare = c.bare
	d.addContext(c)
	if err := d.checkHeartbeat(); err != nil {
		c.fail("heartbeat.interval.ms", "no heartbeat can be written: %w", err)
	}
	return d, c.errs
}

// unresolved is a reference to a config provider of Connect. What stands behind the
// provider's name may be a secret: some take a default there.
var unresolved = regexp.MustCompile(`\$\{([A-Za-z0-9_.-]+):[^}]*\}`)

var prefixForm = regexp.MustCompile(`^[A-Za-z0-9._-]+$`)

// ordinaryKeys merges the keys that say the same as an option, and refuses those
// that debezium decides by itself.
func (c *debeziumConfig) ordinaryKeys() {
	m := c.m
	router := c.routerPrefix()
	same := func(key, value, option string) {
		if value == "" {
			return
		}
		if strings.Contains(value, "#/") {
			c.errs = append(c.errs, configError(c.m, key, errors.New("names a column beside debezium, which knows no pointers into one")))
			return
		}
		name := router + option
		if have, given := c.options[name]; given && have != value {
			c.errs = append(c.errs, configError(c.m, key, fmt.Errorf("says %q, and debezium.%s says %q; keep one of them", value, name, have)))
			return
		}
		c.options[name] = value
	}
	same("columns.id", m.Columns.ID, "table.field.event.id")
	same("columns.key", m.Columns.Key, "table.field.event.key")
	same("columns.route", m.Columns.Route, "route.by.field")
	same("columns.type", m.Columns.Type, "table.field.event.type")
	same("columns.payload", m.Columns.Payload, "table.field.event.payload")
	same("columns.timestamp", m.Columns.Timestamp, "table.field.event.timestamp")
	same("topic_regex", m.TopicRegex, "route.topic.regex")
	if m.TombstoneOnEmpty {
		same("tombstone_on_empty", "true", "route.tombstone.on.empty.payload")
	}
	if m.Partition != "" {
		placement := c.options[router+"table.fields.additional.placement"]
		if placement != "" {
			placement += ","
		}
		c.options[router+"table.fields.additional.placement"] = placement + m.Partition + ":partition"
	}
	refuse := func(key string, set bool, instead string) {
		if set {
			c.errs = append(c.errs, configError(c.m, key, fmt.Errorf("stands beside debezium, which decides it; %s", instead)))
		}
	}
	refuse("preset", m.Preset != "" && m.Preset != preset.Auto && !strings.HasPrefix(m.Preset, "debezium"), "leave it out")
	refuse("topic", m.Topic != "", "write debezium."+router+"route.topic.replacement")
	refuse("key", m.Key != "" && m.Key != format.Raw, "write debezium.key.converter")
	refuse("value", m.Value != "", "write debezium.value.converter and table.fields.additional.placement")
	refuse("value_fields", len(m.ValueFields) > 0, "write table.fields.additional.placement with envelope")
	refuse("headers", len(m.Headers) > 0, "write table.fields.additional.placement with header, or a transform")
	refuse("columns.headers", m.Columns.Headers != "", "write table.fields.additional.placement with header")
	refuse("columns.trace", m.Columns.Trace != "", "write table.fields.additional.placement with header")
	refuse("cloudevents_source", m.CloudEventsSource != "", "leave it out")
}

// defaultRouter is the name of the transform that stands in for `transforms`.
const defaultRouter = "outbox"

// routerPrefix is what stands before the options of the EventRouter.
func (c *debeziumConfig) routerPrefix() string {
	list, given := c.options["transforms"]
	if !given {
		return ""
	}
	for _, name := range options.List(list) {
		if c.options["transforms."+name+".type"] == transform.ClassEventRouter {
			return "transforms." + name + "."
		}
	}
	return "transforms." + defaultRouter + "."
}

// checkNames looks every option up, and gives those of an EventRouter without
// `transforms` their full names.
func (c *debeziumConfig) checkNames() {
	_, chained := c.options["transforms"]
	c.bare = !chained
	for _, name := range slices.Sorted(maps.Keys(c.options)) {
		if ref := unresolved.FindStringSubmatch(c.options[name]); ref != nil {
			c.fail(name, "has the reference ${%s:…}, which only a config provider of Connect resolves: write the value", ref[1])
		}
		o, known := options.Lookup(options.ScopeConnector, "", name)
		if !known && !chained {
			if _, known = options.Lookup(options.ScopeEventRouter, "", name); known {
				c.options["transforms."+defaultRouter+"."+name] = c.options[name]
				delete(c.options, name)
				continue // looked at with the transform's
			}
		}
		switch {
		case !known:
			c.fail(name, "is no option of Debezium's PostgreSQL connector%s%s", c.hint(name), routerHint(chained, name))
		case o.Fate == options.FateElsewhere:
			c.fail(name, "is said by %s here%s", o.Key, o.Because())
		case !o.Accepted():
			c.fail(name, "is not carried%s", o.Because())
		case strings.HasSuffix(o.Name, "*"): // looked up where the owner is known
		default:
			for _, wrong := range o.Check(c.options[name]) {
				c.fail(name, "%s", wrong)
			}
		}
	}
	if !chained {
		c.options["transforms"] = defaultRouter
		c.options["transforms."+defaultRouter+".type"] = transform.ClassEventRouter
	}
}

func routerHint(chained bool, name string) string {
	if _, known := options.Lookup(options.ScopeEventRouter, "", name); known && chained {
		return "; it is the EventRouter's, so write it with the name of the transform before it, as in transforms.outbox." + name
	}
	return ""
}

// hint names an option that differs by little.
func (c *debeziumConfig) hint(name string) string {
	flat := func(s string) string {
		return strings.ToLower(strings.NewReplacer(".", "", "_", "", "-", "").Replace(s))
	}
	for _, o := range options.All {
		if (o.Scope == options.ScopeConnector || o.Scope == options.ScopeEventRouter) && flat(o.Name) == flat(name) {
			return fmt.Sprintf(" (did you mean %q?)", o.Name)
		}
	}
	return ""
}

// bool and number read an option whose value checkNames has looked at.
func (c *debeziumConfig) bool(name string, otherwise bool) bool {
	if v, ok := options.Bool(c.options[name]); ok {
		return v
	}
	return otherwise
}

func (c *debeziumConfig) number(name string) int64 {
	n, _ := strconv.ParseInt(strings.TrimSpace(c.options[name]), 10, 64)
	return n
}

// records reads what changes values and which records there are.
func (c *debeziumConfig) records(d *connector) {
	modes, err := codec.ParseModes(c.options)
	if err != nil {
		name := "debezium"
		if e, ok := errors.AsType[*connect.OptionError](err); ok {
			name = e.Option
		}
		if !c.blamed(name) {
			c.fail(name, "%w", err)
		}
	}
	d.modes = modes
	for _, op := range options.List(c.options["skipped.operations"]) {
		switch strings.ToLower(op) {
		case "c":
			c.fail("skipped.operations", "c skips inserts, so nothing would ever be sent")
		case "u":
			d.skipUpdate = true
		case "d":
			d.skipDelete = true
		case "t", "none":
		default:
			c.fail("skipped.operations", "%q is no operation; there are c, u, d, t and none", op)
		}
	}
	if list, given := c.options["skipped.operations"]; given {
		d.skipTruncate = slices.ContainsFunc(options.List(list), func(op string) bool { return strings.EqualFold(op, "t") })
	}
	if ms := c.number("heartbeat.interval.ms"); ms > 0 {
		d.heartbeat = time.Duration(ms) * time.Millisecond
	} else if ms < 0 {
		c.fail("heartbeat.interval.ms", "%d is negative", ms)
	}
	d.heartbeatTopic = cmp.Or(c.options["topic.heartbeat.prefix"], "__debezium-heartbeat") + "." + d.prefix
	if c.bool("provide.transaction.metadata", false) {
		d.transactions = &transactions{}
	}
}

func (c *debeziumConfig) blamed(name string) bool {
	return slices.ContainsFunc(c.errs, func(err error) bool {
		e, ok := errors.AsType[*router.ConfigError](err)
		return ok && strings.HasSuffix(e.Path, "debezium."+name)
	})
}

func (c *debeziumConfig) lists(d *connector) {
	for _, l := range []struct {
		name string
		list *[]*javaregex.Regex
	}{
		{"column.include.list", &d.columnsIn}, {"column.exclude.list", &d.columnsOut}, {"column.propagate.source.type", &d.sourceTypes},
		{"message.prefix.include.list", &d.messagesIn}, {"message.prefix.exclude.list", &d.messagesOut},
	} {
		var err error
		if *l.list, err = javaregex.List(c.options[l.name]); err != nil {
			c.fail(l.name, "%w", err)
		}
	}
	for _, pair := range [][2]string{{"column.include.list", "column.exclude.list"}, {"message.prefix.include.list", "message.prefix.exclude.list"}} {
		if c.options[pair[0]] != "" && c.options[pair[1]] != "" {
			c.fail(pair[1], "stands beside %s; Debezium takes one of them", pair[0])
		}
	}
}

// addContext makes the headers that are the same for every record.
func (d *connector) addContext(c *debeziumConfig) {
	if !c.bool("extended.headers.enabled", true) {
		return
	}
	values := [][2]string{
		{"connectorLogicalName", d.prefix}, {"taskId", "0"}, {"connectorName", "postgresql"}, {"runId", c.runID},
	}
	for _, v := range values {
		if v[1] == "" {
			continue
		}
		d.context = append(d.context, transform.Header{Key: "__debezium.context." + v[0], Schema: connect.StringSchema, Value: connect.StringValue(v[1])})
	}
}

// wants asks for updates, because one that changes the primary key is routed as
// an event, and for the rest where something would become of it.
func (d *connector) wants() wal.Wants {
	w := wal.Wants{Update: !d.skipUpdate, Truncate: !d.skipTruncate, Meta: true, Commit: d.transactions != nil}
	w.Delete = !d.skipDelete && (d.transactions != nil || d.chain.Passes())
	return w
}
