package importer_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/cdc-relay/cdc-relay/debezium/importer"
)

const database = `"table.include.list":"public.outbox",`

func convert(t *testing.T, input string, o importer.Options) *importer.Result {
	t.Helper()
	result, err := importer.Convert([]byte(input), o)
	if err != nil {
		t.Fatal(err)
	}
	return result
}

func wantRemark(t *testing.T, result *importer.Result, key string, fate importer.Fate, text string) {
	t.Helper()
	if !slices.ContainsFunc(result.Remarks, func(r importer.Remark) bool {
		return r.Key == key && r.Fate == fate && strings.Contains(r.Text, text)
	}) {
		t.Errorf("no remark that %s is %s: …%s…; there are %v", key, fate, text, result.Remarks)
	}
}

// Defaults of references and the salt in a key are secrets as well.
func TestConvert_DefaultsAndSaltsAreNotPrinted(t *testing.T) {
	server := "debezium.source.connector.class=PostgresConnector\ndebezium.source.table.include.list=public.outbox\n" +
		"debezium.transforms=outbox\ndebezium.transforms.outbox.type=io.debezium.transforms.outbox.EventRouter\n"
	for name, input := range map[string]string{
		"Quarkus":         server + "debezium.source.database.password=${DB_PW:XyZZy}\n",
		"Quarkus, nested": server + "debezium.source.database.password=${DB_PW:${OTHER:XyZZy}}\n",
		"Quarkus, login":  server + `debezium.sink.kafka.producer.security.protocol=SASL_SSL` + "\ndebezium.sink.kafka.producer.sasl.mechanism=PLAIN\n" + `debezium.sink.kafka.producer.sasl.jaas.config=required username="u" password="${PW:XyZZy}";` + "\n",
		"AWS":             head + database + `"database.password":"${aws:my/secret:pw?default=XyZZy}",` + tail,
		"AWS, elsewhere":  head + database + `"database.hostname":"${aws:my/secret:pw?default=XyZZy}","topic.prefix":"${aws:p:pw?default=XyZZy}","transforms.outbox.route.by.field":"${aws:p:pw?default=XyZZy}",` + tail,
		"own provider":    head + database + `"database.password":"${own:NAME:XyZZy}","database.user":"${own:NAME:XyZZy}",` + tail,
		"environment":     head + database + `"database.password":"${env:NAME:XyZZy}",` + tail,
		"salt":            head + database + `"column.mask.hash.SHA-256.with.salt.XyZZy.and more":"a",` + tail,
		"salt, server":    server + "debezium.source.column.mask.hash.v2.SHA-256.with.salt.XyZZy=a\n",
		"salt, twice":     head + database + `"column.mask.hash.SHA-256.with.salt.XyZZy":"a","column.mask.hash.SHA-256.with.salt.XyZZy":"b",` + tail,
	} {
		result := convert(t, input, importer.Options{})
		out := string(result.YAML) + fmt.Sprint(result.Remarks) + fmt.Sprintf("%+v", result.Source)
		if i := strings.Index(out, "XyZZy"); i >= 0 {
			t.Errorf("%s: a secret is printed: …%s…", name, out[max(0, i-80):i+10])
		}
	}
	_, err := importer.Convert([]byte(head+`"column.mask.hash.SHA-256.with.salt.XyZZy":null,`+tail), importer.Options{})
	if err == nil || strings.Contains(err.Error(), "XyZZy") {
		t.Errorf("an error shows the salt: %v", err)
	}
}

func TestConvert_QuarkusExpressions(t *testing.T) {
	input, o := given(t, "testdata/server-expressions")
	result := convert(t, string(input), o)
	for _, want := range []string{"${DB_HOST}/${DB_NAME:-app}", "${BROKERS:-kafka:9092}", `"${DB_PW:-}"`, `"${SLOT_OF_OURS}"`, `"${routedByValue}.events"`} {
		if !strings.Contains(string(result.YAML), want) {
			t.Errorf("no %s in\n%s", want, result.YAML)
		}
	}
	wantRemark(t, result, "debezium.source.database.password", importer.ToDo, "DB_PW")
	wantRemark(t, result, "debezium.source.database.hostname", importer.Carried, "postgres.url")
	wantRemark(t, result, "debezium.sinc.kafka", importer.NotCarried, "no key of Debezium Server")
}

