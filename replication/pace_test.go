package replication

import (
	"bytes"
	"net"
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

func TestPace_RestsAfterSmallReadsOfWhatIsLate(t *testing.T) {
	const second = 1_000_000
	p := pace{sent: 100 * second, flowing: lateRest}
	for _, step := range []struct {
		name         string
		behind, size int64
		want         time.Duration
	}{
		{"at the tip", late, 500, 0},
		{"late", late + 1, 500, lateRest},
		{"late, a full read", late + 1, fullRead, 0},
		{"not yet far behind", farBehind, 500, lateRest},
		{"far behind", second, 500, restPause},
		{"a full read", second, fullRead, 0},
		{"nearly a full read", second, fullRead - 1, restPause},
		{"before the tip is near", nearTip, 500, restPause},
		{"near the tip", nearTip - 1, 500, lateRest},
		{"not far behind again", (farBehind + nearTip) / 2, 500, lateRest},
		{"before the first transaction", p.sent, 500, 0},
		{"although nothing came", second, 0, 0},
	} {
		p.committed, p.size = p.sent-step.behind, int(step.size)
		if got := p.wait(); got != step.want {
			t.Errorf("%s: rests %s, want %s", step.name, got, step.want)
		}
	}
	p.committed, p.size, p.flowing = p.sent-late-1, 500, lateRest-1
	if got := p.wait(); got != 0 {
		t.Errorf("late, when nothing more had been there a moment ago: rests %s", got)
	}
}

// A row whose commit took long is late, but nothing waits behind it: the rest of its
// transaction is read at once. Where messages go on to come it is not the only one.
func TestGather_TakesWhatFollowsAWaitAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ours, theirs := net.Pipe()
		g := &gather{Conn: ours, buf: make([]byte, frameBuffer), pace: &pace{sent: late + 2, committed: 1}}
		defer ours.Close()
		write := func(text string) { _, _ = theirs.Write([]byte(text)) }
		go func() {
			for range 3 {
				<-time.After(10 * time.Millisecond)
				for _, part := range []string{"keep-alive", "begin", "insert", "commit"} {
					write(part)
				}
			}
			for range 5 {
				<-time.After(lateRest / 2)
				write("more")
			}
		}()
		p := make([]byte, frameBuffer)
		began := time.Now()
		for n := range 12 {
			if _, err := g.Read(p); err != nil {
				t.Fatal(err)
			}
			if took, want := time.Since(began), time.Duration(n/4+1)*10*time.Millisecond; took != want {
				t.Errorf("message %d was read after %s, want %s", n, took, want)
			}
		}
		for n := range 5 {
			before := time.Now()
			if _, err := g.Read(p); err != nil {
				t.Fatal(err)
			}
			if took := time.Since(before); (took >= lateRest) != (n > 1) {
				t.Errorf("read %d of what goes on to come took %s", n, took)
			}
		}
	})
}

func TestPace_RestsAsLongAsTheSocketFills(t *testing.T) {
	const second = 1_000_000
	for _, c := range []struct {
		name       string
		conn       net.Conn
		asked      pacing
		rest, late time.Duration
	}{
		{"TCP", &net.TCPConn{}, pacing{}, restPause, lateRest},
		{"TLS or a dialer of the user's", nil, pacing{}, restPause, lateRest},
		{"Unix", &net.UnixConn{}, pacing{}, socketRest, socketRest},
		{"Unix, as asked for", &net.UnixConn{}, pacing{rest: 3 * time.Millisecond}, 3 * time.Millisecond, lateRest},
	} {
		p := pace{sent: 100 * second, committed: 98 * second, size: 1, flowing: time.Second}
		(&gather{Conn: c.conn}).follow(&p, c.asked)
		if got := p.wait(); got != c.rest {
			t.Errorf("%s: rests %s in a backlog, want %s", c.name, got, c.rest)
		}
		p.committed = p.sent - late - 1
		if got := p.wait(); got != c.late {
			t.Errorf("%s: rests %s behind a late server, want %s", c.name, got, c.late)
		}
	}
}

// Wide messages fill the buffers sooner, and very wide ones at once.
func TestPace_RestsShorterBetweenWideMessages(t *testing.T) {
	p := pace{sent: 1 << 40, committed: 1}
	for _, c := range []struct {
		message int
		want    time.Duration
	}{{300, restPause}, {wideMessage, restPause}, {wideMessage + 1, wideRest}, {fullRead, wideRest}, {200_000, 0}, {300, restPause}} {
		for read := 0; read < 2*meanSample; read += 1000 * c.message {
			p.messages += 1000
			p.took(1000 * c.message)
		}
		p.took(1)
		if got := p.wait(); got != c.want {
			t.Errorf("messages of %d bytes: rests %s, want %s", c.message, got, c.want)
		}
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
