package transform

import (
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/cdc-relay/cdc-relay/debezium/javaregex"
	"github.com/cdc-relay/cdc-relay/fault"
	"github.com/cdc-relay/cdc-relay/router/record"
)

// Transforms that change the topic: RegexRouter and TimestampRouter.

type regexRouter struct {
	regex *javaregex.Regex
	with  *javaregex.Replacement
}

func newRegexRouter(o *ownerOptions) transform {
	regex, err := javaregex.Compile(o.required("regex"), false)
	if err != nil {
		o.fail("regex", "%w", err)
		return nil
	}
	if _, given := o.names["replacement"]; !given {
		o.fail("replacement", "%sreplacement is missing: RegexRouter needs it", o.prefix)
		return nil
	}
	with, err := javaregex.ParseReplacement(o.names["replacement"], regex.Anywhere)
	if err != nil {
		o.fail("replacement", "%w", err)
		return nil
	}
	return &regexRouter{regex: regex, with: with}
}

func (t *regexRouter) apply(_ *Chain, r *Record) (bool, error) {
	r.Topic = t.regex.ReplaceFirst(r.Topic, t.with)
	return true, nil
}

// timestampRouter renders the record's time into the topic.
type timestampRouter struct {
	topic string
	parts []timePart
}

type timePart struct {
	literal string
	letter  byte // of SimpleDateFormat; 0: the literal alone
	width   int
}

func newTimestampRouter(o *ownerOptions) transform {
	t := &timestampRouter{topic: o.text("topic.format", "${topic}-${timestamp}")}
	pattern := o.text("timestamp.format", "yyyyMMdd")
	for i := 0; i < len(pattern); {
		c := pattern[i]
		switch {
		case c == '\'':
			end := strings.IndexByte(pattern[i+1:], '\'')
			if end < 0 {
				o.fail("timestamp.format", "%q has an unterminated quote", pattern)
				return nil
			}
			literal := pattern[i+1 : i+1+end]
			if end == 0 {
				literal = "'"
			}
			t.parts = append(t.parts, timePart{literal: literal})
			i += end + 2
		case isLetter(c):
			n := 1
			for i+n < len(pattern) && pattern[i+n] == c {
				n++
			}
			if strings.IndexByte("yMdHmsSD", c) < 0 || c == 'M' && n > 2 {
				o.fail("timestamp.format", "%q has the letters %q, which are not carried; y, M, d, H, m, s, S and D with numbers are", pattern, pattern[i:i+n])
				return nil
			}
			t.parts = append(t.parts, timePart{letter: c, width: n})
			i += n
		default:
			_, n := utf8.DecodeRuneInString(pattern[i:])
			t.parts = append(t.parts, timePart{literal: pattern[i : i+n]})
			i += n
		}
	}
	return t
}

func (t *timestampRouter) apply(_ *Chain, r *Record) (bool, error) {
	ms, ok := r.at()
	if !ok {
		return false, record.Reject(fault.ReasonRoute, "", "timestamp missing on record: the topic is made of it")
	}
	at := time.UnixMilli(ms).UTC()
	var b strings.Builder
	for _, p := range t.parts {
		var n int
		switch p.letter {
		case 'y':
			if n = at.Year(); p.width == 2 {
				n %= 100
			}
		case 'M':
			n = int(at.Month())
		case 'd':
			n = at.Day()
		case 'H':
			n = at.Hour()
		case 'm':
			n = at.Minute()
		case 's':
			n = at.Second()
		case 'S':
			n = at.Nanosecond() / 1e6
		case 'D':
			n = at.YearDay()
		default:
			b.WriteString(p.literal)
			continue
		}
		digits := strconv.Itoa(n)
		b.WriteString(strings.Repeat("0", max(0, p.width-len(digits))) + digits)
	}
	topic := strings.ReplaceAll(t.topic, "${topic}", r.Topic)
	r.Topic = strings.ReplaceAll(topic, "${timestamp}", b.String())
	return true, nil
}

func isDigit(c byte) bool { return '0' <= c && c <= '9' }

func isLetter(c byte) bool { return 'a' <= c|0x20 && c|0x20 <= 'z' }
