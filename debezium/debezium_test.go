package debezium_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cdc-relay/cdc-relay/debezium"
	"github.com/cdc-relay/cdc-relay/debezium/connect/converter"
	"github.com/cdc-relay/cdc-relay/replication/wal"
	"github.com/cdc-relay/cdc-relay/router"
	"github.com/cdc-relay/cdc-relay/router/column"
	"github.com/cdc-relay/cdc-relay/router/record"
	"github.com/cdc-relay/cdc-relay/router/record/recordtest"
)

// dbz are the least options, and more as `name=value`.
func dbz(more ...string) debezium.Config {
	settings := debezium.Config{
		{Name: "topic.prefix", Value: "app"}, {Name: "key.converter", Value: converter.ClassString}, {Name: "value.converter", Value: converter.ClassString},
		{Name: "extended.headers.enabled", Value: "false"},
	}
	for _, m := range more {
		name, value, _ := strings.Cut(m, "=")
		replaced := false
		for i := range settings {
			if settings[i].Name == name {
				settings[i].Value, replaced = value, true
			}
		}
		if !replaced {
			settings = append(settings, debezium.Setting{Name: name, Value: value})
		}
	}
	return settings
}

func jsonValues(more ...string) debezium.Config {
	return dbz(append([]string{"value.converter=" + converter.ClassJSON, "value.converter.schemas.enable=false"}, more...)...)
}

func placed(list string) string { return "table.fields.additional.placement=" + list }

// described is a table with metadata: `name type`, and behind it `!` for NOT NULL,
// `#` for the primary key, `=expression` for a default.
func described(t testing.TB, columns ...string) *wal.Relation {
	plain := make([]string, len(columns))
	meta := make([]wal.ColumnMeta, len(columns))
	for i, c := range columns {
		c, meta[i].Default, _ = strings.Cut(c, "=")
		if strings.HasSuffix(c, "#") {
			meta[i].Key, meta[i].NotNull = i+1, true
		}
		if strings.HasSuffix(c, "!") {
			meta[i].NotNull = true
		}
		plain[i] = strings.TrimRight(c, "#!")
	}
	rel := table(plain...)
	for i, c := range rel.Columns {
		meta[i].Base, meta[i].BaseMod, meta[i].TypeKind = c.Type, c.TypeMod, 'b'
		_, meta[i].TypeName, _ = strings.Cut(plain[i], " ")
	}
	rel.Meta = meta
	return rel
}

var debeziumColumns = []string{"id uuid#", "aggregatetype varchar!", "aggregateid varchar!", "type varchar", "payload jsonb"}

const eventID = "406c07f3-26f0-4eea-a50c-109940064b8f"

func eventRow(t testing.TB, more ...string) *wal.Row {
	values := []string{eventID, "Order", "1", "OrderCreated", `{"a": 1}`}
	columns := debeziumColumns
	for _, m := range more {
		column, value, _ := strings.Cut(m, ":=")
		columns, values = append(columns[:len(columns):len(columns)], column), append(values, value)
	}
	row := textRow(described(t, columns...), values...)
	row.Txn.Time = time.Date(2024, 5, 6, 7, 8, 9, 123456000, time.UTC)
	return row
}

func updated(row *wal.Row, column int, old string) *wal.Row {
	out := *row
	out.Change = &wal.Change{Op: wal.Update, Old: make([]wal.Value, len(row.Values))}
	for i := range out.Change.Old {
		out.Change.Old[i].Kind = wal.Null
	}
	out.Change.Old[column] = wal.Value{Kind: wal.Text, Data: []byte(old)}
	return &out
}

func changed(row *wal.Row, op wal.Op) *wal.Row {
	out := *row
	out.Change = &wal.Change{Op: op}
	switch op {
	case wal.Delete:
		out.Change.Old, out.Values = row.Values, nil
	case wal.Truncate, wal.Commit:
		out.Values = nil
	}
	return &out
}

func messageRow(prefix, body string) *wal.Row {
	rel := &wal.Relation{Namespace: "message", Name: "*", Columns: []wal.Column{
		{Name: "body", Type: 114, TypeMod: -1, TypeName: "json"}, {Name: "prefix", Type: 25, TypeMod: -1, TypeName: "text"},
	}}
	return textRow(rel, body, prefix)
}

