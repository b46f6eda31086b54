package kafka_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cdc-relay/cdc-relay/router/record"
	"github.com/cdc-relay/cdc-relay/sandbox"
	"github.com/cdc-relay/cdc-relay/sink"
	"github.com/cdc-relay/cdc-relay/sink/auth"
	"github.com/cdc-relay/cdc-relay/sink/broker"
	"github.com/cdc-relay/cdc-relay/sink/kafka"
	"github.com/cdc-relay/cdc-relay/sink/producer"
	"github.com/cdc-relay/cdc-relay/sink/topics"
	"github.com/cdc-relay/cdc-relay/test/harness"
	"github.com/rs/zerolog"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/pkg/kversion"
)

// sendOne returns the failure of a Send of one record, or nil.
func sendOne(t testing.TB, s sink.Sink, r record.Record) *sink.Failure {
	t.Helper()
	outcome := make(chan error, 1)
	s.Send(context.Background(), []record.Record{r}, func(err error) { outcome <- err })
	select {
	case err := <-outcome:
		got := failures(t, err)
		if len(got) == 0 {
			return nil
		}
		return &got[0]
	case <-time.After(guardTime):
		t.Fatal("done was not called")
		return nil
	}
}

func wantFailure(t testing.TB, f *sink.Failure, class sink.Class, reason string, mentions ...string) {
	t.Helper()
	if f == nil {
		t.Fatalf("the record was acknowledged, want %s %s", class, reason)
	}
	if f.Class != class || f.Reason != reason {
		t.Errorf("failure is %s %s (%v), want %s %s", f.Class, f.Reason, f.Err, class, reason)
	}
	for _, text := range mentions {
		if !strings.Contains(f.Err.Error(), text) {
			t.Errorf("message %q does not mention %q", f.Err, text)
		}
	}
}

// heals tries again as a relay does, until the record is durable.
func heals(t testing.TB, k *kafka.Sink, r record.Record) {
	t.Helper()
	deadline := time.Now().Add(guardTime)
	for {
		k.Resume(t.Context())
		f := sendOne(t, k, r)
		if f == nil {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("never healed: %v", f.Err)
		}
	}
}

func TestKafka_BlocksOnAnUnknownTopicUntilItExists(t *testing.T) {
	t.Parallel()
	c := cluster(t)
	k := open(t, c, nil)
	for range 2 {
		start := time.Now()
		wantFailure(t, sendOne(t, k, newRecord("later", "k", "v")), sink.Blocked, "unknown_topic", `"later"`, "UNKNOWN_TOPIC_OR_PARTITION", "topic-partition; create the topic, or set kafka.create_topics.enabled")
		if took := time.Since(start); took > guardTime/2 {
			t.Errorf("took %s to find out", took)
		}
		k.Resume(t.Context())
	}
	if err := c.CreateTopic("later", 1, nil); err != nil {
		t.Fatal(err)
	}
	heals(t, k, newRecord("later", "k", "v"))
	if got := read(t, c, "later"); len(got) != 1 {
		t.Errorf("%d records are durable, want 1", len(got))
	}
}

func TestKafka_CreatesMissingTopicsWhenTold(t *testing.T) {
	t.Parallel()
	c := cluster(t)
	k := open(t, c, func(cfg *producer.Config) {
		cfg.CreateTopics = topics.Creation{Enabled: true, Partitions: 5, ReplicationFactor: 1, Config: map[string]string{"cleanup.policy": "compact"}}
	})
	wantFailure(t, sendOne(t, k, newRecord("made", "k", "v")), sink.Retry, "unknown_topic")
	heals(t, k, newRecord("made", "k", "v"))
	if info := c.TopicInfo("made"); info == nil || len(c.PartitionInfos("made")) != 5 {
		t.Errorf("topic is %+v, want 5 partitions", info)
	}
}