func TestConvert_UnknownSettingsOfTheWorkerAreLost(t *testing.T) {
	o := importer.Options{Worker: []byte("bootstrap.servers=PLAINTEXT://b:9092\nkey.convertr.x=y\nsession.timeout.ms=1\nKAFKA_HEAP_OPTS=x\nkey.converter.schemas=1\n"), WorkerName: "w"}
	result := convert(t, head+database+tail, o)
	wantRemark(t, result, "key.convertr.x", importer.NotCarried, "no setting of a Connect worker")
	wantRemark(t, result, "session.timeout.ms", importer.NotNeeded, "about the worker")
	wantRemark(t, result, "KAFKA_HEAP_OPTS", importer.NotNeeded, "about the worker")
	if !strings.Contains(string(result.YAML), "brokers: b:9092\n") {
		t.Errorf("the brokers are wrong:\n%s", result.YAML)
	}
}

func TestConvert_StrimziSecurity(t *testing.T) {
	connector, o := given(t, "testdata/strimzi-secured")
	result := convert(t, string(connector), o)
	wantRemark(t, result, "spec.tls.trustedCertificates", importer.ToDo, "kafka.tls.ca_file: key ca.crt of the Kubernetes Secret my-cluster-cluster-ca-cert")
	wantRemark(t, result, "spec.authentication.type", importer.Carried, "kafka.sasl.mechanism")
	wantRemark(t, result, "spec.authentication", importer.ToDo, "key password of the Kubernetes Secret my-connect-user")
	wantRemark(t, result, "spec.tls", importer.Carried, "kafka.tls")
	wantRemark(t, result, "spec.authentication.unheardOf", importer.NotCarried, "is not known")
	wantRemark(t, result, "spec.version", importer.NotNeeded, "operator")

	override := "    producer.override.security.protocol: SASL_SSL\n    producer.override.sasl.mechanism: PLAIN\n    producer.override.sasl.jaas.config: required username=\"a\" password=\"b\";\n"
	result = convert(t, string(connector)+override, o)
	wantRemark(t, result, "spec.tls.trustedCertificates", importer.ToDo, "kafka.tls.ca_file")
	if yaml := string(result.YAML); !strings.Contains(yaml, "mechanism: plain") || !strings.Contains(yaml, "username: a\n") {
		t.Errorf("the connector's own login does not count:\n%s", yaml)
	}

	for authentication, want := range map[string]string{
		"{type: tls, certificateAndKey: {secretName: s, certificate: c.crt, key: c.key}}":                         "kafka.tls.key_file: key c.key of the Kubernetes Secret s",
		"{type: oauth, clientId: me, clientSecret: {secretName: s, key: k}, tokenEndpointUri: 'https://x/token'}": "token_endpoint: https://x/token",
		"{type: plain, username: u, passwordSecret: {secretName: s, password: p}}":                                "SASL_PLAINTEXT",
		"{type: custom, sasl: true}": "CUSTOM",
	} {
		o.Worker = []byte("kind: KafkaConnect\nspec:\n  bootstrapServers: b:9092\n  authentication: " + authentication + "\n")
		result := convert(t, string(connector), o)
		if out := string(result.YAML) + fmt.Sprint(result.Remarks); !strings.Contains(out, want) {
			t.Errorf("%s: no %q in\n%s", authentication, want, out)
		}
	}
}

