package encode

import (
	"bytes"
	"fmt"
	"strconv"
	"strings"
	"testing"
)

func jsonSchema(t testing.TB, text string, validate bool, references ...Reference) *Encoder {
	t.Helper()
	e, err := Compile(Schema{Subject: "s-value", Version: 3, ID: 17, Kind: JSONSchema, Text: text, References: references}, Options{Kind: JSONSchema, Validate: validate})
	if err != nil {
		t.Fatal(err)
	}
	return e
}

func TestJSONSchema_SendsThePayloadAsItIsBehindTheFraming(t *testing.T) {
	for _, validate := range []bool{false, true} {
		e := jsonSchema(t, `{"type": "object"}`, validate)
		payload := `{ "b":1.0,  "a" : "\u00e9" }`
		got, err := e.Append([]byte("kept"), []byte(payload))
		if want := "kept\x00\x00\x00\x00\x11" + payload; err != nil || string(got) != want {
			t.Errorf("%q, %v, want %q", got, err, want)
		}
		if back, err := e.Decode(got[4:]); err != nil || string(back) != payload {
			t.Errorf("%q, %v", back, err)
		}
	}
	e := jsonSchema(t, `{"type": "object"}`, false)
	if got, err := e.Append(nil, []byte("no object")); err != nil || string(got[5:]) != "no object" {
		t.Errorf("%q, %v: without schema.validate the payload is not looked at", got, err)
	}
	if _, err := e.Decode([]byte("\x00\x00\x00\x00\x11no object")); err == nil {
		t.Error("what is no JSON is decoded")
	}
}

const orderSchema = `{"$schema": "http://json-schema.org/draft-07/schema#", "type": "object", "required": ["id", "total"], "additionalProperties": false,
	"properties": {"id": {"type": "string", "pattern": "^[a-z0-9]+$"}, "total": {"type": ["integer", "null"], "minimum": 0},
		"lines": {"type": "array", "items": {"$ref": "#/definitions/line"}}, "customer": {"$ref": "customer.json"}, "tags": {"type": "object", "additionalProperties": {"type": "string"}},
		"pay": {"anyOf": [{"required": ["card"]}, {"required": ["iban"]}]}},
	"definitions": {"line": {"type": "object", "properties": {"qty": {"type": "integer"}, "of": {"$ref": "#/definitions/line"}}}}}`

var customerSchema = Reference{Name: "customer.json", Text: `{"type": "object", "properties": {"name": {"maxLength": 3}}}`}

func TestJSONSchema_RefusesWithPathAndKeywordAndWithoutTheValue(t *testing.T) {
	e := jsonSchema(t, orderSchema, true, customerSchema)
	for payload, want := range map[string]string{
		`{"id": "a", "total": 1, "lines": [{"qty": 1}, {"qty": "hunter2"}]}`: "$.lines[1].qty: the schema wants integer, the payload has a string",
		`{"id": "a", "total": 1, "lines": [{"of": {"qty": 1.5}}]}`:           "$.lines[0].of.qty: the schema wants integer, the payload has a number",
		`{"id": "a", "total": true}`:                                         "$.total: the schema wants null or integer, the payload has a boolean",
		`{"id": "a", "total": -17}`:                                          "$.total: does not fit minimum of the schema",
		`{"id": "HUNTER2", "total": 1}`:                                      "$.id: does not fit pattern of the schema",
		`{"id": "a"}`:                                                        "$: lacks total, which the schema requires",
		`{"id": "a", "total": 1, "hunter2": 1}`:                              "$: does not fit additionalProperties of the schema",
		`{"id": "a", "total": 1, "tags": {"hunter2": 1}}`:                    "$.tags[*]: the schema wants string, the payload has a number",
		`{"id": "a", "total": 1, "pay": {}}`:                                 "$.pay: does not fit anyOf of the schema",
		`{"id": "a", "total": 1, "customer": {"name": "hunter2"}}`:           "$.customer.name: does not fit maxLength of the schema",
		`{"id": "a", "total": 1, "id": "b"}`:                                 "$.id: is there twice",
		`{"id": "a", "total": 1e999999}`:                                     "$.total: the payload has a number of more than 1000 digits",
		`{"id": "a", "total": ` + strings.Repeat("1", 2000) + `}`:            "$.total: the payload has a number of more than 1000 digits",
		`[]`:                     "$: the schema wants object, the payload has an array",
		`{"id": NaN}`:            "the payload is not JSON (byte 7)",
		`{"id": "\ud800"}`:       "the payload has half of a surrogate pair",
		strings.Repeat("[", 300): "the payload lies deeper than 256 levels",
		"[" + strings.Repeat("1,", maxValues) + "1]": "the payload has more than 524288 values, which are not validated",
	} {
		kept := []byte("kept")
		got, err := e.Append(kept, []byte(payload))
		switch {
		case err == nil || !strings.Contains(err.Error(), want) || !strings.HasSuffix(err.Error(), "(subject s-value, version 3, id 17)"):
			t.Errorf("%.60s: %v, want %s", payload, err, want)
		case strings.Contains(strings.ToLower(err.Error()), "hunter2") || !bytes.Equal(got, kept):
			t.Errorf("%.60s: %v gives %q", payload, err, got)
		}
	}
	for _, payload := range []string{`{"id": "a", "total": null}`, `{"total": 1.0, "id": "a", "lines": [], "customer": {"name": "Ada"}, "pay": {"card": 1}}`} {
		if _, err := e.Append(nil, []byte(payload)); err != nil {
			t.Errorf("%s: %v", payload, err)
		}
	}
}

