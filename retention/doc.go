// Package retention deletes or archives rows that are proven delivered and old enough.
//
// What a configuration wants is a Policy; what stands in its way is decided by pure functions
// (refusals.go, pace.go) from what the server shows. Service is the loop beside them: it opens
// the connection that the proof is about, and runs passes of proof.Prover until nothing is due.
package retention
