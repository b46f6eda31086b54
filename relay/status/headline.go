package status

import (
	"fmt"
	"strings"
	"time"

	"github.com/cdc-relay/cdc-relay/fault"
	"github.com/cdc-relay/cdc-relay/wording"
)

// Headline is a status in one sentence: whether rows flow, how far behind they are, and what
// stands in the way. The message has the next step.
func Headline(s *Status, now time.Time) string {
	held := now.Sub(Since(s)).Round(time.Second).String()
	switch s.State {
	case Blocked:
		return "Blocked for " + held + atRow(s) + ": " + causeText(s) + keptText(s, now) + "."
	case Reconnecting:
		to := "PostgreSQL"
		if strings.HasPrefix(s.Reason, "kafka_") {
			to = "Kafka"
		}
		text := "Reconnecting to " + to + " for " + held + because(s)
		if s.LagSeconds != nil {
			text += "; " + behindText(*s.LagSeconds)
		}
		return text + "."
	case Standby:
		return "Standing by: another relay streams from slot " + s.Slot + "."
	case Starting:
		return "Starting for " + held + because(s) + "."
	case Stopping:
		return "Stopping: " + wording.Count(s.InFlightEvents, "row") + " in flight."
	case Streaming:
		if s.Reason == fault.ReasonKafkaUnreachable {
			return "Waiting for Kafka for " + held + because(s) + waitingText(s) + keptText(s, now) + "."
		}
	}
	return streamingText(s, now) + "."
}

// waitingText is how far behind a relay is that reads on while no broker answers.
func waitingText(s *Status) string {
	text := "; " + wording.Count(s.InFlightEvents, "row") + " in flight"
	if s.LagSeconds != nil {
		text += ", " + behindText(*s.LagSeconds)
	}
	return text
}

func streamingText(s *Status, now time.Time) string {
	text := "Streaming"
	switch {
	case s.NotMoving != nil:
		held := (time.Duration(*s.NotMoving) * time.Second).String()
		return "Streaming, but the confirmed position has not moved for " + held + " (" + s.Reason + ")" + keptText(s, now)
	case s.CatchUp != nil:
		text = "Catching up: " + s.CatchUp.text()
	case s.LagSeconds != nil:
		text += ", " + behindText(*s.LagSeconds)
	}
	if s.LongTransaction != nil {
		text += "; " + s.LongTransaction.text()
	}
	if s.Reason != "" {
		text += "; at present " + causeText(s)
	}
	if s.ParkedKeys > 0 {
		text += "; " + wording.Count(s.ParkedKeys, "key") + " parked behind dead letters"
	} else if s.DeadLetters > 0 {
		text += "; " + wording.Count(s.DeadLetters, "dead letter") + " since the start"
	}
	return text
}

// atRow names the table of the row, as it may be shown on a line. A row that waits for the checkpoint
// topic is one that happened to come next.
func atRow(s *Status) string {
	o := s.Obstacle
	if o == nil || o.Row == nil || o.Row.Table == "" || s.Reason == fault.ReasonCheckpointTopic || s.Reason == fault.ReasonCheckpointRefused {
		return ""
	}
	return " at a row of " + shortName(o.Row.Table)
}

func because(s *Status) string {
	if s.Reason == "" {
		return ""
	}
	return ": " + causeText(s)
}

func behindText(lag float64) string {
	if lag < 60 {
		return fmt.Sprintf("%.1f s behind", lag)
	}
	return (time.Duration(lag) * time.Second).String() + " behind"
}

// keptText says how much WAL the slot holds back, and how long that can continue.
func keptText(s *Status, now time.Time) string {
	if l := s.LastLook; l != nil {
		return "; PostgreSQL was last seen " + l.ago(now) + " ago, and kept " + wording.Bytes(l.RetainedWALBytes) + " of WAL then"
	}
	kept := "; PostgreSQL keeps "
	slot := s.SlotState
	switch {
	case s.LettersLost != "":
		kept = "; " + s.LettersLost + kept
	case causes[s.Reason].waits && (slot == nil || slot.SafeWALBytes == nil || *slot.SafeWALBytes > 0):
		kept = "; nothing is lost: PostgreSQL keeps "
	}
	kept += wording.Bytes(s.RetainedWALBytes) + " of WAL"
	switch {
	case slot != nil && slot.WALStatus == "lost":
		return "; the slot has lost its WAL"
	case s.RetainedWALBytes == 0 && s.LettersLost != "":
		return "; " + s.LettersLost
	case s.RetainedWALBytes == 0:
		return ""
	case slot == nil:
		return kept
	case slot.SafeWALBytes == nil:
		return kept + ", limited only by the disk"
	case slot.SafeSeconds != nil:
		return kept + ", and another " + wording.Bytes(max(0, *slot.SafeWALBytes)) + " fit, " + roughly(*slot.SafeSeconds) + " at this pace"
	default:
		return kept + ", and another " + wording.Bytes(max(0, *slot.SafeWALBytes)) + " fit"
	}
}
