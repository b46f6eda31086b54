package importer

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// Packages of the converters whose values value: avro may stand in for.
const (
	confluentAvro = "io.confluent.connect.avro.AvroConverter"
	apicurioAvro  = "io.apicurio.registry.utils.converter.AvroConverter"
)

// avroDiffers is what an offer of value: avro changes.
const avroDiffers = "schemas have the names that you give them, not Connect's, and other ids; keys become the column's plain text, " +
	"so records of a key go to other partitions than before; headers are those of the mapping, without __debezium.context; " +
	"and a schema is registered before its first row, by `cdc-relay setup` with schema.register or by you, never by run"

// offerAvro offers values by the schemas of a registry in place of those of an AvroConverter, which
// infers schemas and registers them. It stays an offer: records are not what Debezium's were, so no
// configuration has it unless a person takes it.
func (c *conversion) offerAvro() {
	it, from, apicurio := c.avroValue()
	if from == nil {
		return
	}
	outbox, why := c.ownMapping()
	if why != "" {
		c.retell(it, NotCarried, "the relay registers no schemas that it infers, as %s does. There is no offer of value: avro, which encodes JSON by schemas that you register, because %s", className(cmp.Or(it.value, confluentAvro)), why)
		return
	}
	instead := "the relay registers no schemas that it infers"
	if c.in.server() {
		instead = "is not written by the relay with schemas that it infers; outbox has JSON"
	}
	differs := avroDiffers
	if !slices.ContainsFunc(c.items, expands) {
		differs = "values were payloads as text, by the schema of a string, and become what your schema makes of their members; " + differs
	}
	c.retell(it, NotCarried, instead+". The end of the file offers value: avro in its place, for payloads of JSON. What differs: %s", differs)
	c.offered = &node{children: []*node{outbox}}
	c.registryKeys(c.offered.at("kafka", "registry"), from, apicurio)
	if key, ok := c.get("key.converter"); ok && className(key.value) == className(confluentAvro) {
		c.retell(key, NotCarried, "the relay writes no keys in Avro; with the offer at the end of the file they are the column's plain text")
	}
}

// expands reports whether the EventRouter makes a schema of the payload's members. If not, the payload stays text.
func expands(it item) bool {
	return strings.HasSuffix(it.key, ".table.expand.json.payload") && strings.EqualFold(strings.TrimSpace(it.value), "true")
}

// avroValue finds the converter of values where it is one of those, and the prefixes of its options.
func (c *conversion) avroValue() (it item, prefixes []string, apicurio bool) {
	if c.in.server() {
		it, _ = c.get("debezium.format.value")
		if !strings.EqualFold(strings.TrimSpace(it.value), "avro") {
			return it, nil, false
		}
		prefixes = []string{"debezium.format.value.", "debezium.format."}
		apicurio = !slices.ContainsFunc(c.items, func(it item) bool { return strings.HasSuffix(it.key, ".schema.registry.url") })
		it.value = ""
		return it, prefixes, apicurio
	}
	it, ok := c.get("value.converter")
	if !ok {
		it, ok = c.workerItem("value.converter")
	}
	if class := strings.TrimSpace(it.value); !ok || class != confluentAvro && class != apicurioAvro {
		return it, nil, false
	}
	return it, []string{"value.converter."}, strings.HasPrefix(strings.TrimSpace(it.value), "io.apicurio.")
}

// retell replaces the remark of a key.
func (c *conversion) retell(it item, fate Fate, format string, args ...any) {
	for i := range c.remarks {
		if r := &c.remarks[i]; r.Key == it.original && r.File == it.file && r.Line == it.line {
			r.Fate, r.Text = fate, oneLine(fmt.Sprintf(format, args...))
			return
		}
	}
	c.tell(it, fate, fmt.Sprintf(format, args...))
}

// converterItem is an option of the converter, of the connector's or of the worker's.
func (c *conversion) converterItem(prefixes []string, names ...string) (item, bool) {
	for _, prefix := range prefixes {
		for _, name := range names {
			if it, ok := c.take(prefix + name); ok {
				return it, true
			}
			if it, ok := c.workerItem(prefix + name); ok {
				return it, true
			}
		}
	}
	return item{}, false
}

// account is what stands before the host of an address, as written: a password may have characters
// that no URL has.
var account = regexp.MustCompile(`^([A-Za-z][A-Za-z0-9+.-]*://)?(.*)@([^@]*)$`)

// nativePath is where Apicurio has its own API. That of Confluent lies beside it.
var nativePath = regexp.MustCompile(`/apis/registry/v\d+/?$`)