func TestConvert_CheckTurnsComplaintsIntoRemarks(t *testing.T) {
	o := importer.Options{Name: "c.json", Check: func([]byte) []importer.Complaint {
		return []importer.Complaint{
			{Key: "outbox[0].debezium.transforms.outbox.route.by.field", Message: "no\nsuch"},
			{Key: "outbox[1].debezium.transforms.outbox.route.by.field", Message: "no\nsuch"},
			{Key: "kafka.brokers", Message: "bad"},
		}
	}}
	result := convert(t, head+database+`"transforms.outbox.route.by.field":"x",`+tail, o)
	wantRemark(t, result, "transforms.outbox.route.by.field", importer.NotCarried, "the relay refuses it: no such")
	wantRemark(t, result, "kafka.brokers", importer.NotCarried, "bad")
	if !strings.Contains(string(result.YAML), "refuses it: no such") {
		t.Errorf("the file does not say so:\n%s", result.YAML)
	}
	o.Worker, o.WorkerName = []byte("group.id=g\nbootstrap.servers=a:1,b\n"), "w"
	o.Check = func([]byte) []importer.Complaint {
		return []importer.Complaint{
			{Key: "kafka.brokers[1]", Message: "no port"}, {Key: "postgres.url", Message: `parse: failed to configure TLS (sslmode is invalid)`},
		}
	}
	result = convert(t, head+database+`"database.dbname":"d","database.sslmode":"bogus",`+tail, o)
	wantRemark(t, result, "bootstrap.servers", importer.NotCarried, "the relay refuses it: no port")
	wantRemark(t, result, "database.sslmode", importer.NotCarried, "sslmode is invalid")
	wantRemark(t, result, "database.dbname", importer.Carried, "postgres.url")
	for _, r := range result.Remarks {
		if strings.HasPrefix(r.Key, "kafka.") || strings.HasPrefix(r.Key, "postgres.") {
			t.Errorf("%+v names no key of the connector", r)
		}
		if r.Key == "bootstrap.servers" && (r.File != "w" || r.Line != 2) {
			t.Errorf("%+v is in line 2 of w", r)
		}
	}

}

func TestConvert_NothingIsDroppedSilently(t *testing.T) {
	config := head + database + "\n\"slot.name\":\"a\",\n\"slot.name\":\"b\",\n\"name\":\"m\"," + tail
	result := convert(t, `{"name":"n","initial_state":"STOPPED","zzz":"1","config":`+config+"}", importer.Options{})
	wantRemark(t, result, "slot.name", importer.NotCarried, "stands twice; the one in line 3 counts")
	wantRemark(t, result, "slot.name", importer.Carried, "postgres.slot")
	wantRemark(t, result, "initial_state", importer.NotNeeded, "state")
	wantRemark(t, result, "zzz", importer.NotCarried, "no member")
	wantRemark(t, result, "name", importer.Refused, "beside config")
	if !strings.Contains(string(result.YAML), "pipeline: n\n") {
		t.Errorf("the pipeline is not n:\n%s", result.YAML)
	}
	properties := "connector.class=PostgresConnector\ntable.include.list=a.b\ntransforms=o\ntransforms.o.type=" + "io.debezium.transforms.outbox.EventRouter\nslot.name=a\nslot.name=b\nslot.name=b\n"
	result = convert(t, properties, importer.Options{Worker: []byte("group.id=a\ngroup.id=b\n"), WorkerName: "w"})
	wantRemark(t, result, "slot.name", importer.NotCarried, "stands twice")
	wantRemark(t, result, "slot.name", importer.NotNeeded, "stands twice")
	wantRemark(t, result, "group.id", importer.NotCarried, "stands twice")
}

const eventRouterType = "io.debezium.transforms.outbox.EventRouter"

// Connect takes the short names of its plugins; Debezium, of its connector, does not.
func TestConvert_ShortNamesOfPlugins(t *testing.T) {
	input := `{"connector.class":"PostgresConnector","table.include.list":"public.outbox","topic.prefix":"app","key.converter":"StringConverter","value.converter":"Json",
		"header.converter":"String","transforms":"outbox,r,h","transforms.outbox.type":"EventRouter","transforms.r.type":"RegexRouter","transforms.r.regex":"a","transforms.r.replacement":"b",
		"transforms.h.type":"HoistField$Value","transforms.h.field":"x","transforms.h.predicate":"p","predicates":"p","predicates.p.type":"RecordIsTombstone"}`
	result := convert(t, input, importer.Options{})
	for _, want := range []string{
		"key.converter: org.apache.kafka.connect.storage.StringConverter", "value.converter: org.apache.kafka.connect.json.JsonConverter",
		"header.converter: org.apache.kafka.connect.storage.StringConverter", "outbox.type: " + eventRouterType, "r.type: org.apache.kafka.connect.transforms.RegexRouter",
		"h.type: org.apache.kafka.connect.transforms.HoistField$Value", "p.type: org.apache.kafka.connect.transforms.predicates.RecordIsTombstone",
	} {
		if !strings.Contains(string(result.YAML), want+"\n") {
			t.Errorf("no %q in\n%s", want, result.YAML)
		}
	}
	if _, err := load(result); err != nil {
		t.Errorf("what was imported is refused: %v", err)
	}
	wantRemark(t, result, "connector.class", importer.Refused, "io.debezium.connector.postgresql.PostgresConnector")
	result = convert(t, head+database+tail, importer.Options{Worker: []byte("key.converter=String\n"), WorkerName: "w"})
	if !strings.Contains(string(result.YAML), "key.converter: org.apache.kafka.connect.storage.StringConverter\n") {
		t.Errorf("the worker's short name is not resolved:\n%s", result.YAML)
	}
}

