package restore

import (
	"context"
	"errors"
	"fmt"

	"github.com/cdc-relay/cdc-relay/fault"
	"github.com/cdc-relay/cdc-relay/router/encode"
	"github.com/cdc-relay/cdc-relay/router/schemas"
)

// numbered is a registry in which each subject has one version, whichever is asked for: the one
// whose schema has a number. So a value is made again by the schema that made it.
type numbered struct {
	schemas.Registry
	id   uint32
	gone map[string]bool // subjects without that schema
}

var errNoSchema = errors.New("no version of the subject has that schema")

func (n *numbered) Schema(ctx context.Context, subject string, _ int) (*encode.Schema, error) {
	if n.gone[subject] {
		return nil, errNoSchema
	}
	s, err := n.Registry.Schema(ctx, subject, 0)
	if err != nil {
		return nil, err
	}
	for version := s.Version - 1; s.ID != n.id; version-- {
		if version < 1 {
			n.gone[subject] = true
			return nil, fmt.Errorf("schema %d of subject %s: %w", n.id, subject, errNoSchema)
		}
		older, err := n.Registry.Schema(ctx, subject, version)
		if failure, ok := errors.AsType[*fault.Error](err); ok && failure.Reason == fault.ReasonUnknownSubject {
			continue // that version was deleted
		}
		if err != nil {
			return nil, err
		}
		s = older
	}
	return s, nil
}
