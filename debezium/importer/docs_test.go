package importer_test

import (
	"cmp"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/cdc-relay/cdc-relay/debezium/options"
)

const page = "../../docs/debezium.md"

// optionTables are the tables of the page, from the list that the program goes by.
func optionTables() string {
	var b strings.Builder
	for _, scope := range []struct{ scope, title string }{
		{options.ScopeEventRouter, "EventRouter"},
		{options.ScopeConnector, "Connector"},
		{options.ScopeTransform, "Other transforms"},
		{options.ScopePredicate, "Predicates"},
		{options.ScopeConverter, "Converters"},
		{options.ScopeWorker, "Worker"},
		{options.ScopeProducer, "Producer"},
	} {
		fmt.Fprintf(&b, "\n### %s\n\n| Option | Default | Fate | |\n|---|---|---|---|\n", scope.title)
		for _, o := range options.All {
			if o.Scope != scope.scope {
				continue
			}
			name := "`" + o.Name + "`"
			if o.Of != "" {
				name += " of " + o.Of
			}
			def := ""
			if o.Default != "" {
				def = "`" + o.Default + "`"
			}
			fate := o.Fate
			if o.Key != "" {
				fate += " `" + o.Key + "`"
			}
			cell := strings.NewReplacer("|", `\|`, "<", "&lt;").Replace
			fmt.Fprintf(&b, "| %s | %s | %s | %s |\n", name, strings.ReplaceAll(def, "|", `\|`), fate, cell(o.Note))
		}
	}
	return b.String() + "\n"
}

const (
	optionsBegin = "<!-- options -->\n"
	optionsEnd   = "<!-- end of options -->"
)

func TestDocumentation_HasTheFateOfEveryOption(t *testing.T) {
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	head, rest, found := strings.Cut(string(text), optionsBegin)
	old, tail, ended := strings.Cut(rest, optionsEnd)
	if !found || !ended {
		t.Fatalf("%s has no place for the options", page)
	}
	want := optionTables()
	if *update {
		if err := os.WriteFile(page, []byte(head+optionsBegin+want+optionsEnd+tail), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if old != want {
		t.Errorf("the options in %s are not those of the program; rewrite them with go test ./debezium/importer -update", page)
	}
}

// Every metric that the page names is one of ours.
func TestDocumentation_NamesMetricsThatExist(t *testing.T) {
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	metrics, err := os.ReadFile("../../docs/metrics.md")
	if err != nil {
		t.Fatal(err)
	}
	named := regexp.MustCompile(`cdc_relay_[a-z_]+`).FindAllString(string(text), -1)
	slices.Sort(named)
	named = slices.Compact(named)
	if len(named) < 10 {
		t.Fatalf("only %v", named)
	}
	for _, name := range named {
		if !strings.Contains(string(metrics), "`"+name+"`") {
			t.Errorf("%s names the metric %s, which docs/metrics.md has not", page, name)
		}
	}
}

// The list has each option once, with a fate and, where it is lost, a reason.
func TestOptions_AreComplete(t *testing.T) {
	seen := map[string]bool{}
	for _, o := range options.All {
		id := cmp.Or(o.Of, o.Scope) + " " + o.Scope + " " + o.Name
		if seen[id] {
			t.Errorf("%s is there twice", id)
		}
		seen[id] = true
		if o.Fate == options.FateElsewhere && o.Key == "" {
			t.Errorf("%s has a key of ours, and does not name it", id)
		}
		if (o.Fate == options.FateNotCarried || o.Fate == options.FateNotNeeded || o.Fate == options.FateImplied) && o.Note == "" {
			t.Errorf("%s is %s, and nobody says why", id, o.Fate)
		}
	}
}
