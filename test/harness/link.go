package harness

import (
	"errors"
	"io/fs"
	"testing"

	"github.com/cdc-relay/cdc-relay/sandbox"
)

// Link is a network device for the time of the test, which needs Linux and root's
// rights. Elsewhere the test is skipped; under Linux it fails where CDC_RELAY_REQUIRE
// is `all`, and is skipped with `servers`.
func Link(t testing.TB, options sandbox.LinkOptions) *sandbox.Link {
	t.Helper()
	link, err := sandbox.NewLink(options)
	switch {
	case errors.Is(err, errors.ErrUnsupported):
		NotHere(t, "network devices are made on Linux alone")
	case errors.Is(err, fs.ErrPermission), errors.Is(err, fs.ErrNotExist):
		Forbidden(t, "make network devices", err, "run it as root, or with CAP_NET_ADMIN and /dev/net/tun")
	case err != nil:
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := link.Close(); err != nil {
			t.Error(err)
		}
	})
	return link
}
