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
		want   string
	}{
		"keys":                      {Status{Reason: "unknown_topic", Obstacle: at("dead"), ParkedKeys: 3, DeadLetters: 9}, "the dead letters of 3 keys that waited in it are lost"},
		"without parked keys":       {Status{Reason: "unknown_topic", Obstacle: at("dead"), DeadLetters: 9}, "of 9 dead letters that this process wrote to it"},
		"at the start of a session": {Status{Reason: "unknown_topic", ParkedKeys: 1}, "of 1 key "},
		"none":                      {Status{Reason: "unknown_topic", Obstacle: at("dead")}, ""},
		"another topic":             {Status{Reason: "unknown_topic", Obstacle: at("orders"), ParkedKeys: 3}, ""},
		"another reason":            {Status{Reason: "record_too_large", Obstacle: at("dead"), ParkedKeys: 3}, ""},
	} {
		st := tt.status
		st.State = Blocked
		st.LoseLetters("dead", time.Now())
		lost := tt.want != ""
		if !strings.Contains(st.LettersLost, tt.want) || lost != strings.Contains(st.Message, " lost") || lost != strings.Contains(st.Headline, st.LettersLost+".") {
			t.Errorf("%s: %q, message %q, headline %q", name, st.LettersLost, st.Message, st.Headline)
		}
	}
}
