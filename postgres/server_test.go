package postgres

import (
	"testing"
)

func TestOldMinor_WarnsOfKnownFaults(t *testing.T) {
	for version, warns := range map[int]bool{140019: true, 140020: false, 150014: true, 150018: false, 170006: true, 180000: true, 180001: false, 190000: false} {
		if got := oldMinor(version, "x") != ""; got != warns {
			t.Errorf("%d: %v", version, got)
		}
	}
}
