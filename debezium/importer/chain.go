package importer

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/cdc-relay/cdc-relay/debezium/javaregex"
	"github.com/cdc-relay/cdc-relay/debezium/options"
)

// step is one transform of the chain.
type step struct {
	name, class string
	at          item // its type, or the list where it has none
}

func (s step) prefix() string { return "transforms." + s.name + "." }

// chain carries transforms and predicates over, in order. One that the relay does
// not have is left out and named.
func (c *conversion) chain() error {
	list, ok := c.take("transforms")
	if !ok {
		return &Error{File: c.in.file, Line: 1, Key: "transforms",
			Message: "is missing: without the EventRouter the connector sends raw change events, which the relay does not make; look at tools for change data capture"}
	}
	steps := c.steps(list)
	if !slices.ContainsFunc(steps, func(s step) bool { return s.class == eventRouter }) {
		return c.noRouter(list, steps)
	}
	c.remark(list, Carried, "outbox[].debezium")
	var kept []string
	from := len(c.debezium)
	for _, s := range steps {
		if c.step(s) {
			kept = append(kept, s.name)
		}
	}
	c.debezium = slices.Insert(c.debezium, from, option{"transforms", strings.Join(kept, ","), ""})
	for _, it := range c.with("transforms.") {
		if !c.done[it.key] {
			c.remark(it, NotNeeded, "no transform of the list `transforms` has this name")
		}
	}
	return c.predicates()
}

func (c *conversion) steps(list item) []step {
	var steps []step
	for _, name := range javaregex.Split(list.value) {
		at, ok := c.get("transforms." + name + ".type")
		if !ok && c.in.form == ServerEnvironment { // variables have no lower case
			name = strings.ToLower(name)
			at, ok = c.get("transforms." + name + ".type")
		}
		if !ok {
			at = list
		}
		steps = append(steps, step{name, at.value, at})
		if !ok {
			steps[len(steps)-1].class = ""
		}
	}
	return steps
}

func (c *conversion) noRouter(list item, steps []step) error {
	var classes []string
	for _, s := range steps {
		if strings.HasSuffix(s.class, "MongoEventRouter") {
			return &Error{File: list.file, Line: s.at.line, Column: s.at.column, Key: s.at.original, Message: "is the EventRouter for MongoDB, which does not work on PostgreSQL; write " + eventRouter}
		}
		classes = append(classes, fmt.Sprintf("%s (%s)", s.name, s.class))
	}
	return &Error{File: list.file, Line: list.line, Column: list.column, Key: list.original,
		Message: "has no EventRouter, so the connector sends raw change events, which the relay does not make; its transforms: " + oneLine(strings.Join(classes, ", "))}
}

// packages are where the transforms and predicates that the relay has come from.
var packages = map[string]string{
	"EventRouter": "io.debezium.transforms.outbox.", "ExtractNewRecordState": "io.debezium.transforms.",
	"DecodeLogicalDecodingMessageContent": "io.debezium.connector.postgresql.transforms.",
	"Filter":                              "org.apache.kafka.connect.transforms.",
	"TopicNameMatches":                    "org.apache.kafka.connect.transforms.predicates.",
	"HasHeaderKey":                        "org.apache.kafka.connect.transforms.predicates.",
	"RecordIsTombstone":                   "org.apache.kafka.connect.transforms.predicates.",
}

// fullClass is the class that one of Connect's short names stands for.
func fullClass(key, value string) string {
	short, variant, _ := strings.Cut(value, "$")
	if short == "" || strings.Contains(value, ".") {
		return value
	}
	if strings.HasSuffix(key, ".converter") && !strings.Contains(strings.TrimSuffix(key, ".converter"), ".") {
		for _, class := range converterClasses {
			name := className(class)
			if short == name || short == strings.TrimSuffix(name, "Converter") || short == strings.TrimSuffix(name, "HeaderConverter") {
				return class
			}
		}
		return value
	}
	list, name, _ := strings.Cut(key, ".")
	if strings.Count(name, ".") != 1 || !strings.HasSuffix(name, ".type") {
		return value
	}
	scope, ok := map[string]string{"transforms": options.ScopeTransform, "predicates": options.ScopePredicate}[list]
	full := cmp.Or(packages[short], "org.apache.kafka.connect.transforms.") + short
	if !ok || !known(scope, full) {
		return value
	}
	if variant != "" {
		full += "$" + variant
	}
	return full
}

