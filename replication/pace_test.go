package replication

import (
	"bytes"
	"net"
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

func TestRestingIsForBacklogsAndSmallReads(t *testing.T) {
	const second = 1_000_000
	p := pace{sent: 100 * second, committed: 100*second - 10_000, size: 500}
	if p.wanted() {
		t.Error("rests at the tip")
	}
	p.committed = 99 * second
	if !p.wanted() {
		t.Error("does not rest one second behind")
	}
	p.size = receiveBuffer
	if p.wanted() {
		t.Error("rests after a full read")
	}
	p.size, p.committed = 500, p.sent-(farBehind+nearTip)/2
	if !p.wanted() {
		t.Error("stops resting before the tip is near")
	}
	p.committed = p.sent - nearTip + 1
	if p.wanted() {
		t.Error("rests near the tip")
	}
	p.committed = p.sent - (farBehind+nearTip)/2
	if p.wanted() {
		t.Error("starts to rest before it is far behind")
	}
	p.committed, p.size = 0, 500
	if p.wanted() {
		t.Error("rests before the first transaction")
	}
	p.committed, p.size = 99*second, 0
	if p.wanted() {
		t.Error("rests although nothing came")
	}
}

func TestGatherGivesEveryByteInSmallReads(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ours, theirs := net.Pipe()
		g := &gather{Conn: ours, buf: make([]byte, frameBuffer), pace: &pace{sent: 1 << 40, committed: 1}}
		want := bytes.Repeat([]byte("0123456789"), 1000)
		go func() {
			for part := range slices.Chunk(want, 999) {
				if _, err := theirs.Write(part); err != nil {
					t.Error(err)
				}
			}
			_ = theirs.Close()
		}()
		began := time.Now()
		var got []byte
		for p := make([]byte, 7); ; {
			n, err := g.Read(p)
			got = append(got, p[:n]...)
			if err != nil {
				break
			}
		}
		if !bytes.Equal(got, want) {
			t.Errorf("%d bytes came out differently", len(got))
		}
		if rested := time.Since(began); rested != 11*restPause {
			t.Errorf("rested %s between 11 reads and the end", rested)
		}
	})
}
