package main

import (
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/cdc-relay/cdc-relay/test/parity/golden"
)

// made is a table, a configuration and rows.
type made struct {
	seed    uint64
	schema  []string
	config  map[string]string
	dml     []string
	topics  map[string]int
	inserts int
}

type column struct {
	name     string
	kind     kind
	notNull  bool
	fallback string // DEFAULT
}

// maker makes one case.
type maker struct {
	*rand.Rand
	*made
	columns []column // in the table's order
	id, route, key, payload,
	stamp, version, partition string // names; the last three may be empty
	extras     []column
	partitions int
	number     int // of the next row
	expanded   bool
}

const router = "transforms.outbox."

func generate(seed uint64, rows int) *made {
	m := &maker{Rand: rand.New(rand.NewPCG(seed, 0x6f7574626f78)), made: &made{seed: seed, config: map[string]string{}, topics: map[string]int{}}}
	m.partitions = 1 + m.IntN(5)
	m.connection()
	m.names()
	m.table()
	m.router()
	m.placements()
	m.chain()
	m.converters()
	m.modes()
	m.rows(rows)
	return m.made
}

func (m *maker) one(of ...string) string { return of[m.IntN(len(of))] }

// chance is true once in n times.
func (m *maker) chance(n int) bool { return m.IntN(n) == 0 }

func (m *maker) connection() {
	maps.Copy(m.config, map[string]string{
		"connector.class": "io.debezium.connector.postgresql.PostgresConnector", "plugin.name": "pgoutput",
		"database.hostname": "postgres", "database.port": "5432", "database.user": "debezium", "database.password": "dbz", "database.dbname": "app",
		"topic.prefix": m.one("app", "app", "my.app-1", "dbserver1"), "slot.name": "outbox_slot", "publication.name": "outbox_pub",
		"publication.autocreate.mode": "filtered", "table.include.list": "public.outbox", "snapshot.mode": "no_data",
		"transforms": "outbox", "transforms.outbox.type": "io.debezium.transforms.outbox.EventRouter",
	})
	if m.chance(4) {
		m.config["extended.headers.enabled"] = "false"
	}
}

// names chooses the router's columns: the usual ones, or others that are then
// configured.
func (m *maker) names() {
	m.id, m.route, m.key, m.payload = "id", "aggregatetype", "aggregateid", "payload"
	rename := func(name *string, option, to string) {
		if m.chance(4) {
			*name = to
			m.config[router+option] = to
		}
	}
	rename(&m.id, "table.field.event.id", "event_id")
	rename(&m.route, "route.by.field", "aggregate")
	rename(&m.key, "table.field.event.key", m.one("aggregate_id", "Key"))
	rename(&m.payload, "table.field.event.payload", m.one("body", "data"))
}

func (m *maker) table() {
	pick := func(of ...kind) kind { return of[m.IntN(len(of))] }
	m.columns = append(m.columns,
		column{name: m.id, kind: pick(uuidKind, uuidKind, int8Kind, textKind), notNull: true},
		column{name: m.route, kind: pick(textKind, varcharKind, textKind, moodKind, domainKind), notNull: true},
		column{name: m.key, kind: pick(textKind, varcharKind, uuidKind, int4Kind, int8Kind, moodKind, charKind, boolKind, dateKind, num102Kind, textKind)},
		column{name: m.payload, kind: pick(jsonbKind, jsonbKind, jsonKind, textKind, byteaKind, pick(kinds...))})
	for i := range m.IntN(8) {
		c := column{name: fmt.Sprintf("%s%d", m.one("c", "Col ", "x_"), i), kind: pick(kinds...)}
		m.columns = append(m.columns, c)
	}
	for i := range m.columns {
		c := &m.columns[i]
		if i > 1 && m.chance(3) {
			c.notNull = true
		}
		if i > 1 && len(c.kind.defaults) > 0 && m.chance(3) {
			c.fallback = m.one(c.kind.defaults...)
		}
	}
	m.extras = slices.Clone(m.columns[4:])
	m.special(&m.stamp, 4, column{name: "created", kind: kind{name: m.one("timestamp", "timestamp(3)", "timestamp(0)"), value: timestampValue}})
	m.special(&m.version, 6, column{name: "version", kind: kind{name: "integer", value: literals("1", "2", "3")}})
	last := fmt.Sprint(m.partitions - 1)
	m.special(&m.partition, 6, column{name: "part", kind: kind{name: "integer", value: literals("0", last)}})
	m.create()
}

