package ends

import (
	"bytes"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	mathrand "math/rand/v2"
	"net"
	"net/http"
	"os"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"

	cloudevents "github.com/cloudevents/sdk-go/v2"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/cdc-relay/cdc-relay/config"
	"github.com/cdc-relay/cdc-relay/sandbox"
	"github.com/cdc-relay/cdc-relay/test/harness"
	"github.com/cdc-relay/cdc-relay/test/harness/relaytest"
)

// What the relay writes is read and found valid by the official SDK.
func TestCloudEvents_TheSDKFindsThemValid(t *testing.T) {
	t.Parallel()
	db, brokers := harness.Postgres(t), harness.Kfake(t, sandbox.KafkaOptions{})
	db.Exec(t, `CREATE TABLE ours (id uuid PRIMARY KEY, aggregate_type text NOT NULL, aggregate_id text NOT NULL, event_type text NOT NULL, payload jsonb NOT NULL,
		created_at timestamptz NOT NULL DEFAULT now(), traceparent text, tenant text, attempt int, urgent boolean)`)
	db.Exec(t, `CREATE TABLE debezium (id uuid PRIMARY KEY, aggregatetype text NOT NULL, aggregateid text NOT NULL, type text NOT NULL, payload jsonb NOT NULL)`)
	db.Exec(t, `CREATE TABLE bytes (id uuid PRIMARY KEY, aggregate_type text NOT NULL, aggregate_id text NOT NULL, event_type text NOT NULL, payload bytea NOT NULL)`)
	db.Exec(t, `CREATE TABLE plain (id uuid PRIMARY KEY, aggregate_type text NOT NULL, aggregate_id text NOT NULL, event_type text NOT NULL, payload text NOT NULL)`)
	const value = ", value: cloudevents, cloudevents_source: /shop"
	p := relaytest.New(t, db, brokers, []string{
		"{table: public.ours, topic: ours, preset: outbox, columns: {trace: traceparent}, value_fields: {tenant: tenant, attempt: attempt, urgent: urgent}" + value + "}",
		"{table: public.debezium, topic: debezium, preset: debezium, columns: {type: type}" + value + "}",
		"{table: public.bytes, topic: bytes, preset: outbox" + value + "}",
		"{table: public.plain, topic: plain, preset: outbox" + value + "}",
	})
	p.Setup(t)
	for _, topic := range []string{"ours", "debezium", "bytes", "plain"} {
		brokers.CreateTopic(t, topic, 1)
	}
	running := p.Start(t)
	running.AwaitStreaming(t)
	db.Exec(t, `INSERT INTO ours (id, aggregate_type, aggregate_id, event_type, payload, traceparent, tenant, attempt, urgent) VALUES
		(gen_random_uuid(), 'order', 'o-1', 'OrderPlaced', '{"amount": 12}', '00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01', 'café', 3, true),
		(gen_random_uuid(), 'order', 'o-2', 'OrderPlaced', '[1]', NULL, NULL, NULL, NULL)`)
	db.Exec(t, `INSERT INTO debezium VALUES (gen_random_uuid(), 'order', 'o-3', 'OrderPlaced', '{"amount": 12}')`)
	db.Exec(t, `INSERT INTO bytes VALUES (gen_random_uuid(), 'order', 'o-4', 'OrderPlaced', '\x00ff10'), (gen_random_uuid(), 'order', 'o-5', 'OrderPlaced', '{"amount": 12}')`)
	db.Exec(t, `INSERT INTO plain VALUES (gen_random_uuid(), 'order', 'o-6', 'OrderPlaced', 'a line')`)
	p.AwaitCaughtUp(t)
	running.Stop(t)
	seen := map[string]cloudevents.Event{}
	for _, record := range brokers.Read(t, "ours", "debezium", "bytes", "plain") {
		event := cloudevents.NewEvent()
		if err := json.Unmarshal(record.Value, &event); err != nil {
			t.Fatalf("%v\n%s", err, record.Value)
		}
		if err := event.Validate(); err != nil {
			t.Errorf("%v\n%s", err, record.Value)
		}
		if event.Source() != "/shop" || event.Type() != "OrderPlaced" || event.SpecVersion() != "1.0" || event.ID() == "" || event.Time().IsZero() {
			t.Errorf("%s", event)
		}
		seen[event.Subject()] = event
	}
	if len(seen) != 6 {
		t.Fatalf("%d events", len(seen))
	}
	if got := seen["o-1"].Extensions(); got["tenant"] != "café" || got["attempt"] != int32(3) || got["urgent"] != true || !strings.HasPrefix(fmt.Sprint(got["traceparent"]), "00-4bf9") {
		t.Errorf("extensions: %v", got)
	}
	if got := seen["o-2"].Extensions(); len(got) != 0 {
		t.Errorf("extensions of columns that are NULL: %v", got)
	}
	if got := seen["o-4"]; got.DataContentType() != "application/octet-stream" || string(got.Data()) != "\x00\xff\x10" {
		t.Errorf("bytes: %s %q", got.DataContentType(), got.Data())
	}
	if got := seen["o-6"]; got.DataMediaType() != "text/plain" || string(got.Data()) != "a line" {
		t.Errorf("text: %s %q", got.DataContentType(), got.Data())
	}
	for _, subject := range []string{"o-1", "o-3", "o-5"} {
		var data struct{ Amount int }
		if event := seen[subject]; event.DataAs(&data) != nil || data.Amount != 12 {
			t.Errorf("%s: %s", subject, event.Data())
		}
	}
}

