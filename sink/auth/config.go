package auth

import "context"

// SASL mechanisms.
const (
	Plain       = "plain"
	ScramSHA256 = "scram-sha-256"
	ScramSHA512 = "scram-sha-512"
	OAuthBearer = "oauthbearer"
	AWSMSKIAM   = "aws-msk-iam"
)

// SASL says how to authenticate. Secrets are functions: they are asked at every
// authentication, so a rotated secret applies at the next connection.
type SASL struct {
	Mechanism string // empty: none
	Username  string
	Password  func(context.Context) (string, error)
	OAuth     OAuth
	Region    string // aws-msk-iam; empty takes the environment's
}

// OAuth is the client-credentials grant of OAUTHBEARER.
type OAuth struct {
	TokenEndpoint string
	ClientID      string
	ClientSecret  func(context.Context) (string, error)
	Scope         string
	Extensions    map[string]string
}
