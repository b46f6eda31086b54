package socket

import (
	"context"
	"fmt"
	"math"
	"net"
	"testing"
	"time"
)

// txnAt is one transaction of the model's log.
type txnAt struct {
	commit float64 // seconds
	rows   int
}

// walsender is a model of the other side, in virtual time: it sends the rows of a
// log in order, not before their commit, each taking it a while, and as far as the
// socket has room.
type walsender struct {
	log      []txnAt
	at, sent int     // transaction and rows of it that were sent
	clock    float64 // when it can send the next row
	perRow   float64
	flush    float64 // how long a commit takes to be on disk, which is when it can be sent

	queue []sentRow // in the socket
}

type sentRow struct{ commit, sent float64 }

const (
	modelRow    = 350     // bytes
	modelSocket = 2 << 16 // what the kernel makes of receiveBuffer
)

// run sends up to now.
func (w *walsender) run(now float64) {
	for w.at < len(w.log) && len(w.queue)*modelRow < modelSocket {
		t := w.log[w.at]
		w.clock = math.Max(w.clock, t.commit+w.flush)
		if w.clock+w.perRow > now {
			return
		}
		w.clock += w.perRow
		w.queue = append(w.queue, sentRow{t.commit, w.clock})
		if w.sent++; w.sent == t.rows {
			w.at, w.sent = w.at+1, 0
		}
	}
	if len(w.queue)*modelRow >= modelSocket {
		w.clock = math.Max(w.clock, now) // it was blocked until now
	}
}

// outcome of a simulated reader.
type outcome struct {
	pauses, reads, flips int
	late                 int     // short pauses
	atTip                int     // pauses while less than nearEndMicros behind
	worst                float64 // delay that the reader itself added to a row at the tip, seconds
	end                  float64
}

// follow reads a log with the policy. It reads everything that is there, and costs
// perRow for each row.
func follow(log []txnAt, perRow float64) outcome { return followSlow(log, perRow, 0) }

// followSlow reads it from a server whose commits take a while.
func followSlow(log []txnAt, perRow, flush float64) outcome {
	w := &walsender{log: log, perRow: 1 / 220_000.0, flush: flush}
	var p Pace
	var o outcome
	now, idle := 0.0, -1.0
	for w.at < len(w.log) || len(w.queue) > 0 {
		before := p.backlog
		pause := p.nextPause()
		if p.backlog != before {
			o.flips++
		}
		switch pause {
		case readPause, widePause:
			o.pauses++
			if p.sent-p.committed < nearEndMicros {
				o.atTip++
			}
		case latePause:
			o.late++
		}
		now += pause.Seconds()
		w.run(now)
		if len(w.queue) == 0 { // the read waits for the next row
			next := math.Max(w.clock, w.log[w.at].commit+flush) + w.perRow
			if next-now >= latePause.Seconds() {
				idle = next
			}
			now = math.Max(now, next)
			w.run(now + 1e-9)
		}
		n := min(len(w.queue), bufferSize/modelRow)
		for _, r := range w.queue[:n] {
			if r.sent-r.commit < nearEndMicros/1e6 {
				o.worst = math.Max(o.worst, now-r.sent)
			}
		}
		last := w.queue[n-1]
		w.queue = w.queue[n:]
		o.reads++
		p.size, p.sent, p.committed = n*modelRow, wire(last.sent), wire(last.commit)
		p.flowing = time.Duration((now - idle) * 1e9)
		now += float64(n) * perRow
	}
	o.end = now
	return o
}

// wire is a time of the model as the server would write it.
func wire(seconds float64) int64 { return int64((seconds + 100) * 1e6) }

// steady writes transactions of rows each at a rate of rows a second.
func steady(log []txnAt, from, length, rate float64, rows int) []txnAt {
	every := float64(rows) / rate
	for t := from; t < from+length; t += every {
		log = append(log, txnAt{t, rows})
	}
	return log
}

