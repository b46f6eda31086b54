package retention

import (
	"slices"
	"testing"

	"github.com/cdc-relay/cdc-relay/postgres/maintenance"
	"github.com/cdc-relay/cdc-relay/replication/wal"
	"github.com/cdc-relay/cdc-relay/upkeep"
)

// Where values go to an archive or a file, the session knows which columns there were.
func TestWork_IsOfTheColumnsThatGoElsewhere(t *testing.T) {
	survey := &maintenance.Survey{Columns: []maintenance.Column{{Name: "id", Type: "uuid"}, {Name: "at", Type: "date"}}, Archive: &maintenance.ArchiveSurvey{}}
	for then, want := range map[Then][]maintenance.Column{Delete: nil, Archive: survey.Columns, Export: survey.Columns} {
		f := &found{Found: upkeep.Found{Survey: survey}, policy: &Policy{Target: upkeep.Target{Table: wal.Table{Schema: "public", Name: "outbox"}}, Then: then}}
		if got := f.work(&leaf{survey: survey}, &upkeep.Limits{}).Columns; !slices.Equal(got, want) {
			t.Errorf("%s: columns %v, want %v", then, got, want)
		}
	}
}
