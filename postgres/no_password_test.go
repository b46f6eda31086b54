package postgres_test

import (
	"context"
	"testing"

	"github.com/cdc-relay/cdc-relay/fault"
	"github.com/cdc-relay/cdc-relay/postgres"
	"github.com/cdc-relay/cdc-relay/postgres/postgrestest"
	"github.com/cdc-relay/cdc-relay/sandbox"
	"github.com/cdc-relay/cdc-relay/test/harness"
)

// Who gave no password does not need to look for a mistake in it.
func TestConnect_SaysThatNoPasswordWasGiven(t *testing.T) {
	t.Parallel()
	db := harness.OwnPostgres(t, sandbox.PostgresOptions{Password: "first"})
	for password, want := range map[string]string{"": "no password was given", "wrong": "check the user name and the password"} {
		_, err := postgres.Connect(t.Context(), postgres.Config{URL: db.URL, Password: func(context.Context) (string, error) { return password, nil }}, false)
		postgrestest.WantError(t, err, fault.KindRefused, fault.ReasonAuth, want)
		if password == "" {
			postgrestest.WantError(t, err, fault.KindRefused, fault.ReasonAuth, "postgres.password_file")
		}
	}
}
