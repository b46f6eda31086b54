package config

import (
	"encoding/json"
	"reflect"
	"strconv"

	"github.com/invopop/jsonschema"
)

// Schema is the JSON Schema (2020-12) of the file, for editors and for checks
// without this program. It says less than Load: what needs two keys is missing.
func Schema() []byte {
	r := jsonschema.Reflector{
		Anonymous:                  true,
		DoNotReference:             true,
		ExpandedStruct:             true,
		FieldNameTag:               "yaml",
		RequiredFromJSONSchemaTags: true,
		Mapper:                     valueSchema,
	}
	s := r.Reflect(settings{})
	s.Title = "cdc-relay configuration"
	describe(s, reflect.TypeFor[settings]())
	text, err := json.MarshalIndent(s, "", "  ")
	if err != nil {
		panic("schema of the configuration: " + err.Error()) //nolint:forbidigo // the schema holds nothing that cannot be marshalled
	}
	return text
}

// reference lets a variable stand where text, a number or a word is wanted.
const reference = `\$\{.+\}`

// valueSchema describes the types that are no plain Go values.
func valueSchema(t reflect.Type) *jsonschema.Schema {
	switch t {
	case durationType:
		return &jsonschema.Schema{Type: "string", Pattern: `^([0-9]+(\.[0-9]+)?(ns|us|µs|ms|s|m|h))+$|` + reference}
	case ageType:
		return &jsonschema.Schema{Type: "string", Pattern: `^([0-9]+d)?([0-9]+(\.[0-9]+)?(s|m|h))*$|` + reference}
	case sizeType:
		return &jsonschema.Schema{Type: "string", Pattern: `^[0-9]+ ?(B|KiB|MiB|GiB|kB|MB|GB)$|` + reference}
	case pairsType, templatePairsType:
		return &jsonschema.Schema{Type: "object", AdditionalProperties: &jsonschema.Schema{Type: "string"}}
	case textsType:
		return &jsonschema.Schema{AnyOf: []*jsonschema.Schema{
			{Type: "array", Items: &jsonschema.Schema{Type: "string"}},
			{Type: "string"},
		}}
	case secretType:
		return &jsonschema.Schema{Type: "string", WriteOnly: true}
	case dsnType, templateType:
		return &jsonschema.Schema{Type: "string"}
	}
	return nil
}

// describe adds what the tags say to the reflected schema.
func describe(s *jsonschema.Schema, t reflect.Type) {
	keys := keysOf(t)
	for _, k := range keys {
		property, ok := s.Properties.Get(k.name)
		if !ok {
			panic("schema of the configuration: no property " + k.name) //nolint:forbidigo // schema and keys are two views of one tree
		}
		switch {
		case k.section():
			describe(property, k.typ)
		case k.typ == outboxType:
			describe(property.Items, k.typ.Elem())
			property.Items.AnyOf = []*jsonschema.Schema{{Required: []string{"table"}}, {Required: []string{"message_prefix"}}}
		default:
			describeValue(property, k)
		}
		property.Description = k.desc
	}
}

func describeValue(s *jsonschema.Schema, k key) {
	if k.def != "" {
		s.Default = k.def
	}
	switch k.typ.Kind() {
	case reflect.Bool:
		s.Default = k.def == "true"
		s.AnyOf = []*jsonschema.Schema{{Type: "boolean"}, {Type: "string", Pattern: reference}}
		s.Type = ""
	case reflect.Int:
		if n, err := strconv.Atoi(k.def); err == nil {
			s.Default = n
		}
		s.AnyOf = []*jsonschema.Schema{{Type: "integer"}, {Type: "string", Pattern: reference}}
		s.Type = ""
	case reflect.Float64:
		if f, err := strconv.ParseFloat(k.def, 64); err == nil {
			s.Default = f
		}
		s.AnyOf = []*jsonschema.Schema{{Type: "number"}, {Type: "string", Pattern: reference}}
		s.Type = ""
	default:
	}
	if len(k.enum) == 0 {
		return
	}
	words := make([]any, 0, len(k.enum)+1)
	for _, word := range k.enum {
		words = append(words, word)
	}
	if k.def == "" {
		words = append(words, "")
	}
	s.Type = ""
	s.AnyOf = []*jsonschema.Schema{{Enum: words}, {Type: "string", Pattern: reference}}
}
