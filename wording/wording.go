// Package wording has what messages of every package share: plurals, the name that was
// likely meant, and where the documentation is. It is pure and imports nothing of ours.
package wording

import (
	"fmt"
	"strings"
)

// Count is a number of things as people write it: 1 row, 2 rows, 2 batches, 3 keys.
func Count[N int | int32 | int64 | uint64](n N, noun string) string {
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

// Docs is where the documentation is read by whoever has the program alone.
const Docs = "https://github.com/cdc-relay/cdc-relay/blob/main/docs/"

// Nearest is the name that differs by a third of the letters at most, and in one that is
// short by one.
func Nearest(name string, names []string) (string, bool) {
	best, least := "", max(1, len(name)/3)+1
	for _, n := range names {
		if d := distance(strings.ToLower(name), strings.ToLower(n)); d < least {
			best, least = n, d
		}
	}
	return best, best != ""
}

// distance is Levenshtein's, a swap of two neighbours counted as one.
func distance(a, b string) int {
	if len(a) > 64 {
		return len(a)
	}
	before, row := make([]int, len(b)+1), make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := 1; i <= len(a); i++ {
		next := make([]int, len(b)+1)
		next[0] = i
		for j := 1; j <= len(b); j++ {
			cost := 1
			if a[i-1] == b[j-1] {
				cost = 0
			}
			next[j] = min(row[j]+1, next[j-1]+1, row[j-1]+cost)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				next[j] = min(next[j], before[j-2]+1)
			}
		}
		before, row = row, next
	}
	return row[len(b)]
}

// DidYouMean ends a message about an unknown name: the nearest of the names
// when one is near, else all of them.
func DidYouMean(name string, names []string) string {
	if near, ok := Nearest(name, names); ok {
		return "did you mean " + near + "?"
	}
	return "allowed: " + strings.Join(names, ", ")
}
