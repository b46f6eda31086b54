package config

import (
	"cmp"
	"context"
	"crypto/rand"
	"crypto/tls"
	"encoding/binary"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/cdc-relay/cdc-relay/admin"
	"github.com/cdc-relay/cdc-relay/debezium"
	"github.com/cdc-relay/cdc-relay/postgres"
	"github.com/cdc-relay/cdc-relay/relay"
	"github.com/cdc-relay/cdc-relay/relay/shards"
	"github.com/cdc-relay/cdc-relay/replication"
	"github.com/cdc-relay/cdc-relay/replication/wal"
	"github.com/cdc-relay/cdc-relay/router"
	"github.com/cdc-relay/cdc-relay/router/record"
	"github.com/cdc-relay/cdc-relay/sink/auth"
	"github.com/cdc-relay/cdc-relay/sink/broker"
	"github.com/cdc-relay/cdc-relay/sink/producer"
	"github.com/cdc-relay/cdc-relay/sink/topics"
)

// Relay is the configuration of the pipeline. Version is left to the caller.
func (c *Config) Relay() relay.Config {
	r := &c.settings.Relay
	out := relay.Config{
		Replication: c.replication(),
		// A row has more columns than become a record, and bytea in hexadecimal.
		Stream:           replication.Options{MaxRowBytes: max(int(c.settings.Relay.MaxRowBytes), 4*int(c.settings.Kafka.MaxMessageBytes))},
		Router:           c.router(),
		Kafka:            c.kafka(),
		Guarantee:        relay.Guarantee(r.Guarantee),
		CommitInterval:   time.Duration(r.CommitInterval),
		CheckpointTopic:  r.CheckpointTopic,
		DetectMovedSlot:  r.DetectMovedSlot,
		OnBlocked:        relay.OnBlocked(r.OnBlocked),
		OnReject:         relay.OnReject(r.OnReject),
		DeadLetterTopic:  r.DeadLetterTopic,
		ParkKey:          r.ParkKey,
		MaxInFlightBytes: int(r.MaxInFlightBytes),
		DrainTimeout:     time.Duration(r.DrainTimeout),
		Pipeline:         c.settings.Pipeline,
	}
	if c.registry != nil {
		out.SchemaRefresh = time.Duration(c.settings.Kafka.Registry.Refresh)
	}
	return out
}

// HTTP is the configuration of the HTTP side. Listen is empty when it is off,
// Token is nil when none is configured.
func (c *Config) HTTP() admin.Config {
	h := &c.settings.HTTP
	out := admin.Config{Listen: h.Listen, Hosts: slices.Concat(h.Hosts, h.Console.Hosts)}
	if ask := c.secretFunc(h.Token, h.TokenFile, nil); ask != nil {
		out.Token = func() (string, error) { return ask(context.Background()) }
	}
	if ask := c.secretFunc("", h.Console.OperatorTokenFile, nil); ask != nil && h.Console.Enabled {
		out.Operator = func() (string, error) { return ask(context.Background()) }
		out.Actions, out.Payloads = h.Console.Actions, h.Console.Payloads
	}
	return out
}

// Console reports whether there is one, and how long it keeps figures.
func (c *Config) Console() (enabled bool, history time.Duration) {
	of := &c.settings.HTTP.Console
	return of.Enabled && c.settings.HTTP.Listen != "", time.Duration(of.History)
}

func (c *Config) replication() postgres.Config {
	p := &c.settings.Postgres
	return postgres.Config{
		URL:              string(p.URL),
		Password:         c.secretFunc(p.Password, p.PasswordFile, p.PasswordCommand),
		Token:            c.rdsToken(),
		Insecure:         p.Insecure,
		Slot:             p.Slot,
		Publication:      p.Publication,
		Tables:           append([]wal.Table(nil), c.tables...),
		Places:           c.places(),
		Wants:            c.wants(),
		Messages:         append([]string(nil), c.messages...),
		WalSenderTimeout: time.Duration(p.WalSenderTimeout),
		Shard:            postgres.Shard{Count: p.Shards, Slot: p.Slot, Publication: p.Publication, Key: shards.Key(c.router())},
	}.OfShard(0)
}

// OwnShards are the numbers of the shards that this process runs, in order.
func (c *Config) OwnShards() []int {
	p := &c.settings.Postgres
	var own []int
	for i := range max(1, p.Shards) {
		if len(p.OwnShards) == 0 || slices.Contains(p.OwnShards, strconv.Itoa(i)) {
			own = append(own, i)
		}
	}
	return own
}

// runID is __debezium.context.runId: a UUID of version 7, new for each process.
var runID = func() string {
	var b [16]byte
	binary.BigEndian.PutUint64(b[:], uint64(time.Now().UnixMilli())<<16)
	_, _ = rand.Read(b[6:]) // never fails
	b[6], b[8] = b[6]&0x0f|0x70, b[8]&0x3f|0x80
	return fmt.Sprintf("%x-%x-%x-%x-%x", b[:4], b[4:6], b[6:8], b[8:10], b[10:])
}()

// places are parallel to the tables: where each was set.
func (c *Config) places() []string {
	var places []string
	for i, o := range c.settings.Outbox {
		if o.MessagePrefix == "" {
			at := c.origins[fmt.Sprintf("outbox[%d].table", i)]
			places = append(places, cmp.Or(at.assigned, strings.TrimPrefix(at.String(), "from ")))
		}
	}
	return places
}

