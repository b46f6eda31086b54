package preset

import (
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/cdc-relay/cdc-relay/replication/wal"
)

// A column less is no table of the framework any more; a column that somebody added
// takes nothing away from it.
func TestPresets_SignaturesAreExact(t *testing.T) {
	for _, p := range presets {
		if p.signature == nil {
			continue
		}
		rel := &wal.Relation{Namespace: "public", Name: "outbox"}
		if p.tables != "" {
			rel.Name = strings.ReplaceAll(p.tables, "*", "x")
		}
		for _, name := range p.signature {
			rel.Columns = append(rel.Columns, wal.Column{Name: name, Type: 25})
		}
		for i := range rel.Columns {
			less := *rel
			less.Columns = slices.Delete(slices.Clone(rel.Columns), i, i+1)
			if got, err := signed(&less); err != nil || got != nil {
				t.Errorf("%s without %s: %v, %v", p.Name, p.signature[i], got, err)
			}
		}
		rel.Columns = append(rel.Columns, wal.Column{Name: "added_by_a_migration", Type: 25})
		if got, err := signed(rel); err != nil || got == nil || got.Name != p.Name {
			t.Errorf("%s with a column more: %v, %v", p.Name, got, err)
		}
	}
}

func TestRefusals_AreDocumented(t *testing.T) {
	text, err := os.ReadFile(documented)
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range refusals {
		if !strings.Contains(string(text), r.framework) {
			t.Errorf("docs/tables.md does not name %s", r.framework)
		}
	}
}

// documented is where users read of presets and of what has none.
const documented = "../../docs/tables.md"
