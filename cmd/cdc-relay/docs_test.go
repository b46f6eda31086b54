package main

import (
	"encoding/json"
	"os"
	"regexp"
	"testing"

	"github.com/cdc-relay/cdc-relay/config"
)

type schemaNode struct {
	Properties map[string]*schemaNode
	Items      *schemaNode
}

func (n *schemaNode) leaves(path string, add func(string)) {
	switch {
	case len(n.Properties) > 0:
		for name, child := range n.Properties {
			if path != "" {
				name = path + "." + name
			}
			child.leaves(name, add)
		}
	case n.Items != nil && len(n.Items.Properties) > 0:
		n.Items.leaves(path+"[]", add)
	default:
		add(path)
	}
}

func TestDocumentation_ListsEveryKeyAndNothingElse(t *testing.T) {
	text, err := os.ReadFile("../../docs/configuration.md")
	if err != nil {
		t.Fatal(err)
	}
	var schema schemaNode
	if err := json.Unmarshal(config.Schema(), &schema); err != nil {
		t.Fatal(err)
	}
	keys, documented := map[string]bool{}, map[string]bool{}
	schema.leaves("", func(key string) { keys[key] = true })
	for _, m := range regexp.MustCompile("(?m)^\\| `((?:[a-z]+(?:\\[\\])?\\.)[a-z_.]+|pipeline)` \\|").FindAllSubmatch(text, -1) {
		documented[string(m[1])] = true
	}
	for key := range keys {
		if !documented[key] {
			t.Errorf("docs/configuration.md does not document %s", key)
		}
	}
	for key := range documented {
		if !keys[key] {
			t.Errorf("docs/configuration.md documents %s, which does not exist", key)
		}
	}
	if len(keys) < 40 {
		t.Errorf("the schema has %d keys: the test looks in the wrong place", len(keys))
	}
}