// converterClasses are those that have short names.
var converterClasses = []string{
	stringConverter, jsonConverter, simpleConverter, binaryDataConverter, "org.apache.kafka.connect.converters.ByteArrayConverter",
	"org.apache.kafka.connect.converters.BooleanConverter", "org.apache.kafka.connect.converters.ShortConverter", "org.apache.kafka.connect.converters.IntegerConverter",
	"org.apache.kafka.connect.converters.LongConverter", "org.apache.kafka.connect.converters.FloatConverter", "org.apache.kafka.connect.converters.DoubleConverter",
}

// known reports whether the relay has the class.
func known(scope, class string) bool {
	short := className(class)
	where, listed := packages[short]
	if !listed {
		where = "org.apache.kafka.connect.transforms."
		listed = slices.ContainsFunc(options.All, func(o options.Option) bool { return o.Scope == scope && o.Of == short })
	}
	plain, _, _ := strings.Cut(class, "$")
	return listed && plain == where+short
}

// step carries one transform over and reports whether it did.
func (c *conversion) step(s step) bool {
	if s.class == "" {
		c.missing("transforms."+s.name+".type", Refused, "is missing, and Connect does not start the connector without it; the transform is left out")
		return false
	}
	if !known(options.ScopeTransform, s.class) {
		c.unknownStep(s)
		return false
	}
	for _, it := range c.with(s.prefix()) {
		name := strings.TrimPrefix(it.key, s.prefix())
		if s.class == eventRouter && c.routerOption(it, s, name) {
			continue
		}
		o, ok := options.Lookup(options.ScopeTransform, className(s.class), name)
		if ok && o.Fate == options.FateCarried {
			c.option(it, it.key)
			continue
		}
		scope := options.ScopeTransform
		if s.class == eventRouter {
			scope = options.ScopeEventRouter
		}
		fate, text := c.optionFate(scope, className(s.class), name, it)
		c.remark(it, fate, "%s", text)
	}
	return true
}

// unknownStep names what is left out, and every option with it.
func (c *conversion) unknownStep(s step) {
	fate, text := NotCarried, fmt.Sprintf("the relay has no %s; what it changes in records is not changed, so look at whether consumers need it", className(s.class))
	switch className(s.class) {
	case "ActivateTracingSpan":
		c.tracing(s)
		return
	case "ByLogicalTableRouter":
		text = "renames topics before or after the EventRouter; RegexRouter after the EventRouter does the same and is carried"
	case "Filter", "ContentBasedRouter":
		text = "is a script, which the relay does not run; rows that it leaves out would be sent: a row filter of the publication leaves them out too"
	}
	for _, it := range c.with(s.prefix()) {
		if it.key == s.at.key {
			c.remark(it, fate, "%s", text)
		} else {
			c.remark(it, fate, "belongs to the transform %s, which is left out", s.name)
		}
	}
}

// tracing carries ActivateTracingSpan over. The agent that it works with takes its endpoint from the
// same variable.
func (c *conversion) tracing(s step) {
	c.root.at("tracing", "endpoint").set("${OTEL_EXPORTER_OTLP_ENDPOINT:-http://localhost:4318}",
		"The transform "+s.name+" works only with OpenTelemetry's agent in the connector's process. If there was none, remove tracing.")
	for _, it := range c.with(s.prefix()) {
		switch name := strings.TrimPrefix(it.key, s.prefix()); {
		case it.key == s.at.key:
			c.remark(it, Carried, "tracing; spans have other names: `outbox TABLE` and `send TOPIC` in place of `db-log-write` and `debezium-read`, and headers stay as they are without OpenTelemetry")
		case name == "tracing.with.context.field.only" && it.value == "false":
			c.root.at("tracing", "sample").set("parent_or_ratio")
			c.root.at("tracing", "ratio").set("1")
			c.remark(it, Carried, "tracing.sample and tracing.ratio; lower the ratio where not all rows are to be traced")
		case name == "tracing.with.context.field.only":
			c.remark(it, Implied, "tracing.sample: parent, which also asks that the trace context is sampled")
		case name == "tracing.span.context.field" && it.value == "tracingspancontext":
			c.remark(it, Implied, "the relay reads this column")
		case name == "tracing.span.context.field":
			c.remark(it, NotCarried, "the relay reads the column tracingspancontext, or a header traceparent")
		case name == "tracing.operation.name":
			c.remark(it, NotCarried, "spans have names of their own")
		default:
			c.remark(it, NotCarried, "is no option of ActivateTracingSpan that the relay has")
		}
	}
}

