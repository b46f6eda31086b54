package format

import (
	"strconv"
	"testing"
)

func TestContent_BoundsTheHeaderKeysThatItRemembers(t *testing.T) {
	var c Content
	for i := range 3 * maxInterned {
		key := strconv.Itoa(i)
		if got := c.intern([]byte(key)); got != key {
			t.Fatalf("%s becomes %s", key, got)
		}
	}
	if len(c.keys) > maxInterned {
		t.Errorf("%d keys remembered", len(c.keys))
	}
}
