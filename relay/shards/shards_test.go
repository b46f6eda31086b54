package shards

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cdc-relay/cdc-relay/debezium"
	"github.com/cdc-relay/cdc-relay/fault"
	"github.com/cdc-relay/cdc-relay/relay"
	"github.com/cdc-relay/cdc-relay/relay/promise"
	"github.com/cdc-relay/cdc-relay/relay/rejected"
	"github.com/cdc-relay/cdc-relay/replication/wal"
	"github.com/cdc-relay/cdc-relay/router"
	"github.com/cdc-relay/cdc-relay/sink"
	"github.com/cdc-relay/cdc-relay/sink/sinktest"
	"github.com/rs/zerolog"
)

// The first shard that ends by itself ends the process; the others drain.
func TestShards_EndTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		missing := &fault.Error{Kind: fault.KindRefused, Reason: fault.ReasonSlotMissing, Op: "look at", Err: errors.New("there is no slot")}
		routes, err := router.New(router.Config{Mappings: []router.Mapping{{Table: "public.outbox", Preset: "outbox"}}})
		if err != nil {
			t.Fatal(err)
		}
		open := func(source func(context.Context) (relay.Source, error)) *relay.Relay {
			return relay.New(relay.Config{}, relay.Parts{Source: source, Router: routes, Sink: func() (sink.Sink, error) { return new(sinktest.Recorder), nil }}, relay.Events{}, zerolog.Nop())
		}
		waits := open(func(context.Context) (relay.Source, error) {
			return nil, &fault.Error{Kind: fault.KindRetry, Reason: fault.ReasonNetwork, Op: "connect", Err: errors.New("refused")}
		})
		fails := open(func(ctx context.Context) (relay.Source, error) {
			<-time.After(5 * time.Second)
			return nil, missing
		})
		s := &Shards{relays: []*relay.Relay{waits, fails}, names: []string{"shard 0", "shard 1"}, cfg: relay.Config{}.WithDefaults()}
		err = s.Run(t.Context())
		var refused *relay.RefusedError
		if !errors.As(err, &refused) || err.Error()[:7] != "shard 1" {
			t.Errorf("%v", err)
		}
	})
}

// A transform behind the EventRouter may give rows of several aggregates one key, so
// that the aggregate's column does not divide them.
func TestKey_IsNoColumnWhereATransformMakesTheKey(t *testing.T) {
	const kafka = "org.apache.kafka.connect.transforms."
	rel := &wal.Relation{Namespace: "public", Name: "outbox", Columns: []wal.Column{
		{Name: "id", Type: 2950, TypeName: "uuid"}, {Name: "aggregatetype", Type: 25, TypeName: "text"}, {Name: "aggregateid", Type: 25, TypeName: "text"},
		{Name: "type", Type: 25, TypeName: "text"}, {Name: "payload", Type: 25, TypeName: "text"},
	}}
	for class, want := range map[string]string{
		"":                         "aggregateid",
		kafka + "HoistField$Key":   "aggregateid",
		kafka + "ReplaceField$Key": "transform ReplaceField$Key",
		kafka + "ExtractField$Key": "transform ExtractField$Key",
		kafka + "ValueToKey":       "transform ValueToKey",
	} {
		settings := debezium.Config{
			{Name: "topic.prefix", Value: "p"}, {Name: "transforms", Value: "outbox"},
			{Name: "key.converter", Value: "org.apache.kafka.connect.storage.StringConverter"}, {Name: "value.converter", Value: "org.apache.kafka.connect.storage.StringConverter"},
			{Name: "transforms.outbox.type", Value: "io.debezium.transforms.outbox.EventRouter"},
		}
		if class != "" {
			settings[1].Value += ",t"
			settings = append(settings, debezium.Setting{Name: "transforms.t.type", Value: class})
			if class == kafka+"ValueToKey" {
				settings = append(settings, debezium.Setting{Name: "transforms.t.fields", Value: "payload"})
			} else if class != kafka+"ReplaceField$Key" {
				settings = append(settings, debezium.Setting{Name: "transforms.t.field", Value: "k"})
			}
		}
		key, err := Key(router.Config{Mappings: []router.Mapping{{Table: "public.outbox", Connector: settings}}})(rel)
		if err != nil || key != want {
			t.Errorf("%s: %q, %v; want %q", class, key, err, want)
		}
	}
}

// A preset may take the key from a second column where the first one is empty. Neither of the two divides the rows:
// of one key some would be in the shard of NULL.
func TestKey_IsNoColumnWhereTwoHaveIt(t *testing.T) {
	text := func(names ...string) *wal.Relation {
		rel := &wal.Relation{Namespace: "public", Name: "outbox", Columns: []wal.Column{{Name: "id", Type: 20, TypeName: "int8"}}}
		for _, name := range names {
			rel.Columns = append(rel.Columns, wal.Column{Name: name, Type: 25, TypeName: "text"})
		}
		return rel
	}
	for want, rel := range map[string]*wal.Relation{
		"partition_key":                    text("topic", "partition_key", "payload"),
		"aggregate_id":                     text("topic", "aggregate_id", "payload"),
		"partition_key, else aggregate_id": text("topic", "partition_key", "aggregate_id", "payload"),
	} {
		key, err := Key(router.Config{Mappings: []router.Mapping{{Table: "public.outbox", Preset: "outboxd"}}})(rel)
		if err != nil || key != want {
			t.Errorf("%q, %v; want %q", key, err, want)
		}
	}
}

type (
	partingLedger struct {
		promise.Ledger
		closed chan<- string
	}
	partingJournal struct {
		rejected.Journal
		closed chan<- string
	}
	partingSink struct {
		sink.Sink
		closed chan<- string
	}
)

func (p partingLedger) Close()  { p.closed <- "ledger" }
func (p partingJournal) Close() { p.closed <- "journal" }
func (p partingSink) Close(context.Context) error {
	p.closed <- "sink"
	return nil
}

func TestShards_ThatAreNotAllMadeLeaveNothingOpen(t *testing.T) {
	routes, err := router.New(router.Config{Mappings: []router.Mapping{{Table: "public.outbox", Preset: "outbox"}}})
	if err != nil {
		t.Fatal(err)
	}
	closed := make(chan string, 4)
	whole := relay.New(relay.Config{}, relay.Parts{
		Router: routes, Ledger: partingLedger{closed: closed}, Journal: partingJournal{closed: closed},
		Sink: func() (sink.Sink, error) { return partingSink{closed: closed}, nil },
	}, relay.Events{}, zerolog.Nop())
	plain := relay.New(relay.Config{}, relay.Parts{Router: routes, Sink: func() (sink.Sink, error) { return partingSink{closed: closed}, nil }}, relay.Events{}, zerolog.Nop())
	(&Shards{relays: []*relay.Relay{whole, plain}}).drop()
	close(closed)
	var got []string
	for what := range closed {
		got = append(got, what)
	}
	if slices.Sort(got); !slices.Equal(got, []string{"journal", "ledger", "sink", "sink"}) {
		t.Errorf("closed: %v", got)
	}
}
