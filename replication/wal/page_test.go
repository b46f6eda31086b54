package wal

import "testing"

func TestBeforePageHeader(t *testing.T) {
	const segment = 16 << 20
	for _, tt := range []struct {
		inserted, want LSN
		size           uint64
	}{
		{segment + 40, segment, segment},
		{segment + 24, segment, segment}, // no position of a server's: its header is the long one
		{segment + 8192 + 24, segment + 8192, segment},
		{segment + 8192 + 40, segment + 8192 + 40, segment}, // a record of 16 bytes behind the short header
		{segment + 64, segment + 64, segment},
		{segment, segment, segment},
		{1<<20 + 40, 1 << 20, 1 << 20},
		{1<<20 + 40, 1<<20 + 40, segment},
		{40, 0, segment},
	} {
		if got := BeforePageHeader(tt.inserted, tt.size); got != tt.want {
			t.Errorf("%s with segments of %d bytes: %s, want %s", tt.inserted, tt.size, got, tt.want)
		}
	}
}
