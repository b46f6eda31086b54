package options

import (
	"slices"
	"testing"
)

func TestDebeziumOptions_EveryRowSaysWhatBecomesOfIt(t *testing.T) {
	type name struct{ scope, of, name string }
	seen := map[name]bool{}
	scopes := []string{ScopeConnector, ScopeEventRouter, ScopeTransform, ScopePredicate, ScopeConverter, ScopeWorker, ScopeProducer}
	fates := []string{FateCarried, FateElsewhere, FateImplied, FateNotNeeded, FateNotCarried, FateDefault}
	for _, o := range All {
		key := name{o.Scope, o.Of, o.Name}
		switch {
		case seen[key]:
			t.Errorf("%v is there twice", key)
		case !slices.Contains(scopes, o.Scope), !slices.Contains(fates, o.Fate), o.Type == "":
			t.Errorf("%v: scope, fate or type is not known: %+v", key, o)
		case (o.Fate == FateElsewhere) != (o.Key != ""):
			t.Errorf("%v: fate %q and key %q", key, o.Fate, o.Key)
		case o.Note == "" && (o.Fate == FateNotCarried || o.Fate == FateNotNeeded || o.Fate == FateImplied):
			t.Errorf("%v says nothing about why it is %s", key, o.Fate)
		case o.Fate == FateDefault && o.Default == "":
			t.Errorf("%v is carried with its default alone, and has none", key)
		}
		seen[key] = true
	}
}

func TestFindDebeziumOption_PrefersTheNarrowerRow(t *testing.T) {
	for _, c := range []struct{ scope, of, name, want string }{
		{ScopeConnector, "", "value.converter", "value.converter"},
		{ScopeConnector, "", "value.converter.schemas.enable", "value.converter.*"},
		{ScopeConnector, "", "topic.creation.default.partitions", "topic.creation.default.partitions"},
		{ScopeConnector, "", "topic.creation.default.retention.ms", "topic.creation.default.*"},
		{ScopeConnector, "", "topic.creation.groups", "topic.creation.*"},
		{ScopeConnector, "", "snapshot.fetch.size", "snapshot.*"},
		{ScopeTransform, "HeaderFrom", "headers", "headers"},
		{ScopeConverter, "StringConverter", "schemas.enable", "schemas.enable"},
		{ScopeConnector, "", "no.such.option", ""},
		{ScopeConnector, "", "snapshot", ""},
	} {
		o, ok := Lookup(c.scope, c.of, c.name)
		if ok != (c.want != "") || o.Name != c.want {
			t.Errorf("%s: got %q, want %q", c.name, o.Name, c.want)
		}
	}
	if o, _ := Lookup(ScopeConverter, "JsonConverter", "schemas.enable"); o.Fate != FateCarried {
		t.Errorf("JsonConverter's schemas.enable is %s", o.Fate)
	}
}
