package main

import (
	"fmt"
	"math"
	"math/rand/v2"
	"strconv"
	"strings"
	"time"
)

// kind is a column type and how to make values of it.
type kind struct {
	name     string
	value    func(*rand.Rand) string // an SQL expression
	defaults []string                // expressions that a column may have as its default
	text     bool                    // Connect's STRING
	before   string                  // SQL that the type needs first
}

func literals(all ...string) func(*rand.Rand) string {
	return func(r *rand.Rand) string { return all[r.IntN(len(all))] }
}

func quote(s string) string { return "'" + strings.ReplaceAll(s, "'", "''") + "'" }

var words = []string{
	"", " ", "a", "Order", "two words", `quote " and \ backslash`, "apostrophe ' here", "Ünïcode ✓", "emoji 😀 and 𝄞",
	"tab\tnewline\ncarriage\r", "\x01\b\f\x1f\x7f", "\u2028\u2029\ufeff", "/slash</tag>&amp;", "null", "0", "{}", "[]", `{"a": 1}`,
	" leading", "trailing ", "\u00a0", strings.Repeat("long ", 60),
}

func word(r *rand.Rand) string { return words[r.IntN(len(words))] }

func textValue(r *rand.Rand) string { return quote(word(r)) }

// shortText fits varchar(20).
func shortText(r *rand.Rand) string {
	for {
		if w := []rune(word(r)); len(w) <= 20 {
			return quote(string(w))
		}
	}
}

func intValue(low, high int64) func(*rand.Rand) string {
	return func(r *rand.Rand) string {
		switch r.IntN(6) {
		case 0:
			return fmt.Sprintf("(%d)", low+1)
		case 1:
			return strconv.FormatInt(high, 10)
		case 2:
			return "0"
		}
		return fmt.Sprintf("(%d)", r.Int64N(2001)-1000)
	}
}

func float8Value(r *rand.Rand) string {
	switch r.IntN(5) {
	case 0:
		return literals("'NaN'", "'Infinity'", "'-Infinity'", "0", "'-0'", "1e7", "0.001", "9999999", "1e-3", "4.9e-324", "1.7976931348623157e308", "2e23", "1e23", "100", "1e21")(r)
	case 1:
		return fmt.Sprintf("'%v'", float64(r.IntN(1000000))/100)
	}
	for {
		if f := math.Float64frombits(r.Uint64()); !math.IsNaN(f) && !math.IsInf(f, 0) {
			return fmt.Sprintf("'%s'", strconv.FormatFloat(f, 'g', -1, 64))
		}
	}
}

func float4Value(r *rand.Rand) string {
	if r.IntN(3) == 0 {
		return literals("'NaN'", "'Infinity'", "0", "'-0'", "16777216", "8.589935e9", "1e-45", "3.4028235e38", "0.1", "1.5", "1e10")(r)
	}
	for {
		f := math.Float32frombits(r.Uint32())
		if wide := float64(f); !math.IsNaN(wide) && !math.IsInf(wide, 0) {
			return fmt.Sprintf("'%s'", strconv.FormatFloat(wide, 'g', -1, 32))
		}
	}
}

// decimal makes a number of at most digits, scale of them behind the point.
func decimal(digits, scale int) func(*rand.Rand) string {
	return func(r *rand.Rand) string {
		var b strings.Builder
		if r.IntN(3) == 0 {
			b.WriteByte('-')
		}
		whole := r.IntN(digits - scale + 1)
		if whole == 0 {
			b.WriteByte('0')
		}
		for range whole {
			b.WriteByte(byte('0' + r.IntN(10)))
		}
		if fraction := r.IntN(scale + 1); fraction > 0 {
			b.WriteByte('.')
			for range fraction {
				b.WriteByte(byte('0' + r.IntN(10)))
			}
		}
		return quote(b.String())
	}
}

func numericValue(r *rand.Rand) string {
	if r.IntN(4) == 0 {
		return literals("0", "'0.000'", "1234500.00", "1e20", "1.50", "0.0000001", "'NaN'", "-0.05", "100", "1e-10")(r)
	}
	return decimal(40, 15)(r)
}

func moneyValue(r *rand.Rand) string {
	return fmt.Sprintf("'%d.%02d'::money", r.IntN(20001)-10000, r.IntN(100))
}

func uuidValue(r *rand.Rand) string {
	return fmt.Sprintf("'%08x-%04x-4%03x-8%03x-%012x'", r.Uint32(), r.IntN(1<<16), r.IntN(1<<12), r.IntN(1<<12), r.Int64N(1<<48))
}

func byteaValue(r *rand.Rand) string {
	raw := make([]byte, []int{0, 1, 3, 4, 17, 300}[r.IntN(6)])
	for i := range raw {
		raw[i] = byte(r.Uint32())
	}
	return fmt.Sprintf(`'\x%x'`, raw)
}

