package sandbox

import (
	"fmt"
	"math/rand/v2"
	"net"
	"strconv"
	"sync"
)

// Ports from which FreePort chooses. They lie below those that systems give to outgoing
// connections and to listeners that do not name one (Linux: from 32768 on; others: from
// 49152 on), so nobody gets one by chance between here and the start of a server, which
// may take half a minute.
const (
	firstPort = 10240
	lastPort  = 32767
)

var given struct {
	sync.Mutex
	ports map[int]bool // to this process; not given twice
}

// FreePort is a TCP port of the loopback address that nobody listens on, and that this
// process was not given before. Another process may choose the same one by chance.
func FreePort() (int, error) {
	given.Lock()
	defer given.Unlock()
	var last error
	for range 1000 {
		port := firstPort + rand.IntN(lastPort-firstPort+1)
		if given.ports[port] {
			continue
		}
		listener, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
		if err != nil {
			last = err
			continue
		}
		if given.ports == nil {
			given.ports = make(map[int]bool)
		}
		given.ports[port] = true
		return port, listener.Close()
	}
	return 0, fmt.Errorf("find a free port between %d and %d: %w", firstPort, lastPort, last)
}
