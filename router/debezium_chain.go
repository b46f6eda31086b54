package router

import (
	"cmp"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/cdc-relay/cdc-relay/router/connect"
)

// step is one transform of the chain with its predicate.
type step struct {
	transform transform
	predicate predicate // nil: always
	negate    bool
}

// transform changes a record; keep is false when it drops it.
type transform interface {
	apply(d *debezium, r *dbzRecord) (keep bool, err error)
}

// predicate decides whether a transform sees a record.
type predicate interface{ test(r *dbzRecord) bool }

// pass sends a record through the chain and appends what comes out.
func (d *debezium) pass(r *dbzRecord) (keep bool, err error) {
	for i := range d.chain {
		s := &d.chain[i]
		if s.predicate != nil && s.predicate.test(r) == s.negate {
			continue
		}
		if keep, err := s.transform.apply(d, r); err != nil || !keep {
			return false, err
		}
	}
	return true, nil
}

// ownerOptions are the options of one transform or predicate.
type ownerOptions struct {
	c      *debeziumConfig
	prefix string // transforms.outbox.
	class  string
	names  map[string]string // without prefix
}

func (o *ownerOptions) fail(name, format string, args ...any) {
	o.c.fail(o.prefix+name, format, args...)
}

func (o *ownerOptions) text(name, otherwise string) string {
	if v, given := o.names[name]; given {
		return v
	}
	return otherwise
}

func (o *ownerOptions) word(name, otherwise string) string {
	return strings.ToLower(strings.TrimSpace(cmp.Or(o.names[name], otherwise)))
}

func (o *ownerOptions) bool(name string, otherwise bool) bool {
	if v, ok := parseBool(o.names[name]); ok {
		return v
	}
	return otherwise
}

func (o *ownerOptions) required(name string) string {
	v := o.names[name]
	if v == "" {
		o.c.fail(o.prefix+name, "%s%s is missing: %s needs it", o.prefix, name, shortClass(o.class))
	}
	return v
}

// chain reads transforms and predicates.
func (c *debeziumConfig) chain() []step {
	predicates := map[string]predicate{}
	for _, name := range splitList(c.options["predicates"]) {
		if o := c.owner(ScopePredicate, "predicates."+name+"."); o != nil {
			predicates[name] = o.predicate()
		}
	}
	var steps []step
	names := splitList(c.options["transforms"])
	for _, name := range names {
		o := c.owner(ScopeTransform, "transforms."+name+".")
		if o == nil {
			continue
		}
		t := o.transform()
		if t == nil {
			continue
		}
		s := step{transform: t, negate: o.bool("negate", false)}
		if by, given := o.names["predicate"]; given {
			p, known := predicates[by]
			if !known {
				o.fail("predicate", "there is no predicate %q; predicates lists %s", by, cmp.Or(c.options["predicates"], "none"))
				continue
			}
			s.predicate = p
		}
		steps = append(steps, s)
	}
	for _, name := range slices.Sorted(maps.Keys(c.options)) {
		for list, prefix := range map[string]string{"transforms": "transforms.", "predicates": "predicates."} {
			rest, ok := strings.CutPrefix(name, prefix)
			if !ok {
				continue
			}
			if owner, _, _ := strings.Cut(rest, "."); !slices.Contains(splitList(c.options[list]), owner) {
				c.fail(name, "%s does not list %q", list, owner)
			}
		}
	}
	return steps
}

// owner collects and checks the options behind prefix; nil: its class is missing.
func (c *debeziumConfig) owner(scope, prefix string) *ownerOptions {
	o := &ownerOptions{c: c, prefix: prefix, class: c.options[prefix+"type"], names: map[string]string{}}
	if o.class == "" {
		c.fail(strings.TrimSuffix(prefix, "."), "%stype is missing", prefix)
		return nil
	}
	for _, name := range slices.Sorted(maps.Keys(c.options)) {
		rest, ok := strings.CutPrefix(name, prefix)
		if !ok {
			continue
		}
		o.names[rest] = c.options[name]
		row, known := FindDebeziumOption(scope, shortClass(o.class), rest)
		if !known && o.class == classEventRouter {
			row, known = FindDebeziumOption(ScopeEventRouter, "", rest)
		}
		switch {
		case !known && slices.Contains(knownClasses, strings.SplitN(o.class, "$", 2)[0]):
			c.fail(name, "%s has no option %q; Debezium ignores it, so leave it out", shortClass(o.class), rest)
		case !known:
		case !row.accepted():
			c.fail(name, "is not carried%s", note(row.Note))
		default:
			c.checkValue(name, &row)
		}
	}
	return o
}

