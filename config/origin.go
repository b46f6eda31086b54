package config

import "reflect"

// Origin says where a key was set: "from relay.yaml:4", "from env NAME", "preset
// msk-iam", or "default". The path is that of messages: outbox[0].columns.key.
func (c *Config) Origin(path string) string { return c.origins[path].String() }

// Given says that something other than the default set the key.
func (c *Config) Given(path string) bool {
	_, ok := c.origins[path]
	return ok
}

// Keys are the paths of all keys, for completion.
func Keys() (paths []string) {
	eachKey(reflect.TypeFor[settings](), "", func(path string, _ key) { paths = append(paths, path) })
	return paths
}
