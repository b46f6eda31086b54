package sink

import (
	"context"
	"time"
)

// Tokens is the source of OAUTHBEARER tokens with a clock of the test's.
func Tokens(cfg OAuth, now func() time.Time) (func(context.Context) (string, error), error) {
	t, err := newTokens(cfg)
	if err != nil {
		return nil, err
	}
	t.now = now
	return t.get, nil
}

// Classify is classify.
func Classify(err error) *Error { return classify(err) }

// Filling is cfg with another time for batches to fill in a backlog.
func Filling(cfg KafkaConfig, fill time.Duration) KafkaConfig {
	cfg.fill = fill
	return cfg
}

// Hastening says that the client is about to be told to hurry, or just is.
func (k *Kafka) Hastening() bool {
	k.haste.mu.Lock()
	defer k.haste.mu.Unlock()
	return k.haste.hurry || len(k.haste.wanted) > 0
}

// Unanswered is how many Sends have no outcome.
func (k *Kafka) Unanswered() int64 { return k.haste.sends.Load() }