// special adds a column once in n times.
func (m *maker) special(name *string, n int, c column) {
	if m.chance(n) {
		*name = c.name
		m.columns = append(m.columns, c)
	}
}

func (m *maker) create() {
	var definitions []string
	for _, c := range m.columns {
		if c.kind.before != "" && !slices.Contains(m.schema, c.kind.before) {
			m.schema = append(m.schema, c.kind.before)
		}
		text := ident(c.name) + " " + c.kind.name
		if c.name == m.id {
			text += " primary key"
		} else if c.notNull {
			text += " not null"
		}
		if c.fallback != "" {
			text += " default " + c.fallback
		}
		definitions = append(definitions, text)
	}
	m.schema = append(m.schema, "create table public.outbox (\n  "+strings.Join(definitions, ",\n  ")+"\n);")
	if m.chance(5) {
		m.schema = append(m.schema, "alter table public.outbox replica identity full;")
	}
}

func ident(name string) string { return `"` + name + `"` }

func (m *maker) router() {
	set := func(option, value string) { m.config[router+option] = value }
	switch m.IntN(5) {
	case 0:
		set("route.topic.replacement", "${routedByValue}-events")
	case 1:
		set("route.topic.replacement", "all")
	case 2:
		set("route.topic.regex", "(?<first>.)(.*)")
		set("route.topic.replacement", "t.$2.${first}")
	case 3:
		if m.chance(2) {
			set("route.topic.regex", m.one(`(\w+)[.-]?(.*)`, `(?i)(order|sad)(\w*)`, `([a-z]+?)(\W?[^.]*)`, `(?<a>[^.-]*)\b(.*)`, `(.{1,3})(.*)`, `(\p{Alpha}*+)(.*)`))
			set("route.topic.replacement", m.one("r.$1.$2", "$2x$1", `$1\-$11`, "a$2"))
		}
	}
	if m.stamp != "" {
		set("table.field.event.timestamp", m.stamp)
	}
	if m.version != "" {
		set("table.field.event.schema.version", m.version)
	}
	if m.chance(4) {
		set("route.tombstone.on.empty.payload", "true")
	}
	if m.chance(3) {
		m.expanded = true
		set("table.expand.json.payload", "true")
		if m.chance(3) {
			set("table.json.payload.null.behavior", "optional_bytes")
		}
	}
	if m.chance(4) {
		set("table.op.invalid.behavior", m.one("warn", "error", "fatal"))
	}
}

func (m *maker) placements() {
	var items []string
	for _, c := range m.extras {
		switch m.IntN(4) {
		case 0, 1:
			items = append(items, c.name+":header"+m.alias(c.name))
		case 2:
			items = append(items, c.name+":envelope"+m.alias(c.name))
		}
	}
	if m.partition != "" {
		items = append(items, m.partition+":partition")
	}
	if m.chance(6) {
		items = append(items, m.route+":header:"+m.one("type", "id", "aggregate type"))
	}
	if len(items) > 0 {
		m.config[router+"table.fields.additional.placement"] = strings.Join(items, ",")
		// Some types have no form in Connect; their columns are missing.
		m.config[router+"table.field.additional.missing"] = m.one("ignore", "ignore", "ignore", "error")
	}
}

