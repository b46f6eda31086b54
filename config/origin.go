package config

import (
	"reflect"
	"strings"
)

// Origin says where a key was set: "from relay.yaml:4", "from env NAME", "preset
// msk-iam", or "default". The path is that of messages: outbox[0].columns.key.
func (c *Config) Origin(path string) string { return c.origins[path].String() }

// Given reports whether something other than the default set the key.
func (c *Config) Given(path string) bool {
	_, ok := c.origins[path]
	return ok
}

// Named are the paths of the keys whose last part is name.
func Named(name string) (paths []string) {
	for _, path := range Keys() {
		if name != "" && path[strings.LastIndex(path, ".")+1:] == name {
			paths = append(paths, path)
		}
	}
	return paths
}

// Keys are the paths of all keys, for completion.
func Keys() (paths []string) {
	eachKey(reflect.TypeFor[settings](), "", func(path string, _ key) { paths = append(paths, path) })
	return paths
}
