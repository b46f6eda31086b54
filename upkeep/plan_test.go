package upkeep

import (
	"slices"
	"testing"
)

// A trigger's function finds less in this session than in the application's, and the plan says so.
func TestPlan_SaysWithWhichSearchPathTriggersRun(t *testing.T) {
	for _, tt := range []struct{ triggers, want []string }{
		{nil, nil},
		{[]string{"counted", "told"}, []string{"  triggers   counted, told; their functions run with search_path = pg_catalog, unless they set their own"}},
	} {
		var lines Lines
		lines.Ways(&Plan{Triggers: tt.triggers})
		if !slices.Equal(lines, tt.want) {
			t.Errorf("the plan says %q, want %q", lines, tt.want)
		}
	}
}