// The EventRouter lets logical messages pass, so nothing of a table's roles is theirs.
func TestDebezium_ExplainsLogicalMessagesByTheirOwn(t *testing.T) {
	row := messageRow("shop", `{"a":1}`)
	r := mustNew(t, router.Mapping{Connector: dbz("extended.headers.enabled=true", "table.field.event.key=aggregate_id", placed("type:header:eventType"))})
	e, err := r.Pin(row.Relation)
	if err != nil {
		t.Fatal(err)
	}
	var b record.Buffer
	if err := r.Route(&b, row); err != nil {
		t.Fatal(err)
	}
	var sent []string
	for _, h := range b.Records[0].Headers {
		sent = append(sent, h.Key)
	}
	if e.Topic != b.Records[0].Topic || !slices.Equal(e.Headers, sent) {
		t.Errorf("explained as topic %s with headers %q; sent to %s with %q", e.Topic, e.Headers, b.Records[0].Topic, sent)
	}
	if e.Roles["key"] != "prefix" || e.Roles["payload"] != column.MessageBody || len(e.Roles) != 2 {
		t.Errorf("roles %v", e.Roles)
	}
}

const decodeType = "transforms.decode.type=" + classDecode

var decodeFirst = []string{"transforms=decode,outbox", decodeType, "transforms.outbox.type=" + classEventRouter}

func chained(name, class string, options ...string) debezium.Config {
	more := []string{"transforms=outbox," + name, "transforms.outbox.type=" + classEventRouter, "transforms." + name + ".type=" + class}
	for _, o := range options {
		if !strings.Contains(o, "predicate") || strings.HasPrefix(o, "predicate=") {
			o = "transforms." + name + "." + o
		}
		more = append(more, o)
	}
	return dbz(more...)
}

