package main

import (
	"strings"
	"testing"

	"github.com/cdc-relay/cdc-relay/migrations"
)

func TestSQL_PublishesTheMappedColumnsAlone(t *testing.T) {
	file := golden(t, "sql_column_list.golden")
	got := invoke(t, closedPorts, "sql", "--create-table", "--column-list")
	got.want(t, exitOK, "needs PostgreSQL 15 or later", "")
	compareGolden(t, file, got.stdout)
	const list = `FOR TABLE "public"."outbox" ("id", "aggregate_type", "aggregate_id", "event_type", "payload", "headers", "traceparent", "idempotency_key") WITH (publish = 'insert');`
	for _, format := range migrations.Formats() {
		invoke(t, nil, "sql", "--format", format, "--create-table", "--column-list").want(t, exitOK, list, "")
	}
	known := invoke(t, nil, "sql", "--create-table", "--column-list", "--postgres-version", "15")
	known.want(t, exitOK, list, "")
	if strings.Contains(known.stdout, "or later") {
		t.Errorf("tells what the version is for although it knows it:\n%s", known.stdout)
	}
	invoke(t, nil, "sql", "--preset", "debezium", "--column-list", "--set", `outbox.table=shop."Out""box"`).want(t, exitOK,
		`FOR TABLE "shop"."Out""box" ("id", "aggregatetype", "aggregateid", "payload") WITH`, "")
	invoke(t, nil, "sql", "--column-list", "--set", "outbox.message_prefix=outbox").want(t, exitOK, `CREATE PUBLICATION "cdc_relay" WITH (publish = 'insert')`, "")
}

func TestSQL_RefusesAColumnListWhereSetupDoes(t *testing.T) {
	const debezium = "--create-table --set outbox.table=public.outbox --set outbox.debezium.topic.prefix=shop --set outbox.debezium.transforms=outbox " +
		"--set outbox.debezium.transforms.outbox.type=io.debezium.transforms.outbox.EventRouter " +
		"--set outbox.debezium.key.converter=org.apache.kafka.connect.storage.StringConverter --set outbox.debezium.value.converter=org.apache.kafka.connect.storage.StringConverter " +
		"--set outbox.debezium.header.converter=org.apache.kafka.connect.storage.StringConverter"
	for flags, want := range map[string]string{
		"":                                       "--create-table",
		"--create-table --postgres-version 14":   "PostgreSQL 14 has no column lists",
		"--create-table --set postgres.shards=2": "postgres.shards",
		"--preset generic":                       "topic", // its mapping does not say where to
		debezium:                                 "needs update as well as inserts",
		debezium + " --set outbox.debezium.skipped.operations=u,d,t": "only the server knows",
	} {
		t.Run(want, func(t *testing.T) {
			got := invoke(t, nil, append([]string{"sql", "--column-list"}, strings.Fields(flags)...)...)
			got.want(t, exitUsage, "", want)
			if got.stdout != "" {
				t.Errorf("prints\n%s", got.stdout)
			}
		})
	}
}

func TestSQL_ListsTheColumnsThatSetupWould(t *testing.T) {
	l := newLife(t)
	sql, err := migrations.Table("", "public", "outbox")
	if err != nil {
		t.Fatal(err)
	}
	l.db.Exec(t, sql)
	planned := invoke(t, l.env, "setup", "--dry-run", "--column-list")
	if strings.HasPrefix(l.db.Version, "14.") {
		planned.want(t, exitRefused, "", "column lists")
		return
	}
	planned.want(t, exitOK, `("id", `, "")
	printed := strings.Join(statements(invoke(t, l.env, "sql", "--create-table", "--column-list").stdout), "\n")
	for _, statement := range statements(planned.stdout) {
		if strings.HasPrefix(statement, "CREATE PUBLICATION") && !strings.Contains(printed, statement) {
			t.Errorf("setup prints %s, which is not in\n%s", statement, printed)
		}
	}
}
