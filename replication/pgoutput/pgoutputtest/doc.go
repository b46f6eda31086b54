// Package pgoutputtest makes the messages of a walsender, for tests.
package pgoutputtest