func TestDebezium_OrdinaryKeysAreOtherWordsForOptions(t *testing.T) {
	m := router.Mapping{Connector: append(dbz(), debezium.Setting{Name: "route.topic.replacement", Value: "$1"}), Columns: router.Columns{ID: "type", Key: "type", Route: "type", Payload: "type"}, TombstoneOnEmpty: true, Partition: "p", TopicRegex: "Order(.*)"}
	row := eventRow(t, "p int4:=5")
	rec, err := routeOne(t, m, row)
	if err != nil {
		t.Fatal(err)
	}
	if got, want := recordtest.Show(rec), "topic     Created\nkey       OrderCreated\nvalue     OrderCreated\nheader    id = OrderCreated\npartition 5\n"; got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

func TestDebezium_TablesWithTheSameOptionsAreOneConnector(t *testing.T) {
	settings := dbz("value.converter="+converter.ClassJSON, placed("type:envelope"), "heartbeat.interval.ms=1000")
	r, err := router.New(router.Config{Mappings: []router.Mapping{{Connector: settings}, {Connector: settings}, {Connector: dbz("heartbeat.interval.ms=1000")}}})
	if err != nil {
		t.Fatal(err)
	}
	if beating := r.HeartbeatTopics(); len(beating) != 2 {
		t.Fatalf("%d connectors", len(beating))
	}
	first, second := eventRow(t), withRoute(eventRow(t), "Cart")
	leaf := *second.Relation
	leaf.Name, leaf.Table = "outbox_2", 1
	second.Relation = &leaf
	var b record.Buffer
	for _, row := range []*wal.Row{first, second} {
		if err := r.Route(&b, row); err != nil {
			t.Fatal(err)
		}
	}
	if got := string(b.Records[1].Value); !strings.Contains(got, `"app.public.outbox.Order.Value"`) {
		t.Errorf("the second table's envelope is not the first one's: %s", got)
	}
}

func TestDebezium_WantsWhatTheOptionsLookAt(t *testing.T) {
	for name, c := range map[string]struct {
		settings debezium.Config
		want     wal.Wants
	}{
		"none":            {nil, wal.Wants{}},
		"router":          {dbz(), wal.Wants{Update: true, Meta: true}},
		"updates skipped": {dbz("skipped.operations=u,t"), wal.Wants{Meta: true}},
		"truncates":       {dbz("skipped.operations=none"), wal.Wants{Update: true, Truncate: true, Meta: true}},
		"transactions":    {dbz("provide.transaction.metadata=true"), wal.Wants{Update: true, Delete: true, Commit: true, Meta: true}},
		"unwrapped":       {dbz("transforms=u,outbox", "transforms.u.type="+classUnwrap, "transforms.outbox.type="+classEventRouter), wal.Wants{Update: true, Delete: true, Meta: true}},
		"wrong":           {dbz("nope=1"), wal.Wants{}},
	} {
		m := router.Mapping{Connector: c.settings}
		if got := m.Wants(); got != c.want {
			t.Errorf("%s: got %+v, want %+v", name, got, c.want)
		}
	}
}

func TestDebezium_HeartbeatsPassTheChain(t *testing.T) {
	r, err := router.New(router.Config{Mappings: []router.Mapping{{Connector: jsonValues("heartbeat.interval.ms=1000", "topic.heartbeat.prefix=hb")}}})
	if err != nil {
		t.Fatal(err)
	}
	if r.HeartbeatInterval() != time.Second {
		t.Errorf("every %v", r.HeartbeatInterval())
	}
	var b record.Buffer
	if err := r.Heartbeats(&b, time.UnixMilli(1700000000123)); err != nil {
		t.Fatal(err)
	}
	if got, want := recordtest.Show(b.Records[0]), "topic     hb.app\nkey       Struct{serverName=app}\nvalue     {\"ts_ms\":1700000000123}\npartition 0\n"; got != want || b.Records[0].Row != nil {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	if r := mustNew(t, router.Mapping{Connector: dbz()}); r.HeartbeatInterval() != 0 {
		t.Error("heartbeats without the option")
	}
}

// A row that is refused and tried again must not begin its transaction twice.
func TestDebezium_TransactionBeginsOnce(t *testing.T) {
	r := mustNew(t, router.Mapping{Connector: jsonValues("provide.transaction.metadata=true", placed("p:partition"))})
	row := eventRow(t, "p int4:=-1")
	var b record.Buffer
	for range 3 {
		if err := r.Route(&b, row); err == nil || len(b.Records) != 0 {
			t.Fatalf("%v, %d records", err, len(b.Records))
		}
	}
	withValue(row, 5, "1")
	if err := r.Route(&b, row); err != nil || len(b.Records) != 2 {
		t.Fatalf("%v, %d records", err, len(b.Records))
	}
	next := *row
	next.Ordinal++
	if err := r.Route(&b, &next); err != nil || len(b.Records) != 3 {
		t.Fatalf("%v, %d records", err, len(b.Records))
	}
	if err := r.Route(&b, changed(row, wal.Commit)); err != nil || !strings.Contains(string(b.Records[3].Value), `"event_count":2`) {
		t.Fatalf("%v, %s", err, b.Records[3].Value)
	}
}

// A row whose dead letter has to wait for the rows ahead of it is routed again. It counts once, and the
// transaction goes on, whichever of its rows that is; a session that reads the row again begins anew.
func TestDebezium_ARowThatIsRoutedAgainCountsOnce(t *testing.T) {
	for again := uint64(1); again <= 3; again++ {
		r := mustNew(t, router.Mapping{Connector: jsonValues("provide.transaction.metadata=true")})
		var b record.Buffer
		row := eventRow(t)
		for range 2 { // sessions
			b.Reset()
			for ordinal := uint64(1); ordinal <= 3; ordinal++ {
				next := *row
				next.Ordinal = ordinal
				n := len(b.Records)
				for tries := 0; tries < 3 && (tries == 0 || ordinal == again); tries++ {
					b.Records = b.Records[:n]
					if err := r.Route(&b, &next); err != nil {
						t.Fatal(err)
					}
				}
			}
			if err := r.Route(&b, changed(row, wal.Commit)); err != nil {
				t.Fatal(err)
			}
			if len(b.Records) != 5 || !strings.Contains(string(b.Records[0].Value), "BEGIN") || !strings.Contains(string(b.Records[4].Value), `"event_count":3`) {
				t.Errorf("row %d is routed again: %d records, the last is %s", again, len(b.Records), b.Records[len(b.Records)-1].Value)
			}
		}
	}
}

// The first rows of a transaction were delivered by an earlier session.
func TestDebezium_TransactionGoesOnBehindRowsThatWereDelivered(t *testing.T) {
	r := mustNew(t, router.Mapping{Connector: jsonValues("provide.transaction.metadata=true")})
	var b record.Buffer
	row := eventRow(t)
	for session := range 2 { // the second goes back in the same process
		b.Reset()
		for ordinal := uint64(1); ordinal <= 3; ordinal++ {
			next := *row
			next.Ordinal = ordinal
			if session == 1 && ordinal < 3 {
				r.SkipRow(&b, &next)
			} else if err := r.Route(&b, &next); err != nil {
				t.Fatal(err)
			}
		}
	}
	if len(b.Records) != 1 || strings.HasSuffix(b.Records[0].Topic, ".transaction") {
		t.Fatalf("%d records for the third row: the transaction began before", len(b.Records))
	}
	if err := r.Route(&b, changed(row, wal.Commit)); err != nil || len(b.Records) != 2 || !strings.Contains(string(b.Records[1].Value), `"event_count":3`) {
		t.Fatalf("%v, %d records, %s", err, len(b.Records), b.Records[len(b.Records)-1].Value)
	}
	plain := mustNew(t, router.Mapping{Preset: "outbox"})
	b.Reset()
	if plain.SkipRow(&b, row); len(b.Records) != 0 || b.Size() != 0 {
		t.Error("a row that was delivered is routed")
	}
}

// What Debezium logs a warning about and goes on is counted by row, not by look.
func TestDebezium_NoticesWhatItDropsAndBlanks(t *testing.T) {
	blank := eventRow(t, "paid int4:=nothing")
	for name, c := range map[string]struct {
		settings debezium.Config
		rows     []*wal.Row
		want     []record.Notice
	}{
		"an insert":          {dbz(), []*wal.Row{eventRow(t)}, nil},
		"updates":            {dbz(), []*wal.Row{changed(eventRow(t), wal.Update), changed(eventRow(t), wal.Update)}, []record.Notice{{Rows: 1}}},
		"updates are fatal":  {dbz("table.op.invalid.behavior=fatal"), nil, nil},
		"a value":            {dbz(placed("paid:header,paid:header:again")), []*wal.Row{blank}, []record.Notice{{Column: "paid", Rows: 1}}},
		"a value, in quiet":  {dbz(placed("paid:header"), "event.converting.failure.handling.mode=skip"), []*wal.Row{blank}, nil},
		"nobody looks at it": {dbz(), []*wal.Row{blank}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			r, err := router.New(router.Config{Mappings: []router.Mapping{{Table: "public.outbox", Connector: c.settings}}})
			if err != nil {
				t.Fatal(err)
			}
			for _, row := range c.rows {
				if err := r.Route(new(record.Buffer), row); err != nil {
					t.Fatal(err)
				}
			}
			got := r.Notices()
			if len(got) != len(c.want) {
				t.Fatalf("%+v, want %+v", got, c.want)
			}
			for i, n := range got {
				if n.Column != c.want[i].Column || n.Rows != c.want[i].Rows || n.Table != "public.outbox" || n.Text == "" || strings.Contains(n.Text, "nothing") {
					t.Errorf("%+v, want %+v", n, c.want[i])
				}
			}
			if again := r.Notices(); again != nil {
				t.Errorf("%+v is there twice", again)
			}
		})
	}
}

// A column that Debezium leaves out may be missing. One that it has and this program
// cannot write may not: consumers would miss it.
func TestDebezium_OnlyWhatDebeziumLeavesOutMayBeMissing(t *testing.T) {
	for name, more := range map[string]struct{ option, want string }{
		"left out by Debezium": {"include.unknown.datatypes=false", ""},
		"written by Debezium":  {"include.unknown.datatypes=true", `column "area" of type box cannot be written as Debezium does`},
	} {
		t.Run(name, func(t *testing.T) {
			r, err := router.New(router.Config{Mappings: []router.Mapping{{Table: "public.outbox", Connector: dbz(placed("area:header"), "table.field.additional.missing=ignore", more.option)}}})
			if err != nil {
				t.Fatal(err)
			}
			err = r.Route(new(record.Buffer), eventRow(t, "area box:=(1,1),(0,0)"))
			if got := fmt.Sprint(err); (err != nil) != (more.want != "") || !strings.Contains(got, more.want) {
				t.Errorf("%v, want %q", err, more.want)
			}
		})
	}
}

// A publication with these columns alone gives the same records.
func TestDebezium_ColumnsAreThoseThatRecordsAreMadeOf(t *testing.T) {
	rel := table("id uuid", "aggregate_type varchar", "aggregate_id uuid", "event_type varchar", "payload jsonb", "created_at timestamptz", "tenant text", "wide text", "extra jsonb")
	settings := func(more ...string) debezium.Config {
		return dbz(append([]string{
			"transforms=outbox", "transforms.outbox.type=" + classEventRouter,
			"transforms.outbox.table.field.event.key=aggregate_id", "transforms.outbox.route.by.field=aggregate_type",
		}, more...)...)
	}
	for name, c := range map[string]struct {
		settings debezium.Config
		want     string
	}{
		"the router's": {settings(), "id aggregate_type aggregate_id payload"},
		"a placement": {
			settings("transforms.outbox." + placed("tenant:header:t,wide:envelope")),
			"id aggregate_type aggregate_id payload tenant wide",
		},
		"rows that pass unrouted": {
			settings("transforms.outbox.predicate=is", "predicates=is", "predicates.is.type="+packagePredicates+"TopicNameMatches", "predicates.is.pattern=.*outbox"),
			"id aggregate_type aggregate_id event_type payload created_at tenant wide extra",
		},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := mustNew(t, router.Mapping{Connector: c.settings}).PublishedColumns(rel)
			if err != nil {
				t.Fatal(err)
			}
			if !slices.Equal(got, strings.Fields(c.want)) {
				t.Errorf("got %v, want %s", got, c.want)
			}
		})
	}
}

