package encode

import (
	"encoding/json"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strconv"
	"strings"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/santhosh-tekuri/jsonschema/v6/kind"

	"github.com/cdc-relay/cdc-relay/router/encode/tape"
)

// asItIs sends payloads as they are.
type asItIs struct{}

func (asItIs) Append(dst, payload []byte) ([]byte, error) { return append(dst, payload...), nil }

func (asItIs) Decode(src []byte) ([]byte, error) {
	if !json.Valid(src) {
		return nil, errors.New("the value is not JSON")
	}
	return src, nil
}

// validated holds payloads against a schema, and sends them as they are.
type validated struct {
	asItIs

	schema *jsonschema.Schema
	names  map[string]bool // that the schema has, and messages may have
	tape   tape.Tape
	parts  int // schemas within the schema
	steps  int // that are left to the payload at hand
}

// root is the address of a schema without $id. Nothing is asked there.
const root = "https://schema.invalid/"

func compileJSONSchema(s *Schema, o Options) (body, error) {
	document, err := readSchema(s.Text)
	if err != nil {
		return nil, err
	}
	if !o.Validate {
		return asItIs{}, nil
	}
	v := &validated{names: make(map[string]bool)}
	v.learn(document)
	loaded := make(givenSchemas, len(s.References))
	for _, r := range s.References {
		one, err := readSchema(r.Text)
		if err != nil {
			return nil, fmt.Errorf("reference %s: %w", r.Name, err)
		}
		v.learn(one)
		loaded[r.Name] = one
	}
	c := jsonschema.NewCompiler()
	c.DefaultDraft(jsonschema.Draft7) // as registries take a schema without $schema
	c.UseLoader(loaded)
	c.RegisterVocabulary(&jsonschema.Vocabulary{URL: root, Compile: func(c *jsonschema.CompilerContext, _ map[string]any) (jsonschema.SchemaExt, error) {
		one := c.Enqueue(nil) // the schema that is being compiled
		one.Format = v.counted(one.Format)
		v.parts++
		return nil, nil
	}})
	c.AssertVocabs() // that one, in each draft
	if err := c.AddResource(root, document); err != nil {
		return nil, fmt.Errorf("the schema is not taken: %w", err)
	}
	v.schema, err = c.Compile(root)
	if err != nil {
		return nil, fmt.Errorf("the schema is not taken: %w", err)
	}
	return v, nil
}

func readSchema(text string) (any, error) {
	document, err := jsonschema.UnmarshalJSON(strings.NewReader(text))
	if err != nil {
		return nil, errors.New("the schema is not JSON")
	}
	return document, nil
}

// givenSchemas are the references of a schema, by the names that the registry has for them. No other
// schema is read, neither over the network nor from a file.
type givenSchemas map[string]any

// Load is called with the address that a $ref comes to. Of several names that end it, the longest counts.
func (g givenSchemas) Load(address string) (any, error) {
	found := ""
	for name := range g {
		if (address == name || strings.HasSuffix(address, "/"+name)) && len(name) > len(found) {
			found = name
		}
	}
	if document, ok := g[found]; ok {
		return document, nil
	}
	return nil, fmt.Errorf("%s is none of the schema's references; register it, and name it in them", strings.TrimPrefix(address, root))
}

// learn takes up the names of members.
func (v *validated) learn(document any) {
	switch d := document.(type) {
	case []any:
		for _, one := range d {
			v.learn(one)
		}
	case map[string]any:
		for name, one := range d {
			v.names[name] = true
			v.learn(one)
		}
	}
}

func (v *validated) Append(dst, payload []byte) ([]byte, error) {
	if err := v.tape.Read(payload); err != nil {
		return dst, err
	}
	if len(v.tape.Nodes) > maxValues {
		return dst, &Mismatch{What: fmt.Sprintf("the payload has more than %d values, which are not validated", maxValues)}
	}
	tree, _, err := v.tree(0)
	if err != nil {
		return dst, err
	}
	v.steps = min(minSteps+(stepsPerValue+2*v.parts)*len(v.tape.Nodes), maxSteps)
	if err := v.holdAgainst(tree); err != nil {
		return dst, v.explain(err, tree)
	}
	return append(dst, payload...), nil
}

// A payload takes at most so many steps: alternatives within alternatives double the work at each level.
// A schema whose alternatives stand side by side holds each part, and what the part refers to, against a
// value once. A step takes up to 2.5 µs, deep in a payload that does not fit, so maxSteps end within minutes.
const (
	minSteps      = 20_000
	stepsPerValue = 100
	maxSteps      = stepsPerValue * maxValues
)

// errSteps is a payload that takes more.
var errSteps = errors.New("takes too many steps to validate: alternatives of the schema that look alike double them at each level")

