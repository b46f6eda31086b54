// Package schemas makes the value of a record by a schema that a registry has, or checks a value
// that the application made by one.
//
// It is pure. What is not known yet is an error, *Need, which says what to ask a registry for;
// Need.Ask asks, on any goroutine, and Answer.Learn hands the outcome to whoever routes. Package
// relay/schemas does that for a relay, and router/resolve for whoever does not stream.
package schemas
