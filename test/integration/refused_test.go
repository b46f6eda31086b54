package integration

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/cdc-relay/cdc-relay/relay"
	"github.com/cdc-relay/cdc-relay/relay/delivery"
	"github.com/cdc-relay/cdc-relay/test/harness"
	"github.com/cdc-relay/cdc-relay/test/harness/relaytest"
)

// A refusal is a way to have records refused until it is healed.
type refusal struct {
	name   string
	reason string
	only   string // kind of brokers; empty is both
	refuse func(t *testing.T, brokers *harness.Brokers, topic string) (heal func())
	tries  int // how often it must be tried again before it heals
	rows   int // in the transaction before the refused row
	large  int // payload bytes of the refused row; 0: every row is refused
}

var refusals = []refusal{
	{
		name: "unknown_topic", reason: "unknown_topic", rows: 100, tries: 1,
		refuse: func(t *testing.T, brokers *harness.Brokers, topic string) func() {
			return func() { brokers.CreateTopic(t, topic, 3) }
		},
	},
	{
		name: "topic_authorization", reason: "topic_authorization_failed", only: "kfake", rows: 100, tries: 3,
		refuse: func(t *testing.T, brokers *harness.Brokers, topic string) func() {
			brokers.CreateTopic(t, topic, 3)
			return brokers.Fake.DenyTopic(topic)
		},
	},
	{
		name: "topic_authorization_by_acl", reason: "topic_authorization_failed", only: "apache", rows: 100, tries: 3,
		refuse: func(t *testing.T, brokers *harness.Brokers, topic string) func() {
			brokers.CreateTopic(t, topic, 3)
			return denyWrite(t, brokers, topic)
		},
	},
	{
		// The whole transaction before the large row is sent once, however often
		// that one is tried.
		name: "too_large", reason: "record_too_large", rows: 10_000, large: 300_000, tries: 20,
		refuse: func(t *testing.T, brokers *harness.Brokers, topic string) func() {
			brokers.CreateTopic(t, topic, 1, "max.message.bytes", "100000")
			return func() { setMaxMessageBytes(t, brokers, topic, "1000000") }
		},
	},
}

// A refused record blocks the relay: nothing past it is confirmed, nothing before
// it is sent twice, and it goes on by itself once the brokers take it.
func TestRefused_BlocksAndHealsWithoutRestart(t *testing.T) {
	t.Parallel()
	for _, c := range refusals {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			onEach(t, func(t *testing.T, db *harness.Database, brokers *harness.Brokers) {
				if c.only != "" && c.only != brokers.Name {
					return // the other case is for those
				}
				t.Parallel() // most of it is waiting
				p := relaytest.New(t, db, brokers, []string{"{table: public.outbox}"})
				p.Setup(t)
				w := p.NewWorkload(t, "outbox", harness.Unique(t, c.name))
				heal := c.refuse(t, brokers, w.Topic())
				proveBlocked(t, p, w, c, heal)
			})
		})
	}
}

func proveBlocked(t *testing.T, p *relaytest.Pipeline, w *relaytest.Workload, c refusal, heal func()) {
	t.Helper()
	tries := make(chan struct{}, 1)
	settings := p.Settings()
	settings.RetryMax = 50 * time.Millisecond
	r := p.StartWith(t, settings, relay.Events{Events: delivery.Events{ProduceRetried: func(string) {
		select {
		case tries <- struct{}{}:
		default:
		}
	}}})
	r.AwaitStreaming(t)
	w.Insert(t, c.rows)
	if c.large > 0 {
		w.InsertKey(t, uuid.New(), 1, c.large)
	}
	refused := p.WALEnd(t)
	w.Insert(t, 10)
	status := r.AwaitBlocked(t, c.reason)
	for range c.tries {
		<-tries
	}
	notPast(t, p, refused)
	if status.Message == "" {
		t.Error("the status has no message")
	}
	if status.Ready() {
		t.Error("a blocked relay says that it is ready")
	}
	heal()
	p.AwaitCaughtUp(t)
	r.AwaitStreaming(t)
	r.Stop(t)
	if duplicates := w.Verify(t); duplicates != 0 {
		t.Errorf("duplicates after %d tries = %d", c.tries, duplicates)
	}
}