// What a table lacks is offered to that table, and leaves the others as they work.
func TestConvert_OffersColumnsByTable(t *testing.T) {
	columns := []string{"id", "aggregatetype", "aggregateid", "payload"}
	snake := []string{"id", "aggregate_type", "aggregate_id", "payload"}
	o := importer.Options{Catalog: []importer.Table{
		{Schema: "a", Name: "outbox", Columns: columns}, {Schema: "b", Name: "outbox", Columns: snake}, {Schema: "c", Name: "outbox", Columns: snake},
		{Schema: "d", Name: "outbox", Columns: []string{"id", "aggregatetype", "payload"}},
	}}
	result := convert(t, head+`"topic.prefix":"app",`+tail, o)
	yaml := string(result.YAML)
	blocks := strings.Split(yaml[strings.Index(yaml, "outbox:\n"):strings.Index(yaml, "\nkafka:")], "  - table: ")
	if len(blocks) != 5 {
		t.Fatalf("%d entries in\n%s", len(blocks)-1, yaml)
	}
	for i, want := range []struct{ has, hasNot string }{
		{"debezium: &debezium\n", "field.event.key"}, {"table.field.event.key: aggregate_id", "key: id"}, {"debezium: *debezium2\n", "key"}, {"table.field.event.key: id", "route.by"},
	} {
		if entry, _, _ := strings.Cut(blocks[i+1], "message_prefix"); !strings.Contains(entry, want.has) || strings.Contains(entry, want.hasNot) {
			t.Errorf("entry %d: want %q and no %q in\n%s", i, want.has, want.hasNot, entry)
		}
	}
	wantRemark(t, result, "transforms.outbox.table.field.event.key", importer.Refused, "which b.outbox, c.outbox has not. Debezium fails at the first row: aggregateid is not a valid field name. Column aggregate_id is offered")
	wantRemark(t, result, "transforms.outbox.table.field.event.key", importer.Refused, "which d.outbox has not")
	if _, err := load(result); err != nil {
		t.Errorf("what was imported is refused: %v\n%s", err, yaml)
	}
}

func TestConvert_ExactlyOnceIsTheWorkers(t *testing.T) {
	for name, c := range map[string]struct {
		worker, more string
		want         bool
	}{
		"enabled":              {"exactly.once.source.support=enabled\n", "", true},
		"required":             {"group.id=a\n", `"exactly.once.support":"required",`, true},
		"preparing":            {"exactly.once.source.support=preparing\n", `"exactly.once.support":"requested",`, false},
		"enabled and required": {"exactly.once.source.support=enabled\n", `"exactly.once.support":"required",`, true},
	} {
		result := convert(t, head+database+c.more+tail, importer.Options{Worker: []byte(c.worker), WorkerName: "w"})
		if got := strings.Count(string(result.YAML), "\n  guarantee: exactly_once\n"); (got == 1) != c.want || got > 1 {
			t.Errorf("%s: written %d times in\n%s", name, got, result.YAML)
		}
	}
}

