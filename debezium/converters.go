package debezium

import (
	"errors"
	"maps"
	"slices"
	"strings"

	"github.com/cdc-relay/cdc-relay/debezium/connect"
	"github.com/cdc-relay/cdc-relay/debezium/connect/converter"
	"github.com/cdc-relay/cdc-relay/debezium/options"
	"github.com/cdc-relay/cdc-relay/debezium/transform"
)

// converters makes the three of them; their own options are checked there.
func (c *debeziumConfig) converters(d *connector) {
	for i, role := range []struct {
		name  string
		into  *converter.Converter
		class string // without one in the configuration
	}{{"key.converter", &d.key, ""}, {"value.converter", &d.value, ""}, {"header.converter", &d.header, converter.ClassSimpleHeader}} {
		class, given := c.options[role.name]
		if !given {
			if class = role.class; class == "" {
				c.fail(role.name, "%s is missing: in Connect the worker's applies, which is not known here; name it, as a rule %s or %s", role.name, converter.ClassJSON, converter.ClassString)
				continue
			}
		}
		d.classes[i] = class
		if role.class == "" && class != "" && !converter.IsDataConverter(class) {
			c.fail(role.name, "%q is not a converter that is carried; there are %s", class, strings.Join(converter.Classes(), ", "))
			continue
		}
		options := map[string]string{}
		for name, value := range c.options {
			if rest, ok := strings.CutPrefix(name, role.name+"."); ok {
				options[rest] = value
			}
		}
		if len(options) > 0 && !given {
			c.fail(role.name+"."+slices.Sorted(maps.Keys(options))[0], "%s is not set, so Connect ignores %s.*; name the converter, or leave its options out", role.name, role.name)
			continue
		}
		var err error
		if *role.into, err = c.converter(class, options); err != nil {
			name := role.name
			if e, ok := errors.AsType[*connect.OptionError](err); ok && e.Option != "" {
				name += "." + e.Option
			}
			c.fail(name, "%w", err)
		}
	}
}

// converter drops the options that change no bytes.
func (c *debeziumConfig) converter(class string, own map[string]string) (converter.Converter, error) {
	for name := range own {
		o, known := options.Lookup(options.ScopeConverter, transform.ShortClass(class), name)
		if known && o.Fate == options.FateNotNeeded {
			delete(own, name)
		}
	}
	return converter.New(class, own)
}
