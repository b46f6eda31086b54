package topics_test

import (
	"context"
	"crypto/tls"
	"fmt"
	"strings"
	"testing"

	"github.com/cdc-relay/cdc-relay/advice"
	"github.com/cdc-relay/cdc-relay/sandbox"
	"github.com/cdc-relay/cdc-relay/sink/auth"
	"github.com/cdc-relay/cdc-relay/sink/broker"
	"github.com/cdc-relay/cdc-relay/sink/topics"
	"github.com/cdc-relay/cdc-relay/test/harness"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// Parallel tests have brokers of their own, and mostly wait.
func TestMain(m *testing.M) {
	harness.Parallel("4")
	harness.Main(m)
}

func findings(list []advice.Finding) string {
	var b strings.Builder
	for _, f := range list {
		fmt.Fprintf(&b, "%s\t%s\t%s; %s\n", f.Level, f.Check, f.Seen, f.Advice)
	}
	return b.String()
}

// wantFinding looks for one finding whose text has all of texts.
func wantFinding(t *testing.T, list []advice.Finding, check string, level advice.Level, texts ...string) {
	t.Helper()
	for _, f := range list {
		if f.Check != check || f.Level != level {
			continue
		}
		all := true
		for _, text := range texts {
			all = all && strings.Contains(f.Seen+"; "+f.Advice, text)
		}
		if all {
			return
		}
	}
	t.Errorf("no %s of %s has %q:\n%s", level, check, texts, findings(list))
}

func expecting(names ...string) topics.Expected {
	var e topics.Expected
	for _, topic := range names {
		e.Topic(topic)
	}
	return e
}

// makeTopics makes topics with the settings given as pairs.
func makeTopics(t *testing.T, addrs []string, replicas int16, settings map[string]string, names ...string) {
	t.Helper()
	client, err := kgo.NewClient(kgo.SeedBrokers(addrs...))
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	configs := make(map[string]*string)
	for name, value := range settings {
		configs[name] = kadm.StringPtr(value)
	}
	made, err := kadm.NewClient(client).CreateTopics(t.Context(), 2, replicas, configs, names...)
	if err == nil {
		err = made.Error()
	}
	if err != nil {
		t.Fatal(err)
	}
}

func TestCheck_FindsNothingOnAHealthyCluster(t *testing.T) {
	c := cluster(t, kfake.NumBrokers(3))
	makeTopics(t, c.ListenAddrs(), 3, map[string]string{"min.insync.replicas": "2"}, "orders", "payments")
	expected := expecting("payments")
	r := newRecord("orders", "k", "v")
	expected.Record(&r)
	expected.Payload(1000, "payments")
	list := topics.Check(t.Context(), topics.CheckConfig{Connection: broker.Connection{Brokers: c.ListenAddrs()}}, expected)
	for _, f := range list {
		if f.Level != advice.OK {
			t.Errorf("on a healthy cluster: %+v", f)
		}
	}
	wantFinding(t, list, "kafka.connection", advice.OK, "without authentication")
	wantFinding(t, list, "kafka.brokers", advice.OK, "3 brokers")
	wantFinding(t, list, "kafka.idempotence", advice.OK)
	wantFinding(t, list, "kafka.max_message_bytes", advice.OK, "1000 bytes")
	for _, topic := range []string{"orders", "payments"} {
		wantFinding(t, list, "topic", advice.OK, topic, "2 partitions with 3 replicas")
		wantFinding(t, list, "topic.acl", advice.OK, topic, "may write to it")
		wantFinding(t, list, "topic.replicas", advice.OK, topic, "2 of 3")
		wantFinding(t, list, "topic.max_message_bytes", advice.OK, topic)
	}
}

func TestCheck_LeavesNothingBehind(t *testing.T) {
	brokers := harness.Kafka(t)
	topic := harness.Unique(t, "check")
	brokers.CreateTopic(t, topic, 1)
	missing := harness.Unique(t, "missing")
	cfg := topics.CheckConfig{Connection: broker.Connection{Brokers: brokers.Addrs}, CreateTopics: topics.Creation{Enabled: true, Partitions: 1}}
	list := topics.Check(t.Context(), cfg, expecting(topic, missing))
	wantFinding(t, list, "topic", advice.OK, missing, "will be made")
	wantFinding(t, list, "topic.replicas", advice.Warn, topic, "one replica")
	admin := brokers.Admin(t)
	found, err := admin.ListTopics(t.Context(), missing)
	if err != nil || found.Has(missing) {
		t.Errorf("the check made topic %s (%v)", missing, err)
	}
	ends, err := admin.ListEndOffsets(t.Context(), topic)
	if err != nil {
		t.Fatal(err)
	}
	ends.Each(func(o kadm.ListedOffset) {
		if o.Offset != 0 {
			t.Errorf("the check wrote to %s", topic)
		}
	})
}

func TestCheck_SaysWhyItCannotConnect(t *testing.T) {
	t.Parallel()
	list := topics.Check(t.Context(), topics.CheckConfig{Connection: broker.Connection{Brokers: []string{"127.0.0.1:1"}}}, topics.Expected{})
	wantFinding(t, list, "kafka.connection", advice.Fail, "127.0.0.1:1", "kafka.brokers")
	wantFinding(t, topics.Check(t.Context(), topics.CheckConfig{}, topics.Expected{}), "kafka.connection", advice.Fail, "no brokers")

	c := cluster(t, kfake.EnableSASL(), kfake.User("PLAIN", "relay", "right"))
	cfg := topics.CheckConfig{Connection: broker.Connection{Brokers: c.ListenAddrs(), SASL: auth.SASL{
		Mechanism: auth.Plain, Username: "relay", Password: func(context.Context) (string, error) { return "wrong-and-secret", nil },
	}}}
	list = topics.Check(t.Context(), cfg, topics.Expected{})
	wantFinding(t, list, "kafka.authentication", advice.Fail, "kafka.sasl")
	if strings.Contains(findings(list), "wrong-and-secret") {
		t.Error("the password is in the findings")
	}

	cfg.SASL = auth.SASL{}
	wantFinding(t, topics.Check(t.Context(), cfg, topics.Expected{}), "kafka.authentication", advice.Fail, "set kafka.sasl or kafka.tls")

	plain := cluster(t)
	cfg = topics.CheckConfig{Connection: broker.Connection{Brokers: plain.ListenAddrs(), TLS: func() (*tls.Config, error) { return &tls.Config{MinVersion: tls.VersionTLS12}, nil }}}
	wantFinding(t, topics.Check(t.Context(), cfg, topics.Expected{}), "kafka.authentication", advice.Fail, "TLS")
}

func TestCheck_BrokersAdvertiseWhatNobodyCanReach(t *testing.T) {
	t.Parallel()
	c := cluster(t, kfake.NumBrokers(2))
	seeds := c.ListenAddrs()
	c.ControlKey(int16(kmsg.Metadata), func(req kmsg.Request) (kmsg.Response, error, bool) {
		c.KeepControl()
		response := req.ResponseKind().(*kmsg.MetadataResponse)
		response.ClusterID, response.ControllerID = kmsg.StringPtr("x"), 0
		for i, addr := range seeds {
			broker := kmsg.NewMetadataResponseBroker()
			broker.NodeID, broker.Host = int32(i), "127.0.0.1"
			if i == 0 {
				_, port, _ := strings.Cut(addr, ":")
				fmt.Sscan(port, &broker.Port)
			} else {
				broker.Port = 1
			}
			response.Brokers = append(response.Brokers, broker)
		}
		return response, nil, true
	})
	list := topics.Check(t.Context(), topics.CheckConfig{Connection: broker.Connection{Brokers: seeds}}, topics.Expected{})
	wantFinding(t, list, "kafka.brokers", advice.Fail, "broker 1", "127.0.0.1:1", "advertised.listeners")
}

func TestCheck_MissingTopics(t *testing.T) {
	c := cluster(t)
	cfg := topics.CheckConfig{Connection: broker.Connection{Brokers: c.ListenAddrs()}}
	wantFinding(t, topics.Check(t.Context(), cfg, expecting("orders")), "topic", advice.Fail, "orders", "kafka-topics.sh --bootstrap-server "+c.ListenAddrs()[0]+" --create --topic orders", "create_topics.enabled")
	cfg.CreateTopics = topics.Creation{Enabled: true, Partitions: 1, ReplicationFactor: 1}
	wantFinding(t, topics.Check(t.Context(), cfg, expecting("orders")), "topic", advice.OK, "will be made")
	if c.TopicInfo("orders") != nil {
		t.Error("the check made the topic")
	}
	cfg.CreateTopics.ReplicationFactor = 7
	wantFinding(t, topics.Check(t.Context(), cfg, expecting("orders")), "topic", advice.Fail, "would not make it", "INVALID_REPLICATION_FACTOR")
}

// The relay makes none of its own unless it may make all.
func TestCheck_MissingDeadLetterTopic(t *testing.T) {
	c := cluster(t)
	var expected topics.Expected
	expected.DeadLetters("letters", false)
	cfg := topics.CheckConfig{Connection: broker.Connection{Brokers: c.ListenAddrs()}}
	wantFinding(t, topics.Check(t.Context(), cfg, expected), "topic", advice.Fail, "topic letters, for dead letters, does not exist", "cdc-relay setup")
	cfg.CreateTopics = topics.Creation{Enabled: true, Partitions: 1, ReplicationFactor: 1}
	wantFinding(t, topics.Check(t.Context(), cfg, expected), "topic", advice.OK, "letters", "will be made")
}

// A compacted topic fails under one name, and is not good under another.
func TestCheck_CompactedDeadLetterTopic(t *testing.T) {
	c := cluster(t)
	addrs := c.ListenAddrs()
	for name, policy := range map[string]string{"letters": "compact", "both": "compact,delete"} {
		makeTopics(t, addrs, 1, map[string]string{"cleanup.policy": policy}, name)
		var expected topics.Expected
		expected.DeadLetters(name, false)
		list := topics.Check(t.Context(), topics.CheckConfig{Connection: broker.Connection{Brokers: addrs}}, expected)
		wantFinding(t, list, "topic.compaction", advice.Fail, "cleanup.policy="+policy, "of several dead letters with one key only the last would stay", "cleanup.policy=delete")
		for _, f := range list {
			if (f.Check == "topic.compaction" || f.Check == "topic.retention") && f.Level != advice.Fail {
				t.Errorf("%+v", f)
			}
		}
	}
}

func TestCheck_ADeadAddressBesideALiveOne(t *testing.T) {
	t.Parallel()
	c := cluster(t, kfake.NumBrokers(2))
	brokers := append(c.ListenAddrs(), "127.0.0.1:1")
	list := topics.Check(t.Context(), topics.CheckConfig{Connection: broker.Connection{Brokers: brokers}}, topics.Expected{})
	wantFinding(t, list, "kafka.connection", advice.OK)
	wantFinding(t, list, "kafka.brokers", advice.Warn, "nobody answers at 127.0.0.1:1", "kafka.brokers")
	wantFinding(t, list, "kafka.brokers", advice.OK, "2 brokers")
	for _, f := range list {
		if f.Level == advice.Warn && !strings.Contains(f.Seen, "127.0.0.1:1:") {
			t.Errorf("%+v", f)
		}
	}
}

func TestCheck_Rights(t *testing.T) {
	acl := func(topic string, operation kmsg.ACLOperation) kfake.ACL {
		return kfake.ACL{Resource: kmsg.ACLResourceTypeTopic, Name: topic, Pattern: kmsg.ACLResourcePatternTypeLiteral, Operation: operation, Allow: true}
	}
	user := func(name string, acls ...kfake.ACL) kfake.Opt { return kfake.User("PLAIN", name, "x", acls...) }
	c := cluster(t, kfake.EnableSASL(), kfake.EnableACLs(), kfake.SeedTopics(1, "orders", "hidden"),
		user("reader", acl("orders", kmsg.ACLOperationDescribe), acl("orders", kmsg.ACLOperationDescribeConfigs)),
		user("writer", acl("orders", kmsg.ACLOperationDescribe), acl("orders", kmsg.ACLOperationWrite), acl("new", kmsg.ACLOperationDescribe)))
	as := func(name string, names ...string) []advice.Finding {
		return topics.Check(t.Context(), topics.CheckConfig{
			Connection: broker.Connection{Brokers: c.ListenAddrs(),
				SASL: auth.SASL{Mechanism: auth.Plain, Username: name, Password: func(context.Context) (string, error) { return "x", nil }}},
			CreateTopics: topics.Creation{Enabled: true, Partitions: 1, ReplicationFactor: 1},
		}, expecting(names...))
	}
	list := as("reader", "orders", "hidden")
	wantFinding(t, list, "kafka.connection", advice.OK, "authenticated with plain")
	wantFinding(t, list, "topic.acl", advice.Fail, "may not write", "--operation Write", "--topic orders")
	wantFinding(t, list, "topic.acl", advice.Fail, "hidden", "--operation Describe")
	wantFinding(t, list, "kafka.idempotence", advice.Fail, "CLUSTER_AUTHORIZATION_FAILED", "IdempotentWrite")
	list = as("writer", "orders")
	wantFinding(t, list, "topic.acl", advice.OK, "may write")
	wantFinding(t, list, "topic.config", advice.Warn, "orders", "DescribeConfigs")
	wantFinding(t, list, "kafka.idempotence", advice.OK)

	wantFinding(t, as("writer", "new"), "topic.acl", advice.Fail, "new", "CREATE")
}

// The same on a real broker, where an ACL for somebody else shuts us out.
func TestCheck_RightsOfARealBroker(t *testing.T) {
	brokers := harness.Kafka(t)
	if brokers.Apache == nil {
		harness.NotHere(t, "the users of the broker are not known")
	}
	if brokers.Apache.SASLAddr() == "" { // it runs in a container
		brokers = harness.OwnKafka(t, nil)
	}
	topic := harness.Unique(t, "acl")
	brokers.CreateTopic(t, topic, 1)
	cfg := topics.CheckConfig{Connection: broker.Connection{Brokers: []string{brokers.Apache.SASLAddr()}, SASL: auth.SASL{
		Mechanism: auth.Plain, Username: sandbox.ApacheUser, Password: func(context.Context) (string, error) { return sandbox.ApachePassword, nil },
	}}}
	wantFinding(t, topics.Check(t.Context(), cfg, expecting(topic)), "topic.acl", advice.OK, "may write to it")

	builder := kadm.NewACLs().Topics(topic).ResourcePatternType(kadm.ACLPatternLiteral).
		Operations(kadm.OpDescribe).Allow("User:" + sandbox.ApacheUser)
	if _, err := brokers.Admin(t).CreateACLs(t.Context(), builder); err != nil {
		t.Fatal(err)
	}
	guard := t.Context()
	for guard.Err() == nil { // an ACL takes a moment to reach the authorizer
		list := topics.Check(t.Context(), cfg, expecting(topic))
		if strings.Contains(findings(list), "may not write") {
			wantFinding(t, list, "topic.acl", advice.Fail, "--operation Write")
			return
		}
	}
}

func TestCheck_ReplicasAndLimits(t *testing.T) {
	c := cluster(t, kfake.NumBrokers(3))
	addrs := c.ListenAddrs()
	makeTopics(t, addrs, 1, nil, "single")
	makeTopics(t, addrs, 3, map[string]string{"min.insync.replicas": "1"}, "one")
	makeTopics(t, addrs, 3, map[string]string{"min.insync.replicas": "3"}, "all")
	makeTopics(t, addrs, 2, map[string]string{"min.insync.replicas": "3"}, "never")
	makeTopics(t, addrs, 3, map[string]string{"min.insync.replicas": "2", "unclean.leader.election.enable": "true"}, "unclean")
	makeTopics(t, addrs, 3, map[string]string{"min.insync.replicas": "2", "max.message.bytes": "1000"}, "small")
	makeTopics(t, addrs, 3, map[string]string{"min.insync.replicas": "2", "cleanup.policy": "compact"}, "compact", "keyed")

	expected := expecting("single", "one", "all", "never", "unclean", "small", "keyed")
	unkeyed := newRecord("compact", "", "v")
	unkeyed.Key = nil
	expected.Record(&unkeyed)
	list := topics.Check(t.Context(), topics.CheckConfig{Connection: broker.Connection{Brokers: addrs}}, expected)
	wantFinding(t, list, "topic.replicas", advice.Warn, "topic single", "one replica")
	wantFinding(t, list, "topic.replicas", advice.Warn, "topic one:", "min.insync.replicas is 1")
	wantFinding(t, list, "topic.replicas", advice.Warn, "topic all:", "3 of 3")
	wantFinding(t, list, "topic.replicas", advice.Fail, "topic never:", "3 with 2 replicas")
	wantFinding(t, list, "topic.replicas", advice.Warn, "topic unclean:", "unclean.leader.election.enable")
	wantFinding(t, list, "topic.max_message_bytes", advice.Warn, "topic small:", "kafka.max_message_bytes is 1048576", "takes 1000")
	wantFinding(t, list, "topic.compaction", advice.Fail, "topic compact", "columns.key")
	wantFinding(t, list, "topic.compaction", advice.OK, "topic keyed")
	expected.Rejected("goes elsewhere", advice.Warn)
	list = topics.Check(t.Context(), topics.CheckConfig{Connection: broker.Connection{Brokers: addrs}}, expected)
	wantFinding(t, list, "topic.compaction", advice.Warn, "topic compact", "such a row goes elsewhere")

	expected = expecting("small")
	large := newRecord("small", "k", strings.Repeat("x", 2000))
	expected.Record(&large)
	list = topics.Check(t.Context(), topics.CheckConfig{Connection: broker.Connection{Brokers: addrs}, MaxMessageBytes: 1024}, expected)
	wantFinding(t, list, "kafka.max_message_bytes", advice.Fail, "newest rows", "raise kafka.max_message_bytes")
	expected = expecting("small")
	expected.Payload(1010)
	list = topics.Check(t.Context(), topics.CheckConfig{Connection: broker.Connection{Brokers: addrs}, MaxMessageBytes: 1 << 20}, expected)
	wantFinding(t, list, "kafka.max_message_bytes", advice.OK, "1010 bytes")
}

// What certainly does not fit blocks the relay; what merely may not is a warning.
func TestCheck_RecordsThatTheTopicDoesNotTake(t *testing.T) {
	c := cluster(t, kfake.NumBrokers(3))
	addrs := c.ListenAddrs()
	makeTopics(t, addrs, 3, map[string]string{"min.insync.replicas": "2", "max.message.bytes": "2000"}, "small", "other")
	check := func(level advice.Level, compression string, expected topics.Expected, texts ...string) {
		t.Helper()
		list := topics.Check(t.Context(), topics.CheckConfig{Connection: broker.Connection{Brokers: addrs}, Compression: compression}, expected)
		wantFinding(t, list, "topic.max_message_bytes", level, append(texts, "topic small", "2000")...)
	}

	row := newRecord("small", "k", strings.Repeat("x", 2500))
	var newest topics.Expected
	newest.Record(&row)
	check(advice.Fail, "none", newest, "newest rows", "25")

	var old topics.Expected
	small := newRecord("small", "k", "v")
	old.Record(&small)
	old.Payload(3000, "small")
	check(advice.Fail, "none", old, "largest payload has 3000 bytes", "about 30")
	check(advice.Fail, "", old, "3000", "before compression")

	// Alone it would fit, but a record is more than its payload.
	var tight topics.Expected
	tight.Payload(1990, "small")
	check(advice.Fail, "none", tight, "1990")

	var either topics.Expected
	either.Payload(3000, "small", "other")
	check(advice.Warn, "none", either, "may go there", "3000")

	var elsewhere topics.Expected
	elsewhere.Topic("small")
	elsewhere.Payload(3000, "other")
	check(advice.Warn, "none", elsewhere, "kafka.max_message_bytes is 1048576")

	list := topics.Check(t.Context(), topics.CheckConfig{Connection: broker.Connection{Brokers: addrs}, MaxMessageBytes: 3010}, old)
	wantFinding(t, list, "kafka.max_message_bytes", advice.Fail, "3000 bytes", "with its key", "is 3010", "such a row blocks the relay")

	// Rows that are set aside are no reason to page anybody.
	old.Rejected("goes elsewhere", advice.Warn)
	check(advice.Warn, "none", old, "largest payload has 3000 bytes", "such a row goes elsewhere")
	elsewhere.Rejected("goes elsewhere", advice.Warn)
	check(advice.Warn, "none", elsewhere, "a row in between goes elsewhere")
	list = topics.Check(t.Context(), topics.CheckConfig{Connection: broker.Connection{Brokers: addrs}, MaxMessageBytes: 3010}, old)
	wantFinding(t, list, "kafka.max_message_bytes", advice.Warn, "3000 bytes", "such a row goes elsewhere")
}

func TestCheck_AnswersThatStandInTheWay(t *testing.T) {
	c := cluster(t, kfake.SeedTopics(1, "leaderless", "odd"))
	c.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Metadata}, Topic: "leaderless", Partitions: []int32{0}, Err: kerr.LeaderNotAvailable, Count: -1})
	c.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Metadata}, Topic: "odd", Err: kerr.InvalidTopicException, Count: -1})
	c.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.InitProducerID}, Err: kerr.UnsupportedVersion, Count: -1})
	list := topics.Check(t.Context(), topics.CheckConfig{Connection: broker.Connection{Brokers: c.ListenAddrs()}}, expecting("leaderless", "odd"))
	wantFinding(t, list, "topic", advice.Fail, "leaderless", "LEADER_NOT_AVAILABLE")
	wantFinding(t, list, "topic", advice.Fail, "topic odd", "INVALID_TOPIC_EXCEPTION")
	wantFinding(t, list, "kafka.idempotence", advice.Fail, "UNSUPPORTED_VERSION")
}

