// Package match compares what a table says with what topics hold, in a bounded memory and in
// files beside it. It opens no connection.
//
// A Row and a Record are reduced to hashes by a Hasher whose seed is drawn for each run: nobody
// can prepare two events that look alike. The entries are divided by the first bits of the hash
// of the event id; both sides of one part are sorted and merged. What is found there of each row
// is divided again by the hash of its key, for the order within a key.
//
// An event id has 128 bits of hash, and what is compared of a record 64 bits each for its key and
// for its value with the headers. Equal contents never differ; that two contents look equal
// has a chance of 1 in 2^64 for each row.
package match
