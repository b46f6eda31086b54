package integration

import (
	"bytes"
	"compress/gzip"
	"encoding/hex"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	collector "go.opentelemetry.io/proto/slim/otlp/collector/trace/v1"
	otlp "go.opentelemetry.io/proto/slim/otlp/trace/v1"
	"google.golang.org/protobuf/proto"

	"github.com/cdc-relay/cdc-relay/relay"
	"github.com/cdc-relay/cdc-relay/test/harness"
	"github.com/cdc-relay/cdc-relay/test/harness/relaytest"
	"github.com/cdc-relay/cdc-relay/tracing"
)

// spanCollector takes spans over OTLP.
type spanCollector struct {
	*httptest.Server

	mu    sync.Mutex
	spans map[string]*otlp.Span // by id
}

func newSpanCollector(t *testing.T) *spanCollector {
	c := &spanCollector{spans: map[string]*otlp.Span{}}
	c.Server = httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, req *http.Request) {
		var request collector.ExportTraceServiceRequest
		body, err := gzip.NewReader(req.Body)
		if err == nil {
			var text []byte
			if text, err = io.ReadAll(body); err == nil {
				err = proto.Unmarshal(text, &request)
			}
		}
		if err != nil {
			t.Errorf("%s: %v", req.URL, err)
		}
		c.mu.Lock()
		defer c.mu.Unlock()
		for _, of := range request.GetResourceSpans() {
			for _, scope := range of.GetScopeSpans() {
				for _, s := range scope.GetSpans() {
					c.spans[hex.EncodeToString(s.GetSpanId())] = s
				}
			}
		}
	}))
	t.Cleanup(c.Close)
	return c
}

// writer is the span of the INSERT, as the spans from a record's traceparent upwards have it.
func (c *spanCollector) writer(parent string) (string, error) {
	at, ok := tracing.ParseParent(parent)
	if !ok {
		return "", fmt.Errorf("traceparent %q", parent)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	send := c.spans[hex.EncodeToString(at.Span[:])]
	outer := c.spans[hex.EncodeToString(send.GetParentSpanId())]
	if send.GetKind() != otlp.Span_SPAN_KIND_PRODUCER || outer.GetName() != "outbox public.outbox" {
		return "", fmt.Errorf("above the consumer are %v, %v", send, outer)
	}
	for _, s := range []*otlp.Span{send, outer} {
		if !bytes.Equal(s.GetTraceId(), at.Trace[:]) {
			return "", fmt.Errorf("another trace: %v", s)
		}
	}
	return fmt.Sprintf("00-%x-%x-01", at.Trace, outer.GetParentSpanId()), nil
}

// One trace goes from each INSERT through a record in Avro to a consumer in Java, with Apicurio's
// registry and deserializer. Meanwhile the schema evolves, and the registry is killed and started again.
func TestRegistry_OneTraceFromInsertToAJavaConsumer(t *testing.T) {
	t.Parallel()
	registry, spans := harness.OwnRegistry(t), newSpanCollector(t)
	java, classPath := harness.RegistryConsumer(t)
	p := newEncoded(t, harness.Postgres(t), harness.Kfake(t, kfakeDefault), encodings[0], registry.URL(), relay.AtLeastOnce)
	p.YAML += "tracing: {endpoint: " + spans.URL + "}\n"
	var parents []string
	insert := func(payload string) {
		t.Helper()
		parents = append(parents, fmt.Sprintf("00-0af7651916cd43dd8448eb211c80319c-%016x-01", len(parents)+1))
		p.DB.Exec(t, "INSERT INTO outbox (aggregate_type, aggregate_id, event_type, payload, traceparent) VALUES ($1, md5('a')::uuid, 'placed', $2, $3)",
			p.aggregate, payload, parents[len(parents)-1])
		p.AwaitCaughtUp(t)
	}
	p.register(t, "placed", orderV1)
	running := p.Exec(t, "run")
	insert(`{"n": 1}`)
	second := p.register(t, "placed", orderV2)
	relaytest.Eventually(t, "the new version is in use", func() (bool, string) {
		p.insert(t, "probe", "placed", `{"n": 0}`)
		p.AwaitCaughtUp(t)
		got := fmt.Sprint(p.values(t))
		return strings.Contains(got, fmt.Sprintf(`%d {"n":0,"note":null}`, second)), got
	})
	insert(`{"n": 2, "note": "new"}`)
	registry.Kill()
	insert(`{"n": 3, "note": "known"}`)
	again(t, registry.Start(t.Context()))
	insert(`{"n": 4, "note": "again"}`)
	(&sharded{Pipeline: p.Pipeline}).stop(t, running) // sends the spans

	count := len(p.Brokers.Read(t, p.topic))
	want := []string{`{"n": 1}`, `{"n": 2, "note": "new"}`, `{"n": 3, "note": "known"}`, `{"n": 4, "note": "again"}`}
	cmd := exec.CommandContext(t.Context(), java, "-Dstdout.encoding=UTF-8", "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn", "-cp", classPath, filepath.Join("avro", "Consume.java"),
		strings.Join(p.Brokers.Addrs, ","), p.topic, fmt.Sprint(count),
		"apicurio.registry.url="+registry.NativeURL(), "apicurio.registry.as-confluent=true", "apicurio.registry.use-id=contentId")
	var complaint bytes.Buffer
	cmd.Stderr = &complaint
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v\n%s", err, complaint.String())
	}
	var got []string
	for line := range strings.Lines(string(out)) {
		fields := strings.Split(strings.TrimSuffix(line, "\n"), "\t")
		if fields[1] == "" {
			continue // a probe
		}
		writer, err := spans.writer(fields[1])
		if err != nil {
			t.Error(err)
		}
		if i := len(got); i >= len(parents) || writer != parents[i] {
			t.Errorf("record %d is below %s", i+1, writer)
		}
		got = append(got, fields[2])
	}
	if strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("Java consumed\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}
