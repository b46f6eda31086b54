package socket

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
	p := Pace{sent: 100 * second, flowing: latePause}
	for _, step := range []struct {
		name         string
		behind, size int64
		want         time.Duration
	}{
		{"at the tip", lateMicros, 500, 0},
		{"late", lateMicros + 1, 500, latePause},
		{"late, a full read", lateMicros + 1, fullRead, 0},
		{"not yet far behind", farBehindMicros, 500, latePause},
		{"far behind", second, 500, readPause},
		{"a full read", second, fullRead, 0},
		{"nearly a full read", second, fullRead - 1, readPause},
		{"before the tip is near", nearEndMicros, 500, readPause},
		{"near the tip", nearEndMicros - 1, 500, latePause},
		{"not far behind again", (farBehindMicros + nearEndMicros) / 2, 500, latePause},
		{"before the first transaction", p.sent, 500, 0},
		{"although nothing came", second, 0, 0},
	} {
		p.committed, p.size = p.sent-step.behind, int(step.size)
		if got := p.nextPause(); got != step.want {
			t.Errorf("%s: pauses %s, want %s", step.name, got, step.want)
		}
	}
	p.committed, p.size, p.flowing = p.sent-lateMicros-1, 500, latePause-1
	if got := p.nextPause(); got != 0 {
		t.Errorf("late, when nothing more had been there a moment ago: pauses %s", got)
	}
}

// A row whose commit took long is late, but nothing waits behind it: the rest of its
// transaction is read at once. Where messages go on to come it is not the only one.
func TestConn_TakesWhatFollowsAWaitAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ours, theirs := net.Pipe()
		g := &Conn{Conn: ours, buf: make([]byte, bufferSize), pace: &Pace{sent: lateMicros + 2, committed: 1}}
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
				<-time.After(latePause / 2)
				write("more")
			}
		}()
		p := make([]byte, bufferSize)
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
			if took := time.Since(before); (took >= latePause) != (n > 1) {
				t.Errorf("read %d of what goes on to come took %s", n, took)
			}
		}
	})
}

func TestPace_RestsAsLongAsTheSocketFills(t *testing.T) {
	const second = 1_000_000
	for _, c := range []struct {
		name        string
		conn        net.Conn
		asked       Pacing
		pause, late time.Duration
	}{
		{"TCP", &net.TCPConn{}, Pacing{}, readPause, latePause},
		{"TLS or a dialer of the user's", nil, Pacing{}, readPause, latePause},
		{"Unix", &net.UnixConn{}, Pacing{}, unixPause, unixPause},
		{"Unix, as asked for", &net.UnixConn{}, Pacing{Pause: 3 * time.Millisecond}, 3 * time.Millisecond, latePause},
	} {
		p := Pace{sent: 100 * second, committed: 98 * second, size: 1, flowing: time.Second}
		(&Conn{Conn: c.conn}).Follow(&p, c.asked)
		if got := p.nextPause(); got != c.pause {
			t.Errorf("%s: pauses %s in a backlog, want %s", c.name, got, c.pause)
		}
		p.committed = p.sent - lateMicros - 1
		if got := p.nextPause(); got != c.late {
			t.Errorf("%s: pauses %s behind a late server, want %s", c.name, got, c.late)
		}
	}
}

// Wide messages fill the buffers sooner, and very wide ones at once.
func TestPace_RestsShorterBetweenWideMessages(t *testing.T) {
	p := Pace{sent: 1 << 40, committed: 1}
	for _, c := range []struct {
		message int
		want    time.Duration
	}{{300, readPause}, {wideMessage, readPause}, {wideMessage + 1, widePause}, {fullRead, widePause}, {200_000, 0}, {300, readPause}} {
		for read := 0; read < 2*meanSample; read += 1000 * c.message {
			p.messages += 1000
			p.took(1000 * c.message)
		}
		p.took(1)
		if got := p.nextPause(); got != c.want {
			t.Errorf("messages of %d bytes: pauses %s, want %s", c.message, got, c.want)
		}
	}
}

func TestConn_GivesEveryByteInSmallReads(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ours, theirs := net.Pipe()
		g := &Conn{Conn: ours, buf: make([]byte, bufferSize), pace: &Pace{sent: 1 << 40, committed: 1}}
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
		if paused := time.Since(began); paused != 11*readPause {
			t.Errorf("paused %s between 11 reads and the end", paused)
		}
	})
}
