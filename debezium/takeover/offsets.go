package takeover

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/cdc-relay/cdc-relay/advice"
	"github.com/cdc-relay/cdc-relay/debezium/importer"
	"github.com/cdc-relay/cdc-relay/fault"
	"github.com/cdc-relay/cdc-relay/sink"
	"github.com/cdc-relay/cdc-relay/sink/topics"
)

// offsets are where Debezium's position was looked for, and what was there.
type offsets struct {
	where    string
	position *Position // nil: none
}

const offsetTimeout = time.Minute

// position reads Debezium's position from wherever it is kept.
func (c *Takeover) position(ctx context.Context) error {
	source := c.imported.Source
	o := c.options
	c.found = &offsets{}
	switch {
	case o.NoOffsets:
		c.found.where = "not read (--no-offsets)"
		return nil
	case o.OffsetFile != "":
		return c.fromFile(o.OffsetFile)
	case o.OffsetTopic != "":
		return c.fromTopic(ctx, o.OffsetTopic)
	case source.OffsetFile != "" && !strings.Contains(source.OffsetStore, "Kafka"):
		return c.fromFile(source.OffsetFile)
	case source.OffsetTopic != "":
		return c.fromTopic(ctx, source.OffsetTopic)
	case source.OffsetStore != "" && !strings.HasSuffix(source.OffsetStore, "FileOffsetBackingStore") && !strings.HasSuffix(source.OffsetStore, "KafkaOffsetBackingStore"):
		return &advice.Usage{Err: fmt.Errorf("Debezium keeps its position in %s, which is not read: once it is stopped, %s; or accept with --no-offsets that what the slot still holds is sent again", source.OffsetStore, importer.CopyOffsets(source.OffsetStore))} //nolint:staticcheck // a proper name begins it
	}
	return &advice.Usage{Err: errors.New("where Debezium keeps its position is not known: give the worker's settings (--worker), --offset-topic or --offset-file; or accept with --no-offsets that what the slot still holds is sent again")}
}

func (c *Takeover) fromFile(name string) error {
	c.found.where = "file " + name
	if name == "-" {
		c.found.where = "standard input"
	}
	content, err := c.options.ReadFile(name)
	if err != nil {
		return &advice.Input{Err: fmt.Errorf("offsets: %w; copy the file here, or name another with --offset-file", err)}
	}
	entries, err := ParseOffsets(content, c.imported.Source.Connector)
	if err != nil {
		return &advice.Input{Err: fmt.Errorf("offsets: %s: %w", c.found.where, err)}
	}
	return c.choose(entries)
}

func (c *Takeover) fromTopic(ctx context.Context, topic string) error {
	c.found.where = "topic " + topic
	ctx, cancel := context.WithTimeout(ctx, offsetTimeout)
	defer cancel()
	latest := map[string]Entry{}
	err := topics.ReadTopic(ctx, c.settings.Kafka.Connection, topic, func(m *topics.Message) error {
		if e, ok := ParseRecord(m.Key, m.Value); ok {
			latest[string(m.Key)] = e
		}
		return nil
	})
	if failure, ok := errors.AsType[*sink.Error](err); ok && failure.Reason == fault.ReasonUnknownTopic { // its own advice is to create the topic
		return &advice.Input{Err: fmt.Errorf("read Debezium's position: there is no topic %s on %s: name the worker's offset.storage.topic with --offset-topic, and its cluster in kafka.brokers", topic, strings.Join(c.settings.Kafka.Brokers, ","))}
	}
	if err != nil {
		return &advice.Refused{Err: fmt.Errorf("read Debezium's position: %w; the worker's offset.storage.topic is wanted", err)}
	}
	entries := make([]Entry, 0, len(latest))
	for _, e := range latest {
		entries = append(entries, e)
	}
	return c.choose(entries)
}

func (c *Takeover) choose(entries []Entry) error {
	source := c.imported.Source
	prefix := source.TopicPrefix
	if strings.Contains(prefix, "${") { // only Connect can tell
		prefix = ""
	}
	p, err := Choose(entries, source.Connector, prefix)
	if err != nil {
		return &advice.Refused{Err: fmt.Errorf("%s %w; is it the connector's, and did the connector ever run? With --no-offsets what the slot still holds is sent again", c.found.where, err)}
	}
	if p == nil {
		return &advice.Refused{Err: fmt.Errorf("%s: the connector's position was removed; with --no-offsets what the slot still holds is sent again", c.found.where)}
	}
	c.found.position = p
	return nil
}
