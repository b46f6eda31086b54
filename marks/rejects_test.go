package marks

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/cdc-relay/cdc-relay/postgres/maintenance"
)

// strict refuses a batch that has a certain id.
type strict struct {
	bad     []string
	state   string
	written []string
}

func (s *strict) Reject(_ context.Context, _ *maintenance.RejectedColumns, all []maintenance.Rejected) (int, error) {
	for _, r := range all {
		if slices.Contains(s.bad, r.ID) {
			return 0, fmt.Errorf("act on rows: %w", &pgconn.PgError{Code: s.state})
		}
	}
	for _, r := range all {
		s.written = append(s.written, r.ID)
	}
	return len(all), nil
}

// A letter whose id is no value of the column keeps no other row from being written, and any other
// failure is returned.
func TestRejectAll_LeavesOutWhatIsNoID(t *testing.T) {
	var batch []maintenance.Rejected
	for _, id := range []string{"1", "2", "x", "4", "5", "y", "7"} {
		batch = append(batch, maintenance.Rejected{ID: id})
	}
	s := &strict{bad: []string{"x", "y"}, state: "22P02"}
	n, err := rejectAll(t.Context(), s, nil, batch)
	if slices.Sort(s.written); err != nil || n != 5 || !slices.Equal(s.written, []string{"1", "2", "4", "5", "7"}) {
		t.Errorf("%d, %v: %v", n, err, s.written)
	}
	s = &strict{bad: []string{"x"}, state: "42501"}
	if _, err := rejectAll(t.Context(), s, nil, batch); err == nil || errors.Is(err, context.Canceled) || len(s.written) != 0 {
		t.Errorf("%v: %v", err, s.written)
	}
}