func TestCheck_TooFewReplicasInSync(t *testing.T) {
	c := cluster(t, kfake.NumBrokers(3))
	makeTopics(t, c.ListenAddrs(), 3, map[string]string{"min.insync.replicas": "2"}, "orders")
	c.ControlKey(int16(kmsg.Metadata), func(r kmsg.Request) (kmsg.Response, error, bool) {
		c.KeepControl()
		request := r.(*kmsg.MetadataRequest)
		if !request.IncludeTopicAuthorizedOperations {
			return nil, nil, false
		}
		response := request.ResponseKind().(*kmsg.MetadataResponse)
		topic := kmsg.NewMetadataResponseTopic()
		topic.Topic = kmsg.StringPtr("orders")
		partition := kmsg.NewMetadataResponseTopicPartition()
		partition.Replicas, partition.ISR = []int32{0, 1, 2}, []int32{1}
		topic.Partitions = append(topic.Partitions, partition)
		response.Topics = append(response.Topics, topic)
		return response, nil, true
	})
	list := topics.Check(t.Context(), topics.CheckConfig{Connection: broker.Connection{Brokers: c.ListenAddrs()}}, expecting("orders"))
	wantFinding(t, list, "topic.replicas", advice.Fail, "1 replica in sync")
	wantFinding(t, list, "topic.acl", advice.OK, "do not list")
}
