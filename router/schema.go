package router

import (
	"fmt"

	"github.com/cdc-relay/cdc-relay/advice"
	"github.com/cdc-relay/cdc-relay/router/column"
	"github.com/cdc-relay/cdc-relay/router/format"
	"github.com/cdc-relay/cdc-relay/router/schemas"
)

// Registry has the schemas that a *schemas.Need names; nil: no mapping needs a schema. The router
// never asks it.
func (r *Router) Registry() schemas.Registry { return r.registry }

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
	t := c.of.schemas
	if t == nil {
		return
	}
	if t.Check && c.plan.content.Format != format.Raw {
		c.fail("schema.check", advice.Give(fmt.Errorf("the payload is checked as it is sent, and value format %s sends another one", c.plan.content.Format), "set value: raw, or leave this out"))
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
