package sandbox

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// LinkOptions say what a Link is like. The zero value is as quick as the machine.
type LinkOptions struct {
	Delay time.Duration // each way
	Rate  int           // bytes a second, each way; 0 is no limit
}

// Link is a network between this machine and itself: a device whose packets are
// brought back, later, as if they came from another machine. Unlike a Proxy it
// delays packets and not bytes, so the kernel's TCP has its round trips, windows
// and congestion. It is Linux's and needs the right to make network devices.
//
// Its methods may be called from any goroutine.
type Link struct {
	here, there netip.Addr
	device      *os.File
	work        sync.WaitGroup
	drops       atomic.Pointer[func(source, target uint16) bool]
}

const (
	linkMTU = 9000

	// linkQueue is how many packets wait for a direction's turn; the next one is
	// lost, which is how TCP learns that a link is full.
	linkQueue = 512

	// coarse is how far before a packet is due its wait is left to the kernel.
	coarse = 2 * time.Millisecond
)

var links atomic.Uint32 // of this process, so that each has its own addresses

// NewLink makes a link. The caller calls Close.
func NewLink(options LinkOptions) (*Link, error) {
	device, name, err := openTUN()
	if err != nil {
		return nil, fmt.Errorf("make a network device: %w", err)
	}
	// Four addresses of 198.18.0.0/16, which is for benchmarks (RFC 2544).
	n := uint16(os.Getpid()) + uint16(links.Add(1))
	at := func(last byte) netip.Addr { return netip.AddrFrom4([4]byte{198, 18, byte(n >> 6), byte(n<<2) | last}) }
	l := &Link{here: at(1), there: at(2), device: device}
	if err := address(name, l.here); err != nil {
		return nil, fmt.Errorf("set up network device %s: %w", name, errors.Join(err, device.Close()))
	}
	ctx, stop := context.WithCancel(context.Background())
	var lanes [2]chan packet
	for i := range lanes {
		lanes[i] = make(chan packet, linkQueue)
		l.work.Go(func() { l.bring(ctx, lanes[i]) })
	}
	l.work.Go(func() {
		defer stop()
		l.take(options, lanes)
	})
	return l, nil
}

// Here is this machine's own address on the link, which servers listen on.
func (l *Link) Here() string { return l.here.String() }

// There is the address behind the link, which is this machine again: who connects
// to it reaches who listens on Here, and is seen to come from There.
func (l *Link) There() string { return l.there.String() }

// Drop has packets vanish, both ways, until it is called with false: those that are sent
// meanwhile. The kernels at both ends know of nothing, hold what they could not deliver,
// and continue with it afterwards. That is what a Proxy's faults, which acknowledge every byte,
// cannot show.
func (l *Link) Drop(on bool) {
	if on {
		l.DropIf(func(uint16, uint16) bool { return true })
	} else {
		l.DropIf(nil)
	}
}

// DropIf drops the packets between ports that which names, until it is called with nil.
// which runs on a goroutine of the link.
func (l *Link) DropIf(which func(source, target uint16) bool) {
	if which == nil {
		l.drops.Store(nil)
	} else {
		l.drops.Store(&which)
	}
}

// Close removes the device and everything that is on its way.
func (l *Link) Close() error {
	err := l.device.Close()
	l.work.Wait()
	return err
}

type packet struct {
	due  time.Time
	data []byte
}

// take reads what the kernel sends and says when it arrives.
func (l *Link) take(options LinkOptions, lanes [2]chan packet) {
	var free [2]time.Time // when the direction has sent what came before
	buf := make([]byte, linkMTU)
	for {
		n, err := l.device.Read(buf)
		if err != nil {
			return // closed
		}
		p := buf[:n]
		if n < 24 || p[0] != 0x45 || [4]byte(p[12:16]) != l.here.As4() || [4]byte(p[16:20]) != l.there.As4() {
			continue // not between the two, or with options that TCP does without
		}
		// Swapped addresses leave the checksums as they are.
		copy(p[12:16], l.there.AsSlice())
		copy(p[16:20], l.here.AsSlice())

		source, target := uint16(p[20])<<8|uint16(p[21]), uint16(p[22])<<8|uint16(p[23])
		if drop := l.drops.Load(); drop != nil && (*drop)(source, target) {
			continue
		}
		direction := 0
		if source < target { // a server's port is the lower one
			direction = 1
		}
		now := time.Now()
		if options.Rate > 0 {
			if free[direction].Before(now) {
				free[direction] = now
			}
			free[direction] = free[direction].Add(time.Duration(n) * time.Second / time.Duration(options.Rate))
			now = free[direction]
		}
		select {
		case lanes[direction] <- packet{now.Add(options.Delay), append([]byte(nil), p...)}:
		default: // lost
		}
	}
}

// bring gives packets back to the kernel when they are due.
func (l *Link) bring(ctx context.Context, packets <-chan packet) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case p := <-packets:
			// Go's timers are due to the millisecond, the kernel's to some microseconds.
			if wait := time.Until(p.due) - coarse; wait > 0 {
				timer.Reset(wait)
				select {
				case <-timer.C:
				case <-ctx.Done():
					return
				}
			}
			for rest := time.Until(p.due); rest > 0; rest = time.Until(p.due) { // a signal cuts the sleep short
				span := unix.NsecToTimespec(rest.Nanoseconds())
				_ = unix.Nanosleep(&span, nil)
			}
			if _, err := l.device.Write(p.data); err != nil {
				return // closed
			}
		case <-ctx.Done():
			return
		}
	}
}

func openTUN() (*os.File, string, error) {
	fd, err := unix.Open("/dev/net/tun", unix.O_RDWR|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, "", err
	}
	request, err := unix.NewIfreq("")
	if err == nil {
		request.SetUint16(unix.IFF_TUN | unix.IFF_NO_PI)
		err = unix.IoctlIfreq(fd, unix.TUNSETIFF, request)
	}
	if err != nil {
		_ = unix.Close(fd) // the first error counts
		return nil, "", err
	}
	return os.NewFile(uintptr(fd), "/dev/net/tun"), request.Name(), nil
}

// address gives the device its address, with the other one beside it, and starts it.
func address(name string, here netip.Addr) error {
	socket, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer func() { _ = unix.Close(socket) }()
	set := func(what uint, fill func(*unix.Ifreq) error) error {
		request, err := unix.NewIfreq(name)
		if err != nil {
			return err
		}
		if err := fill(request); err != nil {
			return err
		}
		return unix.IoctlIfreq(socket, what, request)
	}
	for _, step := range []struct {
		what uint
		fill func(*unix.Ifreq) error
	}{
		{unix.SIOCSIFADDR, func(r *unix.Ifreq) error { return r.SetInet4Addr(here.AsSlice()) }},
		{unix.SIOCSIFNETMASK, func(r *unix.Ifreq) error { return r.SetInet4Addr([]byte{255, 255, 255, 252}) }},
		{unix.SIOCSIFMTU, func(r *unix.Ifreq) error { r.SetUint32(linkMTU); return nil }},
		{unix.SIOCSIFFLAGS, func(r *unix.Ifreq) error { r.SetUint16(unix.IFF_UP); return nil }},
	} {
		if err := set(step.what, step.fill); err != nil {
			return err
		}
	}
	return nil
}
