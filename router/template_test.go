package router

import (
	"strings"
	"testing"

	"github.com/cdc-relay/cdc-relay/router/record"
	"github.com/cdc-relay/cdc-relay/router/template"
)

func TestTopic_FromTemplateAndRegex(t *testing.T) {
	for _, c := range []struct {
		name  string
		topic string
		regex string
		route string // aggregate_type of the row
		want  string
	}{
		{"a column", "${aggregate_type}", "", "Order", "Order"},
		{"lower", "${aggregate_type|lower}-events", "", "ORDER", "order-events"},
		{"upper", "${aggregate_type|upper}", "", "order", "ORDER"},
		{"filters in order", "${aggregate_type|default:Other|lower}", "", null, "other"},
		{"a default behind a filter", "${aggregate_type|lower|default:Other}", "", null, "Other"},
		{"a default for empty", "${aggregate_type|default:other}", "", "", "other"},
		{"cleaned", "rails.${aggregate_type|topic}", "", "Billing::Invoice", "rails.Billing--Invoice"},
		{"one hyphen for a character", "${aggregate_type|topic}", "", "Käse 😀/x_1.a-B", "K-se---x_1.a-B"},
		{"one hyphen for a byte that is no text", "${aggregate_type|topic}", "", "a\xffb", "a-b"},
		{"cleaned and lower", "${aggregate_type|topic|lower}", "", "Billing::Invoice", "billing--invoice"},
		{"nothing to clean is nothing", "${aggregate_type|topic|default:other}", "", "", "other"},
		{"a default is cleaned behind it", "${aggregate_type|default:a b|topic}", "", null, "a-b"},
		{"a cleaned group", "${a|topic}", "(?<a>.*)", "x y", "x-y"},
		{"spaces around names", "${ aggregate_type | lower }", "", "A", "a"},
		{"several columns", "${tenant|lower}.${aggregate_type}.${event_type}", "", "order", "acme.order.created"},
		{"a pointer", "${extra#/k/n/0}.x", "", "order", "10.x"},
		{"a constant", "all.events", "", "order", "all.events"},
		{"routedByValue without a regex", "x.${routedByValue}", "", "order", "x.order"},
		{"the preset's topic", "", "", "order", "order-events"},
		{"a regex and the preset's topic", "", "shop_(?<routedByValue>.*)", "shop_order", "order-events"},
		{"Java's named group", "outbox.${routedByValue}", "(?<routedByValue>.*)", "order", "outbox.order"},
		{"Go's named group", "outbox.${name}", "(?P<name>.*)", "order", "outbox.order"},
		{"a part of the value is no match", "x.${routedByValue}", "(?<routedByValue>ord)", "order", "order"},
		{"alternatives do not escape the anchors", "x", "a|b", "ab", "ab"},
		{"alternatives match whole", "x", "a|ab", "ab", "x"},
		{"two groups", "${b}.${a}", "(?<a>[^-]*)-(?<b>.*)", "x-y", "y.x"},
		{"groups and filters", "${a|upper}", "(?<a>.*)", "x", "X"},
		{"groups and columns", "${a}.${tenant}", "(?<a>.*)", "x", "x.Acme"},
	} {
		t.Run(c.name, func(t *testing.T) {
			m := Mapping{Topic: c.topic, TopicRegex: c.regex}
			r := mustNew(t, m)
			var b record.Buffer
			for range 2 { // built, then remembered
				if err := r.Route(&b, rowWith(t, map[string]string{"aggregate_type": c.route})); err != nil {
					t.Fatal(err)
				}
			}
			if b.Records[0].Topic != c.want || b.Records[1].Topic != c.want {
				t.Errorf("topics %q and %q, want %q", b.Records[0].Topic, b.Records[1].Topic, c.want)
			}
		})
	}
}

// TestTopic_TellsSplitsApart has columns that run together to the same text.
func TestTopic_TellsSplitsApart(t *testing.T) {
	r := mustNew(t, Mapping{Topic: "${tenant}.${aggregate_type|default:none}"})
	var b record.Buffer
	rel := table(t, outboxColumns...)
	for _, c := range [][3]string{{"ab", "c", "ab.c"}, {"a", "bc", "a.bc"}, {"ab", null, "ab.none"}, {"ab", "", "ab.none"}, {"ab", "c", "ab.c"}} {
		b.Reset()
		row := rowWith(t, map[string]string{"tenant": c[0], "aggregate_type": c[1]})
		row.Relation = rel // one plan, one memory
		if err := r.Route(&b, row); err != nil || b.Records[0].Topic != c[2] {
			t.Errorf("%q: %v %+v", c, err, b.Records)
		}
	}
}

