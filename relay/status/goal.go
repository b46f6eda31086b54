package status

// Goals are what a status can be waited for.
var Goals = []string{goalCaughtUp, string(Streaming), string(Blocked)}

const goalCaughtUp = "caught_up"

// Goal is waited for over several statuses of a relay. State is one of Goals.
type Goal struct {
	State string

	end Position // of the server's WAL, in the first status that has it
}

// Reached reports whether a status is what is waited for. Call it with each status in turn.
//
// caught_up: the relay streams, nothing stands in its way, and everything is confirmed that
// the server's WAL had in the first status.
func (g *Goal) Reached(s *Status) bool {
	if g.end == 0 {
		g.end = s.LSN.Server
	}
	if g.State != goalCaughtUp {
		return string(s.State) == g.State
	}
	return s.State == Streaming && s.Reason == "" && s.CatchUp == nil && g.end != 0 && s.LSN.Confirmed >= g.end
}