var knownClasses = []string{
	classEventRouter, classUnwrap, classDecode,
	packageTransforms + "RegexRouter", packageTransforms + "TimestampRouter", packageTransforms + "InsertHeader", packageTransforms + "DropHeaders",
	packageTransforms + "HeaderFrom", packageTransforms + "InsertField", packageTransforms + "HoistField", packageTransforms + "ExtractField",
	packageTransforms + "ReplaceField", packageTransforms + "ValueToKey", packageTransforms + "SetSchemaMetadata", packageTransforms + "Filter",
	packagePredicates + "TopicNameMatches", packagePredicates + "HasHeaderKey", packagePredicates + "RecordIsTombstone",
}

func (o *ownerOptions) predicate() predicate {
	switch o.class {
	case packagePredicates + "TopicNameMatches":
		regex, err := compileJava(o.required("pattern"), false)
		if err != nil {
			o.fail("pattern", "%w", err)
			return nil
		}
		return topicMatches{regex}
	case packagePredicates + "HasHeaderKey":
		return hasHeader(o.required("name"))
	case packagePredicates + "RecordIsTombstone":
		return isTombstone{}
	}
	o.fail("type", "predicate %q is not carried; there are TopicNameMatches, HasHeaderKey and RecordIsTombstone of %s", o.class, strings.TrimSuffix(packagePredicates, "."))
	return nil
}

type topicMatches struct{ regex *javaRegex }

func (p topicMatches) test(r *dbzRecord) bool { return p.regex.whole.MatchString(r.topic) }

type hasHeader string

func (p hasHeader) test(r *dbzRecord) bool {
	return slices.ContainsFunc(r.headers, func(h dbzHeader) bool { return h.key == string(p) })
}

type isTombstone struct{}

func (isTombstone) test(r *dbzRecord) bool { return r.isNull() }

func (o *ownerOptions) transform() transform {
	class, part, _ := strings.Cut(o.class, "$")
	side, sided := map[string]bool{"Key": false, "Value": true}[part]
	switch name := strings.TrimPrefix(class, packageTransforms); {
	case class == classEventRouter:
		return newEventRouter(o)
	case class == classUnwrap:
		return newUnwrap(o)
	case class == classDecode:
		return newDecode(o)
	case name == "RegexRouter":
		return newRegexRouter(o)
	case name == "TimestampRouter":
		return newTimestampRouter(o)
	case name == "InsertHeader":
		return newInsertHeader(o)
	case name == "DropHeaders":
		names := splitList(o.required("headers"))
		return dropHeaders(names)
	case name == "Filter":
		if o.names["predicate"] == "" {
			o.fail("predicate", "Filter without a predicate drops every record")
		}
		return dropAll{}
	case !sided:
	case name == "HeaderFrom":
		return newHeaderFrom(o, side)
	case name == "InsertField":
		return newInsertField(o, side)
	case name == "HoistField":
		return &hoistField{side: fieldOf(side), name: o.required("field")}
	case name == "ExtractField":
		return &extractField{side: fieldOf(side), name: o.required("field"), raw: !o.bool("replace.null.with.default", true)}
	case name == "ReplaceField":
		return newReplaceField(o, side)
	case name == "SetSchemaMetadata":
		return newSetSchema(o, side)
	}
	if class == packageTransforms+"ValueToKey" {
		return &valueToKey{fields: splitList(o.required("fields"))}
	}
	o.fail("type", "transform %q is not carried: what it makes of a record is not known here", o.class)
	return nil
}

// fieldOf chooses key or value.
type fieldOf bool

func (f fieldOf) of(r *dbzRecord) *dbzField {
	if f {
		return &r.value
	}
	return &r.key
}

