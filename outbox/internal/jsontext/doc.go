// Package jsontext looks at JSON as PostgreSQL will, and writes it as Python does.
package jsontext
