// Package letters knows the settings of the dead-letter topic, in which records of one key must not
// replace each other.
package letters

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/cdc-relay/cdc-relay/advice"
	"github.com/cdc-relay/cdc-relay/fault"
	"github.com/cdc-relay/cdc-relay/sink"
	"github.com/cdc-relay/cdc-relay/sink/broker"
	"github.com/rs/zerolog"
	"github.com/twmb/franz-go/pkg/kadm"
)

// Refuse says what is wrong with the cleanup.policy of a dead-letter topic; nil: nothing. Letters of
// one key, and the markers after them, share it, so a compacted topic loses rows that count as set
// aside.
func Refuse(topic, policy string) *sink.Error {
	if !strings.Contains(policy, "compact") {
		return nil
	}
	return &sink.Error{Class: sink.Blocked, Reason: fault.ReasonDeadLetterTopic, Err: advice.Give(
		fmt.Errorf("dead-letter topic %q has cleanup.policy=%s: of several dead letters with one key only the last would stay", topic, policy),
		fmt.Sprintf("set it to delete: kafka-configs.sh --alter --topic %s --add-config cleanup.policy=delete,retention.ms=-1", topic))}
}

// Verify requires the dead-letter topic to keep every record. A topic that does not
// exist, or whose settings we may not read, is not judged.
func Verify(ctx context.Context, admin *kadm.Client, topic string) error {
	return NewTopic(topic, zerolog.Nop()).Kept(ctx, admin, 0)
}

// Kept is Topic.Kept for whoever asks once.
func Kept(ctx context.Context, at broker.Connection, topic string) error {
	client, err := at.Consumer()
	if err != nil {
		return err
	}
	defer client.Close()
	return Verify(ctx, kadm.NewClient(client), topic)
}

// Topic is the dead-letter topic of a process that writes to it for a long time: somebody may
// change its settings meanwhile. Any goroutine may use it.
type Topic struct {
	name string
	log  zerolog.Logger

	mu      sync.Mutex // also held while the brokers are asked
	asked   time.Time
	refused *sink.Error // nil: nothing is wrong, as far as is known
	expires string      // the retention that was warned of
}

// NewTopic asks nobody yet.
func NewTopic(name string, log zerolog.Logger) *Topic {
	return &Topic{name: name, log: log}
}

// askTimeout bounds what is asked of the brokers. Senders wait for it.
const askTimeout = 5 * time.Second

// Kept returns why the topic does not keep every record, a *sink.Error, or nil. It asks the brokers
// where they were not asked since age. A topic that does not exist, or whose settings we may not
// read, is not judged; where brokers do not answer, what they said last counts.
func (t *Topic) Kept(ctx context.Context, admin *kadm.Client, age time.Duration) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.asked.IsZero() || time.Since(t.asked) >= age {
		t.ask(ctx, admin)
		t.asked = time.Now()
	}
	if t.refused == nil {
		return nil
	}
	return t.refused
}

// Lasting is Kept for whoever takes it that a letter waits until somebody is done with it: a topic that
// has a retention limit is an error too.
func (t *Topic) Lasting(ctx context.Context, admin *kadm.Client, age time.Duration) error {
	if err := t.Kept(ctx, admin, age); err != nil {
		return err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.expires == "" {
		return nil
	}
	return advice.Give(errors.New(t.expires), fmt.Sprintf("have it keep them: kafka-configs.sh --alter --topic %s --add-config retention.ms=-1,retention.bytes=-1", t.name))
}

// ask asks the brokers. The lock is held.
func (t *Topic) ask(ctx context.Context, admin *kadm.Client) {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	configs, err := admin.DescribeTopicConfigs(ctx, t.name)
	if _, denied := errors.AsType[*kadm.AuthError](err); err != nil && !denied {
		return
	}
	t.refused = nil
	config, err := configs.On(t.name, nil)
	if err != nil || config.Err != nil {
		return // the relay does not need the right to read settings
	}
	settings := make(map[string]string)
	for _, c := range config.Configs {
		settings[c.Key] = c.MaybeValue()
	}
	t.refused = Refuse(t.name, settings["cleanup.policy"])
	expires := ""
	if t.refused == nil {
		expires = Expire(settings)
	}
	if expires != "" && expires != t.expires {
		t.log.Warn().Str("topic", t.name).Msg(expires + "; set retention.ms=-1 and retention.bytes=-1 on the topic")
	}
	t.expires = expires
}

// Expire says of the settings of a dead-letter topic that it has a retention limit; empty: it has
// none, or they do not say.
func Expire(settings map[string]string) string {
	ms, size := settings["retention.ms"], settings["retention.bytes"]
	if (ms == "-1" || ms == "") && (size == "-1" || size == "") {
		return ""
	}
	return fmt.Sprintf("dead letters that nobody has looked at will be deleted (retention.ms %s, retention.bytes %s)", ms, size)
}