// chain adds at most one transform behind the router.
func (m *maker) chain() {
	step := func(class string, options ...string) {
		m.config["transforms"] = "outbox,step"
		m.config["transforms.step.type"] = "org.apache.kafka.connect.transforms." + class
		for i := 0; i < len(options); i += 2 {
			m.config["transforms.step."+options[i]] = options[i+1]
		}
	}
	switch m.IntN(24) {
	case 0, 1:
		step("InsertHeader", "header", m.one("x", "id"), "value.literal", m.one("text", "7", "300", "-40000", "3000000000", "1.5", "1e10", "true", "null", "", `"q"`))
	case 2:
		step("DropHeaders", "headers", m.one("id", "__debezium.context.runId", "id,nope"))
	case 3:
		step("RegexRouter", "regex", m.one(`(.*)\.(.*)`, "(.*)"), "replacement", m.one("$1-renamed", "one"))
	case 4:
		step("TimestampRouter", "topic.format", "${topic}.${timestamp}", "timestamp.format", m.one("yyyy", "yyyyMM"))
	case 5:
		m.config["predicates"] = "has"
		m.config["predicates.has.type"] = "org.apache.kafka.connect.transforms.predicates.HasHeaderKey"
		m.config["predicates.has.name"] = m.one("id", "x", "id_alias")
		step("Filter", "predicate", "has", "negate", m.one("true", "false"))
	}
}

func (m *maker) alias(name string) string {
	if m.chance(3) {
		return ":" + strings.ReplaceAll(name, " ", "-") + "_alias"
	}
	return ""
}

const (
	stringConverter = "org.apache.kafka.connect.storage.StringConverter"
	jsonConverter   = "org.apache.kafka.connect.json.JsonConverter"
)

func (m *maker) converters() {
	for _, which := range []string{"key", "value"} {
		m.config[which+".converter"] = m.one(stringConverter, jsonConverter, jsonConverter)
		if m.config[which+".converter"] == jsonConverter {
			m.json(which + ".converter.")
		}
	}
	if m.kindOf(m.payload).name == "bytea" && !m.expanded && m.chance(2) {
		m.config["value.converter"] = m.one("org.apache.kafka.connect.converters.ByteArrayConverter", "io.debezium.converters.BinaryDataConverter")
		m.config["value.converter.delegate.converter.type"] = jsonConverter
		delete(m.config, "value.converter.schemas.enable")
		delete(m.config, "value.converter.decimal.format")
	}
	switch m.IntN(4) {
	case 0:
		m.config["header.converter"] = stringConverter
	case 1:
		m.config["header.converter"] = jsonConverter
		m.json("header.converter.")
	}
}

func (m *maker) json(prefix string) {
	if !m.chance(3) {
		m.config[prefix+"schemas.enable"] = "false"
	}
	if m.chance(5) {
		m.config[prefix+"decimal.format"] = "NUMERIC"
	}
	if m.chance(6) {
		m.config[prefix+"replace.null.with.default"] = "false"
	}
}

func (m *maker) kindOf(name string) kind {
	for _, c := range m.columns {
		if c.name == name {
			return c.kind
		}
	}
	return kind{}
}

func (m *maker) modes() {
	mode := func(n int, option string, values ...string) {
		if m.chance(n) {
			m.config[option] = m.one(values...)
		}
	}
	times := []string{"adaptive", "adaptive_time_microseconds", "nanoseconds", "microseconds"}
	if m.stamp == "" {
		times = append(times, "connect", "isostring")
	}
	mode(3, "time.precision.mode", times...)
	mode(3, "decimal.handling.mode", "precise", "double", "string")
	mode(5, "binary.handling.mode", "bytes", "base64", "base64-url-safe", "hex")
	mode(5, "interval.handling.mode", "numeric", "string")
	mode(5, "hstore.handling.mode", "json", "map")
	mode(8, "money.fraction.digits", "0", "1", "3")
	mode(8, "include.unknown.datatypes", "true")
	mode(10, "schema.name.adjustment.mode", "avro")
}

// routed are the values of the route column: few, and good topic names.
var routed = map[string][]string{"public.mood": {"sad", "ok"}, "": {"Order", "user.created", "c-7"}}

func (m *maker) routedValues() []string {
	if values := routed[m.kindOf(m.route).name]; values != nil {
		return values
	}
	return routed[""]
}

