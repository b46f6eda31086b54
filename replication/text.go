package replication

import (
	"strconv"
	"strings"
)

// oneLine folds the line breaks that drivers put between the attempts on
// several hosts: an error is one line of a log.
func oneLine(s string) string {
	if !strings.ContainsAny(s, "\r\n\t") {
		return s
	}
	lines := strings.FieldsFunc(s, func(r rune) bool { return r == '\n' || r == '\r' })
	for i, line := range lines {
		lines[i] = strings.TrimSpace(strings.ReplaceAll(line, "\t", " "))
	}
	return strings.Join(lines, "; ")
}

// shorten keeps a list readable.
func shorten(names []string) []string {
	if len(names) <= 3 {
		return names
	}
	return append(names[:3:3], "…")
}

// BytesText is a number of bytes as people read it.
func BytesText(n int64) string {
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
