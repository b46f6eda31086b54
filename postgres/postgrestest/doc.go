// Package postgrestest has databases, roles and connections for the tests of postgres, its
// sub-packages and replication.
package postgrestest
