// Package export sends spans to a collector by OTLP over HTTP. Nothing waits for it: what it cannot
// send in time it drops and counts.
package export
