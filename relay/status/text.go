package status

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	"github.com/cdc-relay/cdc-relay/wording"
)

// Text shows a status on a terminal.
func Text(s Status, now time.Time) string {
	var b strings.Builder
	line := func(label, format string, args ...any) {
		fmt.Fprintf(&b, "%-13s %s\n", label, fmt.Sprintf(format, args...))
	}
	if s.Headline != "" { // an older relay has none
		line("now", "%s", s.Headline)
	}
	state := string(s.State)
	if s.Reason != "" {
		state += " (" + s.Reason + ")"
	}
	if since := Since(&s); !since.IsZero() {
		state += " since " + now.Sub(since).Round(time.Second).String()
	}
	line("state", "%s", state)
	if s.Message != "" {
		line("", "%s", s.Message)
	}
	line("relay", "%s, pipeline %s", cmp.Or(s.Version, "-"), cmp.Or(s.Pipeline, "-"))
	if len(s.Shards) == 0 {
		line("slot", "%s, publication %s%s", s.Slot, s.Publication, slotText(s.SlotState))
	}
	label := "slots"
	for _, one := range s.Shards {
		state := string(one.State)
		if one.Reason != "" {
			state += " (" + one.Reason + ")"
		}
		line(label, "%s %s, lag %s, %s in flight%s", one.Slot, state, BytesText(one.LagBytes), wording.Count(one.InFlightEvents, "row"), slotText(one.SlotState))
		label = ""
	}
	line("connected", "PostgreSQL %s, Kafka %s", sourceText(s, now), yesNo(s.SinkConnected))
	line("LSN", "confirmed %s, published %s, received %s, server %s",
		lsn(s.LSN.Confirmed), lsn(s.LSN.Published), lsn(s.LSN.Received), lsn(s.LSN.Server))
	line("lag", "%s", behindLine(&s, now))
	oldest := ""
	if s.OldestUnacked != nil && s.InFlightEvents > 0 {
		oldest = ", oldest " + seconds(*s.OldestUnacked)
	}
	line("in flight", "%s, %s of %s%s", wording.Count(s.InFlightEvents, "row"),
		wording.Bytes(int64(s.InFlightBytes)), wording.Bytes(int64(s.InFlightLimitBytes)), oldest)
	if s.EventsToRepeat > 0 && s.State == Blocked {
		line("", "a restart sends %s again: acknowledged, and held back by the row that blocks", wording.Count(s.EventsToRepeat, "row"))
	}
	line("since start", "published %d, rejected %d, reconnects %d", s.EventsPublished, s.EventsRejected, s.Reconnects)
	line("topics", "%s", topicsText(s.Topics))
	for i := range s.Maintenance {
		m := &s.Maintenance[i]
		line(m.Job, "%s", m.text(now))
		if m.Message != "" {
			line("", "%s", m.Message)
		}
	}
	return b.String()
}

// Since is when state and reason began to hold both.
func Since(s *Status) time.Time {
	if s.ReasonSince.After(s.Since) {
		return s.ReasonSince
	}
	return s.Since
}

// sourceText says of who stands by that it has no stream, which is as it should be.
func sourceText(s Status, now time.Time) string {
	all, stream, standby := s.Shards, 0, 0
	if len(all) == 0 {
		all = []Status{s}
	}
	for _, one := range all {
		switch {
		case one.SourceConnected:
			stream++
		case one.State == Standby:
			standby++
		}
	}
	switch {
	case stream+standby < len(all) && s.LastLook != nil:
		return "no, last seen " + s.LastLook.ago(now) + " ago"
	case stream+standby < len(all):
		return "no"
	case stream == 0:
		return "no stream (standby)"
	case standby > 0:
		return fmt.Sprintf("yes, %d of %d shards stand by", standby, len(all))
	}
	return "yes"
}

func slotText(s *Slot) string {
	if s == nil {
		return ""
	}
	text := ", WAL " + cmp.Or(s.WALStatus, "-")
	if s.SafeWALBytes != nil {
		text += ", lost after another " + wording.Bytes(*s.SafeWALBytes)
		if s.SafeSeconds != nil {
			text += ", about " + (time.Duration(*s.SafeSeconds) * time.Second).String() + " at " + wording.Bytes(s.WALPace) + "/s"
		}
	}
	return text
}

func topicsText(topics []string) string {
	const shown = 8
	if len(topics) == 0 {
		return "-"
	}
	if len(topics) > shown {
		return fmt.Sprintf("%s and %d more", strings.Join(topics[:shown], ", "), len(topics)-shown)
	}
	return strings.Join(topics, ", ")
}

func lsn(p Position) string {
	text, _ := p.MarshalText()
	return cmp.Or(string(text), "-")
}

func yesNo(b bool) string {
	if b {
		return "yes"
	}
	return "no"
}

// behindLine is how far the relay is behind, as far as that is known.
func behindLine(s *Status, now time.Time) (text string) {
	why := "PostgreSQL does not answer"
	if !s.SourceReached {
		why = "PostgreSQL has not been reached"
	}
	switch {
	case s.LagBytes != nil:
		text = wording.Bytes(*s.LagBytes) + ", " + lagText(s.LagSeconds)
	case s.LagSeconds != nil:
		text = lagText(s.LagSeconds) + ", bytes not known: " + why
	default:
		text = "not known: " + why
	}
	switch {
	case s.LastLook != nil:
		text += s.LastLook.text(now)
	case s.LagBytes != nil:
		text += "; WAL retained " + wording.Bytes(s.RetainedWALBytes)
	}
	return text
}

// BytesText is a number of bytes that may not be known.
func BytesText(n *int64) string {
	if n == nil {
		return "not known"
	}
	return wording.Bytes(*n)
}

// lagText is the age of the oldest row that is not confirmed.
func lagText(s *float64) string {
	if s == nil {
		return "age of the oldest row not known"
	}
	return seconds(*s)
}

func seconds(s float64) string {
	return time.Duration(s * float64(time.Second)).Round(time.Millisecond).String()
}
