package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/cdc-relay/cdc-relay/sandbox"
)

// keepsTopics are brokers of which no topic may be deleted: once one was, and the
// controller has changed hands, the new controller refuses a broker that was killed
// for ever ("existed in isrMembers, but not in the topics map"; seen with Apache
// Kafka 4.3.1), and nothing that comes later in the run could be judged.
const keepsTopics = "apache3"

var brokerKinds = []*kind{
	{name: "broker_kill", about: "kill -9 of a broker, started again with its records", takes: onKafka, brokers: "apache", most: sec, run: func(ctx context.Context, w *world, d *Done) error {
		k, i := someBroker(w, d)
		if err := k.Kill(i); err != nil {
			return err
		}
		d.hold(ctx)
		return k.Start(context.WithoutCancel(ctx), i)
	}},
	{name: "broker_restart", about: "a broker stops in good order and comes back", takes: onKafka, brokers: "apache", most: sec, run: func(ctx context.Context, w *world, d *Done) error {
		k, i := someBroker(w, d)
		if err := k.Stop(i); err != nil {
			return err
		}
		d.hold(ctx)
		return k.Start(context.WithoutCancel(ctx), i)
	}},
	{name: "broker_freeze", about: "SIGSTOP of a broker", takes: onKafka, brokers: "apache", least: sec, most: 5 * sec, run: func(ctx context.Context, w *world, d *Done) error {
		k, i := someBroker(w, d)
		if err := k.Pause(i); err != nil {
			return err
		}
		d.hold(ctx)
		return k.Continue(i)
	}},
	{name: "broker_hold", about: "brokers take produce requests and neither store nor answer them", takes: onKafka, brokers: "kfake", least: 300 * ms, most: 3 * sec, run: func(ctx context.Context, w *world, d *Done) error {
		release := fake(w).HoldProduce()
		defer release()
		d.hold(ctx)
		return nil
	}},
	{name: "leader_move", about: "partitions change their leaders", takes: onKafka, brokers: "kfake", run: func(ctx context.Context, w *world, d *Done) error {
		for range 3 {
			fake(w).ShuffleLeaders()
			rest(ctx, 100*ms)
		}
		return nil
	}},
	{name: "leader_move_real", about: "partitions change their leaders by reassignment and election", takes: onKafka, brokers: "apache3", run: moveLeaders},
	{name: "coordinator_move", about: "coordinators move", takes: onKafka, brokers: "kfake", run: func(_ context.Context, w *world, _ *Done) error {
		fake(w).Cluster().RehashCoordinators()
		return nil
	}},
	{name: "lost_acknowledgements", about: "records are stored and answered as if they were not", takes: onKafka, brokers: "kfake", least: 100 * ms, most: 600 * ms, run: func(ctx context.Context, w *world, d *Done) error {
		defer fake(w).LoseProduceAnswers("", -1)()
		d.hold(ctx)
		return nil
	}},
	{name: "topic_recreate", about: "a topic is deleted and made again", takes: []string{"kafka", "kafkanet"}, not: keepsTopics, unsettles: true, least: 0, most: sec, run: recreateTopic},
	{name: "topic_away", about: "a topic is deleted and missed for a while", takes: []string{"kafka", "kafkanet"}, not: keepsTopics, unsettles: true, least: 2 * sec, most: 4 * sec, run: recreateTopic},
	{name: "acl_revoked", about: "the right to write to a topic is taken away and given back", takes: onKafka, least: 500 * ms, most: 2 * sec, run: func(ctx context.Context, w *world, d *Done) error {
		if k, ok := w.kafka.(*sandbox.Kafka); ok {
			defer k.DenyTopic(w.topics[d.N%2])()
			d.hold(ctx)
			return nil
		}
		return denied(ctx, w, d)
	}},
	{name: "too_few_replicas", about: "the topic asks for more replicas in sync than there are", takes: onKafka, brokers: "apache", least: sec, most: 2 * sec, run: func(ctx context.Context, w *world, d *Done) error {
		if w.plan.Broker == "apache" {
			return withTopicConfig(ctx, w, d, "min.insync.replicas", "2", "1")
		}
		k, i := someBroker(w, d)
		if err := k.Kill(i); err != nil {
			return err
		}
		err := withTopicConfig(ctx, w, d, "min.insync.replicas", "3", "2")
		return errors.Join(err, k.Start(context.WithoutCancel(ctx), i))
	}},
	{name: "limit_lowered", about: "max.message.bytes is lowered below what is written, and raised again", takes: onKafka, least: 500 * ms, most: 2 * sec, run: func(ctx context.Context, w *world, d *Done) error {
		return withTopicConfig(ctx, w, d, "max.message.bytes", "400", w.plan.usualLimit())
	}},
	{name: "record_too_large", about: "one record that is too large among good ones, until the limit is raised", takes: onKafka, least: 500 * ms, most: 2 * sec, run: func(ctx context.Context, w *world, d *Done) error {
		topic := int(d.N % 2)
		if err := setTopicConfig(ctx, w, w.topics[topic], "max.message.bytes", "30000"); err != nil {
			return err
		}
		row := `INSERT INTO outbox (id, aggregate_type, aggregate_id, event_type, payload) VALUES (gen_random_uuid(), $1, $2, 'TooLarge', jsonb_build_object('h', '', 's', 0, 'fill', $3::text))`
		err := w.sql(ctx, row, w.aggregates[topic], "00000000-0000-4000-8000-000000000001", noise(d.N, 100_000))
		d.hold(ctx)
		return errors.Join(err, setTopicConfig(context.WithoutCancel(ctx), w, w.topics[topic], "max.message.bytes", w.plan.usualLimit()))
	}},
}

