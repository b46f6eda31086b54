package main

import (
	"errors"
	"strings"
	"testing"

	"github.com/cdc-relay/cdc-relay/config"
)

// A row may choose its topic, and its topic is logged: no terminal is to obey it.
func TestLog_ControlCharactersAreQuoted(t *testing.T) {
	const hostile = "a\x1b[2J\r\nfake: line\x00"
	for _, format := range []string{"json", "text"} {
		var stderr output
		a := &app{process: process{stderr: &stderr}}
		log := a.newLogger(config.Log{Level: "info", Format: format}, "p")
		log.Error().Err(errors.New(hostile)).Str("topic", hostile).Msg("said")
		wantPrintable(t, format, stderr.String())
	}
	var stderr output
	a := &app{process: process{stderr: &stderr}}
	a.report(errors.New(strings.ReplaceAll(hostile, "\n", "")))
	wantPrintable(t, "the last line", stderr.String())
}

func wantPrintable(t *testing.T, what, text string) {
	t.Helper()
	if strings.Count(text, "\n") != 1 || !strings.Contains(text, "fake: line") {
		t.Errorf("%s: not one line: %q", what, text)
	}
	if strings.ContainsAny(strings.TrimSuffix(text, "\n"), "\x1b\r\n\x00") {
		t.Errorf("%s: control characters as they came: %q", what, text)
	}
}
