package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/cdc-relay/cdc-relay/sandbox"
	"github.com/cdc-relay/cdc-relay/test/harness"
)

// lostKinds drop packets while both kernels hold the bytes, and go on with them
// afterwards. A proxy cannot do that: it acknowledges what it swallows. They outlast
// senderTimeout, so that the server frees the slot meanwhile. Three real brokers would have
// to run twice, before and behind the device; one does.
var lostKinds = []*kind{
	{name: "net_lost", about: "no packet passes between the relays and any server, then all do", link: true, not: "apache3",
		takes: []string{"pgnet", "kafkanet", "writers"}, least: 4 * sec, most: 5500 * ms, run: lose(true, true, false)},
	{name: "net_lost_kill", about: "the relay that holds the slot is killed while no packet passes, and starts again", link: true, not: "apache3",
		takes: []string{"relay", "pgnet", "kafkanet", "writers"}, least: 3 * sec, most: 4500 * ms, run: func(ctx context.Context, w *world, d *Done) error {
			n := w.relays.leader()
			w.relays.hold(n, true)
			defer w.relays.hold(n, false)
			kill := time.AfterFunc(time.Duration(d.For)/2, func() { w.relays.signal(n, syscall.SIGKILL, true) })
			defer kill.Stop()
			back := time.AfterFunc(time.Duration(d.For), func() { w.relays.hold(n, false) })
			defer back.Stop()
			return lose(true, true, false)(ctx, w, d)
		}},
	{name: "net_pg_lost", about: "no packet passes between the relays and PostgreSQL, then all do", link: true, not: "apache3",
		takes: []string{"pgnet", "writers"}, least: 4 * sec, most: 5500 * ms, run: lose(true, false, false)},
	{name: "net_kafka_lost", about: "no packet passes between the relays and the brokers, then all do", link: true, not: "apache3",
		takes: []string{"kafkanet", "writers"}, least: 4 * sec, most: 5500 * ms, run: lose(false, true, false)},
	{name: "net_lost_leader", about: "no packet of the relay that holds the slot passes, until the standby has it", link: true, relays: 2, not: "apache3",
		takes: []string{"relay", "pgnet", "kafkanet", "writers"}, least: 4 * sec, most: 5500 * ms, run: lose(true, true, true)},
	{name: "net_pg_lost_leader", about: "the relay that holds the slot loses PostgreSQL and reaches the brokers, slowly, until the standby has it", link: true, relays: 2, not: "apache3",
		takes: []string{"relay", "pgnet", "kafkanet", "writers"}, least: 4 * sec, most: 5500 * ms, run: func(ctx context.Context, w *world, d *Done) error {
			each(w.kafka.Proxies(), func(p *sandbox.Proxy) { p.Slow(sandbox.ToServer, 256<<10) })
			defer each(w.kafka.Proxies(), (*sandbox.Proxy).Heal)
			rest(ctx, 500*ms) // a backlog, so that the relay does not read
			return lose(true, false, true)(ctx, w, d)
		}},
}

// lose drops packets for as long as the fault lasts. Writers pause just before the end:
// records that land after newer ones then are the last ones of their keys for a while.
// The kernel sends again at most as long after the fault as that lasted.
func lose(postgres, brokers, leader bool) func(context.Context, *world, *Done) error {
	return func(ctx context.Context, w *world, d *Done) error {
		if w.link == nil {
			d.Detail = noLink
			return nil
		}
		var of *sockets
		if leader {
			n, ok := w.ready(ctx)
			if !ok {
				d.Detail = "no standby was ready"
				return nil
			}
			of = w.relays.sockets(n)
		}
		servers := map[uint16]bool{}
		if postgres {
			servers[port(w.pgProxy.Addr())] = true
		}
		if brokers {
			each(w.kafka.Proxies(), func(p *sandbox.Proxy) { servers[port(p.Addr())] = true })
		}
		w.link.DropIf(func(source, target uint16) bool {
			client := source
			if servers[source] {
				client = target
			} else if !servers[target] {
				return false
			}
			return of == nil || of.own(client)
		})
		defer w.link.DropIf(nil)
		rest(ctx, time.Duration(d.For)-700*ms)
		w.load.gate.Lock()
		rest(ctx, 700*ms)
		w.link.DropIf(nil)
		rest(ctx, 700*ms)
		w.load.gate.Unlock()
		d.hold(ctx)
		return nil
	}
}

// noLink is the detail of a fault that this account cannot make.
const noLink = "left out: this account cannot make network devices"

// loses says that the relays need a link.
func (p Plan) loses() bool {
	return slices.ContainsFunc(p.Actions, func(a Action) bool { return kindNamed(a.Kind).link })
}

// connect takes the link, and makes it first where no run had one. Who may not have one is told, and its faults are left out; where
// everything is required that is an error.
func (w *world) connect() error {
	var err error
	if w.servers.link == nil {
		w.servers.link, err = sandbox.NewLink(sandbox.LinkOptions{})
	}
	if err == nil {
		w.link = w.servers.link
		return nil
	}
	if !forbidden(err) {
		return err
	}
	fmt.Fprintf(os.Stderr, "LEFT OUT: faults of the kinds net_*lost* need root's rights and Linux: %v\n", err)
	return nil
}

// forbidden says that a link cannot be had here, and that nobody requires it.
func forbidden(err error) bool {
	unable := errors.Is(err, errors.ErrUnsupported) || errors.Is(err, fs.ErrPermission) || errors.Is(err, fs.ErrNotExist)
	return unable && os.Getenv(harness.RequireVariable) != "all"
}

func port(addr string) uint16 {
	_, text, _ := net.SplitHostPort(addr)
	n, _ := strconv.ParseUint(text, 10, 16)
	return uint16(n)
}

// sockets tells by its port whose a connection is. It goes by Linux's account of a
// process, and asks once for each port.
type sockets struct {
	pid   int
	mu    sync.Mutex
	known map[uint16]bool
}

func (r *relays) sockets(n int) *sockets {
	r.mu.Lock()
	defer r.mu.Unlock()
	s := &sockets{known: map[uint16]bool{}}
	if p := r.places[n].process; p != nil {
		s.pid = p.PID()
	}
	return s
}

func (s *sockets) own(port uint16) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	own, known := s.known[port]
	if !known {
		own = slices.Contains(ports(s.pid), port)
		s.known[port] = own
	}
	return own
}

// ports are the local ports of a process's connections.
func ports(pid int) []uint16 {
	inodes := map[string]bool{}
	files, _ := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", pid))
	for _, file := range files {
		if target, err := os.Readlink(file); err == nil && strings.HasPrefix(target, "socket:[") {
			inodes[strings.Trim(target, "socket:[]")] = true
		}
	}
	text, _ := os.ReadFile("/proc/net/tcp")
	var found []uint16
	for line := range strings.Lines(string(text)) {
		fields := strings.Fields(line)
		if len(fields) < 10 || !inodes[fields[9]] {
			continue
		}
		if _, hex, ok := strings.Cut(fields[1], ":"); ok {
			n, _ := strconv.ParseUint(hex, 16, 16)
			found = append(found, uint16(n))
		}
	}
	return found
}
