package auth

import (
	"context"
	"errors"
	"fmt"

	awsconfig "github.com/aws/aws-sdk-go-v2/config"
	"github.com/cdc-relay/cdc-relay/fault"
	"github.com/cdc-relay/cdc-relay/sink"
	"github.com/twmb/franz-go/pkg/sasl"
	"github.com/twmb/franz-go/pkg/sasl/aws"
	"github.com/twmb/franz-go/pkg/sasl/oauth"
	"github.com/twmb/franz-go/pkg/sasl/plain"
	"github.com/twmb/franz-go/pkg/sasl/scram"
)

// secretError is a secret or token that could not be had. It never contains one.
type secretError struct {
	what    string
	refused bool // for good, until somebody corrects the configuration
	err     error
}

func (e *secretError) Error() string { return fmt.Sprintf("get %s: %v", e.what, e.err) }
func (e *secretError) Unwrap() error { return e.err }

// WrappedBy says who can get the secret.
func (e *secretError) WrappedBy(error) *sink.Error {
	if e.refused {
		return &sink.Error{Class: sink.Blocked, Reason: fault.ReasonSASLSecret, Err: fmt.Errorf("%w; check kafka.sasl and kafka.oauth", e)}
	}
	return &sink.Error{Class: sink.Retry, Reason: fault.ReasonSASLSecret, Err: e}
}

// SendsSecret reports whether the mechanism hands the secret itself to the broker.
func (s SASL) SendsSecret() bool { return s.Mechanism == Plain || s.Mechanism == OAuthBearer }

// NewMechanism is nil when none is configured. It asks for the secret at each
// authentication. Without TLS, and unless insecure permits it, no secret goes to a
// broker that is not on this machine.
func NewMechanism(s SASL, secured, insecure bool) (sasl.Mechanism, error) {
	guard := func(m sasl.Mechanism) sasl.Mechanism {
		if secured || insecure {
			return m
		}
		return guarded{m}
	}
	switch s.Mechanism {
	case "":
		return nil, nil
	case Plain:
		return guard(plain.Plain(func(ctx context.Context) (plain.Auth, error) {
			password, err := s.password(ctx)
			return plain.Auth{User: s.Username, Pass: password}, err
		})), nil
	case ScramSHA256:
		return scram.Sha256(s.scram), nil
	case ScramSHA512:
		return scram.Sha512(s.scram), nil
	case OAuthBearer:
		tokens, err := newTokens(s.OAuth, insecure)
		if err != nil {
			return nil, err
		}
		return guard(oauth.Oauth(func(ctx context.Context) (oauth.Auth, error) {
			token, err := tokens.get(ctx)
			return oauth.Auth{Token: token, Extensions: s.OAuth.Extensions}, err
		})), nil
	case AWSMSKIAM:
		return aws.ManagedStreamingIAM(awsCredentials(s.Region)), nil
	}
	return nil, fmt.Errorf("configure kafka: sasl mechanism %q is none of %s, %s, %s, %s, %s", s.Mechanism,
		Plain, ScramSHA256, ScramSHA512, OAuthBearer, AWSMSKIAM)
}

func (s SASL) password(ctx context.Context) (string, error) {
	if s.Password == nil {
		return "", &secretError{"sasl password", true, errors.New("none is configured")}
	}
	password, err := s.Password(ctx)
	if err != nil {
		return "", &secretError{"sasl password", true, err}
	}
	return password, nil
}

func (s SASL) scram(ctx context.Context) (scram.Auth, error) {
	password, err := s.password(ctx)
	return scram.Auth{User: s.Username, Pass: password}, err
}

// guarded refuses to hand a secret to a broker in the clear. The configuration
// was checked for its own addresses; brokers may name others.
type guarded struct{ sasl.Mechanism }

// Authenticate starts an authentication with the broker at addr.
func (g guarded) Authenticate(ctx context.Context, addr string) (sasl.Session, []byte, error) {
	if !Loopback(addr) {
		return nil, nil, &secretError{"sasl secret", true, fmt.Errorf("broker %s would receive it without TLS", addr)}
	}
	return g.Mechanism.Authenticate(ctx, addr)
}

// awsCredentials asks the usual AWS chain: environment, files, web identity,
// container and instance roles. The region of the signature comes from the
// broker's name; region is for the services of the chain itself.
func awsCredentials(region string) func(context.Context) (aws.Auth, error) {
	return func(ctx context.Context) (aws.Auth, error) {
		var options []func(*awsconfig.LoadOptions) error
		if region != "" {
			options = append(options, awsconfig.WithRegion(region))
		}
		chain, err := awsconfig.LoadDefaultConfig(ctx, options...)
		if err != nil {
			return aws.Auth{}, &secretError{"AWS credentials", true, err}
		}
		found, err := chain.Credentials.Retrieve(ctx)
		if err != nil {
			return aws.Auth{}, &secretError{"AWS credentials", false, err}
		}
		return aws.Auth{AccessKey: found.AccessKeyID, SecretKey: found.SecretAccessKey, SessionToken: found.SessionToken, UserAgent: "cdc-relay"}, nil
	}
}
