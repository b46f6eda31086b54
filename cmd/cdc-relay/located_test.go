package main

import (
	"slices"
	"strings"
	"testing"
)

func TestExplain_DoesNotShowThePresentAsTheTimeOfAnEvent(t *testing.T) {
	db, env := shop(t, ourTable)
	db.Exec(t, ourRow)
	for _, format := range []string{"cloudevents", "cloudevents_binary"} {
		args := []string{"explain", "--set", "outbox[0].value=" + format}
		const note = "the time of the commit; shown is the present"
		invoke(t, env, args...).want(t, exitOK, note, "")
		if got := invoke(t, env, append(args, "--set", "outbox[0].columns.timestamp=created_at")...); strings.Contains(got.stdout, note) {
			t.Error(got.stdout)
		}
	}
}

// A mistake that only the table shows has a place in the file like any other.
func TestMappingMistakes_ShowTheirPlaceInTheFile(t *testing.T) {
	_, env := clinic(t, ourOutbox)
	env = slices.DeleteFunc(slices.Clone(env), func(v string) bool { return strings.HasPrefix(v, "CDC_RELAY_OUTBOX_") })
	file := writeFile(t, "outbox:\n  - table: public.outbox\n    topic: x.${nope}\n    columns: {key: nope}\n    headers: {y: \"a-${nope}\"}\n")
	want := []string{
		file + `:3:12: outbox[0].topic: table public.outbox has no column "nope"`,
		"\n        topic: x.${nope}\n               ^\n",
		file + `:4:20: outbox[0].columns.key: table public.outbox has no column "nope"`,
		"\n        columns: {key: nope}\n                       ^\n",
		file + `:5:18: outbox[0].headers.y: table public.outbox has no column "nope"`,
		"\n        headers: {y: \"a-${nope}\"}\n                     ^",
	}
	for _, verb := range []string{"explain", "run"} {
		got := invoke(t, env, verb, "-c", file, "--set", "http.listen=127.0.0.1:0", "--set", "log.format=text")
		for _, text := range want {
			got.want(t, exitUsage, "", text)
		}
	}
	invoke(t, env, "check", "-c", file).want(t, exitRefused, file+`:4:20: outbox[0].columns.key: table public.outbox has no column "nope"`, "")

	file = writeFile(t, "outbox:\n  - table: public.outbox\n    preset: debezium\n")
	invoke(t, env, "explain", "-c", file).want(t, exitUsage, "", file+`:2:5: outbox[0].columns: preset debezium needs a column for`)
	file = writeFile(t, "outbox:\n  - table: public.outbox\n    preset: generic\n")
	invoke(t, env, "explain", "-c", file).want(t, exitUsage, "", "topic: ${aggregate_type}-events\n\n      - table: public.outbox\n        ^")
}

// What a flag sets over the file is at fault itself, and named with its value.
func TestMappingMistakes_NameTheFlagThatSetsThem(t *testing.T) {
	_, env := clinic(t, ourOutbox)
	env = slices.DeleteFunc(slices.Clone(env), func(v string) bool { return strings.HasPrefix(v, "CDC_RELAY_OUTBOX_") })
	file := writeFile(t, "outbox:\n  - table: public.outbox\n    topic: x.${aggregate_type}\n")
	for _, tt := range []struct {
		set  string
		code int
		want string
	}{
		{"outbox[0].topic=x.${nope}", exitUsage, `cdc-relay: --set outbox[0].topic=x.${nope}: outbox[0].topic: table public.outbox has no column "nope"`},
		{"outbox.columns.key=nope", exitUsage, `cdc-relay: --set outbox.columns.key=nope: outbox[0].columns.key: table public.outbox has no column "nope"`},
		{"outbox[0].table=public.nope", exitRefused, "correct the name (--set outbox[0].table=public.nope), or create it"},
		{"outbox[0].preset=debezium", exitUsage, "cdc-relay: --set outbox[0].preset=debezium, over " + file + ":2:5: outbox[0].columns: preset debezium needs a column for"},
	} {
		got := invoke(t, env, "explain", "-c", file, "--set", tt.set)
		got.want(t, tt.code, "", tt.want)
		if strings.Contains(got.stderr, "\n    ") {
			t.Errorf("%s: a line of the file is shown:\n%s", tt.set, got.stderr)
		}
	}
}
