package replication

import (
	"slices"
	"strings"
)

// wantsOf is what the table of that index asks for.
func (c *Config) wantsOf(table int) Wants {
	if table < len(c.Wants) {
		return c.Wants[table]
	}
	return Wants{}
}

// operations names what the tables want beyond inserts, as publish has it.
func (c *Config) operations() []string {
	var all Wants
	for _, w := range c.Wants {
		all.Update, all.Delete, all.Truncate = all.Update || w.Update, all.Delete || w.Delete, all.Truncate || w.Truncate
	}
	return all.operations()
}

// published is the publication's option publish that brings all that is wanted.
func (c *Config) published() string {
	return strings.Join(append([]string{"insert"}, c.operations()...), ", ")
}

// unwanted are the published operations that no table asks for.
func (c *Config) unwanted(published []string) []string {
	wanted := c.operations()
	return slices.DeleteFunc(slices.Clone(published), func(op string) bool { return slices.Contains(wanted, op) })
}
