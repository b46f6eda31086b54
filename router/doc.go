// Package router turns rows into records: which topic, which key, which value,
// which headers.
//
// It is pure, but for a Tracer, which reads the clock and draws ids: no socket, no
// goroutine. A Mapping is compiled once for each *wal.Relation into indices and converters,
// so routing a row looks nothing up by name and, with a Buffer that is used again, allocates
// nothing in the steady state. A schema that is not known yet is an error that says what to
// ask for; package router/resolve asks.
//
// It promises:
//
//  1. The same row gives the same record under the same configuration, whether
//     the connection delivers text or binary. Only the traceparent of a traced row differs
//     each time.
//  2. Payload bytes are never re-serialised in format raw, and the members of a
//     payload object keep their bytes in envelope and merged.
//  3. Headers come in this order: id, those of CloudEvents, the preset's, the configured ones,
//     those of the headers column, traceparent and tracestate, the position headers. A
//     connector has an order of its own.
//  4. A row that gives no legal record gives a *record.RowError that holds no value of
//     the row but the topic's name, escaped and shortened.
//
// It refuses to guess: a column that does not exist, a table that two readings
// fit, or a key of the configuration that could have no effect with any table is
// an error of New or Pin. A column that is mapped to a role which the preset does
// not use is a warning.
package router