// denyWrite takes the right to write to a topic away from everybody.
func denyWrite(t *testing.T, brokers *harness.Brokers, topic string) (allow func()) {
	t.Helper()
	admin := brokers.Admin(t)
	acl := kadm.NewACLs().Topics(topic).Deny("User:ANONYMOUS").DenyHosts("*").Operations(kadm.OpWrite).
		ResourcePatternType(kadm.ACLPatternLiteral)
	results, err := admin.CreateACLs(t.Context(), acl)
	if err != nil {
		t.Fatal(err)
	}
	for _, result := range results {
		if result.Err != nil {
			t.Fatalf("deny writing: %v: %s", result.Err, result.ErrMessage)
		}
	}
	relaytest.Eventually(t, "the broker knows of it", func() (bool, string) {
		results, err := admin.DescribeACLs(t.Context(), acl)
		return err == nil && len(results) == 1 && len(results[0].Described) == 1, fmt.Sprint(results, err)
	})
	return func() {
		if _, err := admin.DeleteACLs(t.Context(), acl); err != nil {
			t.Fatal(err)
		}
	}
}

// setMaxMessageBytes returns when the limit holds. A real broker answers before, and
// shows the limit before it keeps to it. It takes what the controller decides in
// order, so a topic that is asked for after the limit shows is served after it holds.
func setMaxMessageBytes(t *testing.T, brokers *harness.Brokers, topic, value string) {
	t.Helper()
	const name = "max.message.bytes"
	admin := brokers.Admin(t)
	altered, err := admin.AlterTopicConfigs(t.Context(), []kadm.AlterConfig{{Op: kadm.SetConfig, Name: name, Value: kmsg.StringPtr(value)}}, topic)
	if err == nil && len(altered) == 1 {
		err = altered[0].Err
	}
	if err != nil {
		t.Fatal(err)
	}
	if brokers.Fake != nil {
		return
	}
	relaytest.Eventually(t, "the limit shows", func() (bool, string) {
		described, err := admin.DescribeTopicConfigs(t.Context(), topic)
		if err != nil || len(described) != 1 {
			return false, fmt.Sprint(described, err)
		}
		i := slices.IndexFunc(described[0].Configs, func(c kadm.Config) bool { return c.Key == name })
		return i >= 0 && described[0].Configs[i].MaybeValue() == value, fmt.Sprint(described[0].Err)
	})
	brokers.CreateTopic(t, harness.Unique(t, "after_limit"), 1)
}

// A row that no topic can be made of blocks with its table and position, and
// nothing past it is confirmed.
func TestRejected_RowBlocksWithItsPlace(t *testing.T) {
	t.Parallel()
	harness.EachPostgres(t, func(t *testing.T, db *harness.Database) {
		p, w := outbox(t, db, harness.Kfake(t, kfakeDefault))
		r := p.Start(t)
		w.Insert(t, 50)
		p.AwaitCaughtUp(t)
		db.Exec(t, "INSERT INTO outbox (aggregate_type, aggregate_id, event_type, payload) VALUES ('no topic!', gen_random_uuid(), 'x', '{}')")
		end := p.WALEnd(t)
		w.Insert(t, 50)
		status := r.AwaitBlocked(t, "route")
		for _, part := range []string{"public.outbox", "aggregate_type"} {
			if !contains(status.Message, part) {
				t.Errorf("message %q does not name %s", status.Message, part)
			}
		}
		if status.EventsRejected != 1 {
			t.Errorf("rejected = %d, want 1 however often it is tried", status.EventsRejected)
		}
		notPast(t, p, end)
	})
}
