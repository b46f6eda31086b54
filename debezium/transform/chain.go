package transform

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	"github.com/cdc-relay/cdc-relay/debezium/javaregex"
	"github.com/cdc-relay/cdc-relay/debezium/options"
	"github.com/cdc-relay/cdc-relay/replication/wal"
)

// Chain is what `transforms` lists, in order. Notice, which may be nil, gets the warnings.
type Chain struct {
	Notice func(row *wal.Row, column, text string)

	steps []step
}

// step is one transform of the chain with its predicate.
type step struct {
	transform transform
	predicate predicate // nil: always
	negate    bool
}

// transform changes a record; keep is false when it drops it.
type transform interface {
	apply(c *Chain, r *Record) (keep bool, err error)
}

// predicate decides whether a transform sees a record.
type predicate interface{ test(r *Record) bool }

// Pass sends a record through the chain and reports whether one is left.
func (c *Chain) Pass(r *Record) (keep bool, err error) {
	for i := range c.steps {
		s := &c.steps[i]
		if s.predicate != nil && s.predicate.test(r) == s.negate {
			continue
		}
		if keep, err := s.transform.apply(c, r); err != nil || !keep {
			return false, err
		}
	}
	return true, nil
}

// Warn passes on what Debezium logs a warning about.
func (c *Chain) Warn(row *wal.Row, column, text string) {
	if c.Notice != nil {
		c.Notice(row, column, text)
	}
}

// Router is the first EventRouter, or nil.
func (c *Chain) Router() *EventRouter {
	for i := range c.steps {
		if t, ok := c.steps[i].transform.(*EventRouter); ok {
			return t
		}
	}
	return nil
}

// Check looks up the columns of the EventRouter that takes the rows of a shape: one without a
// predicate, or with a predicate that the topic decides.
func (c *Chain) Check(topic string, shape *Shape) []ShapeError {
	r := Record{Topic: topic, Source: &Change{Op: 'c', Shape: shape}}
	for i := range c.steps {
		s := &c.steps[i]
		taken := true
		if s.predicate != nil {
			if _, byTopic := s.predicate.(topicMatches); !byTopic {
				continue
			}
			taken = s.predicate.test(&r) != s.negate
		}
		switch t := s.transform.(type) {
		case *unwrap:
			if taken {
				return nil
			}
		case *regexRouter:
			if taken {
				r.Topic = t.regex.ReplaceFirst(r.Topic, t.with)
			}
		case *EventRouter:
			if !taken {
				continue
			}
			routed, errs := t.compile(shape)
			shape.remember(t, routed)
			return errs // a second one finds no envelope
		}
	}
	return nil
}

// Passes reports whether a delete may be more than dropped: where something in the
// chain may keep the row away from the EventRouter.
func (c *Chain) Passes() bool {
	for i := range c.steps {
		switch c.steps[i].transform.(type) {
		case *EventRouter:
			return c.steps[i].predicate != nil
		case *unwrap:
			return true
		}
	}
	return true
}

// NeedsKey reports whether a record may keep the key of its table.
func (c *Chain) NeedsKey() bool {
	first := &c.steps[0]
	_, routed := first.transform.(*EventRouter)
	return !routed || first.predicate != nil
}

// Rekeyed names what gives records another key than the EventRouter does: rows with
// different keys there may have the same one.
func (c *Chain) Rekeyed() string {
	routed := c.Passes() // those rows have their primary key, which none shares
	for i := range c.steps {
		switch t := c.steps[i].transform.(type) {
		case *EventRouter:
			routed = true
		case *valueToKey:
			if routed {
				return "transform ValueToKey"
			}
		case *extractField:
			if routed && t.side == fieldOf(false) {
				return "transform ExtractField$Key"
			}
		case *replaceField:
			if routed && t.side == fieldOf(false) {
				return "transform ReplaceField$Key"
			}
		}
	}
	return ""
}

// Class names that Debezium's documentation and Connect's use.
const (
	ClassEventRouter = "io.debezium.transforms.outbox.EventRouter"

	packageTransforms = "org.apache.kafka.connect.transforms."
	packagePredicates = "org.apache.kafka.connect.transforms.predicates."
	classUnwrap       = "io.debezium.transforms.ExtractNewRecordState"
	classDecode       = "io.debezium.connector.postgresql.transforms.DecodeLogicalDecodingMessageContent"
)

// Options are those of a connector, by name, and what takes note of one that is wrong.
type Options struct {
	Values map[string]string
	Fail   func(name, format string, args ...any)
}

// ownerOptions are the options of one transform or predicate.
type ownerOptions struct {
	all    *Options
	prefix string // transforms.outbox.
	class  string
	names  map[string]string // without prefix
}

