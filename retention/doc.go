// Package retention deletes, archives or exports rows that are proven delivered and old enough, or
// removes their partitions.
//
// What a configuration wants is a Policy; what stands in its way is decided by pure functions
// (refusals.go) from what the server shows. Service does what is due in one table: it opens the
// connection that the proof is about, and runs passes of proof.Prover until nothing is left. The loop
// beside a relay and its pace are upkeep's.
package retention
