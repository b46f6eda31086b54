// Package preflighttest looks for findings in reports, for tests.
package preflighttest
