package auth

import (
	"context"
	"time"
)

// Tokens is the source of OAUTHBEARER tokens with a clock of the test's.
func Tokens(cfg OAuth, now func() time.Time) (func(context.Context) (string, error), error) {
	t, err := newTokens(cfg, false)
	if err != nil {
		return nil, err
	}
	t.now = now
	return t.get, nil
}
