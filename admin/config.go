package admin

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"slices"
	"strings"
	"syscall"

	"github.com/cdc-relay/cdc-relay/loopback"
)

// Config says where to listen and who may ask.
type Config struct {
	// Listen is host:port; port 0 takes a free one, an empty host means every
	// address. Empty turns HTTP off.
	Listen string

	// Token, when set, is asked at every request, so a rotated token applies at
	// once. All paths but the health checks then want it as a bearer token. Nil:
	// no token. Never logged.
	Token func() (string, error)

	// Operator is the token of the role that may act, when Actions is set, and see keys and values
	// of dead letters, when Payloads is set. It admits to what Token admits to as well. Nil: there
	// are no operators.
	Operator          func() (string, error)
	Actions, Payloads bool

	// Hosts may be asked for, beside loopback and the address itself, where it listens
	// on loopback without a token. "*" is any.
	Hosts []string
}

// ours reports whether a request is for this server. On loopback nobody but this machine can
// connect, and a browser there does so for any page that has its own name resolve to
// loopback; the name is in the request. A token keeps such a page out by itself.
func (c *Config) ours(request string) bool {
	listen, _, err := net.SplitHostPort(c.Listen)
	if c.Token != nil || err != nil || !loopback.Is(listen) || request == "" {
		return true
	}
	host := request
	if h, _, err := net.SplitHostPort(request); err == nil {
		host = h
	}
	host = strings.TrimSuffix(strings.Trim(host, "[]"), ".")
	return loopback.Is(host) || slices.ContainsFunc(c.Hosts, func(name string) bool {
		return name == "*" || strings.EqualFold(name, host)
	})
}

// ListenError is an address that cannot be had: exit code 3.
type ListenError struct {
	Address string
	Err     error
}

func (e *ListenError) Error() string {
	next := "choose another address"
	switch {
	case errors.Is(e.Err, syscall.EADDRINUSE):
		next = "end the program that has the address, or choose another one"
	case errors.Is(e.Err, fs.ErrPermission):
		next = "choose a port from 1024 on, or give the program the right to lower ones (CAP_NET_BIND_SERVICE)"
	case errors.Is(e.Err, syscall.EADDRNOTAVAIL):
		next = "choose an address of this machine; an empty host means all of them"
	}
	return fmt.Sprintf("listen on http.listen %s: %v: %s (http.listen: \"\" turns HTTP off)", e.Address, rootCause(e.Err), next)
}

func (e *ListenError) Unwrap() error { return e.Err }

// rootCause drops net's own wrapping, which repeats the address.
func rootCause(err error) error {
	var op *net.OpError
	if errors.As(err, &op) && op.Err != nil {
		return op.Err
	}
	return err
}
