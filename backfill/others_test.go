package backfill

import (
	"strings"
	"testing"

	"github.com/cdc-relay/cdc-relay/backfill/progress"
)

// All rows of a table that was added are to be sent afterwards. Of one with another condition most may be
// sent already.
func TestLeavesOthers_TellsANewTableFromAnotherCondition(t *testing.T) {
	t.Parallel()
	w, s := &work{}, &progress.State{Tables: []progress.TableProgress{{Table: "public.a", OID: 1}, {Table: "public.b", OID: 2, Where: "id > 5"}, {Table: "public.c", OID: 3}}}
	if w.leavesOthers(s) || len(w.warnings) > 0 {
		t.Errorf("without progress: %q", w.warnings)
	}
	s.Progress = &progress.Progress{Tables: []progress.TableProgress{{Table: "public.a", OID: 1}, {Table: "public.b", OID: 2}}}
	if !w.leavesOthers(s) || len(w.warnings) != 2 {
		t.Fatalf("%q", w.warnings)
	}
	if text := w.warnings[0]; !strings.Contains(text, "public.c") || !strings.Contains(text, "--where true") {
		t.Error(text)
	}
	if text := w.warnings[1]; !strings.Contains(text, "public.b") || strings.Contains(text, "--where true") {
		t.Error(text)
	}
}
