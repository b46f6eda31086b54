// Package preset holds the shapes of outbox tables as data, and recognises a table by its
// columns. A Shape says which column has which role.
//
// It sees relations only, no rows. The router compiles what it finds.
package preset
