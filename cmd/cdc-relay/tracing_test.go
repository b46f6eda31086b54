package main

import (
	"compress/gzip"
	"encoding/hex"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cdc-relay/cdc-relay/test/harness"
	"github.com/cdc-relay/cdc-relay/tracing"
	collector "go.opentelemetry.io/proto/slim/otlp/collector/trace/v1"
	otlp "go.opentelemetry.io/proto/slim/otlp/trace/v1"
	"google.golang.org/protobuf/proto"
)

const (
	writerTrace  = "0af7651916cd43dd8448eb211c80319c"
	writerSpan   = "b7ad6b7169203331"
	writerParent = "00-" + writerTrace + "-" + writerSpan + "-01"
)

// receiver is a collector.
type receiver struct {
	*httptest.Server

	mu    sync.Mutex
	spans []*otlp.Span
	wrong []string
}

func newReceiver(t *testing.T) *receiver {
	r := new(receiver)
	r.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		r.mu.Lock()
		defer r.mu.Unlock()
		body, err := gzip.NewReader(q.Body)
		if err != nil || q.URL.Path != "/v1/traces" || q.Header.Get("Content-Type") != "application/x-protobuf" || q.Header.Get("Authorization") != "Bearer let-me-in" {
			r.wrong = append(r.wrong, fmt.Sprintf("%s %s %v %v", q.Method, q.URL, q.Header, err))
			w.WriteHeader(http.StatusBadRequest)
			return
		}
		text, _ := io.ReadAll(body)
		var request collector.ExportTraceServiceRequest
		if err := proto.Unmarshal(text, &request); err != nil {
			r.wrong = append(r.wrong, err.Error())
		}
		for _, of := range request.GetResourceSpans() {
			for _, scope := range of.GetScopeSpans() {
				r.spans = append(r.spans, scope.GetSpans()...)
			}
		}
		w.Header().Set("Content-Type", "application/x-protobuf")
	}))
	t.Cleanup(r.Close)
	return r
}

// trace are the received spans of a trace, by id.
func (r *receiver) trace(id string) map[string]*otlp.Span {
	r.mu.Lock()
	defer r.mu.Unlock()
	all := make(map[string]*otlp.Span)
	for _, s := range r.spans {
		if hex.EncodeToString(s.GetTraceId()) == id {
			all[hex.EncodeToString(s.GetSpanId())] = s
		}
	}
	return all
}

func (l *life) trace(t *testing.T, endpoint string) {
	t.Helper()
	headers := filepath.Join(t.TempDir(), "headers")
	if err := os.WriteFile(headers, []byte("authorization=Bearer let-me-in\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	l.env = append(l.env, "CDC_RELAY_TRACING_ENDPOINT="+endpoint, "CDC_RELAY_TRACING_HEADERS_FILE="+headers)
}

func (l *life) insertTraced(t *testing.T, parent string) {
	l.db.Exec(t, `INSERT INTO outbox (aggregate_type, aggregate_id, event_type, payload, traceparent) VALUES ('order', 'k', 'OrderPlaced', '{}', $1)`, parent)
}

// One trace goes from the service that inserted the row to the consumer, whose parent is the
// relay's span of sending. A row that is delivered again has another one in the same trace.
func TestTracing_OneTraceFromInsertToConsumer(t *testing.T) {
	l, to := newLife(t), newReceiver(t)
	l.trace(t, to.URL)
	invoke(t, l.env, "setup", "--create-table").want(t, exitOK, "", "")
	slot := harness.Query[string](t, l.db, "SELECT slot_name::text FROM pg_replication_slots WHERE database = current_database()")
	l.db.Exec(t, "SELECT pg_copy_logical_replication_slot($1, $2)", slot, slot+"_again")

	unsampled := strings.TrimSuffix(writerParent, "1") + "0"
	for _, parent := range []string{writerParent, unsampled} {
		l.insertTraced(t, parent)
	}
	deliver := func(rows int) {
		t.Helper()
		url, stop := l.start(t, nil)
		l.await(t, "the rows are delivered", func() bool {
			return strings.Contains(invoke(t, nil, "status", "--url", url).stdout, "published 2,")
		})
		if code := stop(); code != exitOK {
			t.Fatalf("run ended with %d", code)
		}
		released(t, l.db)
		if n := len(l.brokers.Read(t, "order-events")); n != rows {
			t.Fatalf("%d records, want %d", n, rows)
		}
	}
	deliver(2)
	for i, assignment := range l.env { // as a crash before the confirmation would
		if assignment == "CDC_RELAY_POSTGRES_SLOT="+slot {
			l.env[i] += "_again"
		}
	}
	deliver(4)

	all := to.trace(writerTrace)
	if len(all) != 4 || len(to.wrong) > 0 {
		t.Fatalf("%d spans; wrong: %q", len(all), to.wrong)
	}
	consumed := make(map[string]bool)
	for _, r := range l.brokers.Read(t, "order-events") {
		parent := ""
		for _, h := range r.Headers {
			if h.Key == "traceparent" {
				parent = string(h.Value)
			}
		}
		if parent == unsampled {
			continue
		}
		c, ok := tracing.ParseParent(parent)
		send := all[hex.EncodeToString(c.Span[:])]
		if !ok || hex.EncodeToString(c.Trace[:]) != writerTrace || send == nil {
			t.Errorf("the consumer's parent is %q, of which nobody knows", parent)
			continue
		}
		outer := all[hex.EncodeToString(send.GetParentSpanId())]
		if send.GetKind() != otlp.Span_SPAN_KIND_PRODUCER || outer == nil || hex.EncodeToString(outer.GetParentSpanId()) != writerSpan || outer.GetName() != "outbox public.outbox" || send.GetName() != "send order-events" {
			t.Errorf("spans %v, %v", outer, send)
		}
		if outer.GetStartTimeUnixNano() > send.GetStartTimeUnixNano() || send.GetEndTimeUnixNano() < send.GetStartTimeUnixNano() {
			t.Errorf("times of %v, %v", outer, send)
		}
		consumed[hex.EncodeToString(send.GetSpanId())] = true
	}
	if len(consumed) != 2 {
		t.Errorf("%d spans of sending have a consumer, want 2", len(consumed))
	}
}

// Rows go on whatever the collector does.
func TestTracing_RowsGoOnWhateverTheCollectorDoes(t *testing.T) {
	hang := make(chan struct{})
	for name, answer := range map[string]http.HandlerFunc{
		"away":    nil,
		"refuses": func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusForbidden) },
		"silent":  func(_ http.ResponseWriter, r *http.Request) { <-hang },
		"endless": func(w http.ResponseWriter, r *http.Request) {
			for r.Context().Err() == nil {
				if _, err := w.Write(make([]byte, 1<<16)); err != nil {
					return
				}
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			l := newLife(t)
			server := httptest.NewServer(answer)
			defer server.Close()
			if answer == nil {
				server.Close()
			}
			if name == "silent" {
				defer close(hang)
			}
			l.trace(t, server.URL)
			invoke(t, l.env, "setup", "--create-table").want(t, exitOK, "", "")
			url, stop := l.start(t, nil)
			for range 5 {
				l.insertTraced(t, writerParent)
			}
			l.await(t, "the rows are delivered", func() bool {
				return strings.Contains(invoke(t, nil, "status", "--url", url).stdout, "published 5,")
			})
			began := time.Now()
			if code := stop(); code != exitOK {
				t.Errorf("run ended with %d", code)
			}
			if took := time.Since(began); took > time.Minute {
				t.Errorf("the stop took %v", took)
			}
		})
	}
}
