package backfill

import (
	"strings"
	"testing"
)

func TestDeletions_ChangeWithWhatTakesRowsAway(t *testing.T) {
	before := deletions{rows: 5, since: "17.5", files: []string{"16385:16385 outbox", "16390:16390 part"}}
	for name, c := range map[string]struct {
		now  deletions
		says string // empty: nothing was deleted
	}{
		"nothing":         {deletions{5, "17.5", []string{"16390:16390 part", "16385:16385 outbox"}}, ""},
		"renamed":         {deletions{5, "17.5", []string{"16385:16385 old", "16390:16390 part"}}, ""},
		"another part":    {deletions{5, "17.5", []string{"16385:16385 outbox", "16390:16390 part", "16400:16400 next"}}, ""},
		"one":             {deletions{6, "17.5", before.files}, "1 row deleted since"},
		"some":            {deletions{9, "17.5", before.files}, "4 rows deleted since"},
		"forgotten":       {deletions{4, "17.5", before.files}, "was reset"},
		"begun anew":      {deletions{5, "18.5", before.files}, "was reset"},
		"rewritten":       {deletions{5, "17.5", []string{"16385:16999 outbox", "16390:16390 part"}}, "table or partition outbox was emptied"},
		"a part detached": {deletions{5, "17.5", []string{"16385:16385 outbox"}}, "table or partition part was emptied"},
		"a longer number": {deletions{5, "17.5", []string{"16385:163851 outbox", "16390:16390 part"}}, "table or partition outbox was emptied"},
	} {
		err := before.changed(&c.now)
		if (err == nil) != (c.says == "") || err != nil && !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v, want %q", name, err, c.says)
		}
	}
	now := deletions{5, "17.5", []string{"16385:16385 old", "16390:16390 part", "16400:16400 next"}}
	if added := before.added(&now); len(added) != 1 || added[0] != "next" {
		t.Errorf("added: %v", added)
	}
}
