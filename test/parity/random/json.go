package main

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strings"
)

// jsonText is mostly an object, as payloads are.
func jsonText(r *rand.Rand) string {
	switch r.IntN(12) {
	case 0:
		return literals("'{}'", "'[]'", "'null'", "'42'", `'"str"'`, "'true'", "'[1, 2]'", `'[{"a": 1}]'`, `'[1, "a"]'`)(r)
	case 1:
		return quote(` {"spaced" : 1 , "b":2 }`)
	}
	return quote(object(r, 3))
}

var members = []string{"a", "b", "name", "total", "items", "Ünï", "with space", "a.b", "x-y", "nested", "flag", "emoji 😀"}

func object(r *rand.Rand, depth int) string {
	var b strings.Builder
	b.WriteByte('{')
	names := r.Perm(len(members))[:r.IntN(6)]
	for i, n := range names {
		if i > 0 {
			b.WriteString(", ")
		}
		fmt.Fprintf(&b, "%s: %s", encode(members[n]), value(r, depth-1))
	}
	b.WriteByte('}')
	return b.String()
}

func value(r *rand.Rand, depth int) string {
	n := 8
	if depth > 0 {
		n = 11
	}
	switch r.IntN(n) {
	case 0:
		return "null"
	case 1:
		return literals("true", "false")(r)
	case 2:
		return literals("0", "-1", "2147483647", "2147483648", "-2147483649", "9223372036854775807")(r)
	case 3:
		return literals("1.5", "4.90", "1e3", "1E-7", "-0.0", "100000000000.5", "0.1", "123456789.123456789", "2.5E10")(r)
	case 4:
		return fmt.Sprint(r.IntN(100000))
	case 8:
		return object(r, depth)
	case 9, 10:
		return list(r, depth)
	}
	return encode(word(r))
}

// list has elements of one shape: Java merges others in an order of its own.
func list(r *rand.Rand, depth int) string {
	items := make([]string, r.IntN(4))
	one := func() string { return fmt.Sprint(r.IntN(100)) }
	switch r.IntN(5) {
	case 0:
		one = func() string { return encode(word(r)) }
	case 1:
		one = func() string { return literals("true", "false")(r) }
	case 2:
		one = func() string { return fmt.Sprintf(`{"p": %d, "q": %s}`, r.IntN(10), encode(word(r))) }
	case 3:
		same := value(r, depth-1) // at times nothing that Debezium can expand
		one = func() string { return same }
	}
	for i := range items {
		items[i] = one()
	}
	return "[" + strings.Join(items, ", ") + "]"
}

func encode(s string) string {
	text, _ := json.Marshal(s) // a string can always be encoded
	return string(text)
}
