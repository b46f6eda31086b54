package importer

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/cdc-relay/cdc-relay/debezium/javaregex"
	"github.com/cdc-relay/cdc-relay/debezium/options"
	"github.com/cdc-relay/cdc-relay/replication/wal"
)

// relay carries over what decides about failure, and the name.
func (c *conversion) relay() {
	name, given := c.take("name")
	switch {
	case given && c.in.name != "" && c.in.name != name.value:
		c.remark(name, Refused, "is not the name beside config, so Connect refuses the connector; pipeline is that name")
	case given:
		c.remark(name, Carried, "pipeline")
	}
	if c.result.Source.Connector == "" {
		c.result.Source.Connector = name.value
	}
	if label := cmp.Or(c.in.name, name.value); label != "" && len(label) <= 200 && oneLine(label) == label {
		c.root.at("pipeline").set(scalar(literal(label)))
	}
	if _, ok := c.get("debezium.sink.type"); c.in.server() && !ok {
		c.missing("debezium.sink.type", Refused, "is missing, and Debezium Server does not start without it; the relay writes to Kafka")
	}
	if it, ok := c.take("errors.tolerance"); ok {
		c.tolerance(it)
	}
	c.exactlyOnce()
	if it, ok := c.take("max.queue.size.in.bytes"); ok {
		if text, ok := bytesOf(strings.TrimSpace(it.value)); ok {
			c.root.at("relay", "max_in_flight_bytes").set(text)
			c.remark(it, Carried, "relay.max_in_flight_bytes")
		} else {
			c.remark(it, NotNeeded, "relay.max_in_flight_bytes has a limit of its own")
		}
	}
}

// exactlyOnce is what the worker does for every source connector once it is enabled
// there; a connector can only insist on it.
func (c *conversion) exactlyOnce() {
	write := func(it item) {
		c.root.at("relay", "guarantee").set("exactly_once", "Records are written in Kafka transactions, as Connect wrote them. `cdc-relay setup` makes the topic of the checkpoints.")
		c.remark(it, Carried, "relay.guarantee: exactly_once; `setup` makes the topic of its checkpoints")
	}
	if it, ok := c.workerItem("exactly.once.source.support"); ok {
		if strings.EqualFold(strings.TrimSpace(it.value), "enabled") {
			write(it)
		} else {
			c.remark(it, NotNeeded, "see relay.guarantee")
		}
	}
	if it, ok := c.take("exactly.once.support"); ok {
		if strings.EqualFold(strings.TrimSpace(it.value), "required") {
			write(it)
		} else {
			c.remark(it, NotNeeded, "only the worker's exactly.once.source.support decides; see relay.guarantee")
		}
	}
}

func (c *conversion) tolerance(it item) {
	if !strings.EqualFold(strings.TrimSpace(it.value), "all") {
		c.remark(it, Implied, "a row that cannot be sent blocks, and nothing after it is confirmed")
		return
	}
	c.root.at("relay", "on_reject").set("dead_letter", "errors.tolerance=all drops a row that cannot be sent for ever. Here it goes to relay.dead_letter_topic instead, and the stream goes on.")
	c.remark(it, Carried, "relay.on_reject: dead_letter; Debezium drops such a row, the relay keeps it")
}

