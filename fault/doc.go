// Package fault is the form of every failure that PostgreSQL or its stream gives: what was
// tried and on what, what follows from it, and the next step.
//
// It opens no connection, so that whoever passes a failure on can look at it. What an error
// of the driver or the server means is decided in postgres.
//
// reasons.go has the reasons of all packages, also those of rows and of brokers.
package fault