// registryKeys writes kafka.registry from the options of the converter. It copies no secret.
func (c *conversion) registryKeys(n *node, prefixes []string, apicurio bool) {
	names := []string{"schema.registry.url", "apicurio.registry.url"}
	it, ok := c.converterItem(prefixes, names...)
	address, user := n.child("url"), ""
	if !ok {
		address.set(scalar("${REGISTRY_URL}"), "To do: the address of the registry's API.")
	} else {
		value, todo := c.resolve(it.value, "REGISTRY_URL")
		var list []string
		for part := range strings.SplitSeq(value, ",") {
			part, _, _ = strings.Cut(strings.TrimSpace(part), "?") // a query may hold a key
			if m := account.FindStringSubmatch(part); m != nil {
				user, _, _ = strings.Cut(m[2], ":")
				part = m[1] + m[3]
			}
			if apicurio {
				part = nativePath.ReplaceAllString(part, "/apis/ccompat/v7")
			}
			list = append(list, part)
		}
		address.set(scalar(strings.Join(list, ",")))
		c.retell(it, NotNeeded, "%s", strings.Join(append([]string{"in the offer: kafka.registry.url" + map[bool]string{true: ", of the API that is compatible with Confluent's", false: ""}[apicurio]}, todo...), "; "))
	}
	c.registryAccount(n, prefixes, user)
	if it, ok := c.converterItem(prefixes, "value.subject.name.strategy"); ok && !strings.HasSuffix(it.value, ".TopicNameStrategy") {
		c.retell(it, ToDo, "with the offer: set outbox[].schema.subject to what %s makes, for example ${type}", oneLine(className(it.value)))
	}
	if apicurio {
		n.comments = append(n.comments, "Ids are Confluent's, of four bytes behind a zero byte"+c.framing(prefixes))
	}
}

// framing is what Apicurio's converter does instead of four bytes behind a zero byte, and what that
// means for consumers. Its ids are in headers unless they are turned off there, with as-confluent too.
// They are global ids by default, and those of Confluent's API are content ids.
func (c *conversion) framing(prefixes []string) string {
	option := func(name string) string {
		it, ok := c.converterItem(prefixes, "apicurio.registry."+name)
		if ok {
			c.retell(it, NotNeeded, "belongs to the converter, which the relay has not")
		}
		return strings.ToLower(strings.TrimSpace(it.value))
	}
	headers, confluent, handler, counts := option("headers.enabled"), option("as-confluent"), option("id-handler"), option("use-id")
	need := "consumers need apicurio.registry.as-confluent=true and apicurio.registry.use-id=contentId."
	switch {
	case headers != "false":
		return ". The connector has them in a header, also with as-confluent: " + need
	case confluent != "true" && !strings.HasSuffix(handler, "legacy4byteidhandler"):
		return ". The connector's have eight: " + need
	case counts != "contentid":
		return ", as the connector's are, but those of contents: consumers need apicurio.registry.use-id=contentId."
	}
	return ", as the connector's are: consumers read both."
}

// registryAccount writes who asks the registry.
func (c *conversion) registryAccount(n *node, prefixes []string, user string) {
	it, given := c.converterItem(prefixes, "basic.auth.user.info", "schema.registry.basic.auth.user.info")
	if given {
		name, _, literal := strings.Cut(it.value, ":")
		if user = name; !literal || len(references(it.value)) > 0 {
			user = "${REGISTRY_USERNAME}"
		}
		c.retell(it, NotNeeded, "is not copied; in the offer: kafka.registry.username, and ${REGISTRY_PASSWORD} for the password")
	}
	if it, ok := c.converterItem(prefixes, "apicurio.auth.username"); ok {
		user, _ = c.resolve(it.value, "REGISTRY_USERNAME")
		c.retell(it, NotNeeded, "in the offer: kafka.registry.username")
	}
	if it, ok := c.converterItem(prefixes, "apicurio.auth.password"); ok {
		c.retell(it, NotNeeded, "is not copied; in the offer: ${REGISTRY_PASSWORD}")
	}
	if it, ok := c.converterItem(prefixes, "bearer.auth.token"); ok {
		n.child("token_file").set(scalar("/run/secrets/registry"), "To do: a file with the bearer token.")
		c.retell(it, NotNeeded, "is not copied; in the offer: kafka.registry.token_file")
		return
	}
	if user != "" {
		n.child("username").set(scalar(user))
		n.child("password").set(scalar("${REGISTRY_PASSWORD}"), "To do: set REGISTRY_PASSWORD in the relay's environment, or name a file as password_file.")
	}
}

