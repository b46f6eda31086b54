package wal_test

import (
	"fmt"

	"github.com/cdc-relay/cdc-relay/replication/wal"
)

// Names are read as SQL reads them.
func ExampleParseTable() {
	for _, name := range []string{"Outbox", `sales."Out""Box"`} {
		table, err := wal.ParseTable(name)
		if err != nil {
			panic(err)
		}
		fmt.Printf("schema %s, table %s: %s\n", table.Schema, table.Name, table.SQL())
	}
	// Output:
	// schema public, table outbox: "public"."outbox"
	// schema sales, table Out"Box: "sales"."Out""Box"
}

// After a failover that lost the end of the WAL, positions up to the fork name the same
// rows on both servers.
func ExampleOrigin_Common() {
	before := wal.Origin{SystemID: "7301", Timeline: 1}
	after := wal.Origin{SystemID: "7301", Timeline: 2, Forks: []wal.Fork{{Timeline: 1, At: 0x5000}}}
	fmt.Println(before.Common(after))
	fmt.Println(before.Common(wal.Origin{SystemID: "7302", Timeline: 1}))
	// Output:
	// 0/5000
	// 0/0
}
