// Package config turns a YAML file, the environment and --set flags into the
// configurations of the packages.
//
// One struct tree, settings, is the only list of keys: its tags give the name of
// a key, its default, its allowed values and its description. Loading, the
// environment, --set, the JSON Schema and Print all walk that tree, so a key
// cannot exist in one of them and be missing in another.
//
// It promises that every mistake is reported at once, each with the place it was
// made in, and that no secret is ever part of an error, of a warning or of what
// Print writes. It never opens a connection: what only a server can tell is left
// to the start of the relay.
package config
