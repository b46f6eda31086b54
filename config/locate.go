package config

import (
	"fmt"
	"slices"
	"strings"

	"github.com/cdc-relay/cdc-relay/router"
)

// Locate gives what the router found wrong with a mapping the places in the file
// at which it was configured. Mistakes that only a table shows come after Load,
// and look like Load's. An error without any is returned as it is.
func (c *Config) Locate(err error) error {
	mistakes := router.ConfigErrors(err)
	if len(mistakes) == 0 {
		return err
	}
	located := &Errors{}
	for _, m := range mistakes {
		one := c.mistake(c.overruled(m.Path), m.Path, m.Err.Error())
		one.Err = m.Err
		located.List = append(located.List, one)
	}
	located.sort()
	return located
}

// located places a mistake where the key was set or, when nothing did, at its
// section.
func (c *Config) located(path, message string) *Error {
	return c.mistake(c.originOf(path), path, message)
}

func (c *Config) originOf(path string) origin {
	at, ok := c.origins[path]
	if !ok {
		at, ok = c.blank[path]
	}
	for key := parent(path); !ok && key != ""; key = parent(key) {
		at, ok = c.origins[key]
	}
	if !ok {
		at.source = c.Path
	}
	return at
}

// overruled is the place of a mapping's mistake. Where nothing set the key itself, flags
// that set others of the same table come first: without them the mapping may be right.
func (c *Config) overruled(path string) origin {
	at := c.originOf(path)
	if _, exact := c.origins[path]; exact {
		return at
	}
	table := strings.TrimSuffix(tableNumber.FindString(path), ".")
	var flags []string
	for key, o := range c.origins {
		if o.assigned != "" && parent(key) == table {
			flags = append(flags, o.assigned)
		}
	}
	if table == "" || len(flags) == 0 {
		return at
	}
	slices.Sort(flags)
	place := strings.Join(flags, " ")
	if at.line > 0 {
		place += fmt.Sprintf(", over %s:%d:%d", at.source, at.line, at.column)
	}
	return origin{source: flagSource, assigned: place}
}

func (c *Config) mistake(at origin, key, message string) *Error {
	e := &Error{Source: at.text(), Line: at.line, Column: at.column, Key: key, Message: message}
	if at.line > 0 && c.doc != nil {
		e.excerpt = c.doc.Excerpt(at.line)
	}
	return e
}