// moment is between 1970 and 2024: the broker takes it as a record's timestamp.
func moment(r *rand.Rand) time.Time {
	return time.UnixMicro(1 + r.Int64N(1704067200*1e6)).UTC()
}

func timestampValue(r *rand.Rand) string {
	layouts := []string{"2006-01-02 15:04:05.000000", "2006-01-02 15:04:05.000", "2006-01-02 15:04:05", "2006-01-02 00:00:00"}
	return quote(moment(r).Format(layouts[r.IntN(len(layouts))]))
}

// anyTimestamp also has what no broker takes.
func anyTimestamp(r *rand.Rand) string {
	if r.IntN(4) == 0 {
		return literals("'infinity'", "'-infinity'", "'1969-12-31 23:59:59.999999'", "'0044-03-15 12:00:00 BC'", "'0001-01-01 00:00:00'", "'9999-12-31 23:59:59.999999'", "'21016-01-01 00:00:00'", "'1500-02-28 12:34:56.7'")(r)
	}
	return timestampValue(r)
}

func zonedTimestamp(r *rand.Rand) string {
	if r.IntN(4) == 0 {
		return literals("'infinity'", "'-infinity'", "'0044-03-15 12:00:00+00 BC'", "'21016-01-01 00:00:00+00'", "'1969-12-31 23:59:59.9+00'", "'2024-02-29 13:14:15+02'")(r)
	}
	return quote(moment(r).Format("2006-01-02 15:04:05.999999") + []string{"+00", "+02", "-07:30", "+14"}[r.IntN(4)])
}

func dateValue(r *rand.Rand) string {
	if r.IntN(5) == 0 {
		return literals("'infinity'", "'-infinity'", "'0044-03-15 BC'", "'1582-10-10'", "'9999-12-31'", "'1970-01-01'", "'1969-12-31'", "'2024-02-29'")(r)
	}
	return quote(moment(r).Format(time.DateOnly))
}

func timeValue(r *rand.Rand) string {
	if r.IntN(5) == 0 {
		return literals("'00:00:00'", "'23:59:59.999999'", "'24:00:00'", "'12:00'")(r)
	}
	return quote(moment(r).Format("15:04:05.999999"))
}

func zonedTime(r *rand.Rand) string {
	return quote(moment(r).Format("15:04:05.999999") + []string{"+00", "+02", "-07:30", "+14"}[r.IntN(4)])
}

func intervalValue(r *rand.Rand) string {
	return quote(fmt.Sprintf("%d years %d mons %d days %d:%02d:%02d.%06d", r.IntN(5)-2, r.IntN(14)-1, r.IntN(60)-20, r.IntN(30), r.IntN(60), r.IntN(60), r.IntN(1000000)))
}

// array makes a list of another kind's values; null is one of them at times.
func array(of kind) kind {
	return kind{name: of.name + "[]", before: of.before, value: func(r *rand.Rand) string {
		items := make([]string, r.IntN(4))
		for i := range items {
			items[i] = "NULL"
			if r.IntN(6) > 0 {
				items[i] = of.value(r)
			}
		}
		return fmt.Sprintf("ARRAY[%s]::%s[]", strings.Join(items, ", "), of.name)
	}}
}

func bits(low, high int) func(*rand.Rand) string {
	return func(r *rand.Rand) string {
		n := low + r.IntN(high-low+1)
		var b strings.Builder
		for range n {
			b.WriteByte(byte('0' + r.IntN(2)))
		}
		return "B'" + b.String() + "'"
	}
}

func hstoreValue(r *rand.Rand) string {
	var pairs []string
	for i := range r.IntN(15) {
		value := quote(word(r))
		if r.IntN(5) == 0 {
			value = "NULL"
		}
		pairs = append(pairs, fmt.Sprintf("hstore(%s, %s)", quote(word(r)+strconv.Itoa(i)), value))
	}
	if len(pairs) == 0 {
		return "''::hstore"
	}
	return strings.Join(pairs, " || ")
}

const (
	moodType   = "create type public.mood as enum ('sad', 'ok', 'very happy');"
	textDomain = "create domain public.short_text as text check (length(value) < 1000);"
	intDomain  = "create domain public.positive as integer check (value >= 0);"
	hstoreType = "create extension hstore;"
)

