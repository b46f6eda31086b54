package relay

import (
	"errors"
	"strings"
	"testing"

	"github.com/cdc-relay/cdc-relay/fault"
)

// A message that says what to do names one position and one way out.
func TestDrift_SaysToRestartWhereThatIsTheWayOut(t *testing.T) {
	for reason, restart := range map[string]bool{
		fault.ReasonPublicationChanged: true, fault.ReasonTableUnpublished: true,
		fault.ReasonSlotLost: false, fault.ReasonSlotMissing: false, fault.ReasonPublicationMissing: false,
	} {
		d := &drift{&fault.Error{Kind: fault.KindDrift, Reason: reason, Err: errors.New("stop the relay, then X")}, 0x10}
		if got := strings.Contains(d.Error(), "rows written after 0/10 may be missing from the stream: look for them, then restart the relay"); got != restart || !strings.Contains(d.Error(), "stop the relay, then X") {
			t.Errorf("%s: %s", reason, d.Error())
		}
	}
}
