// Package ends tests the modules for writers against the relay: what they write arrives. It
// is a module of its own, which nobody installs, so that neither the relay nor the writers
// require each other or an ORM.
package ends