// Nothing is read but what the registry gave: neither over the network nor from a file.
func TestJSONSchema_RefusesSchemasThatItCannotDoRight(t *testing.T) {
	for text, want := range map[string]string{
		`not json`:                               "the schema is not JSON",
		`{"$ref": "https://example.com/a.json"}`: "https://example.com/a.json is none of the schema's references",
		`{"$ref": "file:///etc/passwd"}`:         "file:///etc/passwd is none of the schema's references",
		`{"$ref": "other.json"}`:                 "other.json is none of the schema's references",
		`{"$id": "https://a.example/b/c.json", "not": {"$ref": "d.json"}}`: "https://a.example/b/d.json is none of the schema's references",
		`{"type": "nothing"}`:                                       "the schema is not taken",
		`{"pattern": "(?<=a)b"}`:                                    "the schema is not taken",
		`{"$schema": "https://example.com/draft"}`:                  "the schema is not taken",
		`{"description": "` + strings.Repeat("x", MaxSchema) + `"}`: "bytes with its references",
	} {
		_, err := Compile(Schema{Subject: "s", Kind: JSONSchema, Text: text}, Options{Kind: JSONSchema, Validate: true})
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.60s: %v, want %s", text, err, want)
		}
	}
	if _, err := Compile(Schema{Subject: "s", Kind: JSONSchema, Text: `not json`}, Options{Kind: JSONSchema}); err == nil {
		t.Error("a schema that is no JSON is taken without validation")
	}
}

func TestJSONSchema_TakesEachDraft(t *testing.T) {
	for draft, definitions := range map[string]string{
		"http://json-schema.org/draft-04/schema#": "definitions", "http://json-schema.org/draft-06/schema#": "definitions", "http://json-schema.org/draft-07/schema#": "definitions",
		"https://json-schema.org/draft/2019-09/schema": "$defs", "https://json-schema.org/draft/2020-12/schema": "$defs",
	} {
		e := jsonSchema(t, `{"$schema": "`+draft+`", "properties": {"n": {"$ref": "#/`+definitions+`/n"}}, "`+definitions+`": {"n": {"type": "integer"}}}`, true)
		if _, err := e.Append(nil, []byte(`{"n": "x"}`)); err == nil || !strings.Contains(err.Error(), "$.n: the schema wants integer, the payload has a string") {
			t.Errorf("%s: %v", draft, err)
		}
		if _, err := e.Append(nil, []byte(`{"n": 1}`)); err != nil {
			t.Errorf("%s: %v", draft, err)
		}
	}
	// Without $schema it is draft 7, as for the registry's own serializers: items may be a list.
	e := jsonSchema(t, `{"items": [{"type": "integer"}]}`, true)
	if _, err := e.Append(nil, []byte(`["x"]`)); err == nil {
		t.Error("a schema without $schema is not draft 7")
	}
}

func TestJSONSchema_FollowsReferencesByNameAndByAddress(t *testing.T) {
	name := Reference{Name: "https://example.com/name.json", Text: `{"$id": "https://example.com/name.json", "type": "string"}`}
	person := Reference{Name: "person.json", Text: `{"properties": {"name": {"$ref": "https://example.com/name.json"}}}`}
	for _, id := range []string{"", `"$id": "https://shop.example/schemas/order.json", `} {
		e := jsonSchema(t, `{`+id+`"properties": {"by": {"$ref": "person.json"}}}`, true, name, person)
		if _, err := e.Append(nil, []byte(`{"by": {"name": 1}}`)); err == nil || !strings.Contains(err.Error(), "$.by.name: the schema wants string") {
			t.Errorf("%s: %v", id, err)
		}
	}
}

// Where one name ends another, a $ref to the longer one does not come to the shorter, whatever the order.
func TestJSONSchema_TakesTheLongestNameOfAReference(t *testing.T) {
	short := Reference{Name: "name.json", Text: `{"type": "integer"}`}
	long := Reference{Name: "common/name.json", Text: `{"type": "string"}`}
	for range 20 { // a map has no order
		e := jsonSchema(t, `{"properties": {"a": {"$ref": "common/name.json"}, "b": {"$ref": "name.json"}}}`, true, short, long)
		if _, err := e.Append(nil, []byte(`{"a": "x", "b": 1}`)); err != nil {
			t.Fatal(err)
		}
	}
}

