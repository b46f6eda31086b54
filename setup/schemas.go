package setup

import (
	"context"
	"errors"

	"github.com/cdc-relay/cdc-relay/advice"
	"github.com/cdc-relay/cdc-relay/fault"
	"github.com/cdc-relay/cdc-relay/registry"
	"github.com/cdc-relay/cdc-relay/router/schemas"
)

// schemas registers what the configuration has to be registered, and says what the registry has of it.
// With dryRun it writes nothing, and what would be refused is refused all the same.
func (s *Setup) schemas(ctx context.Context, dryRun bool) error {
	for i := range s.settings.Router.Mappings {
		if of := &s.settings.Router.Mappings[i].Schema; of.Register != nil {
			client, ok := s.settings.Router.Registry.(*registry.Client)
			if !ok {
				return &advice.Refused{Err: errors.New("kafka.registry.url is missing; a schema is registered there")}
			}
			if err := s.schema(ctx, client, of, dryRun); err != nil {
				return fault.Refuse(err)
			}
		}
	}
	return nil
}

// schema registers the schema of one table.
func (s *Setup) schema(ctx context.Context, client *registry.Client, of *schemas.Config, dryRun bool) error {
	wanted := of.Register
	standing, err := client.Standing(ctx, wanted)
	if err != nil {
		return err
	}
	have := standing.Have
	if have == nil {
		if standing.Checked && !standing.Compatible {
			return client.Incompatible(wanted, standing.Objections)
		}
		s.say("-- subject %s %s", wanted.Subject, missing(standing, wanted.File))
		if dryRun {
			return nil
		}
		if have, err = client.Register(ctx, wanted); err != nil {
			return err
		}
		s.say("registered schema %s under subject %s: %s", wanted.File, wanted.Subject, have)
		standing.Latest = have
	} else {
		s.say("-- subject %s has schema %s: %s", wanted.Subject, wanted.File, have)
	}
	switch {
	case of.Version != 0 && of.Version != have.Number:
		s.warn("schema %s is version %d of subject %s, and rows are encoded by version %d (outbox[].schema.version)", wanted.File, have.Number, wanted.Subject, of.Version)
	case of.Version == 0 && have.Number != standing.Latest.Number:
		s.warn("schema %s is version %d of subject %s, and rows are encoded by the latest one, version %d; bring the file up to date", wanted.File, have.Number, wanted.Subject, standing.Latest.Number)
	}
	return nil
}

// missing says what would become of a schema that the subject does not have.
func missing(standing *registry.Standing, file string) string {
	switch {
	case standing.Latest == nil:
		return "is missing, for schema " + file
	case standing.Checked:
		return "lacks schema " + file + "; the registry calls it compatible with " + standing.Latest.String()
	}
	return "lacks schema " + file + "; the registry has no check of compatibility with " + standing.Latest.String() + " before it is registered"
}