var daprExample = example{folder: "dapr", needs: []string{"go"}, prepare: [][]string{{"go", "build", "-o", "bin/", "."}}}

// freePort is nobody else's, also while a server is down that comes back on it.
func freePort(t testing.TB) string {
	t.Helper()
	port, err := sandbox.FreePort()
	if err != nil {
		t.Fatal(err)
	}
	return strconv.Itoa(port)
}

func (f *shopFloor) subscriber(t *testing.T, dir string) (port string, running *process) {
	t.Helper()
	port = freePort(t)
	running = f.run(t, dir, []string{"bin/dapr"}, "LISTEN=127.0.0.1:"+port)
	relaytest.Eventually(t, "the subscriber listens", func() (bool, string) {
		conn, err := net.Dial("tcp", "127.0.0.1:"+port)
		if err != nil {
			return false, running.out.String()
		}
		return conn.Close() == nil, ""
	})
	return port, running
}

func (f *shopFloor) placeOrders(t *testing.T, orders int) {
	t.Helper()
	x := examples[0]
	writer := f.run(t, x.ready(t), append(x.write[:len(x.write):len(x.write)], fmt.Sprint(orders)))
	<-writer.done
	if writer.err != nil {
		t.Fatalf("%v\n%s", writer.err, writer.out.String())
	}
}

// delivery is how a sidecar gives the subscriber an event: what the relay writes, where to, and what
// the sidecar makes of a record.
type delivery struct {
	name, value, path string
	subscription      string // of examples/dapr
	request           func(t *testing.T, record *kgo.Record) ([]byte, http.Header)
}

var deliveries = []delivery{
	{"CloudEvents", ", value: cloudevents, cloudevents_source: /shop", "/orders", "components/subscription.yaml", func(t *testing.T, record *kgo.Record) ([]byte, http.Header) {
		var event map[string]any
		if err := json.Unmarshal(record.Value, &event); err != nil {
			t.Fatal(err)
		}
		event["topic"], event["pubsubname"] = record.Topic, "kafka" // as Dapr adds them
		body, err := json.Marshal(event)
		if err != nil {
			t.Fatal(err)
		}
		return body, http.Header{}
	}},
	{"rawPayload", "", "/raw", "raw/subscription.yaml", func(t *testing.T, record *kgo.Record) ([]byte, http.Header) {
		body, err := json.Marshal(map[string]any{
			"id": rand.Text(), "specversion": "1.0", "source": "Dapr", "type": "com.dapr.event.sent",
			"topic": record.Topic, "pubsubname": "kafka", "datacontenttype": "application/octet-stream", "data_base64": record.Value,
		})
		if err != nil {
			t.Fatal(err)
		}
		header := http.Header{}
		header.Set("__key", string(record.Key))
		for _, h := range record.Headers {
			header.Set(strings.ToLower(h.Key), string(h.Value))
		}
		return body, header
	}},
}