// nested are documents of a depth.
func nested(kind string, depth int) string {
	switch kind {
	case "arrays":
		return strings.Repeat("[", depth) + strings.Repeat("]", depth)
	case "objects":
		return strings.Repeat(`{"a":`, depth) + "1" + strings.Repeat("}", depth)
	case "both":
		return strings.Repeat(`{"a":[`, depth/2) + `"]}"` + strings.Repeat("]}", depth/2)
	case "beside":
		return `{"kind":"own","a":` + nested("both", depth) + `,"b":` + nested("arrays", depth) + `}`
	}
	return strings.Repeat(`{"a":[`, depth/2) // unclosed
}

// Debezium's expansion ends, as Jackson does, at 1000 levels: the text goes on as it is.
func TestDebezium_DeepJSONIsNotExpanded(t *testing.T) {
	m := router.Mapping{Connector: jsonValues("table.expand.json.payload=true")}
	for _, kind := range []string{"arrays", "objects", "both", "beside", "unclosed"} {
		for _, depth := range []int{900, 10_000, 60_000} {
			began := time.Now()
			rec, err := routeOne(t, m, withPayload(eventRow(t), nested(kind, depth)))
			if took := time.Since(began); took > 15*time.Second {
				t.Fatalf("%s, %d levels: %s", kind, depth, took)
			}
			if err == nil && depth > 1000 && rec.Value[0] != '"' && !strings.Contains(string(rec.Value[:40]), `"payload":"`) {
				t.Errorf("%s, %d levels: %.100s", kind, depth, rec.Value)
			}
			if e, ok := errors.AsType[*record.RowError](err); err != nil && (!ok || e.Column == "" && !strings.Contains(err.Error(), "payload")) {
				t.Errorf("%s, %d levels: %.300v", kind, depth, err)
			}
		}
	}
}

