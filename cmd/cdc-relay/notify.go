package main

import (
	"context"
	"net"
	"strconv"
	"time"

	"github.com/cdc-relay/cdc-relay/relay/status"
	"github.com/cdc-relay/cdc-relay/wording"
)

// notifier speaks systemd's notification protocol. Without a manager that
// listens it does nothing.
type notifier struct {
	socket   string
	watchdog time.Duration // 0: none is asked for
}

func (a *app) notifier() notifier {
	n := notifier{socket: a.getenv("NOTIFY_SOCKET")}
	if us, err := strconv.ParseInt(a.getenv("WATCHDOG_USEC"), 10, 64); err == nil && us > 0 {
		n.watchdog = time.Duration(us) * time.Microsecond
	}
	return n
}

func (n notifier) send(message string) {
	if n.socket == "" {
		return
	}
	conn, err := net.Dial("unixgram", n.socket) // a leading @ is the abstract namespace, for Go as for systemd
	if err != nil {
		return
	}
	defer conn.Close()
	_, _ = conn.Write([]byte(message))
}

// feedWatchdog reports life until ctx ends, for as long as the relay's loop
// turns; a loop that stands still is left to the watchdog.
func (n notifier) feedWatchdog(ctx context.Context, status func() status.Status) {
	if n.socket == "" || n.watchdog <= 0 {
		return
	}
	ticker := time.NewTicker(n.watchdog / 3)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
			if time.Since(status().LastTick) < n.watchdog {
				n.send("WATCHDOG=1")
			}
		}
	}
}

// statusEvery is the interval of StatusText; a change of the state is sent within a second.
const statusEvery = 5 * time.Second

// tellStatus keeps the line that `systemctl status` shows, until ctx ends.
func (n notifier) tellStatus(ctx context.Context, current func() status.Status) {
	if n.socket == "" {
		return
	}
	ticker := time.NewTicker(time.Second)
	defer ticker.Stop()
	var told status.State
	var reason, text string
	var at time.Time
	for {
		s, now := current(), time.Now()
		if line := statusText(&s, now); line != text && (s.State != told || s.Reason != reason || now.Sub(at) >= statusEvery) {
			n.send("STATUS=" + line)
			told, reason, text, at = s.State, s.Reason, line, now
		}
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
	}
}

// statusText is the state and the lag in one line.
func statusText(s *status.Status, now time.Time) string {
	text := status.Headline(s, now)
	if s.LagBytes != nil && *s.LagBytes > 0 {
		text += " " + wording.Bytes(*s.LagBytes) + " of WAL are not confirmed."
	}
	return text
}
