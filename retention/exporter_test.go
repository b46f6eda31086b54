package retention

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/cdc-relay/cdc-relay/retention/export"
	"github.com/cdc-relay/cdc-relay/upkeep"
)

// silentStore answers nothing as long as there is time.
type silentStore struct{ export.Store }

func (silentStore) Probe(ctx context.Context) error {
	<-ctx.Done()
	return errors.New("bucket events does not answer")
}

// A service without a connection stands for PostgreSQL: it is not to be asked any more.
func TestProve_BlamesTheStoreThatTookAllOfTheTime(t *testing.T) {
	over, cancel := context.WithCancel(t.Context())
	cancel()
	f := &found{policy: new(Policy), store: silentStore{}}
	err := new(Service).prove(over, f, new(upkeep.Plan))
	if err == nil || !strings.Contains(err.Error(), "bucket events does not answer") || len(f.Refused) != 0 {
		t.Errorf("%v, refused: %v", err, f.Refused)
	}
}
