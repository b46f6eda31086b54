package router

import (
	"slices"
	"strings"
	"testing"

	"github.com/cdc-relay/cdc-relay/router/format"
	"github.com/cdc-relay/cdc-relay/router/record"
	"github.com/cdc-relay/cdc-relay/router/record/recordtest"
)

// headersOf shows headers in their order.
func headersOf(rec record.Record) string {
	var all []string
	for _, h := range rec.Headers {
		all = append(all, h.Key+"="+recordtest.Bytes(h.Value))
	}
	return strings.Join(all, " ")
}

func TestRoute_ConfiguredHeadersReplaceOthers(t *testing.T) {
	const parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	trace := `{"traceparent":"` + parent + `","tracestate":"a=b"}`
	id := "id=" + testID
	for _, c := range []struct {
		name string
		m    Mapping
		want string
	}{
		{"none", Mapping{}, id + " eventType=created idempotency_key=once traceparent=" + parent + " tracestate=a=b"},
		{"one of the preset, by a column", Mapping{Headers: []HeaderMapping{{"eventType", "tenant"}}}, id + " idempotency_key=once eventType=acme traceparent=" + parent + " tracestate=a=b"},
		{"one of the preset, by a template", Mapping{Headers: []HeaderMapping{{"eventType", "v1.${event_type}"}}}, id + " idempotency_key=once eventType=v1.created traceparent=" + parent + " tracestate=a=b"},
		{"one of the preset, by NULL", Mapping{Headers: []HeaderMapping{{"eventType", "nothing"}}}, id + " idempotency_key=once eventType=null traceparent=" + parent + " tracestate=a=b"},
		{"all of the preset", Mapping{Headers: []HeaderMapping{{"idempotency_key", "tenant"}, {"eventType", "tenant"}}}, id + " idempotency_key=acme eventType=acme traceparent=" + parent + " tracestate=a=b"},
		{"another case is another name", Mapping{Headers: []HeaderMapping{{"eventtype", "tenant"}}}, id + " eventType=created idempotency_key=once eventtype=acme traceparent=" + parent + " tracestate=a=b"},
		{"the trace", Mapping{Headers: []HeaderMapping{{"traceparent", "tenant"}}}, id + " eventType=created idempotency_key=once traceparent=acme tracestate=a=b"},
		{"the state of the trace", Mapping{Headers: []HeaderMapping{{"tracestate", "tenant"}}}, id + " eventType=created idempotency_key=once tracestate=acme traceparent=" + parent},
		{"the event id", Mapping{Headers: []HeaderMapping{{"id", "tenant"}}}, "id=acme eventType=created idempotency_key=once traceparent=" + parent + " tracestate=a=b"},
		{"the event id, by NULL", Mapping{Headers: []HeaderMapping{{"id", "nothing"}}}, id + " eventType=created idempotency_key=once traceparent=" + parent + " tracestate=a=b"},
		{"an extension's", Mapping{
			Value: format.CloudEventsBinary, ValueFields: []Field{{"tenant", "event_type"}}, Headers: []HeaderMapping{{"ce_tenant", "tenant"}},
		}, id + " ce_specversion=1.0 ce_id=" + testID + " ce_source=/cdc-relay/public.outbox ce_type=created ce_subject=k ce_traceparent=" + parent + " ce_tracestate=a=b content-type=application/json eventType=created idempotency_key=once ce_tenant=acme traceparent=" + parent + " tracestate=a=b"},
	} {
		t.Run(c.name, func(t *testing.T) {
			rel := table(t, "id uuid", "aggregate_type text", "aggregate_id text", "event_type text", "payload jsonb", "idempotency_key text", "traceparent jsonb", "tenant text", "nothing text", "created_at timestamptz")
			row := textRow(rel, testID, "order", "k", "created", "{}", "once", trace, "acme", null, "2024-01-02 03:04:05+00")
			rec, err := routeOne(t, c.m, row)
			if err != nil {
				t.Fatal(err)
			}
			if got := headersOf(rec); got != c.want {
				t.Errorf("headers\n%s, want\n%s", got, c.want)
			}
			e, err := mustNew(t, c.m).Pin(rel)
			if err != nil {
				t.Fatal(err)
			}
			var names []string
			for _, h := range rec.Headers {
				if slices.Contains(names, h.Key) {
					t.Errorf("header %s is there twice", h.Key)
				}
				names = append(names, h.Key)
			}
			names = slices.DeleteFunc(names, func(name string) bool {
				return strings.HasSuffix(name, "tracestate") && !strings.Contains(c.name, "state")
			})
			if c.m.Value == "" && !slices.Equal(e.Headers, names) {
				t.Errorf("explained as %q, and routed with %q", e.Headers, names)
			}
		})
	}
}

// A headers column may repeat names, and neither replaces nor adds to the event id.
func TestRoute_AHeadersColumnReplacesNothing(t *testing.T) {
	rel := table(t, "id uuid", "aggregate_type text", "event_type text", "payload jsonb", "headers jsonb")
	row := textRow(rel, testID, "order", "created", "{}", `{"id":"own","eventType":"again","tenant":"t"}`)
	rec, err := routeOne(t, Mapping{Headers: []HeaderMapping{{"id", "aggregate_type"}, {"tenant", "event_type"}}}, row)
	if err != nil {
		t.Fatal(err)
	}
	if got, want := headersOf(rec), "id=order eventType=created tenant=created eventType=again tenant=t"; got != want {
		t.Errorf("headers %s, want %s", got, want)
	}
}

func TestNew_RefusesTheNamesOfOwnHeaders(t *testing.T) {
	for _, name := range []string{record.HeaderLSN, record.HeaderSeq, record.HeaderCommitTime, "cdc-relay-error-reason"} {
		_, err := New(Config{Mappings: []Mapping{{Table: "public.outbox", Headers: []HeaderMapping{{name, "tenant"}}}}})
		if list := ConfigErrors(err); len(list) != 1 || list[0].Path != "outbox[0].headers."+name {
			t.Errorf("%s: %v", name, err)
		}
	}
}
