package importer

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/cdc-relay/cdc-relay/debezium/options"
)

const (
	eventRouter         = "io.debezium.transforms.outbox.EventRouter"
	jsonConverter       = "org.apache.kafka.connect.json.JsonConverter"
	stringConverter     = "org.apache.kafka.connect.storage.StringConverter"
	simpleConverter     = "org.apache.kafka.connect.storage.SimpleHeaderConverter"
	binaryDataConverter = "io.debezium.converters.BinaryDataConverter"
)

// records fills outbox[].debezium with what decides about the bytes of a record.
func (c *conversion) records() error {
	c.prefix()
	for _, it := range c.items {
		if c.done[it.key] || strings.HasPrefix(it.key, "transforms") || strings.HasPrefix(it.key, "predicates") {
			continue
		}
		o, ok := options.Lookup(options.ScopeConnector, "", it.key)
		if !ok || o.Fate != options.FateCarried {
			continue
		}
		c.option(it, it.key)
	}
	if it, ok := c.take("heartbeat.topics.prefix"); ok {
		if _, newer := c.get("topic.heartbeat.prefix"); newer {
			c.remark(it, NotNeeded, "topic.heartbeat.prefix takes its place")
		} else {
			c.add(option{"topic.heartbeat.prefix", it.value, ""})
			c.remark(it, Carried, "outbox[].debezium: topic.heartbeat.prefix, its name since 2.0")
		}
	}
	s := &c.result.Source
	if interval := strings.TrimSpace(c.value("heartbeat.interval.ms")); interval != "" && interval != "0" {
		s.Heartbeats = cmp.Or(c.value("topic.heartbeat.prefix"), c.value("heartbeat.topics.prefix"), "__debezium-heartbeat") + "." + s.TopicPrefix
	}
	s.Context = !strings.EqualFold(strings.TrimSpace(c.value("extended.headers.enabled")), "false")
	s.DriverMoves = strings.EqualFold(strings.TrimSpace(c.value("lsn.flush.mode")), "connector_and_driver") || strings.EqualFold(c.value("flush.lsn.source"), "false")
	return c.chain()
}

func (c *conversion) prefix() {
	it, ok := c.take("topic.prefix")
	if !ok {
		it, ok = c.take("database.server.name")
	}
	if !ok {
		name := invalidPrefix.ReplaceAllString(cmp.Or(c.value("name"), c.in.name, c.value("database.dbname"), "outbox"), "_")
		c.result.Source.TopicPrefix = name
		c.add(option{"topic.prefix", name, "To check: the input has no topic.prefix."})
		c.missing("topic.prefix", Refused, "is missing, and Debezium does not start without it; %q is offered. It shows in the headers __debezium.context.connectorLogicalName and in names of schemas", name)
		return
	}
	o := option{"topic.prefix", it.value, ""}
	refs := references(it.value)
	if len(refs) > 0 { // below debezium: nothing is expanded
		o.value = withoutDefaults(it.value) // which the relay refuses until somebody writes the value
		o.comment = "To do: the value of " + oneLine(withoutDefaults(it.value)) + "."
	}
	c.result.Source.TopicPrefix = o.value
	c.add(o)
	switch {
	case len(refs) > 0:
		c.remark(it, ToDo, "write its value below outbox[].debezium, where no reference is resolved: it is %s", describeReference(c.providerKind(refs[0].provider), refs[0]))
	case it.key == "database.server.name":
		c.remark(it, Carried, "outbox[].debezium: topic.prefix, its name since 2.0")
	default:
		c.remark(it, Carried, "outbox[].debezium")
	}
}

var invalidPrefix = regexp.MustCompile(`[^A-Za-z0-9_.-]`)

func (c *conversion) add(o option) { c.debezium = append(c.debezium, o) }