// A topic that is made for the first time is nothing to look at; one that had records
// of ours was deleted by somebody.
func TestKafka_SaysThatItMadeATopicAgain(t *testing.T) {
	t.Parallel()
	c := cluster(t)
	var log harness.Output
	k, err := kafka.New(producer.Config{
		Connection: broker.Connection{Brokers: c.ListenAddrs()}, CreateTopics: topics.Creation{Enabled: true, Partitions: 1, ReplicationFactor: 1},
	}, zerolog.New(&log))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = k.Close(context.Background()) }()
	const again = `"level":"error","topic":"orders","partitions":1,"message":"topic was deleted after records were sent to it; made it again`
	heals(t, k, newRecord("orders", "k", "old"))
	if n := k.TopicsRecreated(); n != 0 || strings.Contains(log.String(), again) {
		t.Fatalf("at the first time %d topics were made again:\n%s", n, log.String())
	}
	if err := c.DeleteTopic("orders"); err != nil {
		t.Fatal(err)
	}
	heals(t, k, newRecord("orders", "k", "new"))
	if n := k.TopicsRecreated(); n != 1 || strings.Count(log.String(), again) != 1 {
		t.Fatalf("%d topics were made again:\n%s", n, log.String())
	}
	if got := read(t, c, "orders"); len(got) != 1 || string(got[0].Value) != "new" {
		t.Errorf("the new topic has %v", got)
	}
}

func TestKafka_SaysWhyItCannotCreateATopic(t *testing.T) {
	t.Parallel()
	c := cluster(t)
	k := open(t, c, func(cfg *producer.Config) { cfg.CreateTopics = topics.Creation{Enabled: true, Partitions: 1} })
	c.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.CreateTopics}, Err: kerr.TopicAuthorizationFailed, Count: -1})
	sendOne(t, k, newRecord("made", "k", "v"))
	k.Resume(t.Context())
	wantFailure(t, sendOne(t, k, newRecord("made", "k", "v")), sink.Blocked, "unknown_topic", "TOPIC_AUTHORIZATION_FAILED", "CREATE")
}

func TestKafka_GoesOnWithATopicThatWasMadeAgain(t *testing.T) {
	t.Parallel()
	c := cluster(t, kfake.SeedTopics(1, "orders"))
	k := open(t, c, nil)
	for i := range 3 {
		if f := sendOne(t, k, newRecord("orders", "k", fmt.Sprint("old", i))); f != nil {
			t.Fatal(f.Err)
		}
	}
	if err := errors.Join(c.DeleteTopic("orders"), c.CreateTopic("orders", 1, nil)); err != nil {
		t.Fatal(err)
	}
	if f := sendOne(t, k, newRecord("orders", "k", "new0")); f != nil {
		wantFailure(t, f, sink.Retry, "topic_recreated", `"orders"`)
		heals(t, k, newRecord("orders", "k", "new0"))
	}
	heals(t, k, newRecord("orders", "k", "new1"))
	var got []string
	for _, d := range read(t, c, "orders") {
		got = append(got, string(d.Value))
	}
	if !slices.Equal(got, []string{"new0", "new1"}) {
		t.Errorf("the new topic has %q", got)
	}
	if n := k.TopicsRecreated(); n != 1 {
		t.Errorf("TopicsRecreated is %d, want 1", n)
	}
}

// A topic that is deleted for a while must come back with sequence numbers that
// the broker cannot take for ones it knows.
func TestKafka_BlocksOnADeletedTopic(t *testing.T) {
	t.Parallel()
	c := cluster(t, kfake.SeedTopics(1, "orders"))
	k := open(t, c, nil)
	if f := sendOne(t, k, newRecord("orders", "k", "old")); f != nil {
		t.Fatal(f.Err)
	}
	if err := c.DeleteTopic("orders"); err != nil {
		t.Fatal(err)
	}
	f := sendOne(t, k, newRecord("orders", "k", "new"))
	for deadline := time.Now().Add(guardTime); f != nil && f.Class == sink.Retry && time.Now().Before(deadline); {
		k.Resume(t.Context())
		f = sendOne(t, k, newRecord("orders", "k", "new"))
	}
	wantFailure(t, f, sink.Blocked, "unknown_topic", "create the topic")
	if err := c.CreateTopic("orders", 1, nil); err != nil {
		t.Fatal(err)
	}
	heals(t, k, newRecord("orders", "k", "new"))
}

