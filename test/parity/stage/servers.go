package stage

import (
	"context"
	"errors"
	"io"

	"github.com/cdc-relay/cdc-relay/sandbox"
)

// ServerOptions say which servers a lane of its own gets.
type ServerOptions struct {
	Version    string    // of PostgreSQL; defaults to 15, which the goldens come from
	Java, Jars string    // that run Kafka; empty: the newest Java, and what Debezium comes with
	Log        io.Writer // for what is downloaded; may be nil
}

// Servers are a lane with servers that nobody else has.
type Servers struct {
	*Lane

	postgres *sandbox.Postgres
	kafka    *sandbox.Apache
}

// Start starts PostgreSQL and Kafka. The caller calls Close.
func Start(ctx context.Context, o ServerOptions) (*Servers, error) {
	if o.Version == "" {
		o.Version = "15"
	}
	s := &Servers{}
	err := s.start(ctx, o)
	if err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

func (s *Servers) start(ctx context.Context, o ServerOptions) error {
	var err error
	if o.Jars == "" {
		if o.Jars, err = sandbox.FetchDebezium(ctx, o.Log); err != nil {
			return err
		}
	}
	if o.Java == "" {
		if o.Java, _, err = sandbox.FindJava(ctx); err != nil {
			return err
		}
	}
	if s.postgres, err = sandbox.StartPostgres(ctx, sandbox.PostgresOptions{
		Version: o.Version, Sources: []sandbox.Source{sandbox.Local, sandbox.Download}, Settings: PostgresSettings, Log: o.Log,
	}); err != nil {
		return err
	}
	if s.kafka, err = sandbox.StartApache(ctx, sandbox.ApacheOptions{Java: o.Java, Jars: o.Jars, Settings: KafkaSettings}); err != nil {
		return err
	}
	s.Lane, err = NewLane(s.postgres, []string{s.kafka.Addr()})
	return err
}

// Close ends the servers.
func (s *Servers) Close() error {
	var errs []error
	if s.Lane != nil {
		s.Lane.Close()
	}
	if s.kafka != nil {
		errs = append(errs, s.kafka.Close())
	}
	if s.postgres != nil {
		errs = append(errs, s.postgres.Close())
	}
	return errors.Join(errs...)
}
