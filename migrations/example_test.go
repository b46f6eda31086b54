package migrations_test

import (
	"fmt"

	"github.com/cdc-relay/cdc-relay/migrations"
)

// Names are quoted, so any name is safe to give.
func ExampleTable() {
	sql, err := migrations.Table("generic-simple", "public", "Outbox")
	if err != nil {
		panic(err)
	}
	fmt.Println(sql)
	// Output:
	// -- The smallest outbox of many articles: no key, so no order between rows.
	// CREATE TABLE "public"."Outbox" (
	//     id           bigserial   PRIMARY KEY,
	//     event_type   text        NOT NULL,
	//     payload      jsonb       NOT NULL,
	//     created_at   timestamptz NOT NULL DEFAULT now(),
	//     published_at timestamptz,
	//     retry_count  integer     NOT NULL DEFAULT 0
	// );
}

// Format writes the files of a migration tool.
func ExampleFormat() {
	up, err := migrations.Table(migrations.DefaultPreset, "public", "outbox")
	if err != nil {
		panic(err)
	}
	down, err := migrations.DropTable(migrations.DefaultPreset, "public", "outbox")
	if err != nil {
		panic(err)
	}
	files, err := migrations.Format("flyway", migrations.Migration{Number: 7, Parts: []migrations.Part{{Name: "table", Up: up, Down: down}}})
	if err != nil {
		panic(err)
	}
	for _, file := range files {
		fmt.Println(file.Name)
	}
	// Output:
	// V7__cdc_relay.sql
}
