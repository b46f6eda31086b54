package topics

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/cdc-relay/cdc-relay/advice"
	"github.com/cdc-relay/cdc-relay/sink/letters"
	"github.com/cdc-relay/cdc-relay/wording"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// checkTopics looks at every topic that would be written.
func (c *checker) checkTopics() {
	names := c.expected.Topics()
	if len(names) == 0 {
		return
	}
	found, err := c.describe(names)
	if err != nil {
		c.fail("topic", "run the check again", "ask for the topics: %v", err)
		return
	}
	var existing, missing []string
	for _, name := range names {
		t, ok := found[name]
		code := kerr.UnknownTopicOrPartition.Code
		if ok {
			code = t.ErrorCode
		}
		switch err := kerr.ErrorForCode(code); {
		case err == nil:
			existing = append(existing, name)
			c.checkRights(name, t.AuthorizedOperations)
		case errors.Is(err, kerr.UnknownTopicOrPartition):
			missing = append(missing, name)
		case errors.Is(err, kerr.TopicAuthorizationFailed):
			c.fail("topic.acl", c.grantTopic(name), "topic %s: the relay's principal may not DESCRIBE it, so nothing is known about it", name)
		default:
			c.fail("topic", "see the broker's log", "topic %s: %v", name, err)
		}
	}
	if len(missing) > 0 {
		c.checkMissing(missing)
	}
	configs := c.configs(existing)
	for _, name := range existing {
		t := found[name]
		c.checkPartitions(name, &t, configs[name])
		if configs[name] != nil {
			c.checkLimits(name, configs[name])
			c.checkKept(name, configs[name])
		}
	}
}

func (c *checker) describe(names []string) (map[string]kmsg.MetadataResponseTopic, error) {
	ctx, cancel := c.within()
	defer cancel()
	request := kmsg.NewPtrMetadataRequest()
	request.IncludeTopicAuthorizedOperations = true
	for _, name := range names {
		topic := kmsg.NewMetadataRequestTopic()
		topic.Topic = kmsg.StringPtr(name)
		request.Topics = append(request.Topics, topic)
	}
	response, err := request.RequestWith(ctx, c.client)
	if err != nil {
		return nil, err
	}
	found := make(map[string]kmsg.MetadataResponseTopic, len(response.Topics))
	for _, topic := range response.Topics {
		if topic.Topic != nil {
			found[*topic.Topic] = topic
		}
	}
	return found, nil
}

// command is one of Kafka's own tools, with the options by which it connects.
func (c *checker) command(script, arguments string, args ...any) string {
	connect := " --bootstrap-server " + c.cfg.Brokers[0]
	if c.cfg.TLS != nil || c.cfg.SASL.Mechanism != "" {
		connect += " --command-config client.properties"
	}
	return script + connect + " " + fmt.Sprintf(arguments, args...)
}

func (c *checker) grantTopic(name string) string {
	return c.command("kafka-acls.sh", "--add --allow-principal User:… --operation Write --operation Describe --topic %s", name)
}

// checkRights reads the bits of the operations that are allowed. A broker that denies DESCRIBE on
// a topic that it just described does not know the rights.
func (c *checker) checkRights(name string, allowed int32) {
	may := func(op kmsg.ACLOperation) bool { return allowed&(1<<op) != 0 }
	switch {
	case allowed == math.MinInt32, !may(kmsg.ACLOperationDescribe):
		c.ok("topic.acl", "topic %s: the brokers do not list the rights of the relay's principal", name)
	case may(kmsg.ACLOperationWrite):
		c.ok("topic.acl", "topic %s: the relay's principal may write to it", name)
	default:
		c.fail("topic.acl", c.grantTopic(name), "topic %s: the relay's principal may not write to it", name)
	}
	if c.expected.topics[name].read && may(kmsg.ACLOperationDescribe) && !may(kmsg.ACLOperationRead) {
		c.fail("topic.acl", c.command("kafka-acls.sh", "--add --allow-principal User:… --operation Read --topic %s", name),
			"topic %s: the relay's principal may not read it, which relay.park_key needs", name)
	}
}

