package config

import (
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/cdc-relay/cdc-relay/tracing"
)

// The endpoint is the collector's; traces have a path below it. The variable for traces has it.
func TestTracing_EndpointGetsThePathOfTraces(t *testing.T) {
	for given, want := range map[string]string{
		"http://c:4318": "http://c:4318/v1/traces", "https://c/": "https://c/v1/traces", "http://c/otlp": "http://c/otlp/v1/traces", "http://c/v1/traces": "http://c/v1/traces",
	} {
		cfg := load(t, Options{Path: "f", ReadFile: testFiles{"f": minimal + "tracing: {endpoint: '" + given + "'}\n"}.read})
		if to, _ := cfg.Tracing(); to == nil || to.Endpoint != want {
			t.Errorf("%s: %+v", given, to)
		}
	}
	files := testFiles{"f": minimal}
	for variable, want := range map[string]string{
		"OTEL_EXPORTER_OTLP_ENDPOINT=http://c:4318": "http://c:4318/v1/traces", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT=http://c:4318/take": "http://c:4318/take",
	} {
		cfg := load(t, Options{Path: "f", ReadFile: files.read, Environ: []string{variable}})
		if to, _ := cfg.Tracing(); to == nil || to.Endpoint != want {
			t.Errorf("%s: %+v", variable, to)
		}
	}
}

func TestTracing_IsOffWithoutAnEndpointAndWhereTheEnvironmentSaysSo(t *testing.T) {
	endpoint := "OTEL_EXPORTER_OTLP_ENDPOINT=http://c:4318"
	for name, o := range map[string]Options{
		"nothing":   {ReadFile: testFiles{"f": minimal}.read},
		"disabled":  {ReadFile: testFiles{"f": minimal}.read, Environ: []string{endpoint, "OTEL_SDK_DISABLED=true"}},
		"none":      {ReadFile: testFiles{"f": minimal}.read, Environ: []string{endpoint, "OTEL_TRACES_EXPORTER=none"}},
		"key":       {ReadFile: testFiles{"f": minimal + "tracing: {endpoint: ''}\n"}.read, Environ: []string{endpoint}},
		"unrelated": {ReadFile: testFiles{"f": minimal}.read, Environ: []string{"OTEL_EXPORTER_OTLP_PROTOCOL=grpc", "OTEL_EXPORTER_OTLP_CERTIFICATE=/no/such/file", "OTEL_EXPORTER_OTLP_HEADERS=x"}},
	} {
		o.Path = "f"
		if to, _ := load(t, o).Tracing(); to != nil {
			t.Errorf("%s: it is on", name)
		}
	}
}

func TestTracing_TakesOpenTelemetrysVariablesWhereAKeyIsUnset(t *testing.T) {
	environ := []string{
		"OTEL_EXPORTER_OTLP_ENDPOINT=http://localhost:4318", "OTEL_EXPORTER_OTLP_HEADERS=api-key=a%20b,x=1", "OTEL_EXPORTER_OTLP_TRACES_HEADERS=Authorization=Basic%20eA==",
		"OTEL_EXPORTER_OTLP_TIMEOUT=2500", "OTEL_EXPORTER_OTLP_COMPRESSION=none", "OTEL_EXPORTER_OTLP_PROTOCOL=http/protobuf",
	}
	to, of := load(t, Options{Path: "f", ReadFile: testFiles{"f": minimal}.read, Environ: environ}).Tracing()
	headers, err := to.Headers()
	if err != nil || !maps.Equal(headers, map[string]string{"authorization": "Basic eA=="}) || to.Timeout != 2500*time.Millisecond || !to.Plain {
		t.Errorf("%q %v %+v", headers, err, to)
	}
	if of.Sample != tracing.Parent || of.Mode != tracing.Child || of.MaxPerSecond != 1000 || of.Database != "shop" {
		t.Errorf("%+v", of)
	}
	files := testFiles{"f": minimal + "tracing: {endpoint: 'http://localhost:1', headers_file: h}\n", "h": "# ours\n\nX-Key = one two \n"}
	to, _ = load(t, Options{Path: "f", ReadFile: files.read, Environ: environ}).Tracing()
	if headers, err = to.Headers(); err != nil || !maps.Equal(headers, map[string]string{"x-key": "one two"}) || to.Endpoint != "http://localhost:1/v1/traces" {
		t.Errorf("a variable wins over a key: %q %v %s", headers, err, to.Endpoint)
	}
	files["h"] = "x-key=three"
	if headers, _ = to.Headers(); headers["x-key"] != "three" {
		t.Error("the file is not read again")
	}
}

