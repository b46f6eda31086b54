package producer

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/cdc-relay/cdc-relay/router/record"
	"github.com/rs/zerolog"
	"github.com/twmb/franz-go/pkg/kgo"
)

// The client gets the router's headers, not copies: the same memory, and nothing
// more of it than the record has.
func TestHeaders_AreTheRecordsOwn(t *testing.T) {
	own := []record.Header{{Key: "id", Value: []byte("1")}, {Key: "null"}, {Key: "next"}}
	got := headers(own[:2])
	if len(got) != 2 || cap(got) != 2 || got[0].Key != "id" || string(got[0].Value) != "1" || got[1].Key != "null" || got[1].Value != nil {
		t.Errorf("got %v", got)
	}
	if &got[0].Value[0] != &own[0].Value[0] {
		t.Error("the value was copied")
	}
	if headers(nil) != nil {
		t.Error("no headers became some")
	}
}

func TestClientLog_CollapsesRepeatedLines(t *testing.T) {
	var lines []string
	log := zerolog.New(writer(func(p []byte) { lines = append(lines, string(p)) }))
	l := newClientLog(log)
	now := time.Unix(0, 0)
	l.now = func() time.Time { return now }
	for range 5 {
		l.Log(kgo.LogLevelWarn, "unable to open connection to broker", "addr", "a:9092", "err", errors.New("refused"))
	}
	l.Log(kgo.LogLevelWarn, "unable to open connection to broker", "addr", "b:9092")
	l.Log(kgo.LogLevelInfo, "never written")
	if len(lines) != 2 {
		t.Fatalf("%d lines were written, want one for each address: %q", len(lines), lines)
	}
	now = now.Add(repeatAfter)
	l.Log(kgo.LogLevelWarn, "unable to open connection to broker", "addr", "a:9092")
	if len(lines) != 3 || !strings.Contains(lines[2], `"left_out":4`) {
		t.Errorf("the line does not say how many were left out: %q", lines)
	}
}

type writer func([]byte)

func (w writer) Write(p []byte) (int, error) { w(p); return len(p), nil }

// Our own limit is read at the start, unlike the topic's.
func TestSizeError_SaysThatOurLimitNeedsARestart(t *testing.T) {
	if got := (&sizeError{2, 1}).Error(); !strings.Contains(got, "raise kafka.max_message_bytes and restart the relay") {
		t.Error(got)
	}
}
