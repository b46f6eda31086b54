package status

import (
	"strings"
	"testing"
	"time"
)

func TestStatus_NamesWhichLettersAreLostWithTheirTopic(t *testing.T) {
	at := func(topic string) *Obstacle { return &Obstacle{Row: &BlockedRow{Topic: topic}} }
	for name, tt := range map[string]struct {
		status Status
		keys   int // that had a letter in the topic
		want   string
	}{
		"keys":                       {Status{Reason: "unknown_topic", Obstacle: at("dead"), ParkedKeys: 4, DeadLetters: 9}, 3, "the dead letters of 3 keys that waited in it are lost"},
		"without parked keys":        {Status{Reason: "unknown_topic", Obstacle: at("dead"), DeadLetters: 9}, 0, "of 9 dead letters that this process wrote to it"},
		"at the start of a session":  {Status{Reason: "unknown_topic", Message: `read topic "dead": unknown`}, 1, "of 1 key "},
		"none":                       {Status{Reason: "unknown_topic", Obstacle: at("dead")}, 0, ""},
		"the first one is announced": {Status{Reason: "unknown_topic", Obstacle: at("dead"), ParkedKeys: 1}, 0, ""},
		"another topic":              {Status{Reason: "unknown_topic", Obstacle: at("orders")}, 3, ""},
		"a topic of no row":          {Status{Reason: "unknown_topic", Obstacle: &Obstacle{}, Message: `produce to topic "heartbeats": unknown`}, 3, ""},
		"another reason":             {Status{Reason: "record_too_large", Obstacle: at("dead")}, 3, ""},
	} {
		st := tt.status
		st.State = Blocked
		st.LoseLetters("dead", tt.keys, time.Now())
		lost := tt.want != ""
		if !strings.Contains(st.LettersLost, tt.want) || lost != strings.Contains(st.Message, " lost") || lost != strings.Contains(st.Headline, st.LettersLost+".") {
			t.Errorf("%s: %q, message %q, headline %q", name, st.LettersLost, st.Message, st.Headline)
		}
	}
}
