package relay

import (
	"time"

	"github.com/cdc-relay/cdc-relay/checkpoint"
	"github.com/cdc-relay/cdc-relay/relay/status"
	"github.com/cdc-relay/cdc-relay/replication/wal"
)

// show makes the session visible to the monitor and to what runs beside the sessions; nil: it is
// over. The monitor gets a nil interface then, not a nil *session in one.
func (r *Relay) show(s *session) {
	r.session.Store(s)
	if s == nil {
		r.monitor.SetSession(nil)
		return
	}
	r.monitor.SetSession(s)
}

// BlockedFor is how long no further batch could be taken. Either the window is full, or Send waits
// until a topic's partitions are loaded and the channel from the reader is full (loading): then the
// window has room that cannot be used.
func (s *session) BlockedFor(now time.Time) (full time.Duration, loading bool) {
	full, is := s.Full.Ago(now)
	if !is && len(s.intake.out) == cap(s.intake.out) {
		full, loading = s.delivery.Waiting(now)
	}
	return full, loading
}

// Positions are those that the status shows.
func (s *session) Positions() status.LSNs {
	return status.LSNs{
		Server: status.Position(s.src.ServerEnd()), Received: status.Position(s.src.Received()),
		Published: status.Position(s.tracker.Confirmable()), Confirmed: status.Position(s.reported.Load()),
	}
}

// Lineage is that of the server.
func (s *session) Lineage() wal.Lineage { return s.history.Lineage() }

// StartLSN is the slot's position when the session began.
func (s *session) StartLSN() wal.LSN { return s.start.lsn }

// Stats is what is in flight.
func (s *session) Stats() checkpoint.Stats { return s.tracker.Stats() }

// ToRepeat counts acknowledged rows that the next start sends again.
func (s *session) ToRepeat(stats checkpoint.Stats) int { return s.delivery.ToRepeat(stats) }

// Acked counts durable records of unfinished batches.
func (s *session) Acked() int { return s.delivery.Acked() }

// Silent is how long the server was not heard.
func (s *session) Silent() time.Duration { return s.src.Silent() }
