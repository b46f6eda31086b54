package config

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/goccy/go-yaml"
	"github.com/santhosh-tekuri/jsonschema/v6"
)

func compileSchema(t *testing.T) *jsonschema.Schema {
	t.Helper()
	document, err := jsonschema.UnmarshalJSON(bytes.NewReader(Schema()))
	if err != nil {
		t.Fatal(err)
	}
	if id := document.(map[string]any)["$schema"]; id != "https://json-schema.org/draft/2020-12/schema" {
		t.Errorf("$schema is %v", id)
	}
	c := jsonschema.NewCompiler()
	if err := c.AddResource("schema.json", document); err != nil {
		t.Fatal(err)
	}
	s, err := c.Compile("schema.json")
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func yamlValue(t *testing.T, text string) any {
	t.Helper()
	asJSON, err := yaml.YAMLToJSON([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	value, err := jsonschema.UnmarshalJSON(bytes.NewReader(asJSON))
	if err != nil {
		t.Fatal(err)
	}
	return value
}

func TestSchema_AcceptsEveryFileThatLoads(t *testing.T) {
	s := compileSchema(t)
	files, _ := filepath.Glob("testdata/valid/*.yaml")
	if len(files) < 4 {
		t.Fatalf("only %d files", len(files))
	}
	for _, file := range append(files, exampleFile) {
		content, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if err := s.Validate(yamlValue(t, string(content))); err != nil {
			t.Errorf("%s: %v", file, err)
		}
	}
}

func TestSchema_RefusesMistakes(t *testing.T) {
	s := compileSchema(t)
	for _, text := range []string{
		"postgres: {sloot: x}",
		"relay: {guarantee: at_most_once}",
		"relay: {drain_timeout: 30}",
		"relay: {max_in_flight_bytes: 32}",
		"outbox: [{preset: auto}]",
		"outbox: [{table: t, value: xml}]",
		"kafka: {tls: {enabled: 1}}",
		"log: {level: loud}",
		"kafka: {create_topics: {partitions: twelve}}",
	} {
		if err := s.Validate(yamlValue(t, text)); err == nil {
			t.Errorf("accepted: %s", text)
		}
	}
}

func TestSchema_DescribesEveryKey(t *testing.T) {
	var root map[string]any
	if err := json.Unmarshal(Schema(), &root); err != nil {
		t.Fatal(err)
	}
	eachKey(reflect.TypeFor[settings](), "", func(path string, k key) {
		at := root
		for part := range strings.SplitSeq(path, ".") {
			if items, ok := at["items"].(map[string]any); ok {
				at = items
			}
			if at["additionalProperties"] != false {
				t.Errorf("%s: unknown keys beside it are allowed", path)
			}
			properties, _ := at["properties"].(map[string]any)
			at, _ = properties[part].(map[string]any)
		}
		if at["description"] != k.desc {
			t.Errorf("%s: description %v", path, at["description"])
		}
		if k.def != "" && fmt.Sprint(at["default"]) != k.def {
			t.Errorf("%s: default %v, want %s", path, at["default"], k.def)
		}
	})
}
