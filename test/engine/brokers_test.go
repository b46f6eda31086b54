//go:build engine

package engine

import (
	"context"
	"fmt"
	"net"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/cdc-relay/cdc-relay/sandbox"
	"github.com/cdc-relay/cdc-relay/test/harness"
	"github.com/cdc-relay/cdc-relay/test/harness/relaytest"
)

// cluster are three brokers, each with an address of its own and a small disk, which keep
// three replicas of everything and acknowledge with two.
type cluster struct {
	*world
	admin  *kadm.Client
	topics []string
}

func newCluster(t *testing.T) *cluster {
	t.Helper()
	c := &cluster{world: emptyWorld(t)}
	c.brokers = &harness.Brokers{Name: "apache"}
	for i := range 3 {
		port, err := sandbox.FreePort()
		if err != nil {
			t.Fatal(err)
		}
		outside := net.JoinHostPort("127.0.0.1", strconv.Itoa(port))
		name := fmt.Sprintf("k%d", i+1)
		options := []string{"--network-alias", name, "-p", outside + ":9092", "--memory", "900m", "--tmpfs", "/data:size=256m,uid=1000,mode=0755"}
		c.run(t, name, append(options, variables(map[string]string{
			"KAFKA_NODE_ID": strconv.Itoa(i + 1), "KAFKA_PROCESS_ROLES": "broker,controller",
			"KAFKA_CONTROLLER_QUORUM_VOTERS": "1@k1:19093,2@k2:19093,3@k3:19093", "KAFKA_CONTROLLER_LISTENER_NAMES": "CONTROLLER",
			"KAFKA_LISTENERS":                      "PLAINTEXT://:19092,CONTROLLER://:19093,HOST://:9092",
			"KAFKA_ADVERTISED_LISTENERS":           "PLAINTEXT://" + name + ":19092,HOST://" + outside,
			"KAFKA_LISTENER_SECURITY_PROTOCOL_MAP": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,HOST:PLAINTEXT",
			"KAFKA_INTER_BROKER_LISTENER_NAME":     "PLAINTEXT",
			"KAFKA_DEFAULT_REPLICATION_FACTOR":     "3", "KAFKA_MIN_INSYNC_REPLICAS": "2", "KAFKA_OFFSETS_TOPIC_REPLICATION_FACTOR": "3",
			"KAFKA_TRANSACTION_STATE_LOG_REPLICATION_FACTOR": "3", "KAFKA_TRANSACTION_STATE_LOG_MIN_ISR": "2",
			"KAFKA_TRANSACTION_STATE_LOG_NUM_PARTITIONS": "3", "KAFKA_OFFSETS_TOPIC_NUM_PARTITIONS": "3",
			"KAFKA_UNCLEAN_LEADER_ELECTION_ENABLE": "false",
			// A segment is as large as it will be from its beginning on, and the disk is small.
			"KAFKA_LOG_SEGMENT_BYTES": "16777216", "KAFKA_LOG_INDEX_SIZE_MAX_BYTES": "65536", "KAFKA_LOG_DIRS": "/data/log",
			// Failures are noticed within seconds.
			"KAFKA_BROKER_HEARTBEAT_INTERVAL_MS": "500", "KAFKA_BROKER_SESSION_TIMEOUT_MS": "3000", "KAFKA_REPLICA_LAG_TIME_MAX_MS": "3000",
		})...), "apache/kafka:"+sandbox.ApacheVersion)
		c.brokers.Addrs = append(c.brokers.Addrs, outside)
	}
	c.awaitBrokers(t, 3)
	c.admin = c.brokers.Admin(t)
	return c
}

// awaitInSync waits until every replica of the topics is in sync.
func (c *cluster) awaitInSync(t *testing.T) {
	t.Helper()
	c.awaitBrokers(t, 3)
	relaytest.Eventually(t, "all replicas are in sync", func() (bool, string) {
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		details, err := c.admin.ListTopics(ctx, c.topics...)
		if err != nil {
			return false, err.Error()
		}
		for _, topic := range details {
			if topic.Err != nil {
				return false, topic.Err.Error()
			}
			for _, p := range topic.Partitions {
				if len(p.ISR) < 3 {
					return false, fmt.Sprintf("%s %d: in sync %v", topic.Topic, p.Partition, p.ISR)
				}
			}
		}
		return true, ""
	})
}

// leader is the name of the broker that leads the first partition of a topic.
func (c *cluster) leader(t *testing.T) string {
	t.Helper()
	details, err := c.admin.ListTopics(t.Context(), c.topics[0])
	if err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf("k%d", details[c.topics[0]].Partitions[0].Leader)
}

// filter has the kernel drop packets of a container: rules are those of iptables, and what is
// returned takes them away. It needs the engine's processes to be this machine's, and root.
func (w *world) filter(t *testing.T, name string, rules ...string) (heal func()) {
	t.Helper()
	pid := strconv.Itoa(w.inspect(t, name).State.Pid)
	change := func(how string) error {
		for _, rule := range rules {
			args := append([]string{"-t", pid, "-n", "iptables", how}, strings.Fields(rule)...)
			if out, err := exec.Command("nsenter", args...).CombinedOutput(); err != nil {
				return fmt.Errorf("iptables %s %s: %w: %s", how, rule, err, out)
			}
		}
		return nil
	}
	if err := change("-A"); err != nil {
		harness.Forbidden(t, "drop packets of a container", err, "run it as root, with iptables, beside the engine")
	}
	return func() {
		t.Helper()
		if err := change("-D"); err != nil {
			t.Error(err)
		}
	}
}