// option carries an option over under the name that it has for Connect.
func (c *conversion) option(it item, key string) {
	o := option{key, it.value, ""}
	if refs := references(it.value); len(refs) > 0 {
		o.value = withoutDefaults(it.value)
		o.comment = "To do: the value of " + oneLine(refs[0].plain()) + "; below debezium: no reference is resolved."
		c.remark(it, ToDo, "write its value below outbox[].debezium, where no reference is resolved: it is %s", describeReference(c.providerKind(refs[0].provider), refs[0]))
	}
	c.add(o)
	if o.comment == "" {
		c.remark(it, Carried, "outbox[].debezium")
	}
}

// converters writes the three converters: the connector's, else the worker's with the worker's
// properties, else Connect's usual ones.
func (c *conversion) converters() {
	if c.in.server() {
		c.serverFormats()
		return
	}
	for _, kind := range []string{"key", "value", "header"} {
		name := kind + ".converter"
		if it, ok := c.take(name); ok {
			c.option(it, name)
			c.registry(it)
			for _, sub := range c.with(name + ".") {
				c.converterOption(sub, name, it.value)
			}
			continue
		}
		for _, sub := range c.with(name + ".") {
			c.remark(sub, NotNeeded, "Connect ignores it, because %s is not in the connector but in the worker, together with its options", name)
		}
		c.workerConverter(kind, name)
	}
}

func (c *conversion) workerConverter(kind, name string) {
	it, ok := c.workerItem(name)
	if ok {
		it.value = fullClass(name, it.value)
		c.add(option{name, it.value, "From the worker."})
		c.remark(it, Carried, "outbox[].debezium")
		c.registry(it)
		for _, p := range c.worker.props {
			if strings.HasPrefix(p.key, name+".") {
				sub, _ := c.workerItem(p.key)
				sub.key = p.key
				c.converterOption(sub, name, it.value)
				c.done[workerMark+p.key] = true
			}
		}
		return
	}
	if kind == "header" {
		return // the default of Connect is the default here
	}
	if c.worker == nil {
		c.add(option{name, jsonConverter, "To check: the input has none, so the worker's applies; this is what Connect's sample configurations and images have."})
		c.missing(name, ToDo, "is a setting of the Connect worker: give its file with --worker. JsonConverter with schemas is assumed, as in Connect's sample configurations; %s", map[string]string{"key": "the key's bytes depend on it, and by them the partition", "value": "the bytes of every value depend on it"}[kind])
		return
	}
	c.add(option{name, jsonConverter, "Neither the connector nor the worker has one; Connect does not start so."})
	c.missing(name, Refused, "is neither in the connector nor in the worker, and a worker does not start without it; JsonConverter is offered")
}

func (c *conversion) converterOption(it item, name, class string) {
	o, ok := options.Lookup(options.ScopeConverter, className(class), strings.TrimPrefix(it.key, name+"."))
	switch {
	case !ok && !ours(class):
		c.remark(it, NotNeeded, "belongs to the converter, which the relay has not")
	case !ok, strings.TrimSpace(class) == "org.apache.kafka.connect.converters.ByteArrayConverter": // Debezium's of that name has options
		c.remark(it, NotNeeded, "%s knows no such option", className(class))
	case o.Fate == options.FateCarried:
		c.option(it, it.key)
	default:
		fate, text := c.optionFate(options.ScopeConverter, className(class), strings.TrimPrefix(it.key, name+"."), it)
		c.remark(it, fate, "%s", text)
	}
}

// ours reports whether a converter is of the packages that the relay knows.
func ours(class string) bool {
	return strings.HasPrefix(class, "org.apache.kafka.connect.") || strings.HasPrefix(class, "io.debezium.converters.")
}

var registered = regexp.MustCompile(`(?i)(?:avro|protobuf|json_?schema|registry|cloudevents)[A-Za-z]*$`)

// registry says in one line what happens to a converter that asks a schema registry.
func (c *conversion) registry(it item) {
	class := className(it.value)
	if !registered.MatchString(class) {
		return
	}
	c.remarks[len(c.remarks)-1] = Remark{Key: it.original, Fate: NotCarried, File: it.file, Line: it.line,
		Text: class + " is not written by the relay, which has no schema registry and no CloudEvents of Debezium's: stay with Debezium, or write JSON with consumers that can read it"}
}

