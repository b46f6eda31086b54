package config

import (
	"context"
	"errors"
	"fmt"
	"net"
	"regexp"

	awsconfig "github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/feature/rds/auth"
)

const authRDSIAM = "aws_rds_iam"

// IAM reports whether PostgreSQL is asked to authenticate by AWS IAM.
func (c *Config) IAM() bool { return c.settings.Postgres.Auth == authRDSIAM }

// Login gives user and database of postgres.url, each empty when it does not say.
func (c *Config) Login() (user, database string) {
	parts, _ := c.settings.Postgres.URL.parse()
	return parts.user, parts.database
}

// rdsHost is an RDS or Aurora endpoint, whose name has the region.
var rdsHost = regexp.MustCompile(`\.([a-z]{2}(?:-[a-z]+)+-\d)\.rds\.amazonaws\.com(?:\.cn)?$`)

// rdsToken makes a token at every connect, by the same chain of credentials as
// MSK IAM: environment, files, web identity, container and instance roles. A
// token is good for 15 minutes, and only for connecting.
func (c *Config) rdsToken() func(ctx context.Context, endpoint, user string) (string, error) {
	if !c.IAM() {
		return nil
	}
	return func(ctx context.Context, endpoint, user string) (string, error) {
		var options []func(*awsconfig.LoadOptions) error
		if region := c.settings.Kafka.Region; region != "" {
			options = append(options, awsconfig.WithRegion(region))
		}
		chain, err := awsconfig.LoadDefaultConfig(ctx, options...)
		if err != nil {
			return "", fmt.Errorf("find AWS credentials: %w", err)
		}
		region := chain.Region
		if region == "" {
			host, _, _ := net.SplitHostPort(endpoint)
			if m := rdsHost.FindStringSubmatch(host); m != nil {
				region = m[1]
			}
		}
		if region == "" {
			return "", errors.New("no AWS region is known; set kafka.region or AWS_REGION")
		}
		token, err := auth.BuildAuthToken(ctx, endpoint, region, user, chain.Credentials)
		if err != nil {
			return "", fmt.Errorf("sign in with AWS credentials: %w", err)
		}
		return token, nil
	}
}

// checkPostgresAuth wants no password beside the token, and TLS below it.
func (l *loader) checkPostgresAuth() {
	p := &l.cfg.settings.Postgres
	if p.Auth != authRDSIAM {
		return
	}
	for _, other := range []struct {
		path string
		set  bool
	}{
		{"postgres.password", p.Password != ""}, {"postgres.password_file", p.PasswordFile != ""}, {"postgres.password_command", len(p.PasswordCommand) > 0},
	} {
		if other.set {
			l.refuse(other.path, "has no effect with postgres.auth: %s, which makes its own token; allowed: one of them", authRDSIAM)
		}
	}
	parts, ok := p.URL.parse()
	if ok && (parts.sslmode == "disable" || parts.sslmode == "allow" || parts.sslmode == "prefer") {
		l.refuse("postgres.url", "sslmode %q does not go with postgres.auth: %s; allowed: verify-full, which is the default away from this machine", parts.sslmode, authRDSIAM)
	}
}