// revealed is the field, with the value made if it was not yet.
func (f fieldOf) revealed(d *debezium, r *dbzRecord) (*dbzField, error) {
	if f {
		if err := r.reveal(d); err != nil {
			return nil, err
		}
	}
	return f.of(r), nil
}

type regexRouter struct {
	regex *javaRegex
	with  *javaReplacement
}

func newRegexRouter(o *ownerOptions) transform {
	regex, err := compileJava(o.required("regex"), false)
	if err != nil {
		o.fail("regex", "%w", err)
		return nil
	}
	if _, given := o.names["replacement"]; !given {
		o.fail("replacement", "%sreplacement is missing: RegexRouter needs it", o.prefix)
		return nil
	}
	with, err := parseReplacement(o.names["replacement"], regex.find)
	if err != nil {
		o.fail("replacement", "%w", err)
		return nil
	}
	return &regexRouter{regex: regex, with: with}
}

func (t *regexRouter) apply(_ *debezium, r *dbzRecord) (bool, error) {
	r.topic = t.regex.replaceFirst(r.topic, t.with)
	return true, nil
}

type dropAll struct{}

func (dropAll) apply(*debezium, *dbzRecord) (bool, error) { return false, nil }

type dropHeaders []string

func (t dropHeaders) apply(_ *debezium, r *dbzRecord) (bool, error) {
	r.headers = slices.DeleteFunc(r.headers, func(h dbzHeader) bool { return slices.Contains(t, h.key) })
	return true, nil
}

type insertHeader dbzHeader

// newInsertHeader reads the literal as Connect does, which makes numbers and
// booleans of what looks like them. Literals that it would take for a date, a list
// or a map are refused.
func newInsertHeader(o *ownerOptions) transform {
	h := insertHeader{key: o.required("header")}
	literal, given := o.names["value.literal"]
	if !given {
		o.fail("value.literal", "%svalue.literal is missing: InsertHeader needs it", o.prefix)
		return nil
	}
	var ok bool
	if h.schema, h.value, ok = parseLiteral(literal); !ok {
		o.fail("value.literal", "Connect makes a list, a map, a date or an unquoted text of this literal, which is not carried")
		return nil
	}
	return &h
}

func (t *insertHeader) apply(_ *debezium, r *dbzRecord) (bool, error) {
	r.addHeader(dbzHeader(*t))
	return true, nil
}

// parseLiteral is Connect's Values.parseString for scalars.
func parseLiteral(text string) (*connect.Schema, connect.Value, bool) {
	schema := func(t connect.Type) *connect.Schema { return &connect.Schema{Type: t, Optional: false} }
	trimmed := strings.TrimSpace(text)
	switch {
	case text == "":
		return schema(connect.String), connect.StringValue(""), true
	case trimmed == "null":
		return nil, connect.Null, true
	case trimmed == "true" || trimmed == "false":
		return schema(connect.Boolean), connect.BooleanValue(trimmed == "true"), true
	case strings.ContainsAny(text[:1], `[{"`) || isoDate(trimmed):
		return nil, connect.Null, false
	}
	if n, err := strconv.ParseInt(trimmed, 10, 64); err == nil && text == trimmed {
		switch {
		case n >= math.MinInt8 && n <= math.MaxInt8:
			return schema(connect.Int8), connect.Int8Value(int8(n)), true
		case n >= math.MinInt16 && n <= math.MaxInt16:
			return schema(connect.Int16), connect.Int16Value(int16(n)), true
		case n >= math.MinInt32 && n <= math.MaxInt32:
			return schema(connect.Int32), connect.Int32Value(int32(n)), true
		}
		return schema(connect.Int64), connect.Int64Value(n), true
	}
	if _, err := strconv.ParseFloat(trimmed, 64); err == nil {
		return nil, connect.Null, false // float, double or decimal by rules of its own
	}
	return schema(connect.String), connect.StringValue(text), true
}

// isoDate tells what Connect may take for a date or a time.
func isoDate(text string) bool {
	return len(text) >= 8 && isDigit(text[0]) && (strings.Count(text, "-") == 2 || strings.Count(text, ":") >= 2)
}

type headerFrom struct {
	side           fieldOf
	fields, header []string
	move, raw      bool
}