// ownMapping is outbox as the relay's own keys say it, with values in Avro. why says what they cannot
// say.
func (c *conversion) ownMapping() (outbox *node, why string) {
	router := ""
	list, _ := c.get("transforms")
	for _, s := range c.steps(list) {
		if s.class == eventRouter {
			router = s.prefix()
		}
	}
	outbox = &node{key: "outbox"}
	for _, t := range c.tables {
		entry := &node{}
		entry.child("table").set(scalar(t.table.String())).item = true
		entry.child("preset").set("debezium")
		for _, o := range slices.Concat(c.debezium, t.offered) {
			if why := own(entry, router, o); why != "" {
				return nil, why
			}
		}
		entry.child("value").set("avro")
		outbox.children = append(outbox.children, entry)
	}
	return outbox, ""
}

// withoutMeaning are options that change nothing where values are encoded by a schema and keys and
// headers are columns. A point at the end stands for all that begin so.
var withoutMeaning = []string{
	"topic.prefix", "database.dbname", "topic.heartbeat.prefix", "schema.name.adjustment.mode", "extended.headers.enabled",
	"key.converter", "key.converter.", "value.converter", "value.converter.", "header.converter", "header.converter.",
}

// routerRoles are the roles of the columns that the EventRouter's options name.
var routerRoles = map[string]string{
	"table.field.event.id": "id", "table.field.event.key": "key", "table.field.event.payload": "payload", "table.field.event.timestamp": "timestamp", "route.by.field": "route",
}

// own adds to an entry what an option below debezium says. why is not empty where it says what the
// keys of the entry cannot.
func own(entry *node, router string, o option) (why string) {
	name, ofRouter := strings.CutPrefix(o.key, router)
	if !ofRouter {
		known := slices.ContainsFunc(withoutMeaning, func(k string) bool { return o.key == k || strings.HasSuffix(k, ".") && strings.HasPrefix(o.key, k) })
		if known || o.key == "transforms" && "transforms."+o.value+"." == router {
			return ""
		}
		return oneLine(fmt.Sprintf("it has no counterpart of %s: %s", shownKey(o.key), shown(o.key, o.value)))
	}
	if strings.HasPrefix(o.comment, "To do") {
		return fmt.Sprintf("%s is a reference", oneLine(o.key))
	}
	switch name {
	case "type", "table.field.event.schema.version", "table.field.additional.missing", "table.op.invalid.behavior", "table.expand.json.payload",
		"table.json.payload.null.behavior", "table.json.payload.empty.array.behavior":
	case "route.topic.replacement":
		entry.child("topic").set(scalar(o.value))
	case "route.topic.regex":
		entry.child("topic_regex").set(scalar(o.value))
	case "route.tombstone.on.empty.payload":
		if strings.EqualFold(strings.TrimSpace(o.value), "true") {
			entry.child("tombstone_on_empty").set("true")
		}
	case "table.fields.additional.placement":
		return placed(entry, o.value)
	default:
		role := routerRoles[name]
		if role == "" {
			return fmt.Sprintf("it has no counterpart of the EventRouter's %s", oneLine(name))
		}
		if o.value != "" {
			entry.at("columns", role).set(scalar(o.value))
		}
	}
	return ""
}

// placed adds columns that the EventRouter places beside the payload.
func placed(entry *node, placements string) (why string) {
	for placement := range strings.SplitSeq(placements, ",") {
		parts := strings.Split(strings.TrimSpace(placement), ":")
		if len(parts) < 2 {
			return fmt.Sprintf("the placement %s has no place", shown("", placement))
		}
		column := strings.TrimSpace(parts[0])
		alias := column
		if len(parts) > 2 {
			alias = strings.TrimSpace(parts[2])
		}
		switch strings.ToLower(strings.TrimSpace(parts[1])) {
		case "header":
			entry.at("headers", alias).set(scalar(column))
		case "partition":
			entry.child("partition").set(scalar(column))
		default:
			return fmt.Sprintf("column %s is a part of the value (%s), and the payload alone would be encoded", shown("", column), shown("", placement))
		}
	}
	return ""
}

// writeOffer writes the offer as a comment.
func (c *conversion) writeOffer(b *strings.Builder) {
	if c.offered == nil {
		return
	}
	b.WriteString("\n")
	writeComment(b, "", "Offered in place of outbox above, where the payload is JSON: values in Avro by schemas that you register. To take it, remove outbox above and the marks #| of these lines, and put registry below kafka. What it changes is at value.converter, below. It sends no logical messages (pg_logical_emit_message).")
	var yaml strings.Builder
	for _, n := range c.offered.children {
		n.write(&yaml, "")
	}
	b.WriteString("#\n")
	for line := range strings.Lines(yaml.String()) {
		b.WriteString("#| " + line)
	}
}
