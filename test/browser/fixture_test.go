//go:build tools

package browser

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cdc-relay/cdc-relay/admin"
	"github.com/cdc-relay/cdc-relay/figures"
	"github.com/cdc-relay/cdc-relay/relay/status"
	"github.com/cdc-relay/cdc-relay/replication/wal"
	"github.com/cdc-relay/cdc-relay/router/record"
	"github.com/cdc-relay/cdc-relay/tail"
	"github.com/cdc-relay/cdc-relay/ways"
	"github.com/rs/zerolog"
)

// page is a console over a status that a test chooses.
type page struct {
	console *admin.Console
	status  atomic.Pointer[status.Status]
	log     zerolog.Logger
	url     string
	box     *box
	counts  struct {
		rows          float64
		ages, produce []float64 // observations of each bucket
	}
	began time.Time
}

func (p *page) set(change func(*status.Status)) {
	s := *p.status.Load()
	change(&s)
	s.Headline = status.Headline(&s, time.Now())
	p.status.Store(&s)
}

func (p *page) show() status.Status {
	s := *p.status.Load()
	if !p.began.IsZero() && len(s.Tables) > 0 {
		rows := p.counts.rows + s.Tables[0].PerSecond*time.Since(p.began).Seconds()
		s.RowsRead, s.EventsPublished = int64(rows), int64(rows)
	}
	s.Headline = status.Headline(&s, time.Now())
	return s
}

// hostile is a name that a page must show as text.
const hostile = `<img src=x onerror="window.owned=1"><script>window.owned=2</script>` + "\u202etxet"

func number[T any](v T) *T { return &v }

func healthy() status.Status {
	now := time.Now()
	return status.Status{
		State: status.Streaming, Since: now.Add(-26 * time.Hour), Version: "1.4.0", Pipeline: "orders", Guarantee: "at_least_once",
		Slot: "cdc_relay", Publication: "cdc_relay",
		LSN:      status.LSNs{Server: 0x16_B374D848, Received: 0x16_B374D848, Published: 0x16_B374D100, Confirmed: 0x16_B374D100},
		LagBytes: number(int64(1864)), RetainedWALBytes: 18 << 20, LagSeconds: number(0.18), OldestUnacked: number(0.004),
		SlotState:      &status.Slot{Active: true, WALStatus: "reserved", SafeWALBytes: number(int64(47 << 30)), SafeSeconds: number(19200.0), WALPace: 2_600_000},
		InFlightEvents: 12, InFlightBytes: 40 << 10, InFlightLimitBytes: 8 << 20,
		RowsRead: 48_201_882, EventsPublished: 48_201_870, Topics: []string{"invoice-events", "order-events"},
		Tables:          []status.Flow{{Name: "public.outbox", Total: 48_201_882, PerSecond: 842.4, Last: now}},
		TopicRates:      []status.Flow{{Name: "invoice-events", Total: 9_120_100, PerSecond: 160.2, Last: now}, {Name: "order-events", Total: 39_081_770, PerSecond: 682.2, Last: now}},
		SourceConnected: true, SinkConnected: true, SourceReached: true, SinkReached: true, LastEvent: now, LastConfirm: now, LastTick: now,
	}
}

func draining() status.Status {
	s := healthy()
	s.CatchUp = &status.CatchUp{LeftBytes: 3_328_599_654, ReadPace: 11_200_000, WALPace: 2_600_000, Seconds: number(387.0)}
	s.LagBytes, s.RetainedWALBytes, s.LagSeconds = number(int64(3_328_599_654)), 3_402_000_000, number(130.0)
	s.InFlightEvents, s.InFlightBytes = 12_040, 6_400_000
	s.Tables[0].PerSecond, s.TopicRates[0].PerSecond, s.TopicRates[1].PerSecond = 41_200, 8_010, 30_220
	return s
}

func blockedAtRow() status.Status {
	s := healthy()
	since := time.Now().Add(-252 * time.Second)
	s.State, s.Reason, s.Since, s.ReasonSince = status.Blocked, "record_too_large", since, since
	s.Message = "deliver row 1 of the transaction committing at 16/B374D848 (public.outbox, row LSN 16/B374D7F0): produce to order-events: MESSAGE_TOO_LARGE: raise max.message.bytes of the topic (or message.max.bytes of the brokers); a relay that is blocked by it then goes on by itself"
	s.Obstacle = &status.Obstacle{
		Reason: s.Reason, Since: since, Slot: "cdc_relay", Attempts: 9, NextTry: time.Now().Add(21 * time.Second),
		Row: &status.BlockedRow{Table: "public.outbox", Commit: 0x16_B374D848, Number: 1, Topic: "order-events", EventID: "7f0c2d1e-6a55-4b0e-9b7e-0d8f6c1f2a34", Bytes: 1_348_211},
	}
	s.RetainedWALBytes, s.LagBytes, s.LagSeconds = 2_254_857_830, number(int64(2_254_857_830)), number(252.0)
	s.Tables[0].PerSecond, s.TopicRates[0].PerSecond, s.TopicRates[1].PerSecond = 0, 0, 0
	s.EventsRejected = 1
	return s
}

