// Package resolve routes rows for whoever does not stream: where a row needs a schema, it asks the
// registry and waits for the answer. A relay does not wait: see relay/schemas.
package resolve

import (
	"context"
	"errors"

	"github.com/cdc-relay/cdc-relay/replication/wal"
	"github.com/cdc-relay/cdc-relay/router"
	"github.com/cdc-relay/cdc-relay/router/record"
	"github.com/cdc-relay/cdc-relay/router/schemas"
)

// Router is a router.Router whose Route asks the registry. It has one owner too.
type Router struct{ *router.Router }

// New is that of package router, without position headers: a row that is not streamed has no position.
func New(cfg router.Config) (*Router, error) {
	cfg.PositionHeaders = false
	r, err := router.New(cfg)
	if err != nil {
		return nil, err
	}
	return &Router{r}, nil
}

// Route is that of router.Router. In place of a *schemas.Need it returns a *schemas.Unmet, with the
// registry's error; nothing is appended, and the row is not at fault.
func (r *Router) Route(ctx context.Context, buf *record.Buffer, row *wal.Row) error {
	for {
		err := r.Router.Route(buf, row)
		need, ok := errors.AsType[*schemas.Need](err)
		if !ok {
			return err
		}
		answer, err := need.Ask(ctx, r.Registry())
		if err != nil {
			return &schemas.Unmet{Topic: need.Topic, Err: err}
		}
		answer.Learn()
	}
}
