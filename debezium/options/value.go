package options

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// Because is the note behind a colon, or nothing.
func (o *Option) Because() string {
	if o.Note == "" {
		return ""
	}
	return ": " + o.Note
}

// Check holds a value against the option's type and returns what is wrong.
func (o *Option) Check(value string) (wrong []string) {
	words := o.Allowed()
	switch {
	case words != nil:
		if !slices.ContainsFunc(words, func(w string) bool { return strings.EqualFold(w, strings.TrimSpace(value)) }) {
			wrong = append(wrong, fmt.Sprintf("%q is not allowed%s; value must be one of %s", value, o.Because(), strings.Join(words, ", ")))
		}
	case o.Type == "bool":
		if _, ok := Bool(value); !ok {
			wrong = append(wrong, fmt.Sprintf("%q is not allowed; expected either true or false", value))
		}
	case o.Type == "int":
		if _, err := strconv.ParseInt(strings.TrimSpace(value), 10, 64); err != nil {
			wrong = append(wrong, fmt.Sprintf("%q is not a whole number", value))
		}
	case o.Name == "connector.class" && value != o.Default:
		wrong = append(wrong, fmt.Sprintf("%q is another connector; only %s is carried", value, o.Default))
	}
	if o.Fate == FateDefault && words == nil && !strings.EqualFold(strings.TrimSpace(value), o.Default) {
		wrong = append(wrong, fmt.Sprintf("%q is not carried, only the default %q is%s", value, o.Default, o.Because()))
	}
	return wrong
}

// Bool reads true and false as Kafka Connect does.
func Bool(text string) (value, ok bool) {
	switch strings.ToLower(strings.TrimSpace(text)) {
	case "true":
		return true, true
	case "false":
		return false, true
	}
	return false, false
}

// List divides at commas, without empty items and without the blanks around items.
func List(text string) []string {
	var list []string
	for item := range strings.SplitSeq(text, ",") {
		if item = strings.TrimSpace(item); item != "" {
			list = append(list, item)
		}
	}
	return list
}
