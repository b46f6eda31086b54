package letters_test

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/cdc-relay/cdc-relay/fault"
	"github.com/cdc-relay/cdc-relay/sink"
	"github.com/cdc-relay/cdc-relay/sink/letters"
	"github.com/rs/zerolog"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

func cluster(t testing.TB) *kfake.Cluster {
	t.Helper()
	c, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(1, "letters"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

// adminOf is a client for what an operator does.
func adminOf(t *testing.T, c *kfake.Cluster) *kadm.Client {
	t.Helper()
	client, err := kgo.NewClient(kgo.SeedBrokers(c.ListenAddrs()...))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.Close)
	return kadm.NewClient(client)
}

func alter(t *testing.T, admin *kadm.Client, topic, setting, value string) {
	t.Helper()
	if _, err := admin.AlterTopicConfigs(t.Context(), []kadm.AlterConfig{{Op: kadm.SetConfig, Name: setting, Value: &value}}, topic); err != nil {
		t.Fatal(err)
	}
}

func isCompacted(err error) bool {
	e, ok := errors.AsType[*sink.Error](err)
	return ok && e.Class == sink.Blocked && e.Reason == fault.ReasonDeadLetterTopic && strings.Contains(err.Error(), "cleanup.policy=delete,retention.ms=-1")
}

func TestTopic_NoticesWhatIsChangedLater(t *testing.T) {
	c := cluster(t)
	admin := adminOf(t, c)
	l := letters.NewTopic("letters", zerolog.Nop())
	if err := l.Kept(t.Context(), admin, 0); err != nil {
		t.Fatal(err)
	}
	alter(t, admin, "letters", "cleanup.policy", "compact,delete")
	if err := l.Kept(t.Context(), admin, time.Hour); err != nil {
		t.Errorf("an answer that is young enough was not good enough: %v", err)
	}
	if err := l.Kept(t.Context(), admin, 0); !isCompacted(err) {
		t.Errorf("a topic that was compacted later: %v", err)
	}
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	if err := l.Kept(gone, admin, 0); !isCompacted(err) {
		t.Errorf("without an answer of the brokers: %v", err)
	}
	alter(t, admin, "letters", "cleanup.policy", "delete")
	if err := l.Kept(t.Context(), admin, time.Hour); !isCompacted(err) {
		t.Errorf("an answer that is young enough was not good enough: %v", err)
	}
	if err := l.Kept(t.Context(), admin, 0); err != nil {
		t.Errorf("a topic that is right again: %v", err)
	}
}

// The relay does not need the right to read settings. Whoever takes it away while the topic is
// compacted leaves nothing by which the relay could go on.
func TestTopic_IsNotJudgedWithoutTheRightToSeeItsSettings(t *testing.T) {
	c := cluster(t)
	admin := adminOf(t, c)
	l := letters.NewTopic("letters", zerolog.Nop())
	alter(t, admin, "letters", "cleanup.policy", "compact")
	if err := l.Kept(t.Context(), admin, 0); !isCompacted(err) {
		t.Fatal(err)
	}
	c.ControlKey(int16(kmsg.DescribeConfigs), func(request kmsg.Request) (kmsg.Response, error, bool) {
		c.KeepControl()
		response := request.ResponseKind().(*kmsg.DescribeConfigsResponse)
		for _, each := range request.(*kmsg.DescribeConfigsRequest).Resources {
			r := kmsg.NewDescribeConfigsResponseResource()
			r.ErrorCode, r.ResourceType, r.ResourceName = kerr.TopicAuthorizationFailed.Code, each.ResourceType, each.ResourceName
			response.Resources = append(response.Resources, r)
		}
		return response, nil, true
	})
	if err := l.Kept(t.Context(), admin, 0); err != nil {
		t.Errorf("settings that may not be seen any more: %v", err)
	}
}

func TestTopic_WarnsOnceOfEachRetention(t *testing.T) {
	c := cluster(t)
	admin := adminOf(t, c)
	var log bytes.Buffer
	l := letters.NewTopic("letters", zerolog.New(&log))
	steps := []struct {
		setting, value string
		warnings       int
	}{
		{"retention.ms", "-1", 0},
		{"retention.ms", "600000", 1},
		{"retention.ms", "600000", 1},
		{"retention.ms", "700000", 2},
		{"retention.ms", "-1", 2},
		{"retention.bytes", "1000000", 3},
		{"cleanup.policy", "compact", 3}, // which says more
	}
	for i, s := range steps {
		alter(t, admin, "letters", s.setting, s.value)
		_ = l.Kept(t.Context(), admin, 0)
		if n := strings.Count(log.String(), "will be deleted"); n != s.warnings {
			t.Errorf("step %d, %s=%s: %d warnings, want %d:\n%s", i, s.setting, s.value, n, s.warnings, log.String())
		}
	}
	for _, want := range []string{`"level":"warn"`, `"topic":"letters"`, "retention.ms 600000", "retention.bytes 1000000", "retention.ms=-1"} {
		if !strings.Contains(log.String(), want) {
			t.Errorf("no %q in:\n%s", want, log.String())
		}
	}
}
