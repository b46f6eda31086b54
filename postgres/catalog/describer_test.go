package catalog

import (
	"testing"
	"time"

	"github.com/cdc-relay/cdc-relay/postgres"
)

// The server is not answered while the catalog is looked at, and ends the connection after
// wal_sender_timeout.
func TestDescribeTimeout_StaysBelowTheServersPatience(t *testing.T) {
	for _, timeout := range []time.Duration{time.Second, 5 * time.Second, 0, time.Hour} {
		cfg := postgres.Config{WalSenderTimeout: timeout}
		if got, most := describeTimeout(cfg), cfg.SenderTimeout()*3/4; got >= most || got > maxDescribe || got <= 0 {
			t.Errorf("wal_sender_timeout %s: %s", cfg.SenderTimeout(), got)
		}
	}
}
