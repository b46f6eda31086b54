package postgres_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/cdc-relay/cdc-relay/fault"
	"github.com/cdc-relay/cdc-relay/postgres"
	"github.com/cdc-relay/cdc-relay/postgres/postgrestest"
	"github.com/cdc-relay/cdc-relay/sandbox"
	"github.com/cdc-relay/cdc-relay/test/harness"
)

// A token is for one server: of several hosts each is asked with its own.
func TestConnect_AsksATokenForEachServer(t *testing.T) {
	t.Parallel()
	db := harness.OwnPostgres(t, sandbox.PostgresOptions{Password: "token of the server"})
	address := db.Server.Addr()
	var asked []string
	cfg := postgres.Config{
		URL:      "postgres://postgres@" + deadAddr + "," + address + "/" + db.Name + "?sslmode=disable",
		Password: func(context.Context) (string, error) { return "not this one", nil },
		Token: func(_ context.Context, endpoint, user string) (string, error) {
			asked = append(asked, endpoint+" "+user)
			return "token of the server", nil
		},
	}
	for _, replication := range []bool{false, true} {
		asked = nil
		postgrestest.Open(t, cfg, replication)
		if got, want := strings.Join(asked, ", "), deadAddr+" postgres, "+address+" postgres"; got != want {
			t.Errorf("asked for %s, want %s", got, want)
		}
	}
	cfg.Token = func(context.Context, string, string) (string, error) { return "", errors.New("no credentials") }
	_, err := postgres.Connect(t.Context(), cfg, true)
	postgrestest.WantError(t, err, fault.KindRetry, fault.ReasonAuth, "get a token for PostgreSQL at "+address, "no credentials")
}