// wants is nil when all tables are content with inserts.
func (c *Config) wants() []wal.Wants {
	var wants []wal.Wants
	some := false
	for _, o := range c.settings.Outbox {
		if o.MessagePrefix == "" {
			m := o.mapping()
			wants = append(wants, m.Wants())
			some = some || m.Connector != nil
		}
	}
	if !some {
		return nil
	}
	return wants
}

// reserved are the topics that no row and no flag may name: with their defaults they may be those
// of other relays, also where this one does not use them.
func (c *Config) reserved() record.Reserved {
	r, usual := &c.settings.Relay, relay.Config{}.WithDefaults()
	const letters, positions = "dead letters (relay.dead_letter_topic)", "the positions of relays (relay.checkpoint_topic)"
	out := record.Reserved{{Name: r.DeadLetterTopic, For: letters}, {Name: r.CheckpointTopic, For: positions}}
	if r.DeadLetterTopic != usual.DeadLetterTopic {
		out = append(out, record.ReservedTopic{Name: usual.DeadLetterTopic, For: letters})
	}
	if r.CheckpointTopic != usual.CheckpointTopic {
		out = append(out, record.ReservedTopic{Name: usual.CheckpointTopic, For: positions})
	}
	return out
}

func (c *Config) router() router.Config {
	var tables, messages []router.Mapping
	for i, o := range c.settings.Outbox {
		m := o.mapping()
		m.Path = fmt.Sprintf("outbox[%d]", i)
		m.Schema = c.schema(&o)
		if o.MessagePrefix != "" {
			if m.Connector == nil {
				m = router.ForMessages(m)
			}
			messages = append(messages, m)
		} else {
			tables = append(tables, m)
		}
	}
	out := router.Config{Mappings: append(tables, messages...), Reserved: c.reserved(), PositionHeaders: c.settings.Relay.PositionHeaders}
	if slices.ContainsFunc(out.Mappings, func(m router.Mapping) bool { return m.Connector != nil }) {
		out.RunID = runID
	}
	if c.registry != nil {
		out.Registry = c.registry
	}
	return out
}

func (o outboxSettings) mapping() router.Mapping {
	m := router.Mapping{
		Table:            o.Table,
		Preset:           o.Preset,
		Columns:          router.Columns(o.Columns),
		Topic:            string(o.Topic),
		TopicRegex:       o.TopicRegex,
		Key:              o.Key,
		Value:            o.Value,
		Partition:        o.Partition,
		TombstoneOnEmpty: o.TombstoneOnEmpty,

		CloudEventsSource: o.CloudEventsSource,
	}
	for _, h := range o.Headers {
		m.Headers = append(m.Headers, router.HeaderMapping{Name: h.Name, Source: h.Value})
	}
	if len(o.Debezium) > 0 {
		m.Connector = o.connector()
	}
	for _, f := range o.ValueFields {
		m.ValueFields = append(m.ValueFields, router.Field{Name: f.Name, Column: f.Value})
	}
	return m
}

// connector is the block debezium of a table.
func (o outboxSettings) connector() debezium.Config {
	var settings debezium.Config
	for _, s := range o.Debezium {
		settings = append(settings, debezium.Setting(s))
	}
	return settings
}

func (c *Config) kafka() producer.Config {
	k := &c.settings.Kafka
	out := producer.Config{
		Connection: broker.Connection{Brokers: append([]string(nil), k.Brokers...),
			SASL: auth.SASL{
				Mechanism: k.SASL.Mechanism,
				Username:  k.SASL.Username,
				Password:  c.secretFunc(k.SASL.Password, k.SASL.PasswordFile, nil),
				OAuth: auth.OAuth{
					TokenEndpoint: k.OAuth.TokenEndpoint,
					ClientID:      k.OAuth.ClientID,
					ClientSecret:  c.secretFunc(k.OAuth.ClientSecret, k.OAuth.ClientSecretFile, nil),
					Scope:         k.OAuth.Scope,
					Extensions:    k.OAuth.Extensions.mapping(),
				},
				Region: k.Region,
			},
			Insecure: k.Insecure},
		Compression:     k.Compression,
		Linger:          time.Duration(k.Linger),
		MaxMessageBytes: int(k.MaxMessageBytes),
		CreateTopics: topics.Creation{
			Enabled:           k.CreateTopics.Enabled,
			Partitions:        int32(k.CreateTopics.Partitions),
			ReplicationFactor: int16(k.CreateTopics.ReplicationFactor),
			Config:            k.CreateTopics.Config.mapping(),
		},
	}
	if k.TLS.Enabled {
		out.TLS = c.kafkaTLS
	}
	return out
}

// kafkaTLS reads the files at every call.
func (c *Config) kafkaTLS() (*tls.Config, error) {
	t := &c.settings.Kafka.TLS
	return c.readTLS(t.CAFile, t.CertFile, t.KeyFile, t.ServerName)
}

// readTLS reads the files. An empty name of the server is the host that is connected to.
func (c *Config) readTLS(caFile, certFile, keyFile, serverName string) (*tls.Config, error) {
	pool, err := c.trusted(caFile)
	if err != nil {
		return nil, err
	}
	out := &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: pool, ServerName: serverName}
	if certFile != "" {
		certificate, err := c.clientCertificate(certFile, keyFile)
		if err != nil {
			return nil, err
		}
		out.Certificates = []tls.Certificate{certificate}
	}
	return out, nil
}
