package debezium

import (
	"cmp"
	"github.com/cdc-relay/cdc-relay/debezium/javaregex"
	"github.com/cdc-relay/cdc-relay/debezium/options"
	"maps"
	"slices"
	"strings"
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

// pass sends a record through the chain and tells whether one is left.
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
		if o := c.owner(options.ScopePredicate, "predicates."+name+"."); o != nil {
			predicates[name] = o.predicate()
		}
	}
	var steps []step
	names := splitList(c.options["transforms"])
	for i, name := range names {
		if slices.Contains(names[:i], name) {
			c.fail("transforms", "names %q twice, which Connect refuses", name)
			continue
		}
		o := c.owner(options.ScopeTransform, "transforms."+name+".")
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
		for _, list := range []string{"transforms", "predicates"} {
			rest, ok := strings.CutPrefix(name, list+".")
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
		row, known := options.Find(scope, shortClass(o.class), rest)
		if !known && o.class == classEventRouter {
			row, known = options.Find(options.ScopeEventRouter, "", rest)
		}
		switch {
		case !known && slices.Contains(knownClasses, strings.SplitN(o.class, "$", 2)[0]):
			c.fail(name, "%s has no option %q; Debezium ignores it, so leave it out", shortClass(o.class), rest)
		case !known:
		case !row.Accepted():
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
		regex, err := javaregex.Compile(o.required("pattern"), false)
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

type topicMatches struct{ regex *javaregex.Regex }

func (p topicMatches) test(r *dbzRecord) bool { return p.regex.Whole.MatchString(r.topic) }

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

// dropAll is Filter: what its predicate lets through goes no further.
type dropAll struct{}

func (dropAll) apply(*debezium, *dbzRecord) (bool, error) { return false, nil }