// Send may be left although the topic of one of its records is still looked for:
// that record stays with the sink, those after it fail.
func TestKafka_LeavesSendWhileATopicIsLookedFor(t *testing.T) {
	c := cluster(t)
	k := open(t, c, nil)
	looked := make(chan struct{})
	stuck := make(chan struct{})
	once := sync.OnceFunc(func() { close(looked) })
	c.ControlKey(int16(kmsg.Metadata), func(request kmsg.Request) (kmsg.Response, error, bool) {
		c.KeepControl()
		if len(request.(*kmsg.MetadataRequest).Topics) > 0 {
			once()
			c.SleepControl(func() { <-stuck })
		}
		return nil, nil, false
	})
	ctx, cancel := context.WithCancel(context.Background())
	outcome, left := make(chan error, 1), make(chan struct{})
	go func() {
		k.Send(ctx, []record.Record{newRecord("later", "k", "0"), newRecord("later", "k", "1")}, func(err error) { outcome <- err })
		close(left)
	}()
	<-looked
	cancel()
	select {
	case <-left:
	case <-time.After(guardTime):
		t.Fatal("Send did not return")
	}
	if err := c.CreateTopic("later", 1, nil); err != nil {
		t.Error(err)
	}
	close(stuck)
	got := failures(t, <-outcome)
	if len(got) != 1 || got[0].Index != 1 || got[0].Reason != "interrupted" {
		t.Errorf("failures: %+v, want the second record alone", got)
	}
}

func TestKafka_RidesOutWhatHealsByItself(t *testing.T) {
	t.Parallel()
	c := cluster(t, kfake.NumBrokers(3), kfake.SeedTopics(4, "orders"))
	k := open(t, c, nil)
	for _, code := range []*kerr.Error{kerr.NotEnoughReplicas, kerr.NotEnoughReplicasAfterAppend, kerr.NotLeaderForPartition, kerr.RequestTimedOut, kerr.KafkaStorageError} {
		c.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Err: code, Count: 2})
	}
	const sends, each = 300, 20
	outcomes := make(chan error, sends)
	for i := range sends {
		var records []record.Record
		for j := range each {
			records = append(records, newRecord("orders", fmt.Sprint("k", j%7), fmt.Sprintf("v%06d", i*each+j)))
		}
		k.Send(context.Background(), records, func(err error) { outcomes <- err })
		if i%50 == 25 {
			c.ShufflePartitionLeaders()
		}
	}
	for range sends {
		if err := <-outcomes; err != nil {
			t.Fatal(err)
		}
	}
	delivered := read(t, c, "orders")
	if len(delivered) != sends*each {
		t.Errorf("%d records are durable, want %d", len(delivered), sends*each)
	}
	checkOrder(t, delivered)
}

func TestKafka_RefusesWhatIsOverItsOwnLimit(t *testing.T) {
	c := cluster(t, kfake.SeedTopics(1, "orders"))
	k := open(t, c, func(cfg *producer.Config) { cfg.MaxMessageBytes = 10_000 })
	records := []record.Record{
		newRecord("orders", "k", "before"),
		newRecord("orders", "k", strings.Repeat("x", 10_000)),
		newRecord("orders", "k", "after"),
	}
	outcome := make(chan error, 1)
	k.Send(context.Background(), records, func(err error) { outcome <- err })
	got := failures(t, <-outcome)
	if len(got) != 2 || got[0].Index != 1 || got[1].Index != 2 || !errors.Is(got[1].Err, sink.ErrHalted) {
		t.Fatalf("failures: %+v", got)
	}
	wantFailure(t, &got[0], sink.Rejected, "record_too_large", `"orders"`, "10000", "kafka.max_message_bytes")
	if all := read(t, c, "orders"); len(all) != 1 || string(all[0].Value) != "before" {
		t.Errorf("durable: %d records, want the one before", len(all))
	}
}

