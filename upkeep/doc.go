// Package upkeep is what the jobs on delivered rows share: the connections and topics that a
// proof needs, the pace, and the loop beside a relay. What happens to the rows is decided in
// retention and marks.
package upkeep
