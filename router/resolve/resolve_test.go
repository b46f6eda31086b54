package resolve

import (
	"context"
	"errors"
	"testing"

	"github.com/cdc-relay/cdc-relay/replication/wal"
	"github.com/cdc-relay/cdc-relay/router"
	"github.com/cdc-relay/cdc-relay/router/encode"
	"github.com/cdc-relay/cdc-relay/router/record"
	"github.com/cdc-relay/cdc-relay/router/schemas"
)

var errAway = errors.New("the registry is away")

// one has one schema, unless it is away.
type one struct {
	away  bool
	asked int
}

func (o *one) Schema(_ context.Context, subject string, _ int) (*encode.Schema, error) {
	o.asked++
	if o.away {
		return nil, errAway
	}
	return &encode.Schema{Subject: subject, Version: 1, ID: 7, Kind: encode.Avro, Text: `{"type": "record", "name": "Order", "fields": [{"name": "total", "type": "int"}]}`}, nil
}

func (*one) Known(context.Context, uint32) (encode.Kind, bool, error) { return "", false, nil }

// orders returns a router of a table whose values need a schema, and a row of the table.
func orders(t *testing.T, registry schemas.Registry) (*Router, *wal.Row) {
	t.Helper()
	r, err := New(router.Config{Registry: registry, Mappings: []router.Mapping{{Table: "public.outbox", Value: "avro", Schema: schemas.Config{Options: encode.Options{Kind: encode.Avro}}}}})
	if err != nil {
		t.Fatal(err)
	}
	rel := &wal.Relation{OID: 1, Namespace: "public", Name: "outbox"}
	row := &wal.Row{Txn: &wal.Txn{XID: 7, Commit: 100}, Ordinal: 1, Relation: rel}
	for _, c := range [][2]string{{"id", "2f6b0e7a-6d9c-4c51-8a35-111111111111"}, {"aggregate_type", "order"}, {"aggregate_id", "o-1"}, {"event_type", "placed"}, {"payload", `{"total": 3}`}} {
		rel.Columns = append(rel.Columns, wal.Column{Name: c[0], Type: 25})
		row.Values = append(row.Values, wal.Value{Kind: wal.Text, Data: []byte(c[1])})
	}
	return r, row
}

func TestRouter_AsksOnceForASchema(t *testing.T) {
	registry := &one{}
	r, row := orders(t, registry)
	for range 2 {
		var b record.Buffer
		if err := r.Route(t.Context(), &b, row); err != nil || len(b.Records) != 1 || len(b.Records[0].Value) == 0 {
			t.Fatalf("%d records, %v", len(b.Records), err)
		}
	}
	if registry.asked != 1 {
		t.Errorf("asked %d times", registry.asked)
	}
}

func TestRouter_ReturnsWhatTheRegistryAnswersInPlaceOfASchema(t *testing.T) {
	registry := &one{away: true}
	r, row := orders(t, registry)
	var b record.Buffer
	err := r.Route(t.Context(), &b, row)
	unmet, ok := errors.AsType[*schemas.Unmet](err)
	if !ok || unmet.Topic != "order-events" || !errors.Is(err, errAway) || len(b.Records) != 0 {
		t.Fatalf("%d records, %v", len(b.Records), err)
	}
	registry.away = false
	if err := r.Route(t.Context(), &b, row); err != nil || len(b.Records) != 1 {
		t.Errorf("the registry is back: %d records, %v", len(b.Records), err)
	}
}

// The router of a relay must not wait for a registry: whoever streams answers the server meanwhile.
func TestRouter_OfTheStreamAsksNobody(t *testing.T) {
	registry := &one{}
	r, row := orders(t, registry)
	var b record.Buffer
	err := r.Router.Route(&b, row)
	if need, ok := errors.AsType[*schemas.Need](err); !ok || need.Subject != "order-events-value" || len(b.Records) != 0 || registry.asked != 0 {
		t.Errorf("asked %d times: %v", registry.asked, err)
	}
}
