// Package expand makes a struct of JSON text, with a schema inferred from the text, as the
// EventRouter does for table.expand.json.payload.
package expand