// Three brokers that lose one another, their leaders, or their disk, and relays that lose one
// of their servers: nothing is lost, with at-least-once; and nothing comes twice with exactly-once.
func TestBrokers_ThreeLoseOneAnother(t *testing.T) {
	build(t)
	c := newCluster(t)
	loads := map[string]*relaytest.Workload{}
	for _, guarantee := range []string{"at_least_once", "exactly_once"} {
		table := "outbox_" + guarantee
		load := (&relaytest.Pipeline{DB: c.db, Brokers: c.brokers}).NewWorkload(t, "public."+table, strings.ReplaceAll(guarantee, "_", "-"))
		response, err := c.admin.CreateTopic(t.Context(), 3, 3, nil, load.Topic())
		if err == nil {
			err = response.Err
		}
		if err != nil {
			t.Fatal(err)
		}
		c.topics = append(c.topics, load.Topic())
		loads[guarantee] = load
		environment := append(c.environment(), variables(map[string]string{
			"CDC_RELAY_KAFKA_BROKERS": "k1:19092,k2:19092,k3:19092", "CDC_RELAY_OUTBOX_TABLE": "public." + table,
			"CDC_RELAY_POSTGRES_SLOT": guarantee, "CDC_RELAY_POSTGRES_PUBLICATION": guarantee, "CDC_RELAY_RELAY_GUARANTEE": guarantee,
		})...)
		docker(t, append(append([]string{"run", "--rm", "--network", c.name}, environment...), image, "setup", "--create-table")...)
		c.run(t, guarantee, append(append(confined("96m"), "--restart", "on-failure", "--stop-timeout", "40"), environment...), image)
	}
	for guarantee, load := range loads {
		c.awaitLog(t, guarantee, "streaming")
		load.Start(t, 1, 40*time.Millisecond)
	}
	others := func(name string) (addresses []string) {
		for i := range 3 {
			if other := fmt.Sprintf("k%d", i+1); other != name {
				addresses = append(addresses, c.address(t, other))
			}
		}
		return addresses
	}
	cut := func(name string, in, out bool) func() {
		var rules []string
		for _, address := range others(name) {
			if in {
				rules = append(rules, "INPUT -s "+address+" -j DROP")
			}
			if out {
				rules = append(rules, "OUTPUT -d "+address+" -j DROP")
			}
		}
		return c.filter(t, name, rules...)
	}
	const held = 8 * time.Second // two and more of what brokers give one another
	for _, fault := range []struct {
		name string
		make func()
	}{
		{"the leader is killed", func() {
			leader := c.leader(t)
			docker(t, "kill", c.container(leader))
			<-time.After(held)
			docker(t, "start", c.container(leader))
		}},
		{"the leader hears nobody", func() { heal := cut(c.leader(t), true, false); <-time.After(held); heal() }},
		{"nobody hears the leader", func() { heal := cut(c.leader(t), false, true); <-time.After(held); heal() }},
		{"the leader is cut off from both others", func() { heal := cut(c.leader(t), true, true); <-time.After(held); heal() }},
		{"a rolling restart", func() {
			for i := range 3 {
				docker(t, "restart", "-t", "30", c.container(fmt.Sprintf("k%d", i+1)))
				c.awaitInSync(t)
			}
		}},
		{"the leader's disk is full", func() {
			leader := c.leader(t)
			// It ends with an error: that is the point.
			_, _ = try(t.Context(), "exec", c.container(leader), "dd", "if=/dev/zero", "of=/data/fill", "bs=1M")
			for _, load := range loads {
				load.Insert(t, 5000)
			}
			<-time.After(held)
			_, _ = try(t.Context(), "exec", c.container(leader), "rm", "/data/fill")
			docker(t, "restart", "-t", "30", c.container(leader)) // its disk is gone with it, and made anew from the others
		}},
		{"the relays lose PostgreSQL, and not Kafka", func() {
			for guarantee := range loads {
				defer c.filter(t, guarantee, "INPUT -s "+c.address(t, "postgres")+" -j DROP")()
			}
			<-time.After(held)
		}},
		{"the relays lose Kafka, and not PostgreSQL", func() {
			for guarantee := range loads {
				for i := range 3 {
					defer c.filter(t, guarantee, "INPUT -s "+c.address(t, fmt.Sprintf("k%d", i+1))+" -j DROP")()
				}
			}
			<-time.After(held)
		}},
	} {
		start := time.Now()
		fault.make()
		c.awaitInSync(t)
		healed := time.Now()
		c.caughtUp(t)
		t.Logf("%s: %.0f s until every replica was in sync again, caught up %.1f s later", fault.name, healed.Sub(start).Seconds(), time.Since(healed).Seconds())
	}
	for guarantee, load := range loads {
		load.Stop(t)
		c.caughtUp(t)
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
		defer cancel()
		records, err := sandbox.ReadTopics(ctx, c.brokers.Addrs, []string{load.Topic()}, kgo.FetchIsolationLevel(kgo.ReadCommitted()))
		if err != nil {
			t.Fatal(err)
		}
		report := load.Ledger.Check(records)
		t.Logf("%s: %s", guarantee, report)
		if err := report.Err(); err != nil {
			t.Errorf("%s: %v", guarantee, err)
		}
		if guarantee == "exactly_once" && report.Duplicates != 0 {
			t.Errorf("%d rows came twice", report.Duplicates)
		}
	}
}
