package admin

import (
	"errors"
	"fmt"
	"net"
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
}

// ListenError is an address that cannot be had: exit code 3.
type ListenError struct {
	Address string
	Err     error
}

func (e *ListenError) Error() string {
	return fmt.Sprintf("listen on http.listen %s: %v: free the address or choose another one (http.listen: \"\" turns HTTP off)", e.Address, rootCause(e.Err))
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