// The client would send a time that it cannot count as another one.
func TestKafka_RefusesATimestampThatTheClientCannotCount(t *testing.T) {
	for _, year := range []int{1500, 2263, 292278994} {
		c := cluster(t, kfake.SeedTopics(1, "orders"))
		k := open(t, c, nil)
		records := []record.Record{newRecord("orders", "k", "before"), newRecord("orders", "k", "rejected")}
		records[0].Timestamp = time.Date(2262, 4, 11, 0, 0, 0, 0, time.UTC)
		records[1].Timestamp = time.Date(year, 1, 1, 0, 0, 0, 0, time.UTC)
		outcome := make(chan error, 1)
		k.Send(context.Background(), records, func(err error) { outcome <- err })
		got := failures(t, <-outcome)
		if len(got) != 1 || got[0].Index != 1 {
			t.Fatalf("year %d: failures: %+v", year, got)
		}
		wantFailure(t, &got[0], sink.Rejected, "invalid_timestamp", `"orders"`, "2262")
		all := read(t, c, "orders")
		if len(all) != 1 || !all[0].Timestamp.Equal(records[0].Timestamp) {
			t.Errorf("year %d: durable: %v", year, all)
		}
	}
}

// The sink's measure of a record is the broker's: a record of exactly the limit
// passes, one byte more does not.
func TestKafka_MeasuresRecordsAsTheBrokerDoes(t *testing.T) {
	const limit = 5000
	c := cluster(t)
	if err := c.CreateTopic("orders", 1, map[string]string{"max.message.bytes": fmt.Sprint(limit)}); err != nil {
		t.Fatal(err)
	}
	exact := newRecord("orders", "key", "")
	exact.Headers = []record.Header{{Key: "id", Value: []byte("1")}, {Key: "none"}}
	size := func(n int) record.Record {
		r := exact
		r.Value = []byte(strings.Repeat("x", n))
		return r
	}
	small := open(t, c, func(cfg *producer.Config) { cfg.MaxMessageBytes = limit })
	fits := 0
	for n := limit; n > 0; n-- {
		if sendOne(t, small, size(n)) == nil {
			fits = n
			break
		}
		small.Resume(t.Context())
	}
	if fits == 0 {
		t.Fatal("nothing fits")
	}
	large := open(t, c, nil)
	if f := sendOne(t, large, size(fits)); f != nil {
		t.Errorf("the broker refuses the largest value the sink lets pass: %v", f.Err)
	}
	wantFailure(t, sendOne(t, large, size(fits+1)), sink.Rejected, "record_too_large", "max.message.bytes")
}

func TestKafka_BlocksWithoutPermissionAndHeals(t *testing.T) {
	const user = "relay"
	allow := kfake.ACL{Principal: "User:" + user, Resource: kmsg.ACLResourceTypeTopic, Name: "orders", Pattern: kmsg.ACLResourcePatternTypeLiteral, Operation: kmsg.ACLOperationDescribe, Allow: true}
	c := cluster(t, kfake.SeedTopics(1, "orders"), kfake.EnableSASL(), kfake.EnableACLs(),
		kfake.Superuser("PLAIN", "admin", "a"), kfake.User("SCRAM-SHA-512", user, "p", allow))
	k := open(t, c, func(cfg *producer.Config) {
		cfg.SASL = auth.SASL{Mechanism: auth.ScramSHA512, Username: user, Password: secret("p")}
	})
	r := newRecord("orders", "k", "v")
	f := sendOne(t, k, r)
	for f != nil && f.Reason == "cluster_authorization_failed" { // kfake asks for IDEMPOTENT_WRITE as brokers before 3.0 do
		grant(t, c, kmsg.ACLResourceTypeCluster, "kafka-cluster", kmsg.ACLOperationIdempotentWrite, user)
		k.Resume(t.Context())
		f = sendOne(t, k, r)
	}
	wantFailure(t, f, sink.Blocked, "topic_authorization_failed", `"orders"`, "grant", "WRITE")
	grant(t, c, kmsg.ACLResourceTypeTopic, "orders", kmsg.ACLOperationWrite, user)
	heals(t, k, r)
}