func hostileNames() status.Status {
	s := blockedAtRow()
	s.Pipeline, s.Slot, s.Message = hostile, hostile, hostile
	s.Obstacle.Row.Table, s.Obstacle.Row.Topic, s.Obstacle.Row.EventID = hostile, hostile, hostile
	s.Obstacle.Slot = hostile + "'; DROP TABLE outbox; --"
	s.Tables = []status.Flow{{Name: hostile}, {Name: strings.Repeat("long", 2500)}}
	s.TopicRates = []status.Flow{{Name: hostile}}
	return s
}

func sharded() status.Status {
	all := []status.Status{healthy(), blockedAtRow(), healthy()}
	names := make([]string, len(all))
	for i := range all {
		all[i].Slot = fmt.Sprintf("cdc_relay_s%d_of3", i)
		names[i] = fmt.Sprintf("shard %d", i)
	}
	s := status.Sum(all, names, time.Now())
	s.Slot, s.InFlightLimitBytes = "cdc_relay", 8<<20
	return s
}

// serve shows a status on a port of its own, with a past of an hour.
func serve(t *testing.T, of status.Status, token string) *page {
	t.Helper()
	return serveAs(t, of, func(cfg *admin.Config) {
		if token != "" {
			cfg.Token = func() (string, error) { return token, nil }
		}
	})
}

// staffed lets operators act; whoever looks needs no token.
func staffed(cfg *admin.Config) {
	cfg.Operator, cfg.Actions, cfg.Payloads = func() (string, error) { return operatorSecret, nil }, true, true
}

func serveAs(t *testing.T, of status.Status, change func(*admin.Config)) *page {
	t.Helper()
	p := &page{box: newBox()}
	p.status.Store(&of)
	tail := new(admin.LogTail)
	zerolog.MessageFieldName = "msg"
	p.log = zerolog.New(tail).With().Timestamp().Str("pipeline", of.Pipeline).Logger()
	p.log.Info().Str("version", of.Version).Str("slot", of.Slot).Msg("cdc-relay starts")
	p.log.Info().Str("table", "public.outbox").Str("preset", "outbox").Msg("table mapped")
	p.log.Warn().Str("topic", hostile).Msg("a warning " + hostile)
	if of.State == status.Blocked {
		p.log.Error().Str("state", "blocked").Str("reason", of.Reason).Msg("blocked: " + of.Reason + ": " + of.Message)
	}
	p.console = admin.NewConsole(p.show, admin.Tools{
		Tail: p.pass(t), Letters: p.box.tools(), Audit: p.log, Retry: func() bool { return true },
		Log: tail, Tables: []string{"public.outbox", hostile}, Timings: p.timings,
		Facts:         ways.Facts{Brokers: "b1:9092,b2:9092", Stops: true, DeadLetterTopic: "cdc-relay.dead-letters", Tables: []string{"public.outbox"}},
		Source:        "db1:5432/shop",
		TopicLimit:    func(context.Context, string) (int, error) { return 1_048_588, nil },
		Configuration: func() (string, error) { return configuration, nil },
		Check:         func(context.Context) (any, error) { return json.RawMessage(findings), nil },
		Explain: func(_ context.Context, _ string, values bool) (any, error) {
			if values {
				return json.RawMessage(strings.Replace(explained, `"warnings"`, `"record":{"from":"newest row","topic":"order-events","partition":null,"key":"`+rowSecret+`","headers":[{"name":"id","value":"7"}],"timestamp":null,"value":"`+rowSecret+`"},"warnings"`, 1)), nil
			}
			return json.RawMessage(explained), nil
		},
	}, time.Hour)
	p.past(of)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	cfg := admin.Config{Listen: listener.Addr().String()}
	change(&cfg)
	ctx, stop := context.WithCancel(t.Context())
	server := &http.Server{Handler: admin.HandlerWithConsole(cfg, p.show, http.NotFoundHandler(), p.console), BaseContext: func(net.Listener) context.Context { return ctx }}
	done := make(chan struct{})
	go func() { defer close(done); _ = server.Serve(listener) }()
	ended := make(chan struct{})
	go func() { defer close(ended); p.console.Run(ctx) }()
	t.Cleanup(func() { stop(); _ = server.Close(); <-done; <-ended })
	p.url = "http://" + cfg.Listen
	return p
}

