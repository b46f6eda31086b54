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
	s, err := n.find(ctx, subject)
	n.gone[subject] = errors.Is(err, errNoSchema)
	return s, err
}

// find goes through the versions of a subject, from the latest to the first.
func (n *numbered) find(ctx context.Context, subject string) (*encode.Schema, error) {
	for version := 0; version >= 0; {
		s, err := n.Registry.Schema(ctx, subject, version)
		switch failure, _ := errors.AsType[*fault.Error](err); {
		case err == nil && s.ID == n.id:
			return s, nil
		case err == nil && version == 0:
			version = s.Version // the next one is before it
		case err != nil && (failure == nil || failure.Reason != fault.ReasonUnknownSubject):
			return nil, err
		}
		if version--; version == 0 {
			break // all were seen; zero would be the latest again
		}
	}
	return nil, fmt.Errorf("schema %d of subject %s: %w", n.id, subject, errNoSchema)
}