func newHeaderFrom(o *ownerOptions, side bool) transform {
	t := &headerFrom{side: fieldOf(side), fields: splitList(o.required("fields")), header: splitList(o.required("headers")), raw: !o.bool("replace.null.with.default", true)}
	if len(t.fields) != len(t.header) {
		o.fail("headers", "fields names %d and headers %d; they go in pairs", len(t.fields), len(t.header))
	}
	switch o.word("operation", "") {
	case "move":
		t.move = true
	case "copy":
	default:
		o.required("operation")
	}
	return t
}

func (t *headerFrom) apply(d *debezium, r *dbzRecord) (bool, error) {
	f, err := t.side.revealed(d, r)
	if err != nil || f.value.IsNull() {
		return true, err
	}
	for i, name := range t.fields {
		v, err := f.field(name)
		if err != nil {
			return false, err
		}
		if t.raw {
			v.value = f.value.Items()[f.value.StructSchema().Index(name)]
		}
		r.addHeader(dbzHeader{key: t.header[i], schema: v.schema, value: v.value})
	}
	if t.move {
		return true, f.rebuild(func(name string) (string, bool) { return name, !slices.Contains(t.fields, name) })
	}
	return true, nil
}

// rebuild makes a struct of the members that keep lets through, under the names
// that it gives them.
func (f *dbzField) rebuild(keep func(name string) (string, bool)) error {
	old := f.value.StructSchema()
	s := old.Clone()
	s.Fields = nil
	var values []connect.Value
	for i, member := range old.Fields {
		if name, ok := keep(member.Name); ok {
			s.Fields = append(s.Fields, connect.Field{Name: name, Schema: member.Schema})
			values = append(values, f.value.Items()[i])
		}
	}
	var err error
	*f, err = structOf(s, values...)
	return err
}

// insert adds or replaces a member.
func (f *dbzField) insert(name string, schema *connect.Schema, v connect.Value) error {
	if f.value.Kind() != connect.KindStruct {
		return reject(ReasonMapping, "", "only Struct objects are supported for field insertion, found: %s", f.value.Kind())
	}
	old := f.value.StructSchema()
	if old.Index(name) >= 0 {
		return reject(ReasonMapping, "", "cannot create field because of field name duplication %s", name)
	}
	s := old.Clone()
	s.Fields = append(s.Fields, connect.Field{Name: name, Schema: schema})
	var err error
	*f, err = structOf(s, append(slices.Clone(f.value.Items()), v)...)
	return err
}

type insertField struct {
	side                   fieldOf
	topic, partition, time string
	static, value          string
	optional               map[string]bool
}

// newInsertField takes the names as Connect writes them: `!` behind a name makes
// the member required, `?` optional, which is the default.
func newInsertField(o *ownerOptions, side bool) transform {
	t := &insertField{side: fieldOf(side), optional: map[string]bool{}, value: o.names["static.value"]}
	for option, into := range map[string]*string{"topic.field": &t.topic, "partition.field": &t.partition, "timestamp.field": &t.time, "static.field": &t.static} {
		spec := o.names[option]
		name := strings.TrimRight(spec, "!?")
		*into = name
		t.optional[name] = !strings.HasSuffix(spec, "!")
	}
	if t.topic+t.partition+t.time+t.static == "" {
		o.fail("type", "InsertField has nothing to insert; set static.field, topic.field, partition.field or timestamp.field")
	}
	if _, given := o.names["static.value"]; (t.static != "") != given {
		o.fail("static.value", "static.field and static.value go together")
	}
	return t
}

func (t *insertField) apply(d *debezium, r *dbzRecord) (bool, error) {
	f, err := t.side.revealed(d, r)
	if err != nil || f.value.IsNull() {
		return true, err
	}
	add := func(name string, schema *connect.Schema, v connect.Value) {
		if err == nil && name != "" {
			schema.Optional = t.optional[name]
			err = f.insert(name, schema, v)
		}
	}
	add(t.topic, &connect.Schema{Type: connect.String}, connect.StringValue(r.topic))
	partition, at := connect.Null, connect.Null
	if r.hasPartition {
		partition = connect.Int32Value(r.partition)
	}
	if ms, ok := r.at(); ok {
		at = connect.DateValue(ms)
	}
	add(t.partition, &connect.Schema{Type: connect.Int32}, partition)
	add(t.time, &connect.Schema{Type: connect.Int64, Name: connect.TimestampName, Version: connect.VersionOf(1)}, at)
	add(t.static, &connect.Schema{Type: connect.String}, connect.StringValue(t.value))
	return true, err
}

