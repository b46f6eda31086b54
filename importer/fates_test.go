package importer_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/cdc-relay/cdc-relay/importer"
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
