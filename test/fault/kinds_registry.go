package main

import (
	"context"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"net/http"
	"sync"
	"sync/atomic"
	"syscall"

	"github.com/jackc/pgx/v5"
	"github.com/twmb/avro"
	"github.com/twmb/franz-go/pkg/sr"
	"github.com/twmb/franz-go/pkg/sr/srfake"
)

// registryKinds are faults of a schema registry. A run that has one of them encodes its rows as Avro,
// by a subject for each topic and type of event; the verdict compares what a consumer decodes.
var registryKinds = []*kind{
	{name: "registry_away", about: "the schema registry is away, while types of events come that it has no schema for yet", takes: onRegistry, registry: true, least: 200 * ms, most: 3 * sec, run: func(ctx context.Context, w *world, d *Done) error {
		return w.registryGone(ctx, d, func() { d.hold(ctx) })
	}},
	{name: "registry_away_kill", about: "the schema registry is away, and the relay is killed, so that it knows no schema", takes: []string{"registry", "relay"}, registry: true, least: 200 * ms, most: 2 * sec, run: func(ctx context.Context, w *world, d *Done) error {
		return w.registryGone(ctx, d, func() {
			n := w.relays.leader()
			w.relays.signal(n, syscall.SIGKILL, true)
			w.relays.ended(n, 5*sec)
			d.hold(ctx)
		})
	}},
	{name: "registry_away_term", about: "the schema registry is away, and the relay is stopped and starts again", takes: []string{"registry", "relay"}, registry: true, least: 200 * ms, most: 2 * sec, run: func(ctx context.Context, w *world, d *Done) error {
		var failed error
		err := w.registryGone(ctx, d, func() {
			d.hold(ctx)
			failed = terminate(ctx, w, d)
		})
		if err == nil {
			err = failed
		}
		return err
	}},
	{name: "registry_misfit", about: "rows of a new type of event do not fit the schema that it has, until the next version; the relay is killed meanwhile, every other time", takes: []string{"registry", "relay"}, registry: true, least: 200 * ms, most: 2 * sec, run: func(ctx context.Context, w *world, d *Done) error {
		return w.misfit(ctx, d)
	}},
}

var onRegistry = []string{"registry"}

// Ways in which a registry is away.
const (
	there = iota
	cut   // it closes the connection
	unwell
	hangs
	ways
)

// schemaRegistry is one in this process. What encodes and decodes has nothing of the relay's.
type schemaRegistry struct {
	*srfake.Registry
	state atomic.Int32
	ids   sync.Map                      // of the schemas that were registered; all are eventSchema
	back  atomic.Pointer[chan struct{}] // closed when a registry that hangs is there again
}

// narrowSchema takes no event.
const narrowSchema = `{"type": "record", "name": "Event", "fields": [{"name": "h", "type": "string"}, {"name": "s", "type": "int"}]}`

const eventSchema = `{"type": "record", "name": "Event", "fields": [{"name": "h", "type": "string"}, {"name": "s", "type": "int"}, {"name": "fill", "type": "string"}]}`

func newSchemaRegistry() *schemaRegistry {
	r := &schemaRegistry{Registry: srfake.New()}
	r.Intercept(func(rw http.ResponseWriter, request *http.Request) bool {
		switch r.state.Load() {
		case cut:
			if conn, _, err := http.NewResponseController(rw).Hijack(); err == nil {
				_ = conn.Close()
			}
			return true
		case unwell:
			rw.WriteHeader(http.StatusServiceUnavailable)
			return true
		case hangs:
			select {
			case <-*r.back.Load():
			case <-request.Context().Done():
			}
			rw.WriteHeader(http.StatusGatewayTimeout)
			return true
		}
		return false
	})
	return r
}

// goes makes the registry go away, until the function that it returns is called.
func (r *schemaRegistry) goes(how int32) (comes func()) {
	back := make(chan struct{})
	r.back.Store(&back)
	r.state.Store(how)
	return func() {
		r.state.Store(there)
		close(back)
	}
}

func (r *schemaRegistry) register(subject string) error {
	id, _, err := r.RegisterSchema(subject, sr.Schema{Schema: eventSchema})
	r.ids.Store(uint32(id), true)
	return err
}

