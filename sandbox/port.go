package sandbox

import (
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"syscall"
)

// Ports from which FreePort chooses. They lie below those that systems give to outgoing
// connections and to listeners that do not name one (Linux: from 32768 on; others: from
// 49152 on), so nobody gets one by chance between here and the start of a server, which
// may take half a minute, or while a server is down that comes back on its port.
const (
	firstPort  = 10240
	lastPort   = 32767
	blockPorts = 128
	portBlocks = (lastPort + 1 - firstPort) / blockPorts
)

// given are the blocks of ports that this process has for itself until it ends.
var given struct {
	sync.Mutex
	blocks []int
	next   int // in blocks, counted in ports
	locks  *os.File
}

// FreePort is a TCP port of the loopback address that nobody listens on. No other process
// of this account is given it, and this one gets it again only where no other is left.
func FreePort() (int, error) {
	given.Lock()
	defer given.Unlock()
	var last error
	for range portBlocks * blockPorts {
		if given.next == len(given.blocks)*blockPorts {
			takePorts()
		}
		port := firstPort + given.blocks[given.next/blockPorts]*blockPorts + given.next%blockPorts
		given.next++
		listener, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
		if err != nil {
			last = err
			continue
		}
		return port, listener.Close()
	}
	return 0, fmt.Errorf("find a free port between %d and %d: %w", firstPort, lastPort, last)
}

// takePorts takes one more block, or begins with the first one again where none is left. Where
// blocks cannot be locked, other processes may choose the same one by chance.
func takePorts() {
	if given.locks == nil {
		given.locks, _ = openPortLocks() // it stays open: the locks end with it
	}
	taken := make(map[int]bool)
	for _, block := range given.blocks {
		taken[block] = true
	}
	for _, block := range rand.Perm(portBlocks) {
		if !taken[block] && (given.locks == nil || lockPorts(given.locks, block)) {
			given.blocks = append(given.blocks, block)
			return
		}
	}
	if given.next = 0; len(given.blocks) == 0 {
		given.blocks = append(given.blocks, rand.IntN(portBlocks))
	}
}

func openPortLocks() (*os.File, error) {
	dir, err := CacheDir()
	if err != nil {
		return nil, err
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	return os.OpenFile(filepath.Join(dir, "ports"), os.O_CREATE|os.O_RDWR, 0o644)
}

// lockPorts locks the byte of a block, which has no other meaning.
func lockPorts(file *os.File, block int) bool {
	return syscall.FcntlFlock(file.Fd(), syscall.F_SETLK, &syscall.Flock_t{
		Type: syscall.F_WRLCK, Whence: io.SeekStart, Start: int64(block), Len: 1,
	}) == nil
}
