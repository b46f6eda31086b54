package connect

import (
	"maps"
	"slices"
	"strings"
)

// Words are the values of an option, by their names in lower case.
type Words[T any] map[string]T

// Set reads an option the way Debezium reads an enumeration: any case, spaces
// around it ignored.
func (w Words[T]) Set(dst *T, options map[string]string, name string) error {
	value, ok := options[name]
	if !ok {
		return nil
	}
	v, ok := w[strings.ToLower(strings.TrimSpace(value))]
	if !ok {
		return &OptionError{Option: name, Value: value, Reason: "is not one of " + strings.Join(slices.Sorted(maps.Keys(w)), ", ")}
	}
	*dst = v
	return nil
}

// Booleans are the words of an option that is on or off.
var Booleans = Words[bool]{"true": true, "false": false}