func TestConvert_SaysWhatDebeziumRefusesOrIgnores(t *testing.T) {
	connector := head + database + `"topic.prefix":"app","snapshot.mode":"bogus","database.port":"54x","value.converter":"io.confluent.connect.avro.AvroConverter",
		"value.converter.schema.registry.url":"http://r","converters":"isbn","isbn.type":"a.B","topic.creation.enable":"true","database.dbname":"app","slot.name":"Bad-Slot",` + tail
	result := convert(t, connector, importer.Options{Check: func([]byte) []importer.Complaint {
		return []importer.Complaint{{Key: "postgres.slot", Message: "bad"}, {Key: "postgres.url", Message: "no URL"}}
	}})
	for _, r := range result.Remarks {
		if strings.Contains(r.Text, "no URL") || r.Key == "database.port" && r.Fate == importer.Carried {
			t.Errorf("what is said of the port is said of the URL as well: %+v", r)
		}
	}
	wantRemark(t, result, "snapshot.mode", importer.Refused, `"bogus" is not one of always, initial`)
	wantRemark(t, result, "database.port", importer.Refused, `"54x" is no port`)
	wantRemark(t, result, "value.converter", importer.NotCarried, "registers no schemas that it infers")
	wantRemark(t, result, "value.converter.schema.registry.url", importer.NotNeeded, "in the offer: kafka.registry.url")
	wantRemark(t, result, "isbn.type", importer.NotCarried, "belongs to isbn of `converters`")
	wantRemark(t, result, "topic.creation.enable", importer.NotNeeded, "the worker")
	wantRemark(t, result, "slot.name", importer.Refused, "bad")
	if !strings.Contains(string(result.YAML), "      database.dbname: app\n") {
		t.Errorf("the database's name is not among the options:\n%s", result.YAML)
	}

	server := "debezium.source.connector.class=io.debezium.connector.postgresql.PostgresConnector\ndebezium.source.table.include.list=public.outbox\n" +
		"debezium.transforms=outbox\ndebezium.transforms.outbox.type=" + eventRouterType + "\ndebezium.format.key=string\n" +
		"debezium.source.slot.name=dev\n%prod.debezium.source.slot.name=prod\n%dev.debezium.source.slot.name=test\n" +
		"debezium.source.offset.storage=io.debezium.storage.redis.offset.RedisOffsetBackingStore\n"
	result = convert(t, server, importer.Options{})
	wantRemark(t, result, "debezium.format.key", importer.NotCarried, `"string" is not written`)
	wantRemark(t, result, "debezium.source.slot.name", importer.NotCarried, "stands twice; the one in line 7 counts")
	wantRemark(t, result, "%prod.debezium.source.slot.name", importer.Carried, "postgres.slot")
	wantRemark(t, result, "%dev.debezium.source.slot.name", importer.NotNeeded, "profiles")
	wantRemark(t, result, "debezium.source.offset.storage", importer.NotNeeded, "redis-cli --raw HGETALL")
	wantRemark(t, result, "debezium.sink.type", importer.Refused, "is missing")
	if result.Source.Slot != "prod" {
		t.Errorf("the slot is %s", result.Source.Slot)
	}
}

func TestConvert_ErrorsThatSayWhatIsMeant(t *testing.T) {
	for name, c := range map[string]struct{ input, worker, want string }{
		"a connector as worker":  {head + database + tail, head + database + tail, "w:1:2: connector.class: this is a connector's configuration"},
		"an array":               {"[{}]", "", "is a JSON array"},
		"a list with references": {head + `"table.include.list":"${env:SCHEMA}.outbox",` + tail, "", "only Connect can resolve (${env:SCHEMA})"},
		"a table alone":          {head + `"table.include.list":"outbox",` + tail, "", "is public.outbox meant?"},
		"all but one":            {head + `"table.exclude.list":"public.other",` + tail, "", "every table that table.exclude.list leaves"},
		"an empty class":         {"connector.class=\n", "", "is empty"},
	} {
		o := importer.Options{WorkerName: "w"}
		if c.worker != "" {
			o.Worker = []byte(c.worker)
		}
		if _, err := importer.Convert([]byte(c.input), o); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want an error with %q", name, err, c.want)
		}
	}
}

func TestConvert_TakesTheKafkaConnectOfTheSameFile(t *testing.T) {
	connector, o := given(t, "testdata/strimzi-secured")
	apart := convert(t, string(connector), o)
	together := convert(t, string(connector)+"\n---\n"+string(o.Worker), importer.Options{Name: o.Name})
	configuration := func(r *importer.Result) string {
		text := string(r.YAML)
		return text[strings.Index(text, "\npostgres:"):strings.Index(text, "\n# What became")]
	}
	if configuration(apart) != configuration(together) {
		t.Errorf("apart:\n%s\ntogether:\n%s", apart.YAML, together.YAML)
	}
}