// className is the class without its package and variant.
func className(class string) string {
	class = class[strings.LastIndexByte(class, '.')+1:]
	class, _, _ = strings.Cut(class, "$")
	return class
}

// serverFormats turns debezium.format.* into converters.
func (c *conversion) serverFormats() {
	for _, kind := range []string{"key", "value", "header"} {
		format := "json"
		it, given := c.take("debezium.format." + kind)
		if given {
			format = strings.ToLower(strings.TrimSpace(it.value))
		}
		class := formats[format]
		switch {
		case given && class == "":
			c.remark(it, NotCarried, "%s is not written by the relay; it has json, simplestring and binary. JSON is offered", shown("", format))
			class = jsonConverter
		case given:
			c.remark(it, Carried, "outbox[].debezium: %s.converter", kind)
		}
		c.add(option{kind + ".converter", class, "debezium.format." + kind})
		seen := map[string]bool{}
		for _, prefix := range []string{"debezium.format." + kind + ".", "debezium.format."} {
			for _, sub := range c.with(prefix) {
				name := strings.TrimPrefix(sub.key, prefix)
				if prefix == "debezium.format." && slices.ContainsFunc([]string{"key", "value", "header"}, func(k string) bool { return name == k || strings.HasPrefix(name, k+".") }) || seen[name] {
					continue
				}
				seen[name] = true
				o, ok := options.Lookup(options.ScopeConverter, className(class), name)
				if !ok || o.Fate != options.FateCarried {
					if !c.done[sub.key] {
						c.remark(sub, NotNeeded, "has no effect on %s", className(class))
					}
					continue
				}
				c.add(option{kind + ".converter." + name, sub.value, ""})
				if !c.done[sub.key] {
					c.remark(sub, Carried, "outbox[].debezium")
				}
			}
		}
	}
	c.missing("debezium.sink.kafka", Implied, "Debezium Server writes headers by debezium.format.header and neither partition nor timestamp of the EventRouter; so does this configuration")
}

// optionFate says what happens to an option by the list of options.
func (c *conversion) optionFate(scope, of, name string, it item) (Fate, string) {
	o, ok := options.Lookup(scope, of, name)
	if !ok {
		return NotCarried, unknownOption(scope)
	}
	text := o.Note
	switch o.Fate {
	case options.FateImplied:
		return Implied, cmp.Or(text, "always so")
	case options.FateNotNeeded:
		if words := allowedWords(o.Type); words != nil && len(references(it.value)) == 0 && !slices.ContainsFunc(words, func(w string) bool { return strings.EqualFold(w, strings.TrimSpace(it.value)) }) {
			return Refused, fmt.Sprintf("%s is not one of %s, so Debezium does not start; here it changes nothing", shown(name, it.value), strings.Join(words, ", "))
		}
		return NotNeeded, cmp.Or(text, "changes nothing here")
	case options.FateDefault:
		if strings.EqualFold(strings.TrimSpace(it.value), o.Default) || slices.ContainsFunc(allowedWords(o.Type), func(w string) bool { return strings.EqualFold(w, strings.TrimSpace(it.value)) }) {
			return Implied, "means the same here"
		}
		return NotCarried, cmp.Or(text, fmt.Sprintf("only %s is known here", o.Default))
	case options.FateElsewhere:
		return NotCarried, fmt.Sprintf("see %s; %s", o.Key, text)
	case options.FateCarried:
		return NotCarried, "stands where it has no effect"
	}
	return NotCarried, cmp.Or(text, "has no counterpart")
}

func allowedWords(typ string) []string {
	words, ok := strings.CutPrefix(typ, "enum(")
	if !ok {
		return nil
	}
	return strings.Split(strings.TrimSuffix(words, ")"), ",")
}

func unknownOption(scope string) string {
	switch scope {
	case options.ScopeConnector:
		return "is no key of Debezium 3.6 or Kafka Connect, which ignore what they do not know; so does the relay"
	case options.ScopeEventRouter:
		return "is no option of the EventRouter, which ignores what it does not know; so does the relay"
	}
	return "is not known, and left out"
}
