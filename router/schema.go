package router

import (
	"context"
	"errors"
	"fmt"

	"github.com/cdc-relay/cdc-relay/advice"
	"github.com/cdc-relay/cdc-relay/replication/wal"
	"github.com/cdc-relay/cdc-relay/router/column"
	"github.com/cdc-relay/cdc-relay/router/format"
	"github.com/cdc-relay/cdc-relay/router/record"
	"github.com/cdc-relay/cdc-relay/router/schemas"
)

// value makes the record's value, by a schema where the mapping has one.
func (p *plan) value(b *record.Buffer, row *wal.Row, topic string, scratch *[]byte) ([]byte, error) {
	if p.schema == nil {
		return p.Value(b, row, scratch)
	}
	payload, err := p.Payload.Bytes(b, row)
	if err != nil || payload == nil || p.Tombstone && len(column.TrimBlank(payload)) == 0 {
		return nil, err
	}
	return p.schema.Value(b, row, p.Payload, payload, topic, scratch)
}

// refused is the error of a row that gave no record. Where a schema was needed it is asked for, and
// the row is routed.
func (r *Router) refused(buf *record.Buffer, row *wal.Row, err error) error {
	need, ok := errors.AsType[*schemas.Need](err)
	switch {
	case !ok:
		return record.NewRowError(row, err)
	case r.registry == nil:
		return need // to whoever detached it
	}
	answer, err := need.Ask(context.Background(), r.registry) // which has a timeout of its own
	if err != nil {
		return &schemas.Unmet{Topic: need.Topic, Err: err}
	}
	answer.Learn()
	return r.Route(buf, row)
}

// Detach has Route return a *schemas.Need where it would ask for a schema, and returns who is to be
// asked.
func (r *Router) Detach() schemas.Registry {
	registry := r.registry
	r.registry = nil
	return registry
}

// Decode gives the schema of a value that Route made for a table, and the JSON that it stands for;
// nothing for a table without schemas.
func (r *Router) Decode(table int, value []byte) (schema string, json []byte, err error) {
	if t := r.mappings[table].schemas; t != nil {
		return t.Decode(value)
	}
	return "", nil, nil
}

// schema compiles what the mapping needs of schemas.
func (c *compiler) schema() {
	t := c.schemas
	if t == nil {
		return
	}
	if t.Check && c.plan.Format != format.Raw {
		c.fail("schema.check", advice.Give(fmt.Errorf("the payload is checked as it is sent, and value format %s sends another one", c.plan.Format), "set value: raw, or leave this out"))
		return
	}
	bound, err := t.Bind(func(name string) (*column.Source, error) {
		s, err := column.NewSource(c.rel, name)
		if err == nil {
			c.plan.sources = append(c.plan.sources, s)
			c.use("schema subject", s, nil)
		}
		return s, err
	})
	if err != nil {
		c.fail("schema.subject", err)
		return
	}
	c.plan.schema = bound
}
