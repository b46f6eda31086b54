// Package preflight looks at a server before a start: everything that stands in the way of a
// stream or will, and what a takeover from somebody else needs to know. It changes nothing.
//
// It imports postgres and catalog. Commands use it; nothing that streams does.
package preflight
