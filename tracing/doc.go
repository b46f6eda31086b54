// Package tracing makes the spans of delivered rows, after the fact: it reads the trace context that
// a row brings, decides which rows are traced, and writes their spans as messages of OTLP.
//
//   - [ParseParent] reads a traceparent, strictly.
//   - A [Tracer] has what all relays of a process share: the rate, the counts, where ended spans go. A
//     [Picker] is one relay's; it decides about each row.
//   - A [Span] is one row's way from its commit to its acknowledgement. It becomes two spans of OTLP:
//     one of the time in the outbox, and below it one of the time with the brokers, which the
//     record's traceparent names.
//   - [Encode] writes spans as a request of OTLP.
//
// The package opens no connection; package export does.
package tracing
