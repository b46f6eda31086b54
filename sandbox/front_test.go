package sandbox_test

import (
	"context"
	"os/exec"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/cdc-relay/cdc-relay/sandbox"
)

func TestProxy_DelaysEachWay(t *testing.T) {
	proxy, dial := echo(t)
	const by = 40 * time.Millisecond
	proxy.Delay(sandbox.ToServer, by)
	proxy.Delay(sandbox.ToClient, by)
	began := time.Now()
	if got, err := ask(dial(), "far", long); got != "far" || err != nil {
		t.Fatalf("%q, %v", got, err)
	}
	if took := time.Since(began); took < 2*by {
		t.Errorf("an answer after %s, want %s at least", took, 2*by)
	}
	proxy.Heal()
	if got, err := ask(dial(), "near", long); got != "near" || err != nil {
		t.Errorf("healed: %q, %v", got, err)
	}
}

// Clients reach every broker through its proxy; whoever judges can go past it.
func TestKafka_StandsBehindProxies(t *testing.T) {
	brokers, err := sandbox.StartKafka(sandbox.KafkaOptions{Brokers: 3, Proxied: true, Topics: map[string]int32{"t": 6}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := brokers.Close(); err != nil {
			t.Error(err)
		}
	})
	produce := func(ctx context.Context, opts ...kgo.Opt) error {
		client, err := kgo.NewClient(append(opts, kgo.SeedBrokers(brokers.Addrs()...), kgo.RecordPartitioner(kgo.RoundRobinPartitioner()))...)
		if err != nil {
			return err
		}
		defer client.Close()
		var records []*kgo.Record
		for range 12 {
			records = append(records, &kgo.Record{Topic: "t", Value: []byte("x")})
		}
		return client.ProduceSync(ctx, records...).FirstErr()
	}
	if err := produce(t.Context()); err != nil {
		t.Fatal(err)
	}
	for i, proxy := range brokers.Proxies() {
		if proxy.Passed(sandbox.ToServer) == 0 {
			t.Errorf("nothing passed through the proxy of broker %d", i)
		}
		proxy.Refuse()
		proxy.Cut()
	}
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	if err := produce(ctx); err == nil {
		t.Error("records arrived although every proxy refuses")
	}
	if err := produce(t.Context(), brokers.Direct()); err != nil {
		t.Errorf("past the proxies: %v", err)
	}
}

func TestRun_EndsAndTellsHow(t *testing.T) {
	p, err := sandbox.Run(shell("exit 3"))
	if err != nil {
		t.Fatal(err)
	}
	if code := p.ExitCode(); code != 3 {
		t.Errorf("exit code = %d", code)
	}
	p, err = sandbox.Run(shell("sleep 60"))
	if err != nil {
		t.Fatal(err)
	}
	p.Kill()
	if code := p.ExitCode(); code != -1 {
		t.Errorf("exit code of a killed process = %d", code)
	}
}

func shell(script string) *exec.Cmd { return exec.Command("/bin/sh", "-c", script) }
