package main

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cdc-relay/cdc-relay/sandbox"
	"github.com/cdc-relay/cdc-relay/test/harness"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// The client asks for a missing topic for seconds. A redrive waits for that once and not for each key,
// and ends with what has to be done.
func TestRedrive_ToATopicThatIsNotThereEnds(t *testing.T) {
	for name, onBrokers := range map[string]func(testing.TB) *harness.Brokers{
		"kfake": func(t testing.TB) *harness.Brokers { return harness.Kfake(t, sandbox.KafkaOptions{}) },
		"kafka": func(t testing.TB) *harness.Brokers { return harness.OwnKafka(t, nil) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := newLifeOn(t, onBrokers(t))
			l.keepsTopics()
			l.setAside(t, setAside{key: "a"}, setAside{key: "b"}, setAside{key: "b"}, setAside{key: "c"}, setAside{key: "d"}, setAside{key: "e", topic: "refunds"})
			l.brokers.CreateTopic(t, "refunds", 1)
			got := invoke(t, l.env, "deadletter", "redrive", "--all", "--yes")
			got.want(t, exitFailed, "1 of 6 dead letters of the selected keys re-driven, 5 left", "")
			got.wantOneRefusal(t)
			l.brokers.CreateTopic(t, "orders", 1)
			invoke(t, l.env, "deadletter", "redrive", "--all", "--yes").want(t, exitOK, "5 of 5 dead letters of the selected keys re-driven, 0 left", "")
			if order := l.values(t, "orders", "b"); order != "1 2" {
				t.Errorf("key b: %s", order)
			}
		})
	}
}

// The topic is deleted when the brokers were asked for it and the first record is on its way. They are
// silent until the redrive has said what it waits for.
func TestRedrive_WhoseTopicIsDeletedAtItsStartSaysSoAndEnds(t *testing.T) {
	t.Parallel()
	l := newLifeWith(t, sandbox.KafkaOptions{})
	l.keepsTopics()
	l.brokers.CreateTopic(t, "orders", 1)
	l.setAside(t, setAside{key: "a"}, setAside{key: "b"}, setAside{key: "b"}, setAside{key: "c"}, setAside{key: "d"})
	cluster, admin := l.brokers.Fake.Cluster(), l.brokers.Admin(t)
	var stdout, stderr output
	patience, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	cluster.ControlKey(int16(kmsg.Produce), func(kmsg.Request) (kmsg.Response, error, bool) {
		cluster.SleepControl(func() {
			look := time.NewTicker(20 * time.Millisecond)
			defer look.Stop()
			for !strings.Contains(stderr.String(), "cdc-relay: 1 record of topic orders not acknowledged for 2s; the brokers answer: the topic may be missing") {
				select {
				case <-look.C:
				case <-patience.Done():
					t.Errorf("it has not said what it waits for: %q", stderr.String())
					return
				}
			}
			if _, err := admin.DeleteTopics(t.Context(), "orders"); err != nil {
				t.Error(err)
			}
		})
		return nil, nil, false
	})
	code := run(t.Context(), []string{"deadletter", "redrive", "--all", "--yes"}, process{stdout: &stdout, stderr: &stderr, env: append([]string{"HOME=/nonexistent"}, l.env...)})
	got := result{code, stdout.String(), stderr.String()}
	got.want(t, exitFailed, "0 of 5 dead letters of the selected keys re-driven, 5 left", "")
	got.wantOneRefusal(t)
}

// keepsTopics has the relay make no topic.
func (l *life) keepsTopics() {
	l.env = slices.DeleteFunc(l.env, func(variable string) bool { return strings.Contains(variable, "_CREATE_TOPICS_") })
}

// wantOneRefusal holds the report of four keys against what the brokers refuse once.
func (r result) wantOneRefusal(t *testing.T) {
	t.Helper()
	refused := strings.Count(r.stdout, "create the topic, or set kafka.create_topics.enabled: true")
	left := strings.Count(r.stdout, `not tried, because the brokers refused an earlier record for topic "orders"; correct what they refused, and run the redrive again`)
	if refused != 1 || left != 3 {
		t.Errorf("%d keys were refused, and %d not tried:\n%s%s", refused, left, r.stdout, r.stderr)
	}
}
