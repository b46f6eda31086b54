package main

import (
	"encoding/json"
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

// Who reads along looks for state and reason, not for what every line has.
func TestLog_TextHasStateAndReasonFirst(t *testing.T) {
	for pipeline, want := range map[string]string{
		"default": `WRN state changed state=blocked reason=unknown_topic slot=s err="a long \"text\""` + "\n",
		"orders":  `WRN state changed state=blocked reason=unknown_topic pipeline=orders slot=s err="a long \"text\""` + "\n",
	} {
		var stderr output
		a := &app{process: process{stderr: &stderr}}
		log := a.newLogger(config.Log{Level: "info", Format: "text"}, pipeline)
		relay := log.With().Str("component", "relay").Logger()
		relay.Warn().Err(errors.New(`a long "text"`)).Str("slot", "s").Str("reason", "unknown_topic").Str("state", "blocked").Msg("state changed")
		if _, got, _ := strings.Cut(stderr.String(), " "); got != want {
			t.Errorf("pipeline %s: %q, want %q", pipeline, got, want)
		}
	}
}

// Whoever collects JSON reads also why there is no configuration.
func TestLog_AConfigurationThatCannotBeReadIsAJSONLine(t *testing.T) {
	for name, tt := range map[string]struct {
		env  []string
		args []string
		json bool
	}{
		"environment":           {[]string{"CDC_RELAY_LOG_FORMAT=json", "CDC_RELAY_PIPELINE=shop"}, nil, true},
		"flags":                 {nil, []string{"--set", "log.format=json", "--set", "pipeline=shop"}, true},
		"flag over environment": {[]string{"CDC_RELAY_LOG_FORMAT=json"}, []string{"--set", "log.format=text"}, false},
		"neither":               {nil, nil, false},
	} {
		t.Run(name, func(t *testing.T) {
			got := invoke(t, tt.env, append([]string{"run", "-c", "nowhere.yaml"}, tt.args...)...)
			got.want(t, exitUsage, "", "nowhere.yaml: cannot read the configuration")
			var line struct {
				Level, Pipeline, Msg string
				Code                 int `json:"exit_code"`
			}
			err := json.Unmarshal([]byte(got.stderr), &line)
			if tt.json != (err == nil) || tt.json && (line.Level != "error" || line.Pipeline != "shop" || line.Code != exitUsage || line.Msg == "") {
				t.Errorf("%v: %s", err, got.stderr)
			}
		})
	}
}