func TestDebezium_SalvageKeepsKeyAndPayload(t *testing.T) {
	r := mustNew(t, router.Mapping{Connector: dbz(placed("p:partition"))})
	var b record.Buffer
	rec, missing := r.Salvage(&b, eventRow(t, "p int4:=-1"))
	if string(rec.Key) != "1" || string(rec.Value) != `{"a": 1}` || len(missing) != 4 {
		t.Errorf("%s %s %v", rec.Key, rec.Value, missing)
	}
}

func BenchmarkDebezium(b *testing.B) {
	for name, settings := range map[string]debezium.Config{
		"plain": dbz("extended.headers.enabled=true"), "envelope": jsonValues(placed("type:envelope")), "expanded": jsonValues("table.expand.json.payload=true"),
	} {
		b.Run(name, func(b *testing.B) {
			r := mustNew(b, router.Mapping{Connector: settings})
			row := eventRow(b)
			var buf record.Buffer
			b.ReportAllocs()
			for b.Loop() {
				buf.Reset()
				if err := r.Route(&buf, row); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func FuzzPlacement(f *testing.F) {
	f.Add("type:header:eventType,a:envelope, b : partition")
	f.Add("::,:")
	f.Fuzz(func(t *testing.T, list string) {
		_, err := router.New(router.Config{Mappings: []router.Mapping{{Connector: dbz(placed(list))}}})
		for _, e := range router.ConfigErrors(err) {
			if !strings.HasPrefix(e.Path, "outbox[0].debezium") {
				t.Errorf("%s blames %s", e.Err, e.Path)
			}
		}
		if err != nil && len(router.ConfigErrors(err)) == 0 {
			t.Errorf("%v is no ConfigError", err)
		}
	})
}