const readerCost = 1.5e-6

func TestPace_AtTheTipItNeverRests(t *testing.T) {
	for _, rate := range []float64{100, 1000, 5000, 50_000} {
		for _, rows := range []int{1, 10, 1000} {
			t.Run(fmt.Sprintf("%.0f rows a second, %d a transaction", rate, rows), func(t *testing.T) {
				o := follow(steady(nil, 0, 10, rate, rows), readerCost)
				if o.pauses > 0 || o.late > 0 && rows < 1000 { // the last of many rows are late
					t.Errorf("paused %d times, shortly %d times, in %d reads", o.pauses, o.late, o.reads)
				}
			})
		}
	}
}

func TestPace_ABacklogIsReadInLargePieces(t *testing.T) {
	for _, rows := range []int{1, 10, 1000, 500_000} {
		t.Run(fmt.Sprint(rows), func(t *testing.T) {
			var log []txnAt
			for n := 0; n < 500_000; n += rows {
				log = append(log, txnAt{-5 + float64(n)/1e9, rows}) // five seconds ago, all at once
			}
			o := follow(log, readerCost)
			if perRead := 500_000 / o.reads; perRead*modelRow < receiveBuffer/2 {
				t.Errorf("%d rows a read in %d reads, %d pauses", perRead, o.reads, o.pauses)
			}
			if o.flips > 2 {
				t.Errorf("changed its mind %d times", o.flips)
			}
		})
	}
}

// A load that steps up beyond what the server can send and down again: one change
// for each step, and no row waits for a pause once the reader has caught up.
func TestPace_StepsAndBursts(t *testing.T) {
	for _, c := range []struct {
		name  string
		log   []txnAt
		flips int
	}{
		{"step", steady(steady(steady(nil, 0, 2, 1000, 1), 2, 2, 400_000, 10), 4, 6, 1000, 1), 2},
		{"three steps", steady(steady(steady(steady(steady(steady(nil, 0, 1, 1000, 1), 1, 1, 400_000, 10), 2, 4, 2000, 1), 6, 1, 400_000, 1), 7, 4, 1000, 1), 11, 1, 5000, 1), 4},
		{"bursts of 5 ms", func() (log []txnAt) {
			for n := range 50 {
				log = steady(log, float64(n)/10, 0.005, 200_000, 10)
			}
			return log
		}(), 0},
		{"bursts of a second's rows", func() (log []txnAt) {
			for n := range 5 {
				log = append(log, txnAt{3 * float64(n), 220_000})
			}
			return log
		}(), 10},
		{"at the edge of what the server can send", steady(nil, 0, 20, 219_000, 10), 1},
		{"a little above", steady(nil, 0, 20, 225_000, 10), 2},
	} {
		t.Run(c.name, func(t *testing.T) {
			o := follow(c.log, readerCost)
			if o.flips > c.flips {
				t.Errorf("changed its mind %d times in %d reads, at most %d was expected", o.flips, o.reads, c.flips)
			}
			if o.worst > readPause.Seconds()+0.005 {
				t.Errorf("a row at the tip waited %.1f ms for the reader", 1000*o.worst)
			}
			if o.atTip > c.flips+1 {
				t.Errorf("paused %d times at the tip", o.atTip)
			}
		})
	}
}

// Where a commit takes long every row is late. None waits for the reader all the same,
// as long as none waits for another.
func TestPace_ASlowDiskIsNoBacklog(t *testing.T) {
	for _, rate := range []float64{10, 100, 800} {
		if o := followSlow(steady(nil, 0, 10, rate, 3), readerCost, 0.006); o.late > 0 || o.pauses > 0 || o.worst > 1e-4 {
			t.Errorf("%.0f rows a second: %d short pauses and %d long ones, a row waited %.2f ms", rate, o.late, o.pauses, 1000*o.worst)
		}
	}
}

