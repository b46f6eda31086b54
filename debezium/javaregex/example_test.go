package javaregex_test

import (
	"fmt"

	"github.com/cdc-relay/cdc-relay/debezium/javaregex"
)

// A list matches whole names, as Debezium's filters of tables do.
func ExampleList() {
	tables, err := javaregex.List(`public\.outbox_\d+, public\.outbox`)
	if err != nil {
		panic(err)
	}
	for _, name := range []string{"public.outbox", "public.outbox_7", "public.outbox_old"} {
		fmt.Println(name, javaregex.MatchesAny(tables, name))
	}
	// Output:
	// public.outbox true
	// public.outbox_7 true
	// public.outbox_old false
}

// A pattern that Go's engine cannot match as Java does is refused.
func ExampleCompile() {
	_, err := javaregex.Compile(`(?<=public\.)outbox`, false)
	fmt.Println(err)
	// Output:
	// the regular expression "(?<=public\\.)outbox" uses syntax that this program's regular expressions (RE2) have no words for: look-behind
}