type hoistField struct {
	side fieldOf
	name string
}

func (t *hoistField) apply(d *debezium, r *dbzRecord) (bool, error) {
	f, err := t.side.revealed(d, r)
	if err != nil {
		return false, err
	}
	if f.schema == nil {
		return false, reject(ReasonEncode, "", "HoistField finds a value without a schema")
	}
	s, err := connect.NewStructSchema("", []connect.Field{{Name: t.name, Schema: f.schema}})
	if err != nil {
		return false, reject(ReasonEncode, "", "%v", err)
	}
	*f, err = structOf(s, f.value)
	return true, err
}

type extractField struct {
	side fieldOf
	name string
	raw  bool
}

func (t *extractField) apply(d *debezium, r *dbzRecord) (bool, error) {
	f, err := t.side.revealed(d, r)
	if err != nil || f.value.IsNull() {
		return true, err
	}
	v, err := f.field(t.name)
	if err != nil {
		return false, err
	}
	if t.raw {
		v.value = f.value.Items()[f.value.StructSchema().Index(t.name)]
	}
	*f = v
	return true, nil
}

type replaceField struct {
	side             fieldOf
	include, exclude []string
	renames          map[string]string
}

func newReplaceField(o *ownerOptions, side bool) transform {
	t := &replaceField{side: fieldOf(side), include: splitList(o.names["include"]), exclude: splitList(o.names["exclude"]), renames: map[string]string{}}
	for _, pair := range splitList(o.names["renames"]) {
		from, to, found := strings.Cut(pair, ":")
		if !found || from == "" || to == "" {
			o.fail("renames", "%q is no pair; a list of from:to is expected", pair)
		}
		t.renames[from] = to
	}
	return t
}

func (t *replaceField) apply(d *debezium, r *dbzRecord) (bool, error) {
	f, err := t.side.revealed(d, r)
	if err != nil || f.value.IsNull() {
		return true, err
	}
	if f.value.Kind() != connect.KindStruct {
		return false, reject(ReasonMapping, "", "only Struct objects are supported for field replacement, found: %s", f.value.Kind())
	}
	return true, f.rebuild(func(name string) (string, bool) {
		keep := !slices.Contains(t.exclude, name) && (len(t.include) == 0 || slices.Contains(t.include, name))
		return cmp.Or(t.renames[name], name), keep
	})
}

type valueToKey struct{ fields []string }

func (t *valueToKey) apply(d *debezium, r *dbzRecord) (bool, error) {
	if err := r.reveal(d); err != nil {
		return false, err
	}
	s := &connect.Schema{Type: connect.Struct}
	var values []connect.Value
	for _, name := range t.fields {
		v, err := r.value.field(name)
		if err != nil {
			return false, err
		}
		s.Fields = append(s.Fields, connect.Field{Name: name, Schema: v.schema})
		values = append(values, v.value)
	}
	var err error
	r.key, err = structOf(s, values...)
	return true, err
}

type setSchema struct {
	side    fieldOf
	name    string
	version *int32
}

func newSetSchema(o *ownerOptions, side bool) transform {
	t := &setSchema{side: fieldOf(side), name: o.names["schema.name"]}
	if text, given := o.names["schema.version"]; given {
		n, err := strconv.ParseInt(strings.TrimSpace(text), 10, 32)
		if err != nil {
			o.fail("schema.version", "%q is not a whole number", text)
		}
		t.version = connect.VersionOf(int32(n))
	}
	if t.name == "" && t.version == nil {
		o.fail("type", "SetSchemaMetadata has nothing to set; give schema.name or schema.version")
	}
	return t
}

func (t *setSchema) apply(d *debezium, r *dbzRecord) (bool, error) {
	f, err := t.side.revealed(d, r)
	if err != nil {
		return false, err
	}
	if f.schema == nil {
		if f.value.IsNull() {
			return true, nil
		}
		return false, reject(ReasonEncode, "", "SetSchemaMetadata finds a value without a schema")
	}
	s := f.schema.Clone()
	s.Name = cmp.Or(t.name, s.Name)
	if t.version != nil {
		s.Version = t.version
	}
	f.schema = s
	if f.value.Kind() == connect.KindStruct {
		*f, err = structOf(s, f.value.Items()...)
	}
	return true, err
}

