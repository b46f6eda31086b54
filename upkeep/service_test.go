package upkeep

import (
	"testing"

	"github.com/cdc-relay/cdc-relay/postgres"
	"github.com/cdc-relay/cdc-relay/relay"
	"github.com/cdc-relay/cdc-relay/router"
	"github.com/rs/zerolog"
)

// A server that is not there is an error, and no end of the process that streams.
func TestOpen_ReportsAServerThatIsNotThere(t *testing.T) {
	cfg := Config{Server: postgres.Config{URL: "postgres://nobody@127.0.0.1:1/nothing?sslmode=disable&connect_timeout=2"}}
	cfg.Relay.DetectMovedSlot = true
	cfg.Relay.Guarantee = relay.AtLeastOnce
	cfg.Relay.Router = router.Config{Mappings: []router.Mapping{{Table: "public.outbox", Preset: "outbox"}}}
	s, err := Open(t.Context(), cfg, zerolog.Nop())
	if err == nil || s != nil {
		t.Errorf("%v, %v", s, err)
	}
}