// A producer id that was refused stays refused in the client for ever.
func TestKafka_HealsAfterARefusedProducerID(t *testing.T) {
	c := cluster(t, kfake.SeedTopics(1, "orders"))
	fault := c.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.InitProducerID}, TopLevel: true, Err: kerr.ClusterAuthorizationFailed, Count: -1})
	k := open(t, c, nil)
	wantFailure(t, sendOne(t, k, newRecord("orders", "k", "v")), sink.Blocked, "cluster_authorization_failed", "IDEMPOTENT_WRITE")
	fault.Remove()
	heals(t, k, newRecord("orders", "k", "v"))
}

// A broker in trouble may refuse with a code that says nothing; the client keeps
// that, too.
func TestKafka_HealsAfterAProducerIDThatCouldNotBeHad(t *testing.T) {
	c := cluster(t, kfake.SeedTopics(1, "orders"))
	fault := c.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.InitProducerID}, TopLevel: true, Err: kerr.UnknownServerError, Count: -1})
	k := open(t, c, nil)
	if err := sendOne(t, k, newRecord("orders", "k", "v")); err == nil {
		t.Fatal("a record was delivered without a producer id")
	}
	fault.Remove()
	heals(t, k, newRecord("orders", "k", "v"))
}

func grant(t testing.TB, c *kfake.Cluster, resource kmsg.ACLResourceType, name string, op kmsg.ACLOperation, user string) {
	t.Helper()
	admin, err := kgo.NewClient(kgo.SeedBrokers(c.ListenAddrs()...), kgo.SASL(plainAdmin))
	if err != nil {
		t.Fatal(err)
	}
	defer admin.Close()
	req := kmsg.NewPtrCreateACLsRequest()
	one := kmsg.NewCreateACLsRequestCreation()
	one.ResourceType, one.ResourceName, one.Operation = resource, name, op
	one.ResourcePatternType, one.Principal, one.Host, one.PermissionType = kmsg.ACLResourcePatternTypeLiteral, "User:"+user, "*", kmsg.ACLPermissionTypeAllow
	req.Creations = append(req.Creations, one)
	resp, err := req.RequestWith(context.Background(), admin)
	if err != nil {
		t.Fatal(err)
	}
	if err := kerr.ErrorForCode(resp.Results[0].ErrorCode); err != nil {
		t.Fatal(err)
	}
}

func TestKafka_DeliversOnceTheBrokersAreBack(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	start := func(port int) (*kfake.Cluster, error) {
		return kfake.NewCluster(kfake.Ports(port), kfake.NumBrokers(1), kfake.DataDir(dir), kfake.SeedTopics(1, "orders"))
	}
	port, err := sandbox.FreePort() // it stays free while nobody listens
	if err != nil {
		t.Fatal(err)
	}
	c, err := start(port)
	if err != nil {
		t.Fatal(err)
	}
	k := open(t, c, nil)
	if f := sendOne(t, k, newRecord("orders", "k", "before")); f != nil {
		t.Fatal(f.Err)
	}
	c.Close()
	outcome := make(chan error, 1)
	k.Send(context.Background(), []record.Record{newRecord("orders", "k", "during")}, func(err error) { outcome <- err })
	for deadline := time.Now().Add(guardTime); k.Reachable() == nil; <-time.After(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("still reachable without a broker")
		}
	}
	if c, err = start(port); err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	select {
	case err := <-outcome:
		if err != nil {
			t.Fatal(err)
		}
	case <-time.After(guardTime):
		t.Fatal("not delivered after the broker came back")
	}
	// An attempt from before may still fail.
	for deadline := time.Now().Add(guardTime); k.Reachable() != nil; <-time.After(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("not reachable: %v", k.Reachable())
		}
		k.Ping(t.Context())
	}
	if got := read(t, c, "orders"); len(got) != 2 {
		t.Errorf("%d records are durable, want 2", len(got))
	}
}

func TestKafka_SaysThatBrokersAreTooOld(t *testing.T) {
	t.Parallel()
	c := cluster(t, kfake.SeedTopics(1, "orders"), kfake.MaxVersions(kversion.V0_10_2()))
	k := open(t, c, nil)
	wantFailure(t, sendOne(t, k, newRecord("orders", "k", "v")), sink.Blocked, "broker_too_old", "2.1")
}
