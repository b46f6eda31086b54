package wording

import (
	"strconv"
)

// Shorten keeps a list readable.
func Shorten(names []string) []string {
	if len(names) <= 3 {
		return names
	}
	return append(names[:3:3], "…")
}

// Bytes is a number of bytes as people read it.
func Bytes(n int64) string {
	for _, unit := range []struct {
		size int64
		name string
	}{{1 << 40, "TiB"}, {1 << 30, "GiB"}, {1 << 20, "MiB"}, {1 << 10, "KiB"}} {
		if n >= unit.size || -n >= unit.size {
			return strconv.FormatFloat(float64(n)/float64(unit.size), 'f', 1, 64) + " " + unit.name
		}
	}
	return strconv.FormatInt(n, 10) + " B"
}