// fateOf is the fate of a key that no part above has taken.
func (c *conversion) fateOf(it item) (Fate, string) {
	switch {
	case strings.HasPrefix(it.key, "spec."):
		return NotNeeded, "is about Strimzi's operator"
	case it.key == "debezium.sink.type":
		if it.value != "kafka" {
			return NotCarried, fmt.Sprintf("the sink %s is another one; the relay writes to Kafka", shown(it.key, it.value))
		}
		return Implied, "the relay writes to Kafka"
	case strings.HasPrefix(it.key, "debezium.sink.kafka."):
		return NotNeeded, "what can be tried again is tried as long as it takes"
	case strings.HasPrefix(it.key, "debezium.source.offset."), strings.HasPrefix(it.key, "offset.storage"), strings.HasPrefix(it.key, "offset.flush"):
		if class := it.value; it.key == "debezium.source.offset.storage" && CopyOffsets(class) != "" {
			return NotNeeded, "the slot itself is the only offset. `takeover` does not read this store: " + CopyOffsets(class)
		}
		return NotNeeded, "the slot itself is the only offset; `takeover` reads the old one"
	case strings.HasPrefix(it.key, "debezium.sink."):
		return NotCarried, "belongs to another sink; the relay writes to Kafka"
	case strings.HasPrefix(it.key, "debezium.") && !strings.HasPrefix(it.key, "debezium.format."):
		return NotCarried, "is no key of Debezium Server that is known, and left out"
	case strings.HasPrefix(it.key, "debezium."), strings.HasPrefix(it.key, "quarkus."), strings.HasPrefix(it.key, "record.processing."):
		return NotNeeded, "is about Debezium Server itself; see http and log"
	}
	if _, known := options.Lookup(options.ScopeConnector, "", it.key); !known {
		head, _, dotted := strings.Cut(it.key, ".")
		for _, list := range []string{"converters", "post.processors"} {
			if dotted && slices.Contains(javaregex.Split(c.value(list)), head) {
				return NotCarried, fmt.Sprintf("belongs to %s of `%s`, which is Java code", head, list)
			}
		}
	}
	return c.optionFate(options.ScopeConnector, "", it.key, it)
}

// CopyOffsets explains how to export a position from a store of Debezium Server that the relay
// cannot read; empty for a store that it can read.
func CopyOffsets(store string) string {
	switch class := className(store); {
	case class == "", class == "FileOffsetBackingStore", class == "KafkaOffsetBackingStore":
		return ""
	case strings.Contains(class, "Redis"):
		return "`redis-cli --raw HGETALL metadata:debezium:offsets > FILE` (or the key of offset.storage.redis.key) and --offset-file FILE"
	case strings.Contains(class, "Jdbc"):
		return "`psql -AtF ' ' -c 'SELECT offset_key, offset_val FROM debezium_offset_storage ORDER BY record_insert_ts, record_insert_seq' > FILE` (or the table of offset.storage.jdbc.offset.table.name) and --offset-file FILE"
	}
	return "write what it has into a file, `[\"NAME\",{\"server\":\"PREFIX\"}] {\"lsn\":…}` or the position alone, and name it as --offset-file"
}

// workerRest gives every setting of the worker its fate, and keeps what the
// takeover asks for.
func (c *conversion) workerRest() {
	c.offsets()
	if c.worker == nil {
		return
	}
	for _, p := range c.worker.props {
		key := workerMark + p.key
		if c.done[key] {
			continue
		}
		it := item{property: p, original: c.worker.shownAs(p.key), file: c.worker.file}
		it.key = key
		fate, text := c.workerFate(p, it)
		c.remark(it, fate, "%s", text)
	}
}

// aboutWorker are the worker's settings that no record depends on.
var aboutWorker = regexp.MustCompile(`^(?:access\.control|auto\.include\.jmx|client|connect\.protocol|connections\.max|cub|exactly\.once|heartbeat\.interval|inter\.worker|` +
	`log4j|metadata|metric|metrics|receive\.buffer|rebalance\.timeout|reconnect\.backoff|request\.timeout|response\.http|retry\.backoff|` +
	`scheduled\.rebalance|send\.buffer|session\.timeout|socket\.connection|topic\.creation|topic\.tracking|worker)\.|^confluent\.`)