// Alternatives that look alike double the work at each level: such a payload is refused before it takes
// for ever, and one of the same size with other alternatives is not.
func TestJSONSchema_RefusesAPayloadThatTakesForEver(t *testing.T) {
	const alike = `{"type": "object", "required": ["a"], "properties": {"a": {"$ref": "#"}}}`
	for _, draft := range []string{"http://json-schema.org/draft-07/schema#", "https://json-schema.org/draft/2020-12/schema"} {
		for _, of := range []string{"anyOf", "oneOf"} {
			e := jsonSchema(t, `{"$schema": "`+draft+`", "`+of+`": [{"type": "integer"}, `+alike+`, `+alike+`]}`, true)
			deep := func(leaf string) []byte {
				return []byte(strings.Repeat(`{"a": `, 40) + leaf + strings.Repeat(`}`, 40))
			}
			if _, err := e.Append(nil, deep(`"hunter2"`)); err == nil || !strings.Contains(err.Error(), "takes too many steps to validate") || strings.Contains(err.Error(), "hunter2") {
				t.Errorf("%s, %s: %v", draft, of, err)
			}
			if _, err := e.Append(nil, []byte(`1`)); err != nil {
				t.Errorf("%s, %s: the next payload: %v", draft, of, err)
			}
		}
	}
	for twice, level := range map[string][2]string{
		`"type": "object", "patternProperties": {"a": {"$ref": "#/definitions/of"}, "^a": {"$ref": "#/definitions/of"}}`: {`{"a": `, `}`},
		`"type": "array", "items": {"$ref": "#/definitions/of"}, "contains": {"$ref": "#/definitions/of"}`:               {`[`, `]`},
	} { // the library does not come to the end of what fails within not
		e := jsonSchema(t, `{"not": {"$ref": "#/definitions/of"}, "definitions": {"of": {`+twice+`}}}`, true)
		if _, err := e.Append(nil, []byte(strings.Repeat(level[0], 40)+`1`+strings.Repeat(level[1], 40))); err == nil || !strings.Contains(err.Error(), "takes too many steps to validate") {
			t.Errorf("%s: %v", twice, err)
		}
	}
}

// What a schema of many alternatives takes grows with their number, and is no reason to refuse a payload.
func TestJSONSchema_TakesManyAlternativesOverManyValues(t *testing.T) {
	for kinds, values := range map[int]int{50: 5000, 400: 2000} {
		var objects, constants, events, words []string
		for n := range kinds {
			objects = append(objects, fmt.Sprintf(`{"required": ["kind"], "properties": {"kind": {"const": %d}, "n": {"type": "integer"}}}`, n))
			constants = append(constants, fmt.Sprintf(`{"const": "code %d", "title": "the code %d"}`, n, n))
		}
		for n := range values {
			events = append(events, fmt.Sprintf(`{"kind": %d, "n": %d}`, n%kinds, n))
			words = append(words, fmt.Sprintf(`"code %d"`, n%kinds))
		}
		for list, alternatives := range map[string]string{strings.Join(events, ","): strings.Join(objects, ", "), strings.Join(words, ","): strings.Join(constants, ", ")} {
			e := jsonSchema(t, `{"items": {"oneOf": [`+alternatives+`]}}`, true)
			if _, err := e.Append(nil, []byte(`[`+list+`]`)); err != nil {
				t.Errorf("%d alternatives, %d values: %v", kinds, values, err)
			}
		}
	}
}

func FuzzJSONSchema(f *testing.F) {
	for _, text := range []string{orderSchema, `{}`, `{"items": [{"type": "integer"}]}`, `{"allOf": [{"$ref": "#"}]}`, `{"not": {"uniqueItems": true}}`, `true`} {
		f.Add(text, []byte(`{"id": "a", "total": -1, "lines": [{"qty": "1"}]}`))
		f.Add(text, []byte(`[1, 1, 1e300, null]`))
	}
	f.Fuzz(func(t *testing.T, text string, payload []byte) {
		e, err := Compile(Schema{ID: 1, Kind: JSONSchema, Text: text, References: []Reference{customerSchema}}, Options{Kind: JSONSchema, Validate: true})
		if err != nil {
			return
		}
		got, err := e.Append(nil, payload)
		if err == nil && !bytes.Equal(got[5:], payload) {
			t.Fatalf("%q becomes %q", payload, got)
		}
	})
}

func BenchmarkJSONSchema(b *testing.B) {
	payload, dst := []byte(`{"id": "a1", "total": 129, "lines": [{"qty": 1}, {"qty": 2, "of": {"qty": 3}}], "customer": {"name": "Ada"}, "tags": {"a": "`+strings.Repeat("x", 200)+`"}}`), make([]byte, 0, 1<<10)
	for _, validate := range []bool{false, true} {
		e := jsonSchema(b, orderSchema, validate, customerSchema)
		b.Run("validate="+strconv.FormatBool(validate), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, err := e.Append(dst, payload); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
