// Package schemas holds a row back while the schema that it needs is looked up, and looks at
// subjects of which the latest version counts from time to time.
//
// A row is not at fault where a registry is away, so nothing is decided about it: it waits, and what
// lies before it is delivered. A row that the version at hand does not take waits for one fresh look
// too: its service may have registered the next version a moment ago.
package schemas
