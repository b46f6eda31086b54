package relay

import (
	"time"

	"github.com/cdc-relay/cdc-relay/router/record"
)

// heart ticks when the configuration asks for heartbeat records, as Debezium's
// heartbeat.interval.ms does.
func (s *session) heart() (<-chan time.Time, func()) {
	every := s.r.parts.Router.HeartbeatInterval()
	if every <= 0 {
		return nil, func() {}
	}
	t := time.NewTicker(every)
	return t.C, t.Stop
}

// beat sends the heartbeats of now. No position hangs on them: one that fails is
// logged, and what it may have done to the rows around it is recovered with them.
func (s *session) beat(now time.Time) {
	if s.hasFailed() || s.sends.beating.Load() { // brokers that are away for days get one
		return
	}
	buf := new(record.Buffer)
	if err := s.r.parts.Router.Heartbeats(buf, now); err != nil {
		s.r.log.Warn().Err(err).Msg("heartbeat not sent")
		return
	}
	s.sends.beating.Store(true)
	s.give(buf.Records, func(err error) {
		s.sends.beating.Store(false)
		if err != nil {
			s.r.log.Warn().Err(err).Msg("heartbeat not sent")
			s.sends.stumbled.Store(true)
		}
		s.sent()
	})
	s.delivery.renew()
}
