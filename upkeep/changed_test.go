package upkeep

import (
	"testing"
	"time"

	"github.com/cdc-relay/cdc-relay/postgres/maintenance"
)

// The relay needs some seconds to see a change of the publication, and to record it.
func TestService_LeavesATableAloneWhosePublicationChanged(t *testing.T) {
	s, began := new(Service), time.Now()
	for _, step := range []struct {
		after   time.Duration
		table   uint32
		members string
		changed bool
	}{
		{0, 1, "a", false}, // the first look
		{time.Second, 1, "a", false},
		{2 * time.Second, 1, "b", true},
		{3 * time.Second, 1, "b", true},
		{3 * time.Second, 2, "c", false}, // another table
		{20 * time.Second, 1, "d", true},
		{20*time.Second + changePatience - 1, 1, "d", true},
		{20*time.Second + changePatience, 1, "d", false},
	} {
		if got := s.changed(&maintenance.Survey{OID: step.table, Streamed: maintenance.Streamed{Published: map[string]string{"orders": step.members}}}, began.Add(step.after)); got != step.changed {
			t.Errorf("after %s table %d: changed %t, want %t", step.after, step.table, got, step.changed)
		}
	}
}
