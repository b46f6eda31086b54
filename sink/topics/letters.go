package topics

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

// RefuseLetters says what is wrong with the cleanup.policy of a dead-letter topic; nil:
// nothing. Letters of one key, and the markers after them, share it, so a compacted topic
// loses rows that count as set aside.
func RefuseLetters(topic, policy string) *sink.Error {
	if !strings.Contains(policy, "compact") {
		return nil
	}
	return &sink.Error{Class: sink.Blocked, Reason: fault.ReasonDeadLetterTopic, Err: advice.Give(
		fmt.Errorf("dead-letter topic %q has cleanup.policy=%s: of several dead letters with one key only the last would stay", topic, policy),
		fmt.Sprintf("set it to delete: kafka-configs.sh --alter --topic %s --add-config cleanup.policy=delete,retention.ms=-1", topic))}
}

// VerifyLetterTopic requires the dead-letter topic to keep every record. A topic that does not
// exist, or whose settings we may not read, is not judged.
func VerifyLetterTopic(ctx context.Context, admin *kadm.Client, topic string) error {
	return NewLetterTopic(topic, zerolog.Nop()).Kept(ctx, admin, 0)
}

// LettersKept is Kept for whoever asks once.
func LettersKept(ctx context.Context, at broker.Connection, topic string) error {
	client, err := at.Consumer()
	if err != nil {
		return err
	}
	defer client.Close()
	return VerifyLetterTopic(ctx, kadm.NewClient(client), topic)
}

// LetterTopic is the dead-letter topic of a process that writes to it for a long time: somebody may
// change its settings meanwhile. Any goroutine may use it.
type LetterTopic struct {
	name string
	log  zerolog.Logger

	mu      sync.Mutex // also held while the brokers are asked
	looked  time.Time
	refused *sink.Error // nil: nothing is wrong, as far as is known
	expires string      // the retention that was warned of
}

// NewLetterTopic asks nobody yet.
func NewLetterTopic(name string, log zerolog.Logger) *LetterTopic {
	return &LetterTopic{name: name, log: log}
}

// lookTimeout bounds what a look asks of the brokers. Senders wait for it.
const lookTimeout = 5 * time.Second

// Kept returns why the topic does not keep every record, a *sink.Error, or nil. It asks the brokers
// where they were not asked since age. A topic that does not exist, or whose settings we may not
// read, is not judged; where brokers do not answer, what they said last counts.
func (l *LetterTopic) Kept(ctx context.Context, admin *kadm.Client, age time.Duration) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.looked.IsZero() || time.Since(l.looked) >= age {
		l.look(ctx, admin)
		l.looked = time.Now()
	}
	if l.refused == nil {
		return nil
	}
	return l.refused
}

// look asks the brokers. The lock is held.
func (l *LetterTopic) look(ctx context.Context, admin *kadm.Client) {
	ctx, cancel := context.WithTimeout(ctx, lookTimeout)
	defer cancel()
	configs, err := admin.DescribeTopicConfigs(ctx, l.name)
	if _, denied := errors.AsType[*kadm.AuthError](err); err != nil && !denied {
		return
	}
	l.refused = nil
	config, err := configs.On(l.name, nil)
	if err != nil || config.Err != nil {
		return // the relay does not need the right to read settings
	}
	settings := make(map[string]string)
	for _, c := range config.Configs {
		settings[c.Key] = c.MaybeValue()
	}
	l.refused = RefuseLetters(l.name, settings["cleanup.policy"])
	expires := ""
	if l.refused == nil {
		expires = lettersExpire(settings)
	}
	if expires != "" && expires != l.expires {
		l.log.Warn().Str("topic", l.name).Msg(expires + "; set retention.ms=-1 and retention.bytes=-1 on the topic")
	}
	l.expires = expires
}

// lettersExpire says that a dead-letter topic deletes letters in time; empty: it does not, or does
// not say.
func lettersExpire(settings map[string]string) string {
	ms, size := settings["retention.ms"], settings["retention.bytes"]
	if (ms == "-1" || ms == "") && (size == "-1" || size == "") {
		return ""
	}
	return fmt.Sprintf("dead letters that nobody has looked at are deleted in time (retention.ms %s, retention.bytes %s)", ms, size)
}
