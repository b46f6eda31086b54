package main

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
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

// A file whose format is JSON says so also where something else in it is wrong. People see the
// line of the file, and whoever collects JSON reads the last line.
func TestLog_TheLastLineIsJSONWhereTheFileAsksForIt(t *testing.T) {
	const asJSON = "log: {format: json}\n"
	const complete = "postgres: {url: \"postgres://a@127.0.0.1:1/b\"}\noutbox: [{table: t}]\nkafka: {brokers: \"127.0.0.1:1\"}\npipeline: shop\n"
	for name, tt := range map[string]struct {
		file, says string
		env, args  []string
		plain      bool
	}{
		"unknown key":          {file: asJSON + complete + "kafak: {}\n", says: "unknown key"},
		"unknown key, text":    {file: "log: {format: text}\n" + complete + "kafak: {}\n", says: "unknown key", plain: true},
		"key of the format":    {file: "log: {format: jsn}\n" + complete, says: "log.format", plain: true},
		"missing secret":       {file: asJSON + strings.Replace(complete, "1/b\"", "1/b\", password_file: /nowhere/secret", 1), says: "/nowhere/secret"},
		"bad --set":            {file: asJSON + complete, says: "kafka.linger", args: []string{"--set", "kafka.linger=xx"}},
		"bad --until":          {file: asJSON + complete, says: "--until: parse LSN", args: []string{"--until", "x"}},
		"environment wins":     {file: asJSON + complete + "kafak: {}\n", says: "unknown key", env: []string{"CDC_RELAY_LOG_FORMAT=text"}, plain: true},
		"unreadable as YAML":   {file: asJSON + "pipeline: {", says: "cannot be read as YAML", env: []string{"CDC_RELAY_LOG_FORMAT=json", "CDC_RELAY_PIPELINE=shop"}},
		"usage":                {says: "(see cdc-relay run --help)", env: []string{"CDC_RELAY_LOG_FORMAT=json", "CDC_RELAY_PIPELINE=shop"}, args: []string{"--bogus"}},
		"usage without format": {says: "(see cdc-relay run --help)", args: []string{"--bogus"}, plain: true},
		"usage, the file asks": {file: asJSON + complete, says: "(see cdc-relay run --help)", args: []string{"--bogus"}},
		"usage, a wrong file":  {file: asJSON + complete + "kafak: {}\n", says: "(see cdc-relay run --help)", args: []string{"--bogus"}},
		"usage, --set wins":    {file: asJSON + complete, says: "(see cdc-relay run --help)", args: []string{"--bogus", "--set", "log.format=text"}, plain: true},
	} {
		t.Run(name, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "relay.yaml")
			if err := os.WriteFile(file, []byte(tt.file), 0o600); err != nil {
				t.Fatal(err)
			}
			got := invoke(t, tt.env, append([]string{"run", "-c", file}, tt.args...)...)
			got.want(t, exitUsage, "", tt.says)
			wantLastLine(t, got.stderr, tt.says, "shop", !tt.plain)
		})
	}
}

// What cannot be read of the command line may stand before the name of the file.
func TestLog_TheFileIsFoundBehindAnUnknownFlag(t *testing.T) {
	file := filepath.Join(t.TempDir(), "relay.yaml")
	if err := os.WriteFile(file, []byte("log: {format: json}\npipeline: shop\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{{"-c", file}, {"-c" + file}, {"-c=" + file}, {"--config", file}, {"--config=" + file}} {
		got := invoke(t, nil, append([]string{"run", "--bogus"}, args...)...)
		got.want(t, exitUsage, "", "unknown flag: --bogus")
		wantLastLine(t, got.stderr, "unknown flag: --bogus", "shop", true)
	}
}

// Verbs that do not log keep the form for people; those that log beside their output do not.
func TestLog_TheLastLineIsJSONOfVerbsThatLog(t *testing.T) {
	env := []string{"CDC_RELAY_LOG_FORMAT=json", "CDC_RELAY_PIPELINE=shop"}
	for verb, logs := range map[string]bool{"run": true, "backfill": true, "replay": true, "cutover": true, "check": false, "setup": false} {
		for _, args := range [][]string{{verb, "-c", "nowhere.yaml"}, {verb, "--bogus"}} {
			got := invoke(t, env, args...)
			got.want(t, exitUsage, "", "")
			wantLastLine(t, got.stderr, "", "shop", logs)
		}
	}
}

func wantLastLine(t *testing.T, stderr, says, pipeline string, asJSON bool) {
	t.Helper()
	lines := strings.Split(strings.TrimSuffix(stderr, "\n"), "\n")
	var line struct {
		Level, Pipeline, Msg string
		Code                 int `json:"exit_code"`
	}
	err := json.Unmarshal([]byte(lines[len(lines)-1]), &line)
	switch {
	case asJSON != (err == nil):
		t.Errorf("JSON is %v wanted, and the last line is %q (%v)", asJSON, lines[len(lines)-1], err)
	case asJSON && (line.Level != "error" || line.Pipeline != pipeline || line.Code != exitUsage || !strings.Contains(line.Msg, says) || strings.Contains(line.Msg, "^")):
		t.Errorf("the last line is %+v", line)
	case asJSON && strings.Contains(stderr, "^") && !strings.HasPrefix(lines[0], "cdc-relay: "):
		t.Errorf("the line of the file is not for people:\n%s", stderr)
	}
}
