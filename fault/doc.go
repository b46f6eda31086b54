// Package fault is the form of every failure that PostgreSQL or its stream gives: what was
// tried and on what, what follows from it, and the next step.
//
// It imports nothing of the module and opens no connection, so that whoever passes a failure
// on can look at it. What an error of the driver or the server means is decided in postgres.
package fault