var (
	textKind    = kind{name: "text", value: textValue, text: true, defaults: []string{"'dflt'", "''", "'a' || 'b'", "current_user"}}
	varcharKind = kind{name: "varchar(20)", value: shortText, text: true, defaults: []string{"'v'", "'x'::varchar"}}
	charKind    = kind{name: "char(5)", value: literals("'ab'", "'abcde'", "''", "'é'"), text: true, defaults: []string{"'q'"}}
	int2Kind    = kind{name: "smallint", value: intValue(math.MinInt16, math.MaxInt16), defaults: []string{"7", "-3"}}
	int4Kind    = kind{name: "integer", value: intValue(math.MinInt32, math.MaxInt32), defaults: []string{"7", "-3", "(1 + 2)"}}
	int8Kind    = kind{name: "bigint", value: intValue(math.MinInt64, math.MaxInt64), defaults: []string{"9007199254740993"}}
	uuidKind    = kind{name: "uuid", value: uuidValue, text: true, defaults: []string{"gen_random_uuid()", "'00000000-0000-4000-8000-00000000000a'"}}
	moodKind    = kind{name: "public.mood", value: literals("'sad'", "'ok'", "'very happy'"), text: true, defaults: []string{"'ok'"}, before: moodType}
	domainKind  = kind{name: "public.short_text", value: textValue, text: true, before: textDomain}
	jsonKind    = kind{name: "json", value: jsonText, text: true, defaults: []string{"'{}'", `'{"d": 1}'::json`}}
	jsonbKind   = kind{name: "jsonb", value: jsonText, text: true, defaults: []string{"'{}'::jsonb", `'{"d": [1, 2]}'`}}
	byteaKind   = kind{name: "bytea", value: byteaValue, defaults: []string{`'\x00ff'`}}
	tsKind      = kind{name: "timestamp", value: anyTimestamp, defaults: []string{"now()", "'2024-01-02 03:04:05'"}}
	boolKind    = kind{name: "boolean", value: literals("true", "false"), defaults: []string{"false", "true"}}
	numericKind = kind{name: "numeric", value: numericValue, defaults: []string{"1.5", "0"}}
	num102Kind  = kind{name: "numeric(10,2)", value: decimal(10, 2), defaults: []string{"1.50", "0", "-1"}}
	tstzKind    = kind{name: "timestamptz", value: zonedTimestamp, defaults: []string{"now()", "'2024-01-02 03:04:05+02'", "current_timestamp"}}
	float8Kind  = kind{name: "double precision", value: float8Value, defaults: []string{"1e10", "0.5"}}
	dateKind    = kind{name: "date", value: dateValue, defaults: []string{"current_date", "'2024-01-02'"}}
	xmlKind     = kind{name: "xml", value: literals("'<a>1</a>'", "'text'", "'<b c=\"d\"/>'"), text: true}
)

// kinds are the types of columns that are sent as headers and members.
var kinds = []kind{
	textKind, varcharKind, charKind, int2Kind, int4Kind, int8Kind, uuidKind, moodKind, domainKind, jsonKind, jsonbKind, byteaKind, tsKind, boolKind,
	numericKind, num102Kind, tstzKind, float8Kind, dateKind, xmlKind,
	{name: "real", value: float4Value, defaults: []string{"1.5"}},
	{name: "numeric(20,10)", value: decimal(20, 10)},
	{name: "numeric(38,0)", value: decimal(38, 0)},
	{name: "money", value: moneyValue},
	{name: "oid", value: literals("0", "99", "4294967295")},
	{name: "public.positive", value: literals("0", "1", "2147483647"), before: intDomain},
	{name: "timestamp(0)", value: anyTimestamp},
	{name: "timestamp(3)", value: anyTimestamp},
	{name: "timestamptz(0)", value: zonedTimestamp},
	{name: "timestamptz(3)", value: zonedTimestamp},
	{name: "time", value: timeValue, defaults: []string{"'01:02:03'"}},
	{name: "time(0)", value: timeValue},
	{name: "time(3)", value: timeValue},
	{name: "timetz", value: zonedTime},
	{name: "interval", value: intervalValue, defaults: []string{"'1 day'"}},
	{name: "bit(1)", value: bits(1, 1)},
	{name: "bit(5)", value: bits(5, 5)},
	{name: "bit varying(12)", value: bits(0, 12)},
	{name: "inet", value: literals("'10.0.0.1'", "'10.0.0.1/8'", "'::1'")},
	{name: "cidr", value: literals("'10.0.0.0/8'", "'2001:db8::/32'")},
	{name: "macaddr", value: literals("'08:00:2b:01:02:03'")},
	{name: "int4range", value: literals("'[1,5)'", "'empty'", "'(,3]'")},
	{name: "numrange", value: literals("'[1.5,2.5]'", "'(,)'")},
	{name: "tstzrange", value: literals("'[2024-01-01 00:00:00+00,2024-02-01 00:00:00+00)'")},
	{name: "point", value: literals("'(1.5,2)'", "'(0,-1e10)'")},
	{name: "hstore", value: hstoreValue, before: hstoreType},
	array(int4Kind), array(int8Kind), array(textKind), array(varcharKind), array(boolKind), array(uuidKind), array(float8Kind),
	array(num102Kind), array(numericKind), array(dateKind), array(tsKind), array(tstzKind), array(jsonbKind), array(moodKind), array(int2Kind),
}