// counted is the format of a schema, if it has one, and counts a step: the library asks it before it goes
// into the value. It does not ask an extension where a value does not fit within not or if.
func (v *validated) counted(format *jsonschema.Format) *jsonschema.Format {
	counts := jsonschema.Format{Name: "any", Validate: func(any) error { return nil }}
	if format != nil {
		counts = *format
	}
	validate := counts.Validate
	counts.Validate = func(value any) error {
		if v.steps--; v.steps < 0 {
			runtime.Goexit() // the library cannot be stopped otherwise
		}
		return validate(value)
	}
	return &counts
}

func (v *validated) holdAgainst(tree any) error {
	err := errSteps // unless the library comes to its end
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		err = v.schema.Validate(tree)
	}()
	<-ended
	return err
}

// maxValues bounds what a payload takes in memory while it is validated.
const maxValues = 1 << 19

// maxDigits bounds a number: they are compared exactly.
const maxDigits = 1000

// tree is the value at node i as the library reads it, and the node behind it.
func (v *validated) tree(i uint32) (any, uint32, error) {
	t, n := &v.tape, &v.tape.Nodes[i]
	switch n.Kind {
	case tape.Boolean:
		return t.Text[n.Start] == 't', n.Next, nil
	case tape.Text:
		return string(t.Plain(nil, n)), n.Next, nil
	case tape.Number:
		d, ok := tape.Parse(t.Raw(n))
		if !ok || len(t.Raw(n)) > maxDigits || d.Exponent > maxDigits || d.Exponent < -maxDigits {
			return nil, 0, tape.Unfit("the payload has a number of more than %d digits", maxDigits)
		}
		return json.Number(t.Raw(n)), n.Next, nil
	case tape.Array:
		made := make([]any, 0, n.Count)
		for at := i + 1; at < n.Next; {
			one, next, err := v.tree(at)
			if err != nil {
				return nil, 0, tape.In(err, tape.Element(len(made)))
			}
			made, at = append(made, one), next
		}
		return made, n.Next, nil
	case tape.Object:
		made := make(map[string]any, n.Count)
		for at := i + 1; at < n.Next; {
			name := string(t.Plain(nil, &t.Nodes[at]))
			if _, twice := made[name]; twice {
				return nil, 0, tape.In(tape.Unfit("is there twice"), v.step(name, true))
			}
			one, next, err := v.tree(at + 1)
			if err != nil {
				return nil, 0, tape.In(err, v.step(name, true))
			}
			made[name], at = one, next
		}
		return made, n.Next, nil
	default:
		return nil, n.Next, nil
	}
}

// step is the step to a member. A name that the schema does not have is data.
func (v *validated) step(name string, isMember bool) string {
	switch {
	case !isMember:
		return "[" + name + "]"
	case v.names[name]:
		return tape.Member(name)
	}
	return tape.Entry
}

// explain makes the library's error one of ours: the way to the value, the keyword, and no value.
func (v *validated) explain(err error, tree any) error {
	e, ok := errors.AsType[*jsonschema.ValidationError](err)
	switch {
	case err == errSteps: //nolint:errorlint // nobody wraps it
		return tape.Unfit("%v", err)
	case !ok:
		return tape.Unfit("does not fit the schema")
	}
	e = first(e)
	out := tape.Unfit("does not fit %s of the schema", keyword(e))
	if k, ok := e.ErrorKind.(*kind.Type); ok {
		out = tape.Unfit("the schema wants %s, the payload has %s", strings.Join(k.Want, " or "), withArticle(k.Got))
	}
	if k, ok := e.ErrorKind.(*kind.Required); ok {
		out = tape.Unfit("lacks %s, which the schema requires", strings.Join(k.Missing, ", "))
	}
	var steps []string
	for _, name := range e.InstanceLocation {
		object, isMember := tree.(map[string]any)
		steps = append(steps, v.step(name, isMember))
		if isMember {
			tree = object[name]
		} else if list, ok := tree.([]any); ok {
			if i, err := strconv.Atoi(name); err == nil && i < len(list) {
				tree = list[i]
			}
		}
	}
	for _, step := range slices.Backward(steps) {
		out = tape.In(out, step)
	}
	return out
}

// first is the innermost cause that comes first by its place. What is below an alternative says
// little: one of several would have fitted.
func first(e *jsonschema.ValidationError) *jsonschema.ValidationError {
	for len(e.Causes) > 0 {
		switch e.ErrorKind.(type) {
		case *kind.AnyOf, *kind.OneOf, *kind.Not, *kind.Contains, *kind.MinContains, *kind.PropertyNames:
			return e
		}
		e = slices.MinFunc(e.Causes, func(a, b *jsonschema.ValidationError) int {
			if c := slices.Compare(a.InstanceLocation, b.InstanceLocation); c != 0 {
				return c
			}
			return strings.Compare(keyword(a), keyword(b))
		})
	}
	return e
}

func keyword(e *jsonschema.ValidationError) string {
	if path := e.ErrorKind.KeywordPath(); len(path) > 0 {
		return path[0]
	}
	return "false"
}

func withArticle(kind string) string {
	switch kind {
	case "null":
		return kind
	case "array", "object", "integer":
		return "an " + kind
	}
	return "a " + kind
}