// prepareRegistry starts the registry, with the schemas of what the workload writes.
func (w *world) prepareRegistry() error {
	if !w.plan.Registry {
		return nil
	}
	w.registry = newSchemaRegistry()
	w.closers = append(w.closers, w.registry.Close)
	for _, topic := range w.aggregates {
		for _, event := range []string{"Event0", "Event1", "Event2", "Large", "TooLarge"} {
			if err := w.registry.register(topic + "-" + event); err != nil {
				return err
			}
		}
	}
	return nil
}

// registryGone has the registry away during a step, and writes a row of a new type of event then. Its
// schema is registered a moment after the registry is there again.
func (w *world) registryGone(ctx context.Context, d *Done, step func()) error {
	if w.registry == nil {
		d.Detail = "left out: rows are not encoded"
		return nil
	}
	comes := w.registry.goes(1 + int32(d.N%(ways-1)))
	event := w.writeNew(ctx, d)
	step()
	comes()
	rest(context.WithoutCancel(ctx), killAfter(d.N, 0))
	return w.registerNew(event)
}

// misfit writes a row of a new type that does not fit its schema, and registers the version that it
// fits later.
func (w *world) misfit(ctx context.Context, d *Done) error {
	if w.registry == nil {
		d.Detail = "left out: rows are not encoded"
		return nil
	}
	for _, topic := range w.aggregates {
		if _, _, err := w.registry.RegisterSchema(topic+"-"+newType(d), sr.Schema{Schema: narrowSchema}); err != nil {
			return err
		}
	}
	event := w.writeNew(ctx, d)
	d.hold(ctx)
	if n := w.relays.leader(); d.N%2 == 0 {
		w.relays.signal(n, syscall.SIGKILL, true)
		w.relays.ended(n, 5*sec)
		rest(context.WithoutCancel(ctx), killAfter(d.N, 0))
	}
	return w.registerNew(event)
}

func newType(d *Done) string { return fmt.Sprintf("New%d", d.N) }

// writeNew writes a row of a new type of event.
func (w *world) writeNew(ctx context.Context, d *Done) (event string) {
	random := rand.New(rand.NewPCG(w.plan.Seed, d.N))
	own := &writer{workload: w.load, random: random, keys: w.load.shared} // whose rows come after it too
	err := w.session(ctx, func(conn *pgx.Conn) error {
		id, topic, key, _, payload := own.event()
		_, err := conn.Exec(ctx, insert, id, topic, key, newType(d), payload)
		return err
	})
	if err != nil {
		d.Detail = "no row of a new type was written" // PostgreSQL is another fault's
	}
	return newType(d)
}

// registerNew registers the schema of a new type.
func (w *world) registerNew(event string) error {
	for _, topic := range w.aggregates {
		if err := w.registry.register(topic + "-" + event); err != nil {
			return err
		}
	}
	return nil
}

// decode gives records the values that a consumer decodes by the schema whose number is in the prefix. One that cannot be decoded stays as it is, which is a finding.
func (w *world) decode(records []*Delivery) error {
	if w.registry == nil {
		return nil
	}
	schema, err := avro.Parse(eventSchema)
	if err != nil {
		return err
	}
	for _, d := range records {
		if len(d.Value) < 5 || d.Value[0] != 0 {
			continue
		}
		_, known := w.registry.ids.Load(binary.BigEndian.Uint32(d.Value[1:]))
		var event struct {
			H    string `avro:"h"`
			S    int    `avro:"s"`
			Fill string `avro:"fill"`
		}
		rest, err := schema.Decode(d.Value[5:], &event)
		if !known || err != nil || len(rest) > 0 {
			continue
		}
		d.Value = fmt.Appendf(nil, `{"h": "%s", "s": %d, "fill": "%s"}`, event.H, event.S, event.Fill)
	}
	return nil
}

// registryConfig are the keys of the section kafka.
func (w *world) registryConfig() string {
	if w.registry == nil {
		return ""
	}
	return "  registry: {url: [" + w.registry.URL() + "], timeout: 1s, refresh: 1s}\n"
}