// checkKept looks at a topic whose records are the only place where they are.
func (c *checker) checkKept(name string, config map[string]string) {
	const check, compaction = "topic.retention", "topic.compaction"
	if !c.expected.topics[name].kept {
		return
	}
	refused := letters.Refuse(name, config["cleanup.policy"])
	switch {
	case refused != nil:
		seen, _ := advice.Split(refused)
		c.fail(compaction, c.command("kafka-configs.sh", "--alter --topic %s --add-config cleanup.policy=delete,retention.ms=-1", name), "%s", seen)
	case letters.Expire(config) != "":
		c.warn(check, c.command("kafka-configs.sh", "--alter --topic %s --add-config retention.ms=-1,retention.bytes=-1", name), "topic %s: %s", name, letters.Expire(config))
	default:
		c.ok(check, "topic %s keeps its records", name)
	}
}

// checkMissing asks whether the brokers would let us make the topics.
func (c *checker) checkMissing(names []string) {
	want := c.cfg.CreateTopics
	if !want.Enabled {
		for _, name := range names {
			c.missing(name)
		}
		return
	}
	ctx, cancel := c.within()
	defer cancel()
	settings := make(map[string]*string, len(want.Config))
	for name, value := range want.Config {
		settings[name] = kadm.StringPtr(value)
	}
	answers, err := c.admin.ValidateCreateTopics(ctx, want.Partitions, want.ReplicationFactor, settings, names...)
	for _, name := range names {
		refusal := err
		if answer, ok := answers[name]; ok && err == nil {
			refusal = answer.Err
			if refusal != nil && answer.ErrMessage != "" {
				refusal = fmt.Errorf("%w: %s", answer.Err, answer.ErrMessage)
			}
		}
		switch {
		case refusal == nil:
			c.ok("topic", "topic %s does not exist; it will be made at its first record", name)
		case errors.Is(refusal, kerr.TopicAuthorizationFailed), errors.Is(refusal, kerr.ClusterAuthorizationFailed):
			c.fail("topic.acl", "grant CREATE on the topic, or make it by hand", "topic %s does not exist, and the relay's principal may not create it: %v", name, refusal)
		default:
			c.fail("topic", "correct kafka.create_topics, or make the topic by hand", "topic %s does not exist, and the brokers would not make it: %v", name, refusal)
		}
	}
}

// missing says how a topic is made that the relay will not make.
func (c *checker) missing(name string) {
	if c.expected.topics[name].kept {
		c.fail("topic", "run `cdc-relay setup`, which creates it", "topic %s, for dead letters, does not exist: the first rejected row blocks the relay", name)
		return
	}
	c.fail("topic", c.command("kafka-topics.sh", "--create --topic %s", name)+", with --partitions and --replication-factor as you need them; or set kafka.create_topics.enabled",
		"topic %s does not exist", name)
}

// configs are the settings of the topics that we may read.
func (c *checker) configs(names []string) map[string]map[string]string {
	out := make(map[string]map[string]string)
	if len(names) == 0 {
		return out
	}
	ctx, cancel := c.within()
	defer cancel()
	described, err := c.admin.DescribeTopicConfigs(ctx, names...)
	for _, name := range names {
		reason := err
		for _, resource := range described {
			if resource.Name != name {
				continue
			}
			if reason = resource.Err; reason == nil {
				out[name] = make(map[string]string, len(resource.Configs))
				for _, config := range resource.Configs {
					out[name][config.Key] = config.MaybeValue()
				}
			}
		}
		if reason != nil {
			c.warn("topic.config", "to have it checked: "+c.command("kafka-acls.sh", "--add --allow-principal User:… --operation DescribeConfigs --topic %s (run works without)", name),
				"topic %s: its limits cannot be read: %v", name, reason)
		}
	}
	return out
}

