package kafkatx_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cdc-relay/cdc-relay/advice"
	"github.com/cdc-relay/cdc-relay/fault"
	"github.com/cdc-relay/cdc-relay/router/record"
	"github.com/cdc-relay/cdc-relay/sink"
	"github.com/cdc-relay/cdc-relay/sink/auth"
	"github.com/cdc-relay/cdc-relay/sink/kafkatx"
	"github.com/cdc-relay/cdc-relay/sink/producer"
	"github.com/cdc-relay/cdc-relay/sink/topics"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/pkg/kversion"
)

// transactionFault is something that goes wrong while transactions are written.
type transactionFault struct {
	name string
	old  bool // of brokers before transaction.version=2 alone
	make func(c *kfake.Cluster)
}

func answers(key kmsg.Key, err *kerr.Error, top bool, topic string, count int) func(*kfake.Cluster) {
	return func(c *kfake.Cluster) {
		c.Fault(kfake.Fault{Keys: []kmsg.Key{key}, Err: err, TopLevel: top, Topic: topic, Count: count})
	}
}

// cuts ends the connection of the next request of a kind, before it counts.
func cuts(key kmsg.Key) func(*kfake.Cluster) {
	return func(c *kfake.Cluster) {
		c.ControlKey(int16(key), func(kmsg.Request) (kmsg.Response, error, bool) {
			return nil, errors.New("connection lost"), true
		})
	}
}

var transactionFaults = []transactionFault{
	{"produce: no leader", false, answers(kmsg.Produce, kerr.NotLeaderForPartition, false, "", 2)},
	{"produce: too few replicas", false, answers(kmsg.Produce, kerr.NotEnoughReplicas, false, "", 2)},
	{"produce: too few replicas, and appended", false, answers(kmsg.Produce, kerr.NotEnoughReplicasAfterAppend, false, "", 1)},
	{"produce: late, and appended", false, answers(kmsg.Produce, kerr.RequestTimedOut, false, "", 1)},
	{"produce: no meaning", false, answers(kmsg.Produce, kerr.UnknownServerError, false, "orders", 1)},
	{"produce: disk", false, answers(kmsg.Produce, kerr.KafkaStorageError, false, "", 1)},
	{"produce: the transaction has to be aborted", false, answers(kmsg.Produce, kerr.TransactionAbortable, false, "orders", 1)},
	{"produce: still ending the last one", false, answers(kmsg.Produce, kerr.ConcurrentTransactions, false, "", 2)},
	{"produce: out of order", false, answers(kmsg.Produce, kerr.OutOfOrderSequenceNumber, false, "orders", 1)},
	{"produce: unknown producer", false, answers(kmsg.Produce, kerr.UnknownProducerID, false, "orders", 1)},
	{"produce: connection lost", false, cuts(kmsg.Produce)},
	{"checkpoint: no meaning", false, answers(kmsg.Produce, kerr.UnknownServerError, false, checkpoints, 1)},
	{"checkpoint: refused", false, answers(kmsg.Produce, kerr.PolicyViolation, false, checkpoints, 1)},
	{"add partitions: still ending the last one", true, answers(kmsg.AddPartitionsToTxn, kerr.ConcurrentTransactions, false, "", 2)},
	{"add partitions: no meaning", true, answers(kmsg.AddPartitionsToTxn, kerr.UnknownServerError, false, "", 1)},
	{"add partitions: not the coordinator", true, answers(kmsg.AddPartitionsToTxn, kerr.NotCoordinator, false, "", 1)},
	{"add partitions: connection lost", true, cuts(kmsg.AddPartitionsToTxn)},
	{"end: no meaning", false, answers(kmsg.EndTxn, kerr.UnknownServerError, true, "", 1)},
	{"end: not the coordinator", false, answers(kmsg.EndTxn, kerr.NotCoordinator, true, "", 1)},
	{"end: coordinator away", false, answers(kmsg.EndTxn, kerr.CoordinatorNotAvailable, true, "", 1)},
	{"end: still ending", false, answers(kmsg.EndTxn, kerr.ConcurrentTransactions, true, "", 2)},
	{"end: has to be aborted", false, answers(kmsg.EndTxn, kerr.TransactionAbortable, true, "", 1)},
	{"end: invalid state", false, answers(kmsg.EndTxn, kerr.InvalidTxnState, true, "", 1)},
	{"end: connection lost", false, cuts(kmsg.EndTxn)},
	{"open: still ending", false, answers(kmsg.InitProducerID, kerr.ConcurrentTransactions, true, "", 2)},
	{"open: no meaning", false, answers(kmsg.InitProducerID, kerr.UnknownServerError, true, "", 1)},
	{"open: connection lost", false, cuts(kmsg.InitProducerID)},
	{"coordinator moves", false, func(c *kfake.Cluster) { c.RehashCoordinators() }},
	{"leaders move", false, func(c *kfake.Cluster) { c.ShufflePartitionLeaders() }},
}