func (m *maker) rows(n int) {
	for _, value := range m.routedValues() {
		m.topics[m.topic(value)] = m.partitions
	}
	for m.inserts < n {
		switch m.IntN(8) {
		case 0:
			m.dml = append(m.dml, "begin;")
			for range 1 + m.IntN(4) {
				m.insert()
			}
			m.dml = append(m.dml, m.one("commit;", "commit;", "commit;", "rollback;"))
			if m.dml[len(m.dml)-1] == "rollback;" {
				m.inserts -= len(m.dml) - 1 - lastIndex(m.dml, "begin;") - 1
			}
		case 1:
			if m.inserts > 0 && m.chance(2) {
				m.change()
			}
		default:
			m.insert()
		}
	}
}

func lastIndex(all []string, what string) int {
	for i := len(all) - 1; i >= 0; i-- {
		if all[i] == what {
			return i
		}
	}
	return -1
}

// topic is where a routed value goes.
func (m *maker) topic(value string) string {
	switch m.config[router+"route.topic.replacement"] {
	case "${routedByValue}-events":
		return value + "-events"
	case "all":
		return "all"
	case "t.$2.${first}":
		return "t." + value[1:] + "." + value[:1]
	}
	return "outbox.event." + value
}

func (m *maker) insert() {
	m.number++
	var names, values []string
	for _, c := range m.columns {
		value := c.kind.value(m.Rand)
		switch {
		case c.name == m.id:
			value = m.idOf(m.number)
		case c.name == m.route:
			value = quote(m.one(m.routedValues()...))
		case !c.notNull && m.chance(5):
			value = "NULL"
		case fixed(c.fallback) && m.chance(5):
			continue // the server fills it in
		}
		names, values = append(names, ident(c.name)), append(values, value)
	}
	m.dml = append(m.dml, statement(fmt.Sprintf("insert into public.outbox (%s) values (%s)", strings.Join(names, ", "), strings.Join(values, ", "))))
	m.inserts++
}

// fixed says that a default gives both runs the same.
func fixed(fallback string) bool {
	return fallback != "" && !strings.Contains(fallback, "()") && !strings.Contains(fallback, "current_")
}

// statement ends at the semicolon and has none at the end of a line before that.
func statement(sql string) string { return strings.ReplaceAll(sql, ";\n", "; \n") + ";" }

func (m *maker) idOf(n int) string {
	switch m.kindOf(m.id).name {
	case "uuid":
		return fmt.Sprintf("'00000000-0000-4000-8000-%012d'", n)
	case "bigint":
		return fmt.Sprint(n)
	}
	return fmt.Sprintf("'id-%d'", n)
}

// change updates, moves or deletes a row that was there once.
func (m *maker) change() {
	where := fmt.Sprintf(" where %s = %s;", ident(m.id), m.idOf(1+m.IntN(m.number)))
	switch m.IntN(4) {
	case 0:
		m.number++
		m.dml = append(m.dml, fmt.Sprintf("update public.outbox set %s = %s%s", ident(m.id), m.idOf(m.number), where))
	case 1:
		m.dml = append(m.dml, fmt.Sprintf("update public.outbox set %s = %s%s", ident(m.route), ident(m.route), where))
	default:
		m.dml = append(m.dml, "delete from public.outbox"+where)
	}
}

// write makes a golden case of it.
func (m *made) write(path string) (*golden.Case, error) {
	name := strings.TrimSuffix(filepath.Base(path), golden.Ext)
	connector, err := json.MarshalIndent(map[string]any{"name": name, "config": m.config}, "", "  ")
	if err != nil {
		return nil, err
	}
	about, err := json.MarshalIndent(map[string]any{"subject": fmt.Sprintf("Made from seed %d.", m.seed), "topics": m.topics}, "", " ")
	if err != nil {
		return nil, err
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return nil, err
	}
	files := golden.Files{
		golden.About: append(about, '\n'), golden.Connector: append(connector, '\n'),
		golden.Schema: []byte(strings.Join(m.schema, "\n") + "\n"), golden.Script: []byte(strings.Join(m.dml, "\n") + "\n"),
	}
	if err := files.Write(path); err != nil {
		return nil, err
	}
	return golden.Load(path)
}