// pass has rows pass until the test ends.
func (p *page) pass(t *testing.T) *tail.Tail {
	rows := new(tail.Tail)
	relation := &wal.Relation{Namespace: "public", Name: "outbox"}
	ctx, done := t.Context(), make(chan struct{})
	t.Cleanup(func() { <-done })
	go func() {
		defer close(done)
		tick := time.NewTicker(200 * time.Millisecond)
		defer tick.Stop()
		for n := 0; ; n++ {
			select {
			case <-ctx.Done():
				return
			case now := <-tick.C:
				row := &wal.Row{Relation: relation, Txn: &wal.Txn{Time: now.Add(-40 * time.Millisecond)}}
				var records []record.Record
				for i := range 188 {
					topic := []string{"order-events", hostile}[i%2]
					records = append(records, record.Record{Topic: topic, Key: []byte(rowSecret), Value: []byte(rowSecret), Row: row, Headers: []record.Header{{Key: "id", Value: fmt.Appendf(nil, "event-%d-%d", n, i)}}})
				}
				rows.Delivered(records)
			}
		}
	}()
	return rows
}

// timings has ages that rise with the lag.
func (p *page) timings() (ages, produce figures.Buckets) {
	s := p.status.Load()
	lag, rate := 0.06, 800.0
	if s.LagSeconds != nil {
		lag = max(lag, *s.LagSeconds/3)
	}
	if s.State == status.Blocked {
		rate = 0
	}
	return observe(&p.counts.ages, rate, lag), observe(&p.counts.produce, rate, 0.004)
}

var upper = []float64{.005, .01, .02, .05, .1, .2, .5, 1, 2, 5, 10, 30, 60, 120, 300, 600}

// observe adds n observations around a value.
func observe(counts *[]float64, n, around float64) figures.Buckets {
	if *counts == nil {
		*counts = make([]float64, len(upper))
	}
	b := figures.Buckets{Upper: upper}
	for i, u := range upper {
		(*counts)[i] += n * (1 - math.Exp(-2*u/around))
		b.Counts = append(b.Counts, uint64((*counts)[i]))
	}
	b.Total = b.Counts[len(b.Counts)-1]
	return b
}

// past fills an hour: calm, and at the end what the status is.
func (p *page) past(of status.Status) {
	now := time.Now()
	calm := healthy()
	for second := 3600; second >= 0; second-- {
		s, rate := calm, 820+60*math.Sin(float64(second)/170)+25*math.Sin(float64(second)/7)
		if second < 400 && of.LagSeconds != nil && *of.LagSeconds > 10 {
			s, rate = of, 0
			part := float64(400-second) / 400
			if of.CatchUp != nil {
				rate = 41_000 + 900*math.Sin(float64(second)/5)
				part = 1 + float64(second)/400
			}
			s.LagSeconds = number(*of.LagSeconds * part)
			s.LagBytes, s.RetainedWALBytes = number(int64(float64(*of.LagBytes)*part)), int64(float64(of.RetainedWALBytes)*part)
		}
		p.counts.rows += rate
		s.RowsRead, s.EventsPublished = int64(p.counts.rows), int64(p.counts.rows)
		p.status.Store(&s)
		p.console.Sample(now.Add(-time.Duration(second) * time.Second))
	}
	p.status.Store(&of)
	p.began = now
}

const (
	configuration = "postgres:\n  url: \"postgres://relay:***@db1:5432/shop\"  # from cdc-relay.yaml:1\n  slot: cdc_relay  # default\nkafka:\n  brokers: [\"b1:9092\", \"b2:9092\"]  # from cdc-relay.yaml:2\n  compression: snappy  # default\noutbox:\n  - table: public.outbox  # from cdc-relay.yaml:4\n    preset: auto  # default\nhttp:\n  listen: 127.0.0.1:8080  # default\n  token_file: /run/secrets/token  # from the environment\n"
	findings      = `{"ok":2,"warn":1,"fail":1,"findings":[{"check":"postgres.version","level":"ok","seen":"PostgreSQL 17.2"},{"check":"slot.wal","level":"warn","seen":"max_slot_wal_keep_size is not set","advice":"set it to what the disk can take"},{"check":"kafka.topic","level":"fail","seen":"topic orders does not exist","advice":"create it"},{"check":"outbox.mapping","level":"ok","seen":"public.outbox fits preset outbox"}]}`
	explained     = `{"tables":[{"table":"public.outbox","preset":{"value":"outbox","origin":"auto"},"topic":{"value":"${aggregate_type}-events","origin":"preset"},"headers":["id","eventType"],"columns":[{"name":"id","type":"uuid","roles":["id"],"origin":"preset"},{"name":"payload","type":"jsonb","roles":["payload"],"origin":"preset"},{"name":"created_at","type":"timestamptz","roles":[]}],"ignored":["created_at"],"warnings":["no ordering key"]}]}`
)
