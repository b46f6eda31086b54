// Package document reads the text of a configuration file into nodes that know their line and
// column. It is pure.
//
// It refuses files that no parser should see (limits.go), finds the line that a person has to
// correct when the YAML cannot be read (blame.go, indent.go), and shows lines of the file without
// secrets. Package config says which keys exist and what they mean.
package document
