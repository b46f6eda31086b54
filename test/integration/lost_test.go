package integration

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/uuid"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/cdc-relay/cdc-relay/sandbox"
	"github.com/cdc-relay/cdc-relay/sandbox/ledger"
	"github.com/cdc-relay/cdc-relay/test/harness"
	"github.com/cdc-relay/cdc-relay/test/harness/relaytest"
)

// uncleanCluster is three real brokers and a topic of one partition on the first two,
// which either of them may lead although it has not all that was acknowledged.
func uncleanCluster(t *testing.T) (cluster *sandbox.Cluster, brokers *harness.Brokers) {
	t.Helper()
	harness.NeedsServer(t, "Apache Kafka")
	java, jars, err := harness.KafkaProgram(t.Context())
	if err != nil {
		harness.Missing(t, "Apache Kafka", err, "install Java 17 or newer and Maven")
	}
	if cluster, err = sandbox.StartCluster(t.Context(), sandbox.ClusterOptions{Java: java, Jars: jars}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := cluster.Close(); err != nil {
			t.Error(err)
		}
	})
	return cluster, &harness.Brokers{Name: "apache3", Addrs: cluster.Addrs()}
}

func createUnclean(t *testing.T, brokers *harness.Brokers, topic string) {
	t.Helper()
	client, err := kgo.NewClient(kgo.SeedBrokers(brokers.Addrs...))
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	request := kmsg.NewPtrCreateTopicsRequest()
	request.TimeoutMillis = 30_000
	one := kmsg.NewCreateTopicsRequestTopic()
	one.Topic, one.NumPartitions, one.ReplicationFactor = topic, -1, -1
	one.ReplicaAssignment = []kmsg.CreateTopicsRequestTopicReplicaAssignment{{Partition: 0, Replicas: []int32{1, 2}}}
	for name, value := range map[string]string{"min.insync.replicas": "1", "unclean.leader.election.enable": "true"} {
		one.Configs = append(one.Configs, kmsg.CreateTopicsRequestTopicConfig{Name: name, Value: &value})
	}
	request.Topics = append(request.Topics, one)
	relaytest.Eventually(t, "the topic is made", func() (bool, string) {
		response, err := request.RequestWith(t.Context(), client)
		if err != nil {
			return false, err.Error()
		}
		err = kerr.ErrorForCode(response.Topics[0].ErrorCode)
		return err == nil || errors.Is(err, kerr.TopicAlreadyExists), fmt.Sprint(err)
	})
}

// electUnclean asks for the election that the topic's setting allows, until the second broker
// leads: before 3.9 brokers without ZooKeeper hold none by themselves, and they refuse
// one while they do not know yet that the first is dead.
func electUnclean(t *testing.T, brokers *harness.Brokers, topic string) {
	t.Helper()
	var partitions kadm.TopicsSet
	partitions.Add(topic, 0)
	admin := brokers.Admin(t)
	relaytest.Eventually(t, "the second broker leads", func() (bool, string) {
		results, err := admin.ElectLeaders(t.Context(), kadm.ElectLiveReplica, partitions)
		if err != nil {
			return false, err.Error()
		}
		topics, err := admin.ListTopics(t.Context(), topic)
		if err != nil {
			return false, err.Error()
		}
		leader := topics[topic].Partitions[0].Leader
		return leader == 2, fmt.Sprint("leader ", leader, ", ", results[topic][0].Err)
	})
}

// An unclean election takes back what the brokers had acknowledged. It is confirmed, so
// nothing brings it back by itself; but it is said, what was not acknowledged comes
// in order, the position never goes back, and inserting the rows again sends them.
func TestBrokers_ThatLoseWhatTheyAcknowledgedAreTold(t *testing.T) {
	t.Parallel() // most of it is waiting
	cluster, brokers := uncleanCluster(t)
	p := relaytest.New(t, harness.Postgres(t), brokers, []string{"{table: public.outbox}"})
	p.Setup(t)
	w := p.NewWorkload(t, "outbox", harness.Unique(t, "lost"))
	createUnclean(t, brokers, w.Topic())
	running := p.Exec(t, "run", "--set", anyAddress)
	address := served(t, running)
	key := w.Insert(t, 100)
	p.AwaitCaughtUp(t) // both brokers have these
	step := func(do error) {
		t.Helper()
		if do != nil {
			t.Fatal(do)
		}
	}

	step(cluster.Kill(1))
	lost := uuid.New()
	w.InsertKey(t, lost, 200, 20)
	p.AwaitCaughtUp(t) // the first broker alone has these
	confirmed := p.Confirmed(t)
	if n := metric(t, address, "cdc_relay_data_loss_signals_total"); n != 0 {
		t.Fatalf("%v signals of loss before anything was lost", n)
	}
	step(cluster.Kill(0))
	w.InsertKey(t, key, 50, 20) // nobody takes these yet
	step(cluster.Start(t.Context(), 1))
	electUnclean(t, brokers, w.Topic())
	w.InsertKey(t, key, 50, 20)
	p.AwaitCaughtUp(t)
	step(cluster.Start(t.Context(), 0)) // it follows, and forgets
	w.InsertKey(t, key, 50, 20)
	p.AwaitCaughtUp(t)

	report := w.Ledger.Check(brokers.Read(t, w.Topic()))
	if report.Delivered != 250 || len(report.Missing) != 200 || len(report.Disordered)+len(report.Phantom)+len(report.Altered) != 0 {
		t.Fatalf("%s, want the 200 missing that the first broker alone had", report)
	}
	if now := p.Confirmed(t); now < confirmed {
		t.Errorf("confirmed %s, which was %s", now, confirmed)
	}
	if n := metric(t, address, "cdc_relay_data_loss_signals_total"); n < 1 || !strings.Contains(running.Output(), "broker lost or forgot acknowledged records") {
		t.Errorf("%v signals of loss, and the log says\n%s", n, running.Output())
	}
	awaitState(t, running, "streaming", "")

	// As docs/how-to/send-rows-again.md has it.
	p.DB.Exec(t, `WITH gone AS (DELETE FROM public.outbox WHERE created_at >= now() - interval '1 hour' RETURNING *)
		INSERT INTO public.outbox SELECT * FROM gone ORDER BY created_at`)
	p.AwaitCaughtUp(t)
	end(t, running)
	var back []string
	for _, record := range brokers.Read(t, w.Topic()) {
		if string(record.Key) == lost.String() {
			back = append(back, ledger.ID(record))
		}
	}
	slices.Sort(back)
	if !slices.Equal(back, report.Missing) {
		t.Errorf("%d rows of those that were lost came back, want %d, once", len(back), len(report.Missing))
	}
}
