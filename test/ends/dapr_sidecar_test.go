//go:build dapr

package ends

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/twmb/franz-go/pkg/kadm"

	"github.com/cdc-relay/cdc-relay/test/harness/relaytest"
)

// A real sidecar, which `make dapr` builds: it reads the relay's records, the relay and the
// sidecar are killed, and each event has one line.
func TestDapr_Sidecar(t *testing.T) {
	daprd := os.Getenv("CDC_RELAY_DAPRD")
	if daprd == "" {
		t.Fatal("CDC_RELAY_DAPRD names no program: run make dapr, which builds one")
	}
	for _, d := range deliveries {
		t.Run(d.name, func(t *testing.T) { delivers(t, daprd, d) })
	}
}

func delivers(t *testing.T, daprd string, d delivery) {
	dir := daprExample.ready(t)
	f := newShopFloor(t, d.value)
	port, subscriber := f.subscriber(t, dir)
	start := f.sidecar(t, daprd, port, d)
	orders := 200
	relay, sidecar := f.relay(t), start()
	f.placeOrders(t, orders)
	f.awaitLedger(t, orders/2, sidecar)
	for range 2 {
		relay.kill()
		sidecar.kill()
		forget(t, f.Brokers, f.group)
		// Events fail for a while: they come again, before those after them.
		f.DB.Exec(t, "ALTER TABLE ledger RENAME TO away")
		failed := strings.Count(subscriber.out.String(), "event failed")
		relay, sidecar = f.relay(t), start()
		f.placeOrders(t, 20)
		orders += 20
		relaytest.Eventually(t, "events fail", func() (bool, string) {
			return strings.Count(subscriber.out.String(), "event failed") > failed+3, sidecar.out.String()
		})
		f.DB.Exec(t, "ALTER TABLE away RENAME TO ledger")
		f.awaitLedger(t, 2*orders, sidecar)
	}
	f.awaitNoLag(t, sidecar) // nothing comes twice any more
	f.verify(t, orders)
	version := f.run(t, dir, []string{daprd, "--version"})
	<-version.done
	t.Logf("daprd %s: %d events, each has one line, in order", strings.TrimSpace(version.out.String()), 2*orders)
	sidecar.kill()
	subscriber.kill()
	relay.stop(t)
}

// awaitNoLag waits until the group has committed all records of the topic.
func (f *shopFloor) awaitNoLag(t *testing.T, consumer *process) {
	t.Helper()
	admin := f.Brokers.Admin(t)
	relaytest.Eventually(t, "the group has no lag", func() (bool, string) {
		ends, err := admin.ListEndOffsets(t.Context(), f.topic)
		if err != nil {
			return false, err.Error()
		}
		committed, err := admin.FetchOffsets(t.Context(), f.group)
		if err != nil {
			return false, err.Error()
		}
		lag := int64(0)
		ends.Each(func(end kadm.ListedOffset) {
			at, _ := committed.Lookup(f.topic, end.Partition)
			lag += end.Offset - max(at.At, 0)
		})
		return lag == 0, fmt.Sprint(lag, " records\n", consumer.out.String())
	})
}

// What the page says of Dapr: the answer 404 drops an event, and an event of rawPayload has another
// id at each delivery, beside the record's headers.
func TestDapr_SidecarDropsAnEventThatIsNotFound(t *testing.T) {
	daprd := os.Getenv("CDC_RELAY_DAPRD")
	if daprd == "" {
		t.Fatal("CDC_RELAY_DAPRD names no program: run make dapr, which builds one")
	}
	for _, answer := range []int{http.StatusNotFound, http.StatusInternalServerError} {
		t.Run(fmt.Sprint(answer), func(t *testing.T) {
			d := deliveries[1]
			f := newShopFloor(t, d.value)
			f.placeOrders(t, 1)
			relay := f.relay(t)
			f.AwaitCaughtUp(t)
			relay.stop(t)
			var mu sync.Mutex
			var posts, headers []string // ids
			app := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				var e struct{ ID string }
				if r.Method != http.MethodPost || json.NewDecoder(r.Body).Decode(&e) != nil {
					http.NotFound(w, r) // of Dapr's own questions
					return
				}
				mu.Lock()
				defer mu.Unlock()
				posts, headers = append(posts, e.ID), append(headers, r.Header.Get("id"))
				if len(posts) == 1 {
					w.WriteHeader(answer)
				}
			}))
			defer app.Close()
			sidecar := f.sidecar(t, daprd, strings.TrimPrefix(app.URL, "http://127.0.0.1:"), d)()
			f.awaitNoLag(t, sidecar)
			sidecar.kill()
			mu.Lock()
			defer mu.Unlock()
			want := 2
			if answer != http.StatusNotFound {
				want = 3 // the first one again
				if posts[0] == posts[1] || headers[0] != headers[1] {
					t.Errorf("ids of events: %q, of headers: %q", posts, headers)
				}
			}
			if len(posts) != want {
				t.Errorf("%d deliveries of 2 events, want %d", len(posts), want)
			}
		})
	}
}

// sidecar starts one in front of the program that listens on the port.
func (f *shopFloor) sidecar(t *testing.T, daprd, port string, d delivery) func() *process {
	t.Helper()
	resources := t.TempDir()
	for _, name := range []string{"components/pubsub.yaml", d.subscription} {
		text, err := os.ReadFile(filepath.Join("../../examples/dapr", name))
		if err != nil {
			t.Fatal(err)
		}
		replaced := strings.NewReplacer("localhost:9092", strings.Join(f.Brokers.Addrs, ","), "value: billing", "value: "+f.group, "topic: order-events", "topic: "+f.topic).Replace(string(text))
		if err := os.WriteFile(filepath.Join(resources, filepath.Base(name)), []byte(replaced), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return func() *process {
		return f.run(t, resources, []string{
			daprd, "--app-id", "ledger", "--app-port", port, "--resources-path", resources, "--enable-metrics=false", "--dapr-listen-addresses", "127.0.0.1",
			"--dapr-http-port", freePort(t), "--dapr-grpc-port", freePort(t), "--dapr-internal-grpc-port", freePort(t),
		})
	}
}
