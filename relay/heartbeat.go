package relay

import "time"

// heartbeats ticks when the configuration asks for heartbeat records, as Debezium's
// heartbeat.interval.ms does.
func (s *session) heartbeats() (<-chan time.Time, func()) {
	every := s.relay.parts.Router.HeartbeatInterval()
	if every <= 0 {
		return nil, func() {}
	}
	t := time.NewTicker(every)
	return t.C, t.Stop
}