// noise is a text of a size that compression halves at most.
func noise(n uint64, size int) string {
	var b strings.Builder
	for n |= 1; b.Len() < size; {
		n ^= n << 13
		n ^= n >> 7
		n ^= n << 17
		fmt.Fprintf(&b, "%016x", n)
	}
	return b.String()
}

func someBroker(w *world, d *Done) (*sandbox.Cluster, int) {
	k := w.kafka.(*sandbox.Cluster)
	return k, int(d.N % uint64(k.Brokers()))
}

func fake(w *world) *sandbox.Kafka { return w.kafka.(*sandbox.Kafka) }

func withTopicConfig(ctx context.Context, w *world, d *Done, name, during, after string) error {
	topic := w.topics[d.N%2]
	if err := setTopicConfig(ctx, w, topic, name, during); err != nil {
		return err
	}
	d.hold(ctx)
	return setTopicConfig(context.WithoutCancel(ctx), w, topic, name, after)
}

// setTopicConfig repeats what a cluster in trouble refuses.
func setTopicConfig(ctx context.Context, w *world, topic, name, value string) error {
	return persist(ctx, func(ctx context.Context) error {
		responses, err := w.admin.AlterTopicConfigs(ctx, []kadm.AlterConfig{{Op: kadm.SetConfig, Name: name, Value: &value}}, topic)
		if err == nil && len(responses) > 0 {
			err = responses[0].Err
		}
		return err
	})
}

// persist tries for up to half a minute.
func persist(ctx context.Context, do func(context.Context) error) error {
	return persistEach(ctx, 5*sec, do)
}

// persistEach lets each try take as long.
func persistEach(ctx context.Context, each time.Duration, do func(context.Context) error) error {
	deadline := time.Now().Add(30 * sec)
	for {
		limit, cancel := context.WithTimeout(ctx, each)
		err := do(limit)
		cancel()
		if err == nil || time.Now().After(deadline) || ctx.Err() != nil {
			return err
		}
		rest(ctx, 100*ms)
	}
}

func denied(ctx context.Context, w *world, d *Done) error {
	acl := kadm.NewACLs().Topics(w.topics[d.N%2]).Deny("User:ANONYMOUS").DenyHosts("*").Operations(kadm.OpWrite).ResourcePatternType(kadm.ACLPatternLiteral)
	err := persist(ctx, func(ctx context.Context) error {
		_, err := w.admin.CreateACLs(ctx, acl)
		return err
	})
	d.hold(ctx)
	return errors.Join(err, persist(context.WithoutCancel(ctx), func(ctx context.Context) error {
		_, err := w.admin.DeleteACLs(ctx, acl)
		return err
	}))
}

// moveLeaders rotates the replicas of each partition and elects the first one.
func moveLeaders(ctx context.Context, w *world, _ *Done) error {
	return persist(ctx, func(ctx context.Context) error {
		details, err := w.admin.ListTopics(ctx, w.topics...)
		if err != nil {
			return err
		}
		var request kadm.AlterPartitionAssignmentsReq
		elect := kadm.TopicsSet{}
		details.EachPartition(func(p kadm.PartitionDetail) {
			if len(p.Replicas) > 1 {
				request.Assign(p.Topic, p.Partition, append(append([]int32{}, p.Replicas[1:]...), p.Replicas[0]))
				elect.Add(p.Topic, p.Partition)
			}
		})
		if _, err := w.admin.AlterPartitionAssignments(ctx, request); err != nil {
			return err
		}
		_, err = w.admin.ElectLeaders(ctx, kadm.ElectPreferredReplica, elect)
		return err
	})
}

