package golden

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
)

// rule says what an error of ours must name where Debezium's has a certain form.
// In need, $1 is the first group of the form, and | separates alternatives; an
// empty group asks for nothing.
type rule struct {
	form *regexp.Regexp
	need []string
}

var rules = []rule{
	{regexp.MustCompile(`DataException: (.*) is not a valid field name`), []string{"$1", "column|field"}},
	{regexp.MustCompile(`Field '(.*)' is not of type (?:STRING|INT32|INT64)`), []string{"$1", "type|integer|timestamp|text"}},
	{regexp.MustCompile(`Unable to find (?:payload |timestamp )?field (.*) in event`), []string{"$1"}},
	{regexp.MustCompile(`Invalid value .* for configuration ([\w.]+)`), []string{"$1"}},
	{regexp.MustCompile(`The '([\w.]+)' value is invalid`), []string{"$1"}},
	{regexp.MustCompile(`because of field name duplication (.*)`), []string{"$1", "twice|already|duplicat|same"}},
	{regexp.MustCompile(`Invalid type for (?:STRUCT|ARRAY)`), []string{"expand|expansion", "JSON|json"}},
	{regexp.MustCompile(`Invalid value: null used for required field: "(.*)"`), []string{"$1", "null|NULL|converted"}},
	{regexp.MustCompile(`Struct schemas do not match`), []string{"schema|version"}},
	{regexp.MustCompile(`requires a delegate\.converter\.type`), []string{"delegate.converter.type"}},
	{regexp.MustCompile(`Invalid schema type for ByteArrayConverter`), []string{"ByteArrayConverter"}},
	{regexp.MustCompile(`Unable to parse logical decoding message content`), []string{"JSON", "message"}},
	{regexp.MustCompile(`Unexpected update message`), []string{"update|UPDATE"}},
	{regexp.MustCompile(`RecordTooLargeException: The message is (\d+) bytes`), []string{"max.request.size|max_message_bytes|too large|larger|limit"}},
	{regexp.MustCompile(`Invalid partition: (-?\d+)`), []string{"$1", "partition"}},
	{regexp.MustCompile(`library "(\w+)" may not be used|could not access file "(\w+)"`), []string{"$1$2"}},
	{regexp.MustCompile(`Publication autocreation is disabled`), []string{"publication"}},
	{regexp.MustCompile(`(?s)Invalid topics: \[(.*)\]`), []string{"$1", "topic"}},
	{regexp.MustCompile(`The given topic name '(.*)' cannot be represented`), []string{"$1", "topic"}},
	{regexp.MustCompile(`"this\.text" is null`), []string{"NULL|null"}},
	{regexp.MustCompile(`named capturing group is missing|No group with name|No group \d+|Illegal group reference`), []string{"group|placeholder"}},
	{regexp.MustCompile(`for event timestamp|java\.util\.Date cannot be cast|Invalid record timestamp|InvalidTimestampException`), []string{"timestamp"}},
	{regexp.MustCompile(`Only Struct objects supported`), []string{"TRUNCATE|truncate|row"}},
	{regexp.MustCompile(`AdditionalFieldPlacement|"placement" is null`), []string{"placement"}},
}

// Unnamed says which part of Debezium's cause an error of ours does not name;
// empty when it names all, and when the cause has a form that no rule knows. rule
// reports whether one did.
func Unnamed(debezium, ours string) (missing string, known bool) {
	for _, r := range rules {
		groups := r.form.FindStringSubmatchIndex(debezium)
		if groups == nil {
			continue
		}
		known = true
		for _, need := range r.need {
			text := string(r.form.ExpandString(nil, need, debezium, groups))
			if !namesOne(ours, text) {
				return fmt.Sprintf("%q", text), true
			}
		}
	}
	return "", known
}

// namesOne looks for one of the alternatives. A name with a control character may
// be written in any way.
func namesOne(text, alternatives string) bool {
	for _, one := range strings.Split(alternatives, "|") {
		ascii := strings.Trim(strconv.QuoteToASCII(one), `"`)
		if strings.ContainsFunc(one, func(r rune) bool { return r < 0x20 }) || strings.Contains(text, one) || strings.Contains(text, ascii) {
			return true
		}
	}
	return false
}
