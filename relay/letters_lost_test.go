package relay

import (
	"strings"
	"testing"

	"github.com/cdc-relay/cdc-relay/relay/status"
)

func TestRelay_SaysWhichLettersAreLostWithTheirTopic(t *testing.T) {
	at := func(topic string) *status.Obstacle { return &status.Obstacle{Row: &status.BlockedRow{Topic: topic}} }
	for name, tt := range map[string]struct {
		status status.Status
		want   string
	}{
		"keys":                      {status.Status{Reason: "unknown_topic", Obstacle: at("dead"), ParkedKeys: 3, DeadLetters: 9}, "the dead letters of 3 keys that waited in it are lost"},
		"without parked keys":       {status.Status{Reason: "unknown_topic", Obstacle: at("dead"), DeadLetters: 9}, "of 9 dead letters that this process wrote to it"},
		"at the start of a session": {status.Status{Reason: "unknown_topic", ParkedKeys: 1}, "of 1 key "},
		"none":                      {status.Status{Reason: "unknown_topic", Obstacle: at("dead")}, ""},
		"another topic":             {status.Status{Reason: "unknown_topic", Obstacle: at("orders"), ParkedKeys: 3}, ""},
		"another reason":            {status.Status{Reason: "record_too_large", Obstacle: at("dead"), ParkedKeys: 3}, ""},
	} {
		r := &Relay{cfg: Config{OnReject: DeadLetterOnReject, DeadLetterTopic: "dead"}}
		st := tt.status
		st.State = status.Blocked
		r.showLettersLost(&st)
		lost := tt.want != ""
		if !strings.Contains(st.LettersLost, tt.want) || lost != strings.Contains(st.Message, " lost") || lost != strings.Contains(st.Headline, st.LettersLost+".") {
			t.Errorf("%s: %q, message %q, headline %q", name, st.LettersLost, st.Message, st.Headline)
		}
	}
}