// The subscriber gets what a sidecar posts, several times, at the same time and while its database
// fails, and answers what has the sidecar deliver again only where something is undone.
func TestDapr_SubscriberHandlesRedeliveriesOnce(t *testing.T) {
	t.Parallel()
	for _, d := range deliveries {
		t.Run(d.name, func(t *testing.T) {
			t.Parallel()
			handlesRedeliveriesOnce(t, d)
		})
	}
}

func handlesRedeliveriesOnce(t *testing.T, d delivery) {
	dir := daprExample.ready(t)
	f := newShopFloor(t, d.value)
	const orders = 30
	f.placeOrders(t, orders)
	relay := f.relay(t)
	f.AwaitCaughtUp(t)
	relay.stop(t)
	port, subscriber := f.subscriber(t, dir)
	post := func(body []byte, header http.Header) string {
		request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://127.0.0.1:"+port+d.path, bytes.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		maps.Copy(request.Header, header)
		request.Header.Set("Content-Type", "application/cloudevents+json")
		response, err := http.DefaultClient.Do(request)
		if err != nil {
			return err.Error()
		}
		defer response.Body.Close()
		answer, _ := io.ReadAll(response.Body)
		var status struct{ Status string }
		if response.StatusCode != http.StatusOK || json.Unmarshal(answer, &status) != nil {
			return fmt.Sprint(response.StatusCode, string(answer))
		}
		return status.Status
	}
	if got := post([]byte("no JSON"), nil); got != "RETRY" {
		t.Errorf("to what is no event: %s", got)
	}
	f.DB.Exec(t, "ALTER TABLE ledger RENAME TO away")
	for n, record := range f.Brokers.Read(t, f.topic) {
		if n == 0 {
			body, header := d.request(t, &kgo.Record{Topic: record.Topic, Key: record.Key, Value: []byte(strings.ReplaceAll(string(record.Value), `"id"`, `"no"`))})
			if got := post(body, header); got != "RETRY" {
				t.Errorf("to an event without an id: %s", got)
			}
			if got := post(d.request(t, record)); got != "RETRY" {
				t.Errorf("while the table is away: %s", got)
			}
			f.DB.Exec(t, "ALTER TABLE away RENAME TO ledger")
		}
		var wait sync.WaitGroup
		for range 1 + mathrand.IntN(3) {
			body, header := d.request(t, record)
			wait.Go(func() {
				if got := post(body, header); got != "SUCCESS" {
					t.Errorf("%s", got)
				}
			})
		}
		wait.Wait()
	}
	f.verify(t, orders)
	subscriber.kill()
}

// Dapr drops an event to which an HTTP server answers 404, as the relay's own would. The page has
// the sidecar post to the port on which the subscriber listens, which is not the relay's.
func TestDapr_PageHasThePortOfTheSubscriber(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../examples/dapr/README.md")
	if err != nil {
		t.Fatal(err)
	}
	source, err := os.ReadFile("../../examples/dapr/main.go")
	if err != nil {
		t.Fatal(err)
	}
	port := regexp.MustCompile(`--app-port (\d+)`).FindSubmatch(page)
	listens := regexp.MustCompile(`"localhost:(\d+)"`).FindSubmatch(source)
	if port == nil || listens == nil || string(port[1]) != string(listens[1]) {
		t.Fatalf("the sidecar posts to %q, the subscriber listens on %q", port, listens)
	}
	cfg, err := config.Load(config.Options{Path: "../../examples/dapr/cdc-relay.yaml", Environ: []string{"POSTGRES_URL=postgres://localhost/shop", "KAFKA_BROKERS=localhost:9092"}})
	if err != nil {
		t.Fatal(err)
	}
	if strings.HasSuffix(cfg.HTTP().Listen, ":"+string(port[1])) {
		t.Errorf("the relay listens on %s too", cfg.HTTP().Listen)
	}
}
