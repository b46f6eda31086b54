package sink

import "context"

// SASL mechanisms.
const (
	SASLPlain       = "plain"
	SASLScramSHA256 = "scram-sha-256"
	SASLScramSHA512 = "scram-sha-512"
	SASLOAuth       = "oauthbearer"
	SASLAWSMSKIAM   = "aws-msk-iam"
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