// checkPartitions looks at the copies of what is acknowledged.
func (c *checker) checkPartitions(name string, topic *kmsg.MetadataResponseTopic, config map[string]string) {
	replicas, inSync := math.MaxInt, math.MaxInt
	for _, p := range topic.Partitions {
		if p.ErrorCode != 0 && p.ErrorCode != kerr.ReplicaNotAvailable.Code {
			c.fail("topic", "get the partition's brokers back", "topic %s: partition %d: %v", name, p.Partition, kerr.ErrorForCode(p.ErrorCode))
			return
		}
		replicas, inSync = min(replicas, len(p.Replicas)), min(inSync, len(p.ISR))
	}
	if len(topic.Partitions) == 0 {
		c.fail("topic", "see the broker's log", "topic %s has no partitions", name)
		return
	}
	c.ok("topic", "topic %s has %s with %s", name, wording.Count(len(topic.Partitions), "partition"), wording.Count(replicas, "replica"))
	if config == nil {
		return
	}
	least, err := strconv.Atoi(config["min.insync.replicas"])
	if err != nil {
		least = 1
	}
	switch {
	case least > replicas:
		c.fail("topic.replicas", "lower min.insync.replicas, or add replicas", "topic %s: min.insync.replicas is %d with %s: no record is ever acknowledged", name, least, wording.Count(replicas, "replica"))
	case least > inSync:
		c.fail("topic.replicas", "get the replicas back", "topic %s: a partition has %s in sync, and min.insync.replicas is %d: its records are not acknowledged", name, wording.Count(inSync, "replica"), least)
	case replicas == 1:
		c.warn("topic.replicas", "use a replication factor of 3 with min.insync.replicas of 2", "topic %s has one replica: acknowledged records are lost with its disk", name)
	case least == 1:
		c.warn("topic.replicas", "set min.insync.replicas to 2", "topic %s: min.insync.replicas is 1: a record may be acknowledged by one broker alone, and be lost with it", name)
	case least == replicas:
		c.warn("topic.replicas", "set min.insync.replicas to one less than the replicas, or add a replica", "topic %s: min.insync.replicas is %d of %d replicas: with any broker down nothing is acknowledged", name, least, replicas)
	default:
		c.ok("topic.replicas", "topic %s: min.insync.replicas is %d of %d replicas", name, least, replicas)
	}
	if config["unclean.leader.election.enable"] == "true" {
		c.warn("topic.replicas", "set unclean.leader.election.enable to false", "topic %s: unclean.leader.election.enable is true: acknowledged records may be lost in an election", name)
	}
}

// checkLimits compares the records with what the topic takes.
func (c *checker) checkLimits(name string, config map[string]string) {
	expected := c.expected.topics[name]
	if limit, err := strconv.ParseInt(config["max.message.bytes"], 10, 64); err == nil {
		c.checkTopicSize(name, expected, limit)
	}
	if strings.Contains(config["cleanup.policy"], "compact") {
		switch {
		case expected.kept: // see checkKept
		case expected.nullKeys > 0:
			c.rejected("topic.compaction", "map columns.key to a column that is never NULL, or set cleanup.policy to delete",
				"topic %s is compacted and takes no record without a key, and %d of the newest rows have none", name, expected.nullKeys)
		default:
			c.ok("topic.compaction", "topic %s is compacted: of each key the last record stays", name)
		}
	}
}

// checkTopicSize compares the topic's largest batch with its records and with the relay's limit.
// The brokers compare the compressed size, which nobody knows before.
func (c *checker) checkTopicSize(name string, expected *expectedTopic, limit int64) {
	const check = "topic.max_message_bytes"
	compressed := ""
	if codec := c.cfg.Compression; codec != "none" {
		compressed = " before compression"
	}
	switch needs := expected.needs(); {
	case needs > limit:
		what := fmt.Sprintf("the largest record of the newest rows takes %d bytes%s", needs, compressed)
		if needs > int64(expected.largest) {
			what = fmt.Sprintf("the largest payload has %d bytes, and its record takes about %d%s", expected.payload, needs, compressed)
		}
		c.rejected(check, fmt.Sprintf("raise max.message.bytes of the topic to %d or more, or store less in the row",
			max(needs, int64(c.cfg.MaxMessageBytes))), "topic %s: %s, and the topic takes %d (max.message.bytes)", name, what, limit)
	case expected.with(expected.possible) > limit && expected.possible > 0:
		c.warn(check, "raise max.message.bytes of the topic, unless that row goes to another one",
			"topic %s: the largest payload of a table whose rows may go there has %d bytes, and the topic takes %d (max.message.bytes)", name, expected.possible, limit)
	case int64(c.cfg.MaxMessageBytes) > limit:
		c.warn(check, "raise max.message.bytes of the topic, or lower kafka.max_message_bytes to it: a row in between "+c.expected.fate,
			"topic %s: kafka.max_message_bytes is %d, and the topic takes %d", name, c.cfg.MaxMessageBytes, limit)
	default:
		c.ok(check, "topic %s takes %d bytes", name, limit)
	}
}
