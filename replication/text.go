package replication

import (
	"fmt"
	"strconv"
	"strings"
)

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

// CountText is a number of things as people write it: 1 row, 2 rows, 2 batches, 3 keys.
func CountText[N int | int32 | int64 | uint64](n N, noun string) string {
	if n != 1 {
		noun = plural(noun)
	}
	return fmt.Sprintf("%d %s", n, noun)
}

// plural is that of the nouns that messages have.
func plural(noun string) string {
	if strings.HasSuffix(noun, "ch") || strings.HasSuffix(noun, "s") || strings.HasSuffix(noun, "x") {
		return noun + "es"
	}
	if base, ok := strings.CutSuffix(noun, "y"); ok && !strings.HasSuffix(base, "a") && !strings.HasSuffix(base, "e") && !strings.HasSuffix(base, "o") {
		return base + "ies"
	}
	return noun + "s"
}
