package check

import (
	"fmt"
	"time"

	"github.com/cdc-relay/cdc-relay/advice"
	"github.com/cdc-relay/cdc-relay/relay/status"
	"github.com/cdc-relay/cdc-relay/wording"
)

// holdsSlot reports whether a relay in that state streams from its slot.
func holdsSlot(s *status.Status) bool {
	return s != nil && (s.State == status.Streaming || s.State == status.Blocked || s.State == status.Stopping)
}

// relay says how the relay itself is: it may stand still for what no other check
// sees, such as a row that has long left the newest ones.
func (d *checker) relay(s *status.Status) {
	if s == nil {
		return
	}
	seen := fmt.Sprintf("the relay of this configuration is %s", s.State)
	if s.Reason != "" {
		seen += fmt.Sprintf(" (%s)", s.Reason)
	}
	if since := status.Since(s); !since.IsZero() {
		seen += fmt.Sprintf(" since %s", since.UTC().Format(time.RFC3339))
	}
	if s.Message != "" {
		seen += ": " + s.Message
	}
	const check = "relay.state"
	switch {
	case s.State == status.Blocked:
		d.add(check, advice.Fail, "fix that; no row is sent until then: "+wording.Docs+"operations.md#runbook says what to do for each reason", "%s", seen)
	case s.State == status.Reconnecting, s.Reason != "" && s.State != status.Standby:
		d.add(check, advice.Warn, "it retries by itself; if this lasts, fix the cause that it names", "%s", seen)
	default:
		d.ok(check, "%s", seen)
	}
}
