//go:build dapr

package ends

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/cdc-relay/cdc-relay/test/harness"
)

// A real sidecar, which `make dapr` builds: it reads the relay's records, the relay and the
// sidecar are killed, and each event has one line.
func TestDapr_Sidecar(t *testing.T) {
	daprd := os.Getenv("CDC_RELAY_DAPRD")
	if daprd == "" {
		t.Fatal("CDC_RELAY_DAPRD names no program: run make dapr, which builds one")
	}
	dir := daprExample.ready(t)
	f := newShopFloor(t, daprValue)
	resources := t.TempDir()
	for _, name := range []string{"pubsub.yaml", "subscription.yaml"} {
		text, err := os.ReadFile(filepath.Join(dir, "components", name))
		if err != nil {
			t.Fatal(err)
		}
		replaced := strings.NewReplacer("localhost:9092", strings.Join(f.Brokers.Addrs, ","), "value: billing", "value: "+harness.Unique(t, "billing"), "topic: order-events", "topic: "+f.topic).Replace(string(text))
		if err := os.WriteFile(filepath.Join(resources, name), []byte(replaced), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	port, subscriber := f.subscriber(t, dir)
	start := func() *process {
		return f.run(t, resources, []string{
			daprd, "--app-id", "ledger", "--app-port", port, "--resources-path", resources, "--enable-metrics=false", "--dapr-listen-addresses", "127.0.0.1",
			"--dapr-http-port", freePort(t), "--dapr-grpc-port", freePort(t), "--dapr-internal-grpc-port", freePort(t),
		})
	}
	const orders = 200
	relay, sidecar := f.relay(t), start()
	f.placeOrders(t, orders)
	for n := 1; n <= 2; n++ {
		f.awaitLedger(t, orders*n/2, sidecar)
		relay.kill()
		sidecar.kill()
		relay, sidecar = f.relay(t), start()
		// Events fail for a while: they come again, before those after them.
		f.DB.Exec(t, "ALTER TABLE ledger RENAME TO away")
		<-time.After(time.Second)
		f.DB.Exec(t, "ALTER TABLE away RENAME TO ledger")
	}
	f.awaitLedger(t, 2*orders, sidecar)
	<-time.After(2 * time.Second) // for what comes twice
	f.verify(t, orders)
	version := f.run(t, resources, []string{daprd, "--version"})
	<-version.done
	t.Logf("daprd %s: %d events, each has one line, in order", strings.TrimSpace(version.out.String()), 2*orders)
	sidecar.kill()
	subscriber.kill()
	relay.stop(t)
}