// A relay's part played by a loop: whatever fails, the next try goes on from the
// checkpoint. Consumers of committed records see every record once, in order.
func TestTransactional_WhateverFailsIsCommittedOnce(t *testing.T) {
	t.Parallel()
	for version, opts := range map[string][]kfake.Opt{"transactions of today": nil, "before Kafka 4": {kfake.MaxVersions(kversion.V3_8_0())}} {
		for _, fault := range transactionFaults {
			if fault.old && opts == nil {
				continue
			}
			t.Run(version+"/"+fault.name, func(t *testing.T) {
				t.Parallel()
				c := cluster(t, append(opts, kfake.NumBrokers(2), kfake.SeedTopics(2, "orders"))...)
				if err := c.CreateTopic(checkpoints, 1, map[string]string{"cleanup.policy": "compact"}); err != nil {
					t.Fatal(err)
				}
				x := transactional(t, c, func(cfg *kafkatx.Config) { cfg.Interval = time.Millisecond })
				tries := onceWith(t, c, x, fault)
				var seen []int
				for _, value := range committed(t, c, "orders") {
					n, err := strconv.Atoi(value)
					if err != nil {
						t.Fatal(err)
					}
					seen = append(seen, n)
				}
				if want := upTo(transactions * 3); !slices.Equal(seen, want) {
					t.Errorf("committed %v after %d tries, want each of %d once", seen, tries, len(want))
				}
			})
		}
	}
}

const transactions = 6

func upTo(n int) []int {
	all := make([]int, n)
	for i := range all {
		all[i] = i
	}
	return all
}

// onceWith writes all transactions, with the fault about two thirds of the way in.
func onceWith(t *testing.T, c *kfake.Cluster, x *exactly, fault transactionFault) (tries int) {
	t.Helper()
	made := false
	for deadline := time.Now().Add(4 * guardTime); time.Now().Before(deadline); {
		tries++
		value, err := x.tryOpen()
		if err != nil {
			t.Logf("try %d: %v", tries, err)
			continue
		}
		next := 0
		if value != "" {
			if next, err = strconv.Atoi(value); err != nil {
				t.Fatal(err)
			}
		}
		failed := false
		for ; next < transactions && !failed; next++ {
			if next == transactions/2 && !made {
				made = true
				if fault.name[:4] == "open" {
					fault.make(c)
					break
				}
				fault.make(c)
			}
			failed = awaitDone(t, sendKeyed(x, next)) != nil
		}
		if next == transactions && !failed {
			return tries
		}
	}
	t.Fatalf("not all was committed after %d tries", tries)
	return tries
}

// sendKeyed sends the three records of a transaction, all to one partition.
func sendKeyed(x *exactly, n int) chan error {
	done := make(chan error, 1)
	var records []record.Record
	for i := range 3 {
		r := newRecord("orders", "k", strconv.Itoa(3*n+i))
		records = append(records, r)
	}
	x.Send(context.Background(), records, func(err error) { done <- err })
	x.setPosition(n+1, true, true)
	return done
}

