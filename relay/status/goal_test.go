package status

import "testing"

func TestGoal(t *testing.T) {
	at := func(state State, reason string, confirmed, server Position) Status {
		return Status{State: state, Reason: reason, LSN: LSNs{Confirmed: confirmed, Server: server}}
	}
	backlog := at(Streaming, "", 200, 200)
	backlog.CatchUp = &CatchUp{LeftBytes: 1}
	for name, tt := range map[string]struct {
		goal string
		seen []Status
		want bool
	}{
		"streams":                        {"streaming", []Status{at(Streaming, "", 0, 0)}, true},
		"does not stream yet":            {"streaming", []Status{at(Starting, "", 0, 0)}, false},
		"is blocked":                     {"blocked", []Status{at(Blocked, "unknown_topic", 0, 0)}, true},
		"is not blocked":                 {"blocked", []Status{at(Streaming, "", 1, 1)}, false},
		"all is confirmed":               {"caught_up", []Status{at(Streaming, "", 100, 100)}, true},
		"some is not":                    {"caught_up", []Status{at(Streaming, "", 99, 100)}, false},
		"what was there at first":        {"caught_up", []Status{at(Streaming, "", 90, 100), at(Streaming, "", 100, 500)}, true},
		"nobody looked at the server":    {"caught_up", []Status{at(Streaming, "", 0, 0)}, false},
		"the server was looked at later": {"caught_up", []Status{at(Starting, "", 0, 0), at(Streaming, "", 99, 100)}, false},
		"the brokers are unreachable":    {"caught_up", []Status{at(Streaming, "kafka_unreachable", 100, 100)}, false},
		"another relay has the slot":     {"caught_up", []Status{at(Standby, "", 100, 100)}, false},
		"a backlog of other tables":      {"caught_up", []Status{backlog}, false},
	} {
		t.Run(name, func(t *testing.T) {
			g := Goal{State: tt.goal}
			got := false
			for i := range tt.seen {
				got = g.Reached(&tt.seen[i])
			}
			if got != tt.want {
				t.Errorf("reached: %t, want %t", got, tt.want)
			}
		})
	}
}
