package importer_test

import (
	"io/fs"
	"regexp"
	"strings"
	"testing"

	"github.com/cdc-relay/cdc-relay/config"
	"github.com/cdc-relay/cdc-relay/debezium/importer"
)

// taken is an imported configuration with its offer in the place of outbox, as a person takes it.
func taken(t *testing.T, result *importer.Result) string {
	t.Helper()
	text := string(result.YAML)
	var offer strings.Builder
	for line := range strings.Lines(text) {
		if rest, ok := strings.CutPrefix(line, "#| "); ok {
			offer.WriteString(rest)
		}
	}
	entries, registry, ok := strings.Cut(offer.String(), "kafka:\n")
	if !ok {
		t.Fatalf("there is no offer in\n%s", text)
	}
	text = regexp.MustCompile(`(?s)\noutbox:\n.*?\n\n`).ReplaceAllLiteralString(text, "\n"+entries+"\n")
	return strings.Replace(text, "\nkafka:\n", "\nkafka:\n"+registry, 1)
}

func TestConvert_OffersAvroThatCanBeTaken(t *testing.T) {
	for dir, want := range map[string]struct{ subject, topic, key, url string }{
		"avro":          {"", "${routedByValue}-events", "aggregate_id", "url: https://registry-1:8081,https://registry-2:8081"},
		"avro-apicurio": {"", "", "", "url: http://apicurio:8080/apis/ccompat/v7"},
	} {
		input, o := given(t, "testdata/"+dir)
		result, err := importer.Convert(input, o)
		if err != nil {
			t.Fatal(err)
		}
		text := taken(t, result)
		if strings.Contains(string(result.YAML), "hunter2") || !strings.Contains(text, want.url) {
			t.Errorf("%s:\n%s", dir, text)
		}
		cfg, err := config.Load(config.Options{Path: "f", Environ: []string{"REGISTRY_PASSWORD=x"}, ReadFile: func(name string) ([]byte, error) {
			if name == "f" {
				return []byte(text), nil
			}
			return nil, fs.ErrNotExist
		}})
		if err != nil {
			t.Errorf("%s: %v\n%s", dir, err, text)
			continue
		}
		m := cfg.Relay().Router.Mappings
		if len(m) != 1 || m[0].Value != "avro" || m[0].Preset != "debezium" || m[0].Topic != want.topic || m[0].Columns.Key != want.key || m[0].Connector != nil {
			t.Errorf("%s: %+v", dir, m)
		}
	}
}

// What the relay's own keys cannot say is named, and nothing is offered.
func TestConvert_OffersNoAvroWhereItsKeysSayLess(t *testing.T) {
	const avro = `"topic.prefix":"app","value.converter":"io.confluent.connect.avro.AvroConverter","value.converter.schema.registry.url":"https://relay:hunter2@r",`
	for more, want := range map[string]string{
		`"decimal.handling.mode":"string",`:                                      "it has no counterpart of decimal.handling.mode",
		`"transforms.outbox.table.fields.additional.placement":"type:envelope",`: `column "type" is a part of the value`,
		`"transforms.outbox.predicate":"p","predicates":"p","predicates.p.type":"org.apache.kafka.connect.transforms.predicates.RecordIsTombstone",`: "no counterpart",
	} {
		result := convert(t, head+database+avro+more+tail, importer.Options{})
		wantRemark(t, result, "value.converter", importer.NotCarried, want)
		if strings.Contains(string(result.YAML), "#|") || strings.Contains(string(result.YAML), "hunter2") {
			t.Errorf("%s:\n%s", more, result.YAML)
		}
	}
	result := convert(t, head+database+avro+tail, importer.Options{})
	if text := string(result.YAML); !strings.Contains(text, "#|     url: https://r\n#|     username: relay\n") || strings.Contains(text, "hunter2") {
		t.Errorf("credentials in the address:\n%s", text)
	}
	for _, address := range []string{"https://relay:hun%ter2@r", "https://relay:hunter2/a@r", "relay:hunter2@r", "https://r/?key=hunter2", "https://relay:a@hunter2@r"} {
		result := convert(t, head+database+strings.Replace(avro, "https://relay:hunter2@r", address, 1)+tail, importer.Options{})
		if text := string(result.YAML); !strings.Contains(text, "#|     url: ") || strings.Contains(text, "ter2") {
			t.Errorf("%s:\n%s", address, text)
		}
	}
	plain := convert(t, head+database+strings.Replace(avro, "io.confluent.connect.avro.AvroConverter", "com.example.AvroConverter", 1)+tail, importer.Options{})
	if strings.Contains(string(plain.YAML), "#|") {
		t.Errorf("a converter of somebody else's:\n%s", plain.YAML)
	}
}