// A server that sends nothing for a while has a queue then. Behind a reader that it
// has to wake for each row it sends slowly, on a machine that is busy; one that pauses
// lets it send quickly, and the queue is gone soon.
func TestPace_ALateServerCatchesUp(t *testing.T) {
	log := append(steady(nil, 0, 1, 5000, 1), txnAt{1, 5000})
	if o := follow(steady(log, 1.001, 1, 5000, 1), readerCost); o.late == 0 || o.late > 40 || o.pauses > 0 {
		t.Errorf("%d short pauses and %d long ones while 5 000 rows are late", o.late, o.pauses)
	}
}

// Over a link the kernel chooses the buffer: a small one would be the limit of the
// rate. On the server's own host it is set.
func TestDial_SetsTheBufferOnTheServersHostOnly(t *testing.T) {
	tcp := func(ip string) net.Addr { return &net.TCPAddr{IP: net.ParseIP(ip), Port: 5432} }
	for _, c := range []struct {
		name        string
		here, there net.Addr
		want        int
	}{
		{"loopback", tcp("127.0.0.1"), tcp("127.0.0.1"), receiveBuffer},
		{"loopback, IPv6", tcp("::1"), tcp("::1"), receiveBuffer},
		{"the host's own address", tcp("198.18.0.2"), tcp("198.18.0.2"), receiveBuffer},
		{"a neighbour", tcp("198.18.0.2"), tcp("198.18.0.3"), 0},
		{"a Unix socket", &net.UnixAddr{}, &net.UnixAddr{}, 0},
		{"a dialer of the user's", nil, nil, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			conn := &sized{here: c.here, there: c.there}
			dial := Dial(func(context.Context, string, string) (net.Conn, error) { return conn, nil }, Pacing{})
			if _, err := dial(t.Context(), "tcp", "x"); err != nil {
				t.Fatal(err)
			}
			if conn.buffer != c.want {
				t.Errorf("the buffer was set to %d", conn.buffer)
			}
		})
	}
}

// Messages that hardly fit into the buffer get a larger one, once and for good; others
// never do.
func TestConn_WidensTheBufferForWideMessages(t *testing.T) {
	for _, c := range []struct {
		name    string
		message int
		by      Pacing
		want    int
	}{
		{"small", 300, Pacing{}, receiveBuffer},
		{"wide", fullRead / 2, Pacing{}, receiveBuffer},
		{"very wide", fullRead + 10, Pacing{}, wideBuffer},
		{"very wide, a buffer that was chosen", fullRead + 10, Pacing{Buffer: 1 << 10}, 1 << 10},
	} {
		t.Run(c.name, func(t *testing.T) {
			conn := &sized{here: &net.TCPAddr{IP: net.IPv6loopback}, there: &net.TCPAddr{IP: net.IPv6loopback}}
			dialed, err := Dial(func(context.Context, string, string) (net.Conn, error) { return conn, nil }, c.by)(t.Context(), "tcp", "x")
			if err != nil {
				t.Fatal(err)
			}
			g, p := dialed.(*Conn), new(Pace)
			g.Follow(p, c.by)
			into := make([]byte, bufferSize)
			for range 4 * meanSample / len(into) {
				n, err := g.Read(into)
				if err != nil {
					t.Fatal(err)
				}
				p.messages += n / c.message
			}
			if conn.buffer != c.want || conn.asked > 2 {
				t.Errorf("the buffer was set to %d, asked for %d times", conn.buffer, conn.asked)
			}
		})
	}
}

type sized struct {
	net.Conn
	here, there net.Addr
	buffer      int
	asked       int
}

func (s *sized) Read(p []byte) (int, error) { return len(p), nil }

func (s *sized) LocalAddr() net.Addr  { return s.here }
func (s *sized) RemoteAddr() net.Addr { return s.there }

func (s *sized) SetReadBuffer(n int) error {
	s.buffer = n
	s.asked++
	return nil
}
