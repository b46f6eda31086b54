package postgres

import (
	"slices"
	"strings"

	"github.com/cdc-relay/cdc-relay/replication/wal"
)

// WantsOf is what the table of that index asks for.
func (c *Config) WantsOf(table int) wal.Wants {
	if table < len(c.Wants) {
		return c.Wants[table]
	}
	return wal.Wants{}
}

// Operations names what the tables want beyond inserts, as publish has it.
func (c *Config) Operations() []string {
	var all wal.Wants
	for _, w := range c.Wants {
		all.Update, all.Delete, all.Truncate = all.Update || w.Update, all.Delete || w.Delete, all.Truncate || w.Truncate
	}
	return all.Operations()
}

// Published is the publication's option publish that brings all that is wanted.
func (c *Config) Published() string {
	return strings.Join(append([]string{"insert"}, c.Operations()...), ", ")
}

// Unwanted are the published operations that no table asks for.
func (c *Config) Unwanted(published []string) []string {
	wanted := c.Operations()
	return slices.DeleteFunc(slices.Clone(published), func(op string) bool { return slices.Contains(wanted, op) })
}
