package snapshot

import (
	"strings"
	"testing"
)

func TestChanging_NamesWhatHasAnotherValueLater(t *testing.T) {
	for condition, want := range map[string]string{
		"created_at > now() - interval '7 days'":                 "now()",
		"created_at > pg_catalog.NOW ( )":                        "now()",
		`created_at > "now"()`:                                   "now()",
		"created_at::date=CURRENT_DATE":                          "current_date",
		"created_at > current_timestamp(3)":                      "current_timestamp",
		"a OR b < LocalTimestamp":                                "localtimestamp",
		"created_at > /* now */ clock_timestamp()":               "clock_timestamp()",
		"created_at > -- late\nstatement_timestamp()":            "statement_timestamp()",
		"created_at > now--\n()":                                 "now()",
		"random() < 0.1":                                         "random()",
		"id <> gen_random_uuid()":                                "gen_random_uuid()",
		"xmin::text::bigint < txid_current()":                    "txid_current()",
		"id < nextval('s')":                                      "nextval()",
		"age(created_at) < interval '7 days'":                    "age()",
		"age((SELECT max(f(a, b)) FROM t)) < interval '1h'":      "age()",
		"created_at > 'now'":                                     "'now'",
		"created_at > 'Today'::timestamptz":                      "'today'",
		"created_at > timestamp ' yesterday 08:00 '":             "'yesterday'",
		"created_at > '10:00 tomorrow Europe/Berlin'":            "'tomorrow'",
		"created_at > 'today 08:00 CET'":                         "'today'",
		"created_at > E'today'":                                  "'today'",
		"created_at > $$today$$":                                 "'today'",
		"created_at > $a$now$a$::timestamptz":                    "'now'",
		"created_at < 'today,allballs'":                          "'today'",
		"a = 'it''s' AND created_at < now()":                     "now()",
		"id IN (SELECT id FROM other WHERE at < now())":          "now()",
		"created_at >= '2026-01-31 08:00:00+00'":                 "",
		"now IS NULL AND random = 1":                             "",
		`"current_date" = '2026-01-31'`:                          "",
		"outbox.current_date = '2026-01-31'":                     "",
		"note = 'now()' AND note <> 'current_date'":              "",
		"note LIKE '%today%' OR note = 'call today'":             "",
		"note = $$see now()$$ -- now()":                          "",
		"/* now() /* random() */ now() */ true":                  "",
		"age(sent_at, created_at) > interval '1h'":               "",
		"age(sent_at, f(created_at, 1)) > interval '1h'":         "",
		"date_trunc('day', created_at) = '2026-01-31'":           "",
		"created_at::date < '2026-01-31' AND knows(note)":        "",
		"payload->>'now' = 'x' AND payload -> 'today' = 1":       "",
		"created_at - 'today' > '1h'":                            "'today'",
		"created_at >= 'now' AND id - 1 > 2":                     "'now'",
		"created_at - '1h' > 'now'":                              "'now'",
		"id > $1 AND created_at > '-infinity' AND a = ANY('{}')": "",
		"true":            "",
		"":                "",
		"a = 'not closed": "",
	} {
		if got := Changing(condition); got != want {
			t.Errorf("%s: %q, want %q", condition, got, want)
		}
	}
}

func TestCalled_NamesFunctionsWithTheirSchemas(t *testing.T) {
	for condition, want := range map[string]string{
		`public . Recent(a) AND "Other"."Of""it"""(b) > 1`: `('public', 'recent') ('Other', 'Of"it"')`,
		`lower(a) = b.c AND (d).e > 1 AND f."g" (h)`:       `('f', 'g')`,
		"1.5(a)": "",
		"":       "",
	} {
		if got := strings.Join(called(tokensOf(condition)), " "); got != want {
			t.Errorf("%s: %s, want %s", condition, got, want)
		}
	}
}
