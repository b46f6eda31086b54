// Package catalog reads what is there: slots, publications, tables and their columns, the
// shards' slots and filters, the history of the server. It changes nothing.
//
// It imports postgres. replication asks it before a stream starts, provision, preflight,
// sample and watch ask it beside one.
package catalog
