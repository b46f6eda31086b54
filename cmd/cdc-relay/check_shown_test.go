package main

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cdc-relay/cdc-relay/advice"
)

// Twenty lines of ok hide the one that matters.
func TestCheck_ShowsOnlyProblemsOnRequest(t *testing.T) {
	for _, flag := range []string{"--problems", "--quiet", "-q"} {
		got := invoke(t, closedPorts, "check", "--offline", flag)
		if got.code != exitOK || got.stdout != "1 ok, 0 warn, 0 fail\n" {
			t.Errorf("%s: exit code %d, %q", flag, got.code, got.stdout)
		}
	}
	invoke(t, closedPorts, "check", "--offline").want(t, exitOK, "read from the environment", "")
	got := invoke(t, append([]string{"CDC_RELAY_POSTGRES_SLOTT=x"}, closedPorts...), "check", "--offline", "-q")
	if !strings.Contains(got.stdout, "did you mean CDC_RELAY_POSTGRES_SLOT?") || strings.Contains(got.stdout, "read from") {
		t.Errorf("a warning: %q", got.stdout)
	}
	if got := invoke(t, closedPorts, "check", "--offline", "-q", "--json").stdout; !strings.Contains(got, `"ok": 1`) || !strings.Contains(got, `"findings": []`) {
		t.Errorf("as JSON: %s", got)
	}
}

func TestCheck_ColoursKeepTheColumnsAligned(t *testing.T) {
	for _, level := range []advice.Level{advice.OK, advice.Warn, advice.Fail} {
		if got := coloured(level, false); got != string(level) {
			t.Errorf("without colour: %q", got)
		}
		if got := coloured(level, true); len(got)-len(level) != len(coloured(advice.OK, true))-len(advice.OK) || !strings.Contains(got, string(level)) {
			t.Errorf("%q has another length than ok's", got)
		}
	}
}

// Everything is printed at the end, and a port that does not answer takes 20 s.
func TestCheck_SaysWhatTakesLong(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var stderr output
		a := &app{process: process{stderr: &stderr}}
		a.slowly("PostgreSQL at db:9092", func() { <-time.After(time.Second) })
		if got := stderr.String(); got != "" {
			t.Errorf("after a second: %q", got)
		}
		a.slowly("PostgreSQL at db:9092", func() { <-time.After(20 * time.Second) })
		if got := stderr.String(); got != "cdc-relay: still looking at PostgreSQL at db:9092, for 2s\ncdc-relay: still looking at PostgreSQL at db:9092, for 12s\n" {
			t.Errorf("after 20 seconds: %q", got)
		}
	})
}

func TestCompletion_OffersValuesWithoutBackticks(t *testing.T) {
	for args, want := range map[string]string{
		"sql --format ":         "goose\n",
		"sql --service ":        "rds\n",
		"sql --preset debez":    "debezium\n",
		"setup --create-table=": "outbox\n",
		"run --set postgres.sl": "postgres.slot=\n",
		"run --set kafka.compr": "kafka.compression=\n",
		"run --se":              "key=value",
		"status --":             "--json",
	} {
		got := invoke(t, closedPorts, append([]string{"__complete"}, strings.Split(args, " ")...)...)
		if !strings.Contains(got.stdout, want) || strings.Contains(got.stdout, "`") {
			t.Errorf("%q: %q, want %q", args, got.stdout, want)
		}
	}
}

func TestCheck_AsksForNoColoursOnATerminalWithoutThem(t *testing.T) {
	for env, want := range map[string]bool{"TERM=xterm": true, "TERM=dumb": false, "NO_COLOR=1": false} {
		if got := (&app{process: process{env: []string{env}}}).takesColours(); got != want {
			t.Errorf("%s: colours are %t, want %t", env, got, want)
		}
	}
}