// unwrap is ExtractNewRecordState with its defaults.
type unwrap struct {
	deletes, tombstones bool // what is kept of a delete: itself as a tombstone, the tombstone behind it
}

func newUnwrap(o *ownerOptions) transform {
	switch mode := o.word("delete.tombstone.handling.mode", "tombstone"); mode {
	case "drop":
		return &unwrap{}
	case "tombstone":
		return &unwrap{tombstones: true}
	case "delete-to-tombstone":
		return &unwrap{deletes: true}
	default:
		o.fail("delete.tombstone.handling.mode", "%q is not carried; tombstone, drop and delete-to-tombstone are", mode)
		return nil
	}
}

func (t *unwrap) apply(_ *debezium, r *dbzRecord) (bool, error) {
	if r.source == nil {
		return !r.isNull() || t.tombstones, nil
	}
	switch r.source.op {
	case 't':
		return false, nil
	case 'd':
		r.source, r.value = nil, dbzField{}
		return t.deletes, nil
	}
	v, err := r.source.rowStruct()
	if err != nil {
		return false, err
	}
	r.source, r.value = nil, v
	return true, nil
}

// timestampRouter renders the record's time into the topic.
type timestampRouter struct {
	topic string
	parts []timePart
}

type timePart struct {
	literal string
	letter  byte // of SimpleDateFormat; 0: the literal alone
	width   int
}

func newTimestampRouter(o *ownerOptions) transform {
	t := &timestampRouter{topic: o.text("topic.format", "${topic}-${timestamp}")}
	pattern := o.text("timestamp.format", "yyyyMMdd")
	for i := 0; i < len(pattern); {
		c := pattern[i]
		switch {
		case c == '\'':
			end := strings.IndexByte(pattern[i+1:], '\'')
			if end < 0 {
				o.fail("timestamp.format", "%q has an unterminated quote", pattern)
				return nil
			}
			literal := pattern[i+1 : i+1+end]
			if end == 0 {
				literal = "'"
			}
			t.parts = append(t.parts, timePart{literal: literal})
			i += end + 2
		case isLetter(c):
			n := 1
			for i+n < len(pattern) && pattern[i+n] == c {
				n++
			}
			if strings.IndexByte("yMdHmsSD", c) < 0 || c == 'M' && n > 2 {
				o.fail("timestamp.format", "%q has the letters %q, which are not carried; y, M, d, H, m, s, S and D with numbers are", pattern, pattern[i:i+n])
				return nil
			}
			t.parts = append(t.parts, timePart{letter: c, width: n})
			i += n
		default:
			_, n := utf8.DecodeRuneInString(pattern[i:])
			t.parts = append(t.parts, timePart{literal: pattern[i : i+n]})
			i += n
		}
	}
	return t
}

func (t *timestampRouter) apply(_ *debezium, r *dbzRecord) (bool, error) {
	ms, ok := r.at()
	if !ok {
		return false, reject(ReasonRoute, "", "timestamp missing on record: the topic is made of it")
	}
	at := millis(ms)
	var b strings.Builder
	for _, p := range t.parts {
		var n int
		switch p.letter {
		case 'y':
			if n = at.Year(); p.width == 2 {
				n %= 100
			}
		case 'M':
			n = int(at.Month())
		case 'd':
			n = at.Day()
		case 'H':
			n = at.Hour()
		case 'm':
			n = at.Minute()
		case 's':
			n = at.Second()
		case 'S':
			n = at.Nanosecond() / 1e6
		case 'D':
			n = at.YearDay()
		default:
			b.WriteString(p.literal)
			continue
		}
		digits := strconv.Itoa(n)
		b.WriteString(strings.Repeat("0", max(0, p.width-len(digits))) + digits)
	}
	topic := strings.ReplaceAll(t.topic, "${topic}", r.topic)
	r.topic = strings.ReplaceAll(topic, "${timestamp}", b.String())
	return true, nil
}