// What is refused says what is allowed, and shows no secret.
func TestTracing_RefusesWhatItCannotDo(t *testing.T) {
	const secret = "hunter2"
	for name, c := range map[string]struct {
		file, headers string
		environ       []string
		want          string
	}{
		"no scheme":     {file: "tracing: {endpoint: 'collector:4318'}", want: `"collector:4318" has no scheme; allowed: http://host:4318 or https://host:4318`},
		"credentials":   {file: "tracing: {endpoint: 'http://u:" + secret + "@c'}", want: "holds credentials; put them into tracing.headers_file"},
		"ratio":         {file: "tracing: {endpoint: 'http://c', sample: parent_or_ratio, ratio: 1.5}", want: "1.5 is not allowed; allowed: from 0 to 1"},
		"useless ratio": {file: "tracing: {endpoint: 'http://c', ratio: 0.5}", want: "tracing.ratio: has no effect without tracing.sample: parent_or_ratio"},
		"no endpoint":   {file: "tracing: {mode: link}", want: "tracing.mode: has no effect without tracing.endpoint"},
		"rate":          {file: "tracing: {endpoint: 'http://c', max_spans_per_second: 1}", want: "1 is not allowed; allowed: from 2 to 100000"},
		"grpc":          {file: "tracing: {endpoint: 'http://c'}", environ: []string{"OTEL_EXPORTER_OTLP_PROTOCOL=grpc"}, want: `OTEL_EXPORTER_OTLP_PROTOCOL: "grpc" is not allowed; allowed: http/protobuf`},
		"http/json":     {environ: []string{"OTEL_EXPORTER_OTLP_ENDPOINT=http://c", "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL=http/json"}, want: "allowed: http/protobuf"},
		"compression":   {environ: []string{"OTEL_EXPORTER_OTLP_ENDPOINT=http://c", "OTEL_EXPORTER_OTLP_COMPRESSION=zstd"}, want: `"zstd" is not allowed; allowed: gzip, none`},
		"timeout":       {environ: []string{"OTEL_EXPORTER_OTLP_ENDPOINT=http://c", "OTEL_EXPORTER_OTLP_TIMEOUT=10s"}, want: `"10s" is not allowed; allowed: milliseconds`},
		"headers":       {environ: []string{"OTEL_EXPORTER_OTLP_ENDPOINT=http://c", "OTEL_EXPORTER_OTLP_HEADERS=a=b," + secret}, want: "entry 2 holds no name=value"},
		"headers file":  {file: "tracing: {endpoint: 'http://c', headers_file: h}", headers: "a=b\n" + secret + "\n", want: "read h: line 2 holds no name=value"},
		"own header":    {file: "tracing: {endpoint: 'http://c', headers_file: h}", headers: "Content-Type=" + secret, want: "sets content-type, which the relay sets itself"},
		"no file":       {file: "tracing: {endpoint: 'http://c', headers_file: gone}", want: "tracing.headers_file: read gone"},
		"plain tls":     {file: "tracing: {endpoint: 'http://c', tls: {ca_file: h}}", want: "tracing.tls.ca_file: has no effect without tracing.endpoint: https"},
		"half a pair":   {file: "tracing: {endpoint: 'https://c', tls: {cert_file: h}}", want: "tracing.tls.key_file: is missing"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := Load(Options{Path: "f", ReadFile: testFiles{"f": minimal + c.file + "\n", "h": c.headers}.read, Environ: append([]string{}, c.environ...)})
			if err == nil || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), secret) {
				t.Errorf("%v\nwant %s", err, c.want)
			}
		})
	}
}

func TestTracing_WarnsOfThePortOfGRPCAndOfHeadersInClearText(t *testing.T) {
	for text, want := range map[string]string{
		"endpoint: 'http://c:4317'": "4317 is usually gRPC", "endpoint: 'http://c:4318', headers_file: h": "in clear text", "endpoint: 'http://localhost:4318', headers_file: h": "",
	} {
		cfg := load(t, Options{Path: "f", ReadFile: testFiles{"f": minimal + "tracing: {" + text + "}\n", "h": "a=b"}.read})
		if got := strings.Join(cfg.Warnings, "\n"); want == "" && got != "" || !strings.Contains(got, want) {
			t.Errorf("%s: warnings %q", text, got)
		}
	}
}