func (o *ownerOptions) fail(name, format string, args ...any) {
	o.all.Fail(o.prefix+name, format, args...)
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
	if v, ok := options.Bool(o.names[name]); ok {
		return v
	}
	return otherwise
}

func (o *ownerOptions) required(name string) string {
	v := o.names[name]
	if v == "" {
		o.all.Fail(o.prefix+name, "%s%s is missing: %s needs it", o.prefix, name, ShortClass(o.class))
	}
	return v
}

// NewChain reads transforms and predicates. What is wrong about them goes to c.Fail.
func NewChain(c *Options) *Chain {
	predicates := map[string]predicate{}
	for _, name := range options.List(c.Values["predicates"]) {
		if o := c.owner(options.ScopePredicate, "predicates."+name+"."); o != nil {
			predicates[name] = o.predicate()
		}
	}
	var steps []step
	names := options.List(c.Values["transforms"])
	for i, name := range names {
		if slices.Contains(names[:i], name) {
			c.Fail("transforms", "names %q twice, which Connect refuses", name)
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
				o.fail("predicate", "there is no predicate %q; predicates lists %s", by, cmp.Or(c.Values["predicates"], "none"))
				continue
			}
			s.predicate = p
		}
		steps = append(steps, s)
	}
	for _, name := range slices.Sorted(maps.Keys(c.Values)) {
		for _, list := range []string{"transforms", "predicates"} {
			rest, ok := strings.CutPrefix(name, list+".")
			if !ok {
				continue
			}
			if owner, _, _ := strings.Cut(rest, "."); !slices.Contains(options.List(c.Values[list]), owner) {
				c.Fail(name, "%s does not list %q", list, owner)
			}
		}
	}
	return &Chain{steps: steps}
}

// owner collects and checks the options behind prefix; nil: its class is missing.
func (c *Options) owner(scope, prefix string) *ownerOptions {
	o := &ownerOptions{all: c, prefix: prefix, class: c.Values[prefix+"type"], names: map[string]string{}}
	if o.class == "" {
		c.Fail(strings.TrimSuffix(prefix, "."), "%stype is missing", prefix)
		return nil
	}
	for _, name := range slices.Sorted(maps.Keys(c.Values)) {
		rest, ok := strings.CutPrefix(name, prefix)
		if !ok {
			continue
		}
		o.names[rest] = c.Values[name]
		row, known := options.Lookup(scope, ShortClass(o.class), rest)
		if !known && o.class == ClassEventRouter {
			row, known = options.Lookup(options.ScopeEventRouter, "", rest)
		}
		switch {
		case !known && slices.Contains(knownClasses, strings.SplitN(o.class, "$", 2)[0]):
			c.Fail(name, "%s has no option %q; Debezium ignores it, so leave it out", ShortClass(o.class), rest)
		case !known:
		case !row.Accepted():
			c.Fail(name, "is not carried%s", row.Because())
		default:
			for _, wrong := range row.Check(c.Values[name]) {
				c.Fail(name, "%s", wrong)
			}
		}
	}
	return o
}

var knownClasses = []string{
	ClassEventRouter, classUnwrap, classDecode,
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

func (p topicMatches) test(r *Record) bool { return p.regex.Whole.MatchString(r.Topic) }

type hasHeader string

func (p hasHeader) test(r *Record) bool {
	return slices.ContainsFunc(r.Headers, func(h Header) bool { return h.Key == string(p) })
}

type isTombstone struct{}

func (isTombstone) test(r *Record) bool { return r.isNull() }

func (o *ownerOptions) transform() transform {
	class, part, _ := strings.Cut(o.class, "$")
	side, sided := map[string]bool{"Key": false, "Value": true}[part]
	switch name := strings.TrimPrefix(class, packageTransforms); {
	case class == ClassEventRouter:
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
		names := options.List(o.required("headers"))
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
		return &valueToKey{fields: options.List(o.required("fields"))}
	}
	o.fail("type", "transform %q is not carried: what it makes of a record is not known here", o.class)
	return nil
}

// ShortClass is a class without its package and its $Key or $Value.
func ShortClass(class string) string {
	class = class[strings.LastIndexByte(class, '.')+1:]
	class, _, _ = strings.Cut(class, "$")
	return class
}

// fieldOf chooses key or value.
type fieldOf bool

func (f fieldOf) of(r *Record) *Field {
	if f {
		return &r.Value
	}
	return &r.Key
}

// revealed is the field, with the value made if it was not yet.
func (f fieldOf) revealed(r *Record) (*Field, error) {
	if f {
		if err := r.Reveal(); err != nil {
			return nil, err
		}
	}
	return f.of(r), nil
}

// dropAll is Filter: what its predicate lets through goes no further.
type dropAll struct{}

func (dropAll) apply(*Chain, *Record) (bool, error) { return false, nil }