// recreateTopic first keeps everybody from the brokers and reads what the topic
// holds: consumers had it, so it counts as delivered.
func recreateTopic(ctx context.Context, w *world, d *Done) error {
	background := context.WithoutCancel(ctx)
	topic := w.topics[d.N%2]
	each(w.kafka.Proxies(), func(p *sandbox.Proxy) {
		p.Refuse()
		p.Cut()
	})
	defer heal(w.kafka.Proxies())
	w.samples.mu.Lock()
	before := w.samples.ends()
	for range 20 { // what was on its way has arrived once nothing is added
		rest(ctx, 150*ms)
		now := w.samples.ends()
		if now != nil && slices.Equal(before, now) {
			break
		}
		before = now
	}
	if before == nil {
		w.samples.mu.Unlock()
		return nil // brokers that do not say where a topic ends would not delete it either
	}
	limit, cancel := context.WithTimeout(background, 60*sec)
	defer cancel()
	err := persist(limit, func(ctx context.Context) error {
		records, err := w.readSink(ctx, []string{topic})
		if err != nil {
			return err
		}
		w.archived = append(w.archived, records...)
		for p := range int32(partitions) {
			at := w.part(topic, p)
			w.samples.base[at] = before[at]
		}
		return nil
	})
	if err == nil {
		err = persist(limit, func(ctx context.Context) error {
			response, err := w.admin.DeleteTopic(ctx, topic)
			if err == nil {
				err = response.Err
			}
			if errors.Is(err, kerr.UnknownTopicOrPartition) {
				return nil
			}
			return err
		})
	}
	w.samples.mu.Unlock()
	if err != nil {
		return errors.Join(err, w.createTopic(background, topic))
	}
	if time.Duration(d.For) >= 2*sec {
		heal(w.kafka.Proxies()) // the relay is to miss the topic, not the brokers
	}
	d.hold(ctx)
	return w.createTopic(background, topic)
}

// codeKinds answer produce requests with an error code. What a broker says before
// it stores anything differs from what it says after.
func codeKinds() []*kind {
	codes := []*kerr.Error{
		kerr.NotEnoughReplicas, kerr.NotEnoughReplicasAfterAppend, kerr.NotLeaderForPartition, kerr.LeaderNotAvailable, kerr.RequestTimedOut,
		kerr.KafkaStorageError, kerr.UnknownTopicOrPartition, kerr.CorruptMessage, kerr.InvalidRecord, kerr.InvalidTimestamp, kerr.MessageTooLarge,
		kerr.PolicyViolation, kerr.ClusterAuthorizationFailed, kerr.TopicAuthorizationFailed, kerr.OutOfOrderSequenceNumber, kerr.UnknownProducerID,
		kerr.UnknownServerError, kerr.ThrottlingQuotaExceeded, kerr.FencedLeaderEpoch,
	}
	var all []*kind
	for _, code := range codes {
		all = append(all, &kind{
			name: "produce_" + strings.ToLower(code.Message), about: "produce requests are answered with " + code.Message,
			takes: onKafka, brokers: "kfake", least: 50 * ms, most: 700 * ms,
			run: func(ctx context.Context, w *world, d *Done) error {
				n, topic := -1, ""
				if d.N%2 == 0 {
					n, topic = 1+int(d.N%7), w.topics[d.N/2%2]
				}
				defer fake(w).FailProduce(topic, code, n)()
				d.hold(ctx)
				return nil
			},
		})
	}
	for name, key := range map[string]kmsg.Key{"metadata_fails": kmsg.Metadata, "producer_id_fails": kmsg.InitProducerID} {
		all = append(all, &kind{
			name: name, about: "such requests fail while connections are made anew", takes: []string{"kafka", "kafkanet"}, brokers: "kfake", least: 200 * ms, most: 1500 * ms,
			run: func(ctx context.Context, w *world, d *Done) error {
				with := []*kerr.Error{kerr.CoordinatorLoadInProgress, kerr.UnknownServerError}[d.N%2]
				fault := fake(w).Cluster().Fault(kfake.Fault{Keys: []kmsg.Key{key}, Err: with, Count: -1, TopLevel: key == kmsg.InitProducerID})
				defer fault.Remove()
				each(w.kafka.Proxies(), (*sandbox.Proxy).Cut)
				d.hold(ctx)
				return nil
			},
		})
	}
	slices.SortFunc(all, func(a, b *kind) int { return strings.Compare(a.name, b.name) })
	return all
}
