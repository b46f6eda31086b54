// Package jsontext looks at JSON as PostgreSQL will, and writes it as Python does. It has code in
// common with router/jsontext, which the module outbox may not import: it stands alone.
package jsontext
