package relay

import (
	"context"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/cdc-relay/cdc-relay/deadletter"
	"github.com/cdc-relay/cdc-relay/router/record"
	"github.com/cdc-relay/cdc-relay/sink"
	"github.com/cdc-relay/cdc-relay/sink/sinktest"
	"github.com/cdc-relay/cdc-relay/sink/topics"
)

const lettersTopic = "cdc-relay.dead-letters"

// topicLog is the dead-letter topic: what the recorder made durable there, and what
// a test adds, as whoever re-drives does.
type topicLog struct {
	mu    sync.Mutex
	log   []*topics.Message
	taken int                  // of what the processes delivered
	sinks []*sinktest.Recorder // one for each process
}

// delivered is what all processes delivered, one after the other.
func (l *topicLog) delivered() (all []sinktest.Delivered) {
	for _, s := range l.sinks {
		all = append(all, s.Delivered()...)
	}
	return all
}

func (l *topicLog) add(r record.Record) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.drain()
	l.put(topics.Message{Key: r.Key, Value: r.Value, Headers: r.Headers})
}

func (l *topicLog) put(m topics.Message) {
	m.Topic, m.Offset = lettersTopic, int64(len(l.log))
	l.log = append(l.log, &m)
}

// drain takes over what the recorder has. The lock is held.
func (l *topicLog) drain() {
	all := l.delivered()
	for _, d := range all[l.taken:] {
		if d.Topic == lettersTopic {
			l.put(topics.Message{Key: d.Key, Value: d.Value, Headers: d.Headers})
		}
	}
	l.taken = len(all)
}

func (l *topicLog) messages() []*topics.Message {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.drain()
	return slices.Clone(l.log)
}

func (l *topicLog) letters(t *testing.T) []*deadletter.Letter {
	t.Helper()
	var all []*deadletter.Letter
	for _, m := range l.messages() {
		letter, marker, err := deadletter.Parse(m)
		if err != nil {
			t.Fatal(err)
		}
		if marker == nil {
			all = append(all, letter)
		}
	}
	return all
}

// reader is one relay's view of the log.
type reader struct {
	log   *topicLog
	mu    sync.Mutex
	at    int
	moved chan struct{}
}

func (l *topicLog) reader() *reader { return &reader{log: l, moved: make(chan struct{})} }

func (r *reader) Run(ctx context.Context, visit func(*topics.Message)) {
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for {
		for _, m := range r.log.messages()[r.at:] {
			visit(m)
			r.mu.Lock()
			r.at++
			close(r.moved)
			r.moved = make(chan struct{})
			r.mu.Unlock()
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

func (r *reader) CatchUp(ctx context.Context, _ bool) error {
	end := len(r.log.messages())
	for {
		r.mu.Lock()
		at, moved := r.at, r.moved
		r.mu.Unlock()
		if at >= end {
			return nil
		}
		select {
		case <-moved:
		case <-ctx.Done():
			return &sink.Error{Class: sink.Retry, Reason: "network", Err: context.Cause(ctx)}
		}
	}
}

func (r *reader) Close() {}
