package config

import "github.com/cdc-relay/cdc-relay/router"

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
		one := c.located(m.Path, m.Err.Error())
		one.Err = m.Err
		located.List = append(located.List, one)
	}
	located.sort()
	return located
}

// located places a mistake where the key was set or, when nothing did, at its
// section.
func (c *Config) located(path, message string) *Error {
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
	return c.mistake(at, path, message)
}

func (c *Config) mistake(at origin, key, message string) *Error {
	e := &Error{Source: at.source, Line: at.line, Column: at.column, Key: key, Message: message}
	if at.line > 0 && c.doc != nil {
		e.excerpt = c.doc.excerpt(at.line)
	}
	return e
}