func TestTemplate_Errors(t *testing.T) {
	for text, want := range map[string]string{
		"":                 "is empty",
		"  ":               "is empty",
		"x${a":             "not closed",
		"${}":              "names no column",
		"${|lower}":        "names no column",
		"${a|trim}":        `no filter "trim"`,
		"${a|}":            `no filter ""`,
		"${a|default:}":    "needs a text",
		"${a#/b~2}":        "~ is written",
		"${a|lower|UPPER}": `no filter "UPPER"`,
	} {
		if _, err := template.Parse(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", text, err, want)
		}
	}
}

// The error for an illegal topic ends with what makes it a legal one: its own advice,
// when followed, has to work.
func TestTopic_AnIllegalNameComesWithTheFilterThatCleansIt(t *testing.T) {
	for _, c := range []struct{ topic, regex, route, want string }{
		{"", "", "Billing::Invoice", "`topic: ${aggregate_type|topic}-events` puts a hyphen in place of every other character, which gives \"Billing--Invoice-events\""},
		{"rails.${aggregate_type|lower}", "", "Billing::Invoice", "`topic: rails.${aggregate_type|lower|topic}` "},
		{"${a}.x", "(?<a>.*)", "Billing::Invoice", "`topic: ${a|topic}.x` "},
		{"x", "(?<a>[a-z]*)", "Billing::Invoice", "topic_regex does not match the value"},
		{"${aggregate_type}", "", "..", "use topic_regex"},
		{"${aggregate_type}", "", strings.Repeat("x", 250), "use topic_regex"},
		{"${aggregate_type}", "", strings.Repeat("ä", 250), "use topic_regex"},
	} {
		row := rowWith(t, map[string]string{"aggregate_type": c.route})
		_, err := routeOne(t, Mapping{Topic: c.topic, TopicRegex: c.regex}, row)
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("topic %q, regex %q: %v\nwant %q", c.topic, c.regex, err, c.want)
			continue
		}
		_, advice, _ := strings.Cut(err.Error(), "`topic: ")
		advice, _, found := strings.Cut(advice, "`")
		if !found {
			continue
		}
		if rec, err := routeOne(t, Mapping{Topic: advice, TopicRegex: c.regex}, row); err != nil || record.CheckTopic(rec.Topic) != nil {
			t.Errorf("%s gives %v, %v", advice, rec, err)
		}
	}
}

func TestNew_RefusesADefaultThatNoTopicCanHave(t *testing.T) {
	for topic, want := range map[string]string{
		"${aggregate_type|default:a b}":          `"a b" cannot be part of a topic's name`,
		"${aggregate_type|topic|default:a b}":    `"a b" cannot be part of a topic's name`,
		"${aggregate_type|default:a b|topic}":    "",
		"${aggregate_type|default:other|upper}x": "",
	} {
		_, err := New(Config{Mappings: []Mapping{{Table: "public.outbox", Topic: topic}}})
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%s: %v, want %q", topic, err, want)
		}
	}
}

func TestTemplate_LiteralDollars(t *testing.T) {
	for text, want := range map[string]string{
		"$${a}":        "${a}",
		"$a${tenant}$": "$aAcme$",
		"$$${a}":       "$${a}",
		"a$${b}$c":     "a${b}$c",
	} {
		rec, err := routeOne(t, Mapping{Headers: []HeaderMapping{{"h", text}}}, rowWith(t, nil))
		if err != nil {
			t.Fatal(err)
		}
		if got := header(rec, "h"); got != want {
			t.Errorf("%q gives %q, want %q", text, got, want)
		}
	}
}

func TestTemplate_FiltersKnowUnicode(t *testing.T) {
	m := Mapping{Headers: []HeaderMapping{{"l", "<${tenant|lower}>"}, {"u", "<${tenant|upper}>"}}}
	rec, err := routeOne(t, m, rowWith(t, map[string]string{"tenant": "aÉß"}))
	if err != nil {
		t.Fatal(err)
	}
	if l, u := header(rec, "l"), header(rec, "u"); l != "<aéß>" || u != "<AÉß>" && u != "<AÉẞ>" {
		t.Errorf("lower %q upper %q", l, u)
	}
}
