package debezium_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/cdc-relay/cdc-relay/debezium"
	"github.com/cdc-relay/cdc-relay/debezium/connect/converter"
	"github.com/cdc-relay/cdc-relay/replication/wal"
	"github.com/cdc-relay/cdc-relay/router"
	"github.com/cdc-relay/cdc-relay/router/format"
	"github.com/cdc-relay/cdc-relay/router/record"
	"github.com/cdc-relay/cdc-relay/router/record/recordtest"
)

func TestGolden_Debezium(t *testing.T) {
	const t8601 = "2024-01-02 03:04:05.678912"
	cases := []struct {
		name     string
		settings debezium.Config
		rows     []*wal.Row
	}{
		{"default", dbz(), []*wal.Row{eventRow(t)}},
		{"context headers", dbz("extended.headers.enabled=true"), []*wal.Row{eventRow(t)}},
		{"schemas", dbz("key.converter="+converter.ClassJSON, "value.converter="+converter.ClassJSON, "header.converter="+converter.ClassJSON), []*wal.Row{eventRow(t)}},
		{"header, envelope and partition", jsonValues(placed("type:header:eventType, type:envelope:eventType, version:partition")),
			[]*wal.Row{eventRow(t, "version int4:=3"), eventRow(t, "version int4:="+null)}},
		{"envelope schema is named after the first event", dbz("value.converter="+converter.ClassJSON, placed("type:envelope")),
			[]*wal.Row{eventRow(t), withRoute(eventRow(t), "Cart")}},
		{"schema version", dbz("value.converter="+converter.ClassJSON, placed("type:envelope"), "table.field.event.schema.version=version"),
			[]*wal.Row{eventRow(t, "version int4:=2"), eventRow(t, "version int4:="+null)}},
		{"missing column ignored", dbz(placed("nope:header,type:header"), "table.field.additional.missing=ignore"), []*wal.Row{eventRow(t)}},
		{"null takes the default", jsonValues(placed("n:envelope,at:header")), []*wal.Row{eventRow(t, "n int4='7'::integer:="+null, "at timestamp=now():="+null)}},
		{"expanded", jsonValues("table.expand.json.payload=true"), []*wal.Row{eventRow(t), withPayload(eventRow(t), `{"b":[1,2.5]}`)}},
		{"tombstone", dbz("route.tombstone.on.empty.payload=true", "value.converter="+converter.ClassJSON), []*wal.Row{withPayload(eventRow(t), null)}},
		{"null payload", dbz("value.converter=" + converter.ClassJSON), []*wal.Row{withPayload(eventRow(t), null)}},
		{"timestamp", dbz("table.field.event.timestamp=at"), []*wal.Row{eventRow(t, "at timestamp:="+t8601), eventRow(t, "at timestamp:=1969-12-31 23:59:59.9995"), eventRow(t, "at timestamp:="+null)}},
		{"minus one is no timestamp", dbz("table.field.event.timestamp=at"), []*wal.Row{eventRow(t, "at timestamp:=1969-12-31 23:59:59.999")}},
		{"bigint timestamp is NULL", dbz("table.field.event.timestamp=at"), []*wal.Row{eventRow(t, "at int8:="+null)}},
		{"negative timestamp", dbz("table.field.event.timestamp=at"), []*wal.Row{eventRow(t, "at timestamp:=1969-12-31 23:59:58")}},
		{"bigint timestamp", dbz("table.field.event.timestamp=at"), []*wal.Row{eventRow(t, "at int8:=1")}},
		{"timestamp of Connect", dbz("table.field.event.timestamp=at", "time.precision.mode=connect"), []*wal.Row{eventRow(t, "at timestamp:="+t8601)}},
		{"negative partition", dbz(placed("p:partition")), []*wal.Row{eventRow(t, "p int4:=-1")}},
		{"null route", dbz("route.by.field=type"), []*wal.Row{withType(eventRow(t), null)}},
		{"illegal topic", dbz(), []*wal.Row{withRoute(eventRow(t), "a\nb"), withRoute(eventRow(t), "Verkäufe")}},
		{"no match", dbz("route.topic.regex=Ord", "route.topic.replacement=x-$0"), []*wal.Row{eventRow(t), withRoute(eventRow(t), "Ord")}},
		{"update of the primary key", dbz("extended.headers.enabled=true"), []*wal.Row{updated(eventRow(t), 0, "00000000-0000-4000-8000-000000000001")}},
		{"other update", dbz(), []*wal.Row{changed(eventRow(t), wal.Update)}},
		{"fatal update", dbz("table.op.invalid.behavior= FATAL "), []*wal.Row{changed(eventRow(t), wal.Update)}},
		{"delete", dbz("table.op.invalid.behavior=fatal"), []*wal.Row{changed(eventRow(t), wal.Delete)}},
		{"truncate", dbz("skipped.operations=none"), []*wal.Row{changed(eventRow(t), wal.Truncate)}},
		{"bytea without delegate", dbz("value.converter=" + converter.ClassBinaryData), []*wal.Row{eventRow(t)}},
		{"poisoned expansion", jsonValues("table.expand.json.payload=true"), []*wal.Row{withPayload(eventRow(t), `[1,2]`)}},
		{"message routed", jsonValues(append(decodeFirst, "transforms.outbox."+placed("type:header:eventType"))...),
			[]*wal.Row{messageRow("outbox", `{"id":"d4","aggregatetype":"User","aggregateid":"99","type":"UserCreated","payload":{"email":"a@b.c","n":null}}`)}},
		{"message passes", jsonValues(), []*wal.Row{messageRow("outbox", `{"a":1}`)}},
		{"message of another prefix", jsonValues(append(decodeFirst, "message.prefix.include.list=outbox")...), []*wal.Row{messageRow("other", "hello")}},
		{"message that is no object", jsonValues(decodeFirst...), []*wal.Row{messageRow("other", "hello"), messageRow("other", `{"id":1}`)}},
		{"RegexRouter", chained("t", packageTransforms+"RegexRouter", "regex=outbox[.]event[.](.*)", "replacement=prod.$1.v1"), []*wal.Row{eventRow(t)}},
		{"TimestampRouter", chained("t", packageTransforms+"TimestampRouter", "timestamp.format=yyyy-MM'x'dd", "topic.format=${timestamp}.${topic}"), []*wal.Row{eventRow(t)}},
		{"InsertHeader", chained("t", packageTransforms+"InsertHeader", "header=n", "value.literal=001"), []*wal.Row{eventRow(t)}},
		{"DropHeaders", chained("t", packageTransforms+"DropHeaders", "headers=id,x"), []*wal.Row{eventRow(t)}},
		{"InsertField", jsonValues("transforms=outbox,t", "transforms.outbox.type="+classEventRouter, "transforms.outbox."+placed("type:envelope"),
			"transforms.t.type="+packageTransforms+"InsertField$Value", "transforms.t.static.field=origin", "transforms.t.static.value=app", "transforms.t.topic.field=to"), []*wal.Row{eventRow(t)}},
		{"HoistField", chained("t", packageTransforms+"HoistField$Key", "field=k"), []*wal.Row{eventRow(t)}},
		{"ReplaceField and ExtractField", jsonValues("transforms=outbox,a,b", "transforms.outbox.type="+classEventRouter, "transforms.outbox.table.expand.json.payload=true",
			"transforms.a.type="+packageTransforms+"ReplaceField$Value", "transforms.a.renames=a:n",
			"transforms.b.type="+packageTransforms+"ExtractField$Value", "transforms.b.field=n"), []*wal.Row{eventRow(t)}},
		{"HeaderFrom and ValueToKey", jsonValues("transforms=outbox,a,b", "transforms.outbox.type="+classEventRouter, "transforms.outbox."+placed("type:envelope:kind"),
			"transforms.a.type="+packageTransforms+"HeaderFrom$Value", "transforms.a.fields=kind", "transforms.a.headers=k", "transforms.a.operation=move",
			"transforms.b.type="+packageTransforms+"ValueToKey", "transforms.b.fields=payload"), []*wal.Row{eventRow(t)}},
		{"SetSchemaMetadata", dbz("transforms=outbox,t", "value.converter="+converter.ClassJSON, "transforms.outbox.type="+classEventRouter,
			"transforms.t.type="+packageTransforms+"SetSchemaMetadata$Value", "transforms.t.schema.name=x.Y", "transforms.t.schema.version=4"), []*wal.Row{eventRow(t)}},
		{"Filter", chained("t", packageTransforms+"Filter", "predicate=tomb", "predicates=tomb", "predicates.tomb.type="+packagePredicates+"RecordIsTombstone"), []*wal.Row{withPayload(eventRow(t), null), eventRow(t)}},
		{"unwrapped", jsonValues("transforms=u,outbox", "transforms.u.type="+classUnwrap, "transforms.outbox.type="+classEventRouter), []*wal.Row{eventRow(t), changed(eventRow(t), wal.Delete)}},
		{"kept from the router", jsonValues("database.dbname=shop", "transforms=outbox", "transforms.outbox.type="+classEventRouter, "transforms.outbox.predicate=p", "transforms.outbox.negate=true",
			"predicates=p", "predicates.p.type="+packagePredicates+"TopicNameMatches", "predicates.p.pattern=.*outbox"),
			[]*wal.Row{eventRow(t), changed(eventRow(t), wal.Delete), updated(eventRow(t), 3, "Old")}},
		{"columns left out", dbz("column.exclude.list=public.outbox.TYPE", placed("type:header"), "table.field.additional.missing=ignore"), []*wal.Row{eventRow(t)}},
		{"transactions", jsonValues("provide.transaction.metadata=true"), []*wal.Row{eventRow(t), changed(eventRow(t), wal.Commit)}},
		{"TOASTed payload of another key", dbz(), []*wal.Row{unchangedPayload(updated(eventRow(t), 0, "00000000-0000-4000-8000-000000000001"))}},
	}
	var out strings.Builder
	for _, c := range cases {
		fmt.Fprintf(&out, "== %s\n", c.name)
		r, err := router.New(router.Config{Mappings: []router.Mapping{{Table: "public.outbox", Connector: c.settings}}, RunID: "run-1"})
		if err != nil {
			t.Fatalf("%s: %v", c.name, err)
		}
		for _, row := range c.rows {
			var b record.Buffer
			if err := r.Route(&b, row); err != nil {
				if len(b.Records) != 0 {
					t.Errorf("%s: a rejected row left %d records", c.name, len(b.Records))
				}
				var e *record.RowError
				errors.As(err, &e)
				fmt.Fprintf(&out, "rejected  %s: %v\n", e.Reason, e.Err)
				continue
			}
			if len(b.Records) == 0 {
				out.WriteString("dropped\n")
			}
			for _, rec := range b.Records {
				out.WriteString(recordtest.Show(rec))
			}
		}
	}
	golden(t, "debezium", out.String())
}