// Each right that is missing is named, by the run and by the check.
func TestTransactional_NamesTheRightThatIsMissing(t *testing.T) {
	t.Parallel()
	const user = "relay"
	topic := func(name string, op kmsg.ACLOperation) kfake.ACL {
		return kfake.ACL{Principal: "User:" + user, Resource: kmsg.ACLResourceTypeTopic, Name: name, Pattern: kmsg.ACLResourcePatternTypeLiteral, Operation: op, Allow: true}
	}
	id := func(op kmsg.ACLOperation) kfake.ACL {
		return kfake.ACL{Principal: "User:" + user, Resource: kmsg.ACLResourceTypeTransactionalId, Name: "cdc-relay-", Pattern: kmsg.ACLResourcePatternTypePrefixed, Operation: op, Allow: true}
	}
	write, read, describe := kmsg.ACLOperationWrite, kmsg.ACLOperationRead, kmsg.ACLOperationDescribe
	all := []kfake.ACL{
		topic("orders", describe), topic("orders", write), topic(checkpoints, describe), topic(checkpoints, write), topic(checkpoints, read), id(write), id(describe),
	}
	for name, c := range map[string]struct {
		without  []kfake.ACL
		reason   string // of the run; empty: it works
		mentions []string
		check    string // that fails; empty: none
	}{
		"nothing":                   {},
		"the transactional id":      {[]kfake.ACL{id(write), id(describe)}, "transactional_id_authorization_failed", []string{"WRITE and DESCRIBE", `"cdc-relay-1-slot"`, "--transactional-id cdc-relay-"}, ""},
		"writing checkpoints":       {[]kfake.ACL{topic(checkpoints, write)}, "topic_authorization_failed", []string{checkpoints, "READ, WRITE and DESCRIBE"}, "checkpoint.acl"},
		"reading checkpoints":       {[]kfake.ACL{topic(checkpoints, read)}, "topic_authorization_failed", []string{checkpoints, "READ, WRITE and DESCRIBE"}, "checkpoint.acl"},
		"anything with checkpoints": {[]kfake.ACL{topic(checkpoints, write), topic(checkpoints, read), topic(checkpoints, describe)}, "topic_authorization_failed", []string{checkpoints, "READ, WRITE and DESCRIBE"}, "checkpoint.topic"},
		"writing records":           {[]kfake.ACL{topic("orders", write)}, "topic_authorization_failed", []string{`"orders"`, "WRITE"}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			given := slices.DeleteFunc(slices.Clone(all), func(a kfake.ACL) bool { return slices.Contains(c.without, a) })
			brokers := cluster(t, kfake.SeedTopics(1, "orders"), kfake.EnableSASL(), kfake.EnableACLs(),
				kfake.Superuser("PLAIN", "admin", "a"), kfake.User("SCRAM-SHA-512", user, "p", given...))
			if err := brokers.CreateTopic(checkpoints, 1, map[string]string{"cleanup.policy": "compact"}); err != nil {
				t.Fatal(err)
			}
			var cfg producer.Config
			x := transactional(t, brokers, func(to *kafkatx.Config) {
				to.SASL = auth.SASL{Mechanism: auth.ScramSHA512, Username: user, Password: secret("p")}
				cfg = to.Config
			})
			ctx, cancel := context.WithTimeout(context.Background(), guardTime)
			defer cancel()
			err := x.Ready(ctx)
			if err == nil {
				_, err = x.tryOpen()
			}
			if err == nil {
				if sent := awaitDone(t, x.send(1, true, "v")); sent != nil {
					f := failures(t, sent)[0]
					err = &sink.Error{Class: f.Class, Reason: f.Reason, Err: f.Err}
				}
			}
			own, _ := errors.AsType[*sink.Error](err)
			if (c.reason == "") != (err == nil) || own != nil && (own.Class != sink.Blocked || own.Reason != c.reason || !mentions(err.Error(), c.mentions)) {
				t.Errorf("the run says %#v: %v", own, err)
			}
			list := topics.CheckCheckpoints(ctx, cfg.Connection, checkpoints, "cdc-relay-")
			for _, f := range list {
				if (f.Level == advice.Fail) != (c.check != "" && f.Check == c.check) {
					t.Errorf("the check says %+v", f)
				}
			}
			if c.check != "" {
				wantFinding(t, list, c.check, advice.Fail, checkpoints)
			}
		})
	}
}

func mentions(text string, all []string) bool {
	for _, each := range all {
		if !strings.Contains(text, each) {
			return false
		}
	}
	return true
}

// An open transaction of somebody else in the topic hides what lies after it from
// readers of committed records: Open says so instead of taking an older position.
func TestTransactional_WaitsForAnotherSlotsOpenTransaction(t *testing.T) {
	t.Parallel()
	c := eosCluster(t)
	x := transactional(t, c, nil)
	x.open()
	if err := awaitDone(t, x.send(1, true, "a")); err != nil {
		t.Fatal(err)
	}
	other, err := kgo.NewClient(kgo.SeedBrokers(c.ListenAddrs()...), kgo.TransactionalID("other"), kgo.TransactionTimeout(10*time.Minute))
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	if err := other.BeginTransaction(); err != nil {
		t.Fatal(err)
	}
	if err := other.ProduceSync(t.Context(), &kgo.Record{Topic: checkpoints, Key: []byte("1/other"), Value: []byte("9")}).FirstErr(); err != nil {
		t.Fatal(err)
	}
	if err := awaitDone(t, x.send(2, true, "b")); err != nil {
		t.Fatal(err)
	}
	for patience := time.Second; ; patience *= 2 { // it may end before the topic is read
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		value, err := x.Open(ctx, x.holder)
		cancel()
		if err == nil {
			t.Fatalf("opened at %q, while what is committed cannot be read", value)
		}
		own, _ := errors.AsType[*sink.Error](err)
		if own != nil && own.Reason == fault.ReasonCheckpointHidden && own.Class == sink.Retry && strings.Contains(err.Error(), "open transaction") {
			break
		}
		if patience > guardTime {
			t.Fatalf("Open says %v", err)
		}
	}
	if err := other.EndTransaction(t.Context(), kgo.TryAbort); err != nil {
		t.Fatal(err)
	}
	if got := x.open(); got != "2" {
		t.Errorf("checkpoint %q, want 2", got)
	}
	if got := fmt.Sprint(committed(t, c, "orders")); got != "[a b]" {
		t.Errorf("delivered %s", got)
	}
}