func (c *conversion) workerFate(p property, it item) (Fate, string) {
	if name, ok := strings.CutPrefix(p.key, "producer."); ok {
		if _, ok := c.byKey["producer.override."+name]; ok {
			return NotNeeded, "the connector's producer.override takes its place"
		}
		return c.optionFate(options.ScopeProducer, "", name, it)
	}
	for _, kind := range []string{"key", "value", "header"} {
		if strings.HasPrefix(p.key, kind+".converter") {
			return NotNeeded, "the connector has a converter of its own"
		}
	}
	switch {
	case strings.HasPrefix(p.key, "spec.authentication."), strings.HasPrefix(p.key, "spec.tls."):
		return NotCarried, "is not known; see kafka.tls, kafka.sasl and kafka.oauth"
	case strings.HasPrefix(p.key, "spec."):
		return NotNeeded, "is about Strimzi's operator"
	case strings.HasPrefix(p.key, "security."), strings.HasPrefix(p.key, "sasl."), strings.HasPrefix(p.key, "ssl."):
		return NotNeeded, "is about the worker's own clients; records go by producer.*"
	}
	if _, ok := options.Lookup(options.ScopeWorker, "", p.key); !ok {
		if !strings.Contains(p.key, ".") || aboutWorker.MatchString(p.key) { // without a dot: a variable of the image
			return NotNeeded, "is about the worker"
		}
		return NotCarried, "is no setting of a Connect worker that is known, and left out"
	}
	return c.optionFate(options.ScopeWorker, "", p.key, it)
}

// offsets is where Debezium keeps its position.
func (c *conversion) offsets() {
	s := &c.result.Source
	first := func(keys ...string) string {
		for _, key := range keys {
			if it, ok := c.get(key); ok {
				return it.value
			}
			if p, ok := c.worker.get(key); ok {
				return p.value
			}
		}
		return ""
	}
	s.OffsetTopic = first("offsets.storage.topic", "offset.storage.topic", "debezium.source.offset.storage.topic")
	s.OffsetFile = first("offset.storage.file.filename", "debezium.source.offset.storage.file.filename")
	if c.in.server() {
		s.OffsetStore = first("debezium.source.offset.storage")
		s.Connector = "" // the engine's name is Debezium Server's own affair; topic.prefix tells
		if brokers := first("debezium.source.offset.storage.bootstrap.servers", "debezium.source.bootstrap.servers", "bootstrap.servers"); brokers != "" {
			s.Brokers = brokers
		}
	}
}

// writeTables makes outbox: the options of records once, and for each further
// entry a reference to them.
func (c *conversion) writeTables() {
	decode := false
	list, _ := c.get("transforms")
	for _, s := range c.steps(list) {
		decode = decode || className(s.class) == "DecodeLogicalDecodingMessageContent"
		if s.class == eventRouter {
			c.suggest(s.prefix())
		}
	}
	outbox := c.root.at("outbox")
	for _, t := range c.tables {
		c.result.Source.Tables = append(c.result.Source.Tables, t.table.String())
		entry := &node{}
		entry.child("table").set(scalar(t.table.String())).item = true
		c.writeOptions(entry.child("debezium"), t.offered)
		outbox.children = append(outbox.children, entry)
	}
	comment := fmt.Sprintf("Debezium sends logical messages (pg_logical_emit_message) as well, to topic %s.message. Without this entry they are not sent.", c.result.Source.TopicPrefix)
	if decode {
		comment = "Logical messages (pg_logical_emit_message), which the transform DecodeLogicalDecodingMessageContent makes events of."
	}
	messages := &node{}
	prefix := messages.child("message_prefix").set(scalar(wal.AnyPrefix), oneLine(comment))
	prefix.item = true
	c.writeOptions(messages.child("debezium"), c.tables[0].offered)
	outbox.children = append(outbox.children, messages)
}

// writeOptions writes the options out once for all entries that share them.
func (c *conversion) writeOptions(options *node, offered []option) {
	at := slices.IndexFunc(c.blocks, func(block []option) bool { return slices.Equal(block, offered) })
	name := "debezium"
	if at < 0 {
		at = len(c.blocks)
		c.blocks = append(c.blocks, offered)
		options.text = "&"
	}
	if at > 0 {
		name += strconv.Itoa(at + 1)
	}
	if options.text == "" {
		options.set("*" + name)
		return
	}
	options.text += name
	for _, o := range slices.Concat(c.debezium, offered) {
		n := options.child(o.key).set(scalar(o.value))
		if o.comment != "" {
			n.comments = []string{o.comment}
		}
	}
}