func withValue(row *wal.Row, column int, value string) *wal.Row {
	row.Values[column] = wal.Value{Kind: wal.Text, Data: []byte(value)}
	if value == null {
		row.Values[column] = wal.Value{Kind: wal.Null}
	}
	return row
}

func withRoute(row *wal.Row, v string) *wal.Row   { return withValue(row, 1, v) }
func withType(row *wal.Row, v string) *wal.Row    { return withValue(row, 3, v) }
func withPayload(row *wal.Row, v string) *wal.Row { return withValue(row, 4, v) }

func unchangedPayload(row *wal.Row) *wal.Row {
	row.Values[4] = wal.Value{Kind: wal.Unchanged}
	return row
}

// What is refused before any row, with the option that is to blame.
func TestGolden_DebeziumRefused(t *testing.T) {
	const chain = "transforms=outbox"
	var out strings.Builder
	for _, c := range []struct {
		name string
		m    router.Mapping
	}{
		{"nothing required", router.Mapping{Connector: debezium.Config{{Name: "route.by.field", Value: "x"}}}},
		{"unknown option", router.Mapping{Connector: dbz("topic.prefx=a", "table-expand-json-payload=true")}},
		{"router option beside transforms", router.Mapping{Connector: dbz(chain, "transforms.outbox.type="+classEventRouter, "route.by.field=x")}},
		{"our key", router.Mapping{Connector: dbz("database.hostname=h", "errors.tolerance=all")}},
		{"not carried", router.Mapping{Connector: dbz("converters=x", "topic.naming.strategy=x", "field.name.adjustment.mode=avro")}},
		{"bad words", router.Mapping{Connector: dbz("table.op.invalid.behavior=ignore", "table.json.payload.null.behavior=keep", "route.tombstone.on.empty.payload=yes", "time.precision.mode=structured", "money.fraction.digits=two")}},
		{"placements", router.Mapping{Connector: dbz(placed("type,a:b:c:d,x:topic,a:envelope:e,b:envelope:e,c:envelope:payload"))}},
		{"empty placement", router.Mapping{Connector: dbz(placed(""))}},
		{"empty column", router.Mapping{Connector: dbz("table.field.event.key=")}},
		{"regex", router.Mapping{Connector: dbz("route.topic.regex=(unclosed")}},
		{"look-ahead", router.Mapping{Connector: dbz("route.topic.regex=(?=x).*")}},
		{"group with underscore", router.Mapping{Connector: dbz("route.topic.replacement=${aggregate_type}-events")}},
		{"unknown group", router.Mapping{Connector: dbz("route.topic.replacement=${x}")}},
		{"unknown number", router.Mapping{Connector: dbz("route.topic.replacement=$2")}},
		{"lone dollar", router.Mapping{Connector: dbz("route.topic.replacement=a$")}},
		{"converter", router.Mapping{Connector: dbz("value.converter=io.confluent.connect.avro.AvroConverter", "key.converter.schemas.enable=perhaps")}},
		{"options without converter", router.Mapping{Connector: dbz("header.converter.schemas.enable=true")}},
		{"transform", router.Mapping{Connector: dbz("transforms=outbox,x", "transforms.outbox.type="+classEventRouter, "transforms.x.type=org.acme.Mine", "transforms.y.type=a")}},
		{"transform option", router.Mapping{Connector: dbz("transforms=outbox,x", "transforms.outbox.type="+classEventRouter, "transforms.outbox.no.such=1",
			"transforms.x.type="+packageTransforms+"InsertHeader", "transforms.x.header=h", "transforms.x.value.literal=[1]")}},
		{"no router", router.Mapping{Connector: dbz("transforms=x", "transforms.x.type="+packageTransforms+"DropHeaders", "transforms.x.headers=id")}},
		{"predicate", router.Mapping{Connector: dbz(chain, "transforms.outbox.type="+classEventRouter, "transforms.outbox.predicate=nope")}},
		{"inserts skipped", router.Mapping{Connector: dbz("skipped.operations=c,x")}},
		{"heartbeat that no converter takes", router.Mapping{Connector: dbz("heartbeat.interval.ms=1000", "value.converter="+converter.ClassBinaryData)}},
		{"contradiction", router.Mapping{Connector: dbz("route.by.field=a"), Columns: router.Columns{Route: "b", Headers: "h"}, Topic: "x", Value: format.Envelope, Preset: "outbox"}},
	} {
		fmt.Fprintf(&out, "== %s\n", c.name)
		_, err := router.New(router.Config{Mappings: []router.Mapping{c.m}})
		if err == nil {
			t.Errorf("%s: accepted", c.name)
			continue
		}
		for _, e := range router.ConfigErrors(err) {
			fmt.Fprintln(&out, e)
		}
	}
	for _, c := range []struct {
		name     string
		settings debezium.Config
		columns  []string
	}{
		{"no such columns", dbz(placed("nope:header,nope:envelope,nope:partition"), "table.field.event.timestamp=nope"), []string{"Id uuid", "payload jsonb"}},
		{"types", dbz(placed("n:partition"), "route.by.field=n", "table.field.event.timestamp=d"), append([]string{"n int8", "d date"}, debeziumColumns...)},
		{"left out", dbz(placed("l:header,type:header"), "column.exclude.list=public.outbox.type"), append([]string{"l pg_lsn"}, debeziumColumns...)},
	} {
		fmt.Fprintf(&out, "== %s\n", c.name)
		r, err := router.New(router.Config{Mappings: []router.Mapping{{Connector: c.settings}}})
		if err != nil {
			t.Fatal(err)
		}
		if _, err = r.Pin(described(t, c.columns...)); err == nil {
			t.Errorf("%s: accepted", c.name)
		}
		for _, e := range router.ConfigErrors(err) {
			fmt.Fprintln(&out, e)
		}
	}
	golden(t, "debezium_refused", out.String())
}