// routerOption is what the EventRouter's own options need beside being copied.
func (c *conversion) routerOption(it item, s step, name string) bool {
	prefix := s.prefix()
	_, key := c.get(prefix + "table.field.event.key")
	_, behavior := c.get(prefix + "table.op.invalid.behavior")
	switch {
	case name == "debezium.op.invalid.behavior" && !behavior:
		c.add(option{prefix + "table.op.invalid.behavior", it.value, "debezium.op.invalid.behavior, its name before 2.0"})
		c.remark(it, Carried, "outbox[].debezium: table.op.invalid.behavior, its name since 2.0")
	case name == "table.field.event.payload.id" && c.version1() && !key:
		c.add(option{prefix + "table.field.event.key", it.value, "table.field.event.payload.id, which was the key before 2.0"})
		c.remark(it, Carried, "outbox[].debezium: table.field.event.key; before 2.0 this column was the key")
	case name == "table.field.event.payload.id" && c.version1():
		c.remark(it, NotCarried, "before 2.0 this column was the key of rows whose column %s is NULL; such rows now have a null key", shown("", c.value(prefix+"table.field.event.key")))
	case name == "table.field.event.payload.id":
		c.remark(it, NotNeeded, "Debezium ignores it since 2.0")
	case c.in.server() && name == "table.field.event.timestamp":
		c.remark(it, Implied, "Debezium Server's Kafka sink does not send the EventRouter's timestamp, so it is left out to keep records as they are; add it to outbox[].debezium to have it")
	case c.in.server() && name == "table.fields.additional.placement":
		c.serverPlacement(it)
	default:
		o, ok := options.Lookup(options.ScopeEventRouter, "", name)
		if !ok || o.Fate != options.FateCarried {
			return false
		}
		c.option(it, it.key)
	}
	return true
}

// version1 reports whether the configuration is from before 2.0.
func (c *conversion) version1() bool {
	_, old := c.get("database.server.name")
	_, newer := c.get("topic.prefix")
	return old && !newer
}

// serverPlacement leaves partitions out, as Debezium Server's sink does.
func (c *conversion) serverPlacement(it item) {
	var kept []string
	left := false
	for placement := range strings.SplitSeq(it.value, ",") {
		parts := strings.Split(placement, ":")
		if len(parts) > 1 && strings.EqualFold(strings.TrimSpace(parts[1]), "partition") {
			left = true
			continue
		}
		kept = append(kept, placement)
	}
	if len(kept) > 0 {
		c.add(option{it.key, strings.Join(kept, ","), ""})
	}
	if left {
		c.remark(it, Implied, "Debezium Server's Kafka sink does not send the EventRouter's partition, so that placement is left out to keep records as they are; the others are carried")
		return
	}
	c.remark(it, Carried, "outbox[].debezium")
}

// predicates carries those over that a transform of the list may name.
func (c *conversion) predicates() error {
	list, ok := c.take("predicates")
	if !ok {
		for _, it := range c.with("predicates.") {
			c.remark(it, NotNeeded, "there is no list `predicates`")
		}
		return nil
	}
	c.option(list, "predicates")
	for _, name := range javaregex.Split(list.value) {
		prefix := "predicates." + name + "."
		class, ok := c.get(prefix + "type")
		if !ok || !known(options.ScopePredicate, class.value) {
			at := class
			if !ok {
				at = list
			}
			return &Error{File: at.file, Line: at.line, Column: at.column, Key: at.original,
				Message: fmt.Sprintf("predicate %s is of a class that the relay does not have (%s), so it cannot tell which records it takes; it has TopicNameMatches, HasHeaderKey and RecordIsTombstone", oneLine(name), oneLine(className(class.value)))}
		}
		for _, it := range c.with(prefix) {
			o, ok := options.Lookup(options.ScopePredicate, className(class.value), strings.TrimPrefix(it.key, prefix))
			if ok && o.Fate == options.FateCarried {
				c.option(it, it.key)
			} else {
				c.remark(it, NotNeeded, "%s knows no such option", className(class.value))
			}
		}
	}
	for _, it := range c.with("predicates.") {
		if !c.done[it.key] {
			c.remark(it, NotNeeded, "no predicate of the list `predicates` has this name")
		}
	}
	return nil
}
