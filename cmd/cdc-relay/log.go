package main

import (
	"bytes"
	"cmp"
	"errors"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/cdc-relay/cdc-relay/config"
	"github.com/mattn/go-isatty"
	"github.com/rs/zerolog"
	"github.com/spf13/cobra"
)

// zerolog keeps the names of its fields in globals. They are part of our
// interface (docs/operations.md) and set once, before the first logger exists.
var fieldNames = sync.OnceFunc(func() {
	zerolog.TimestampFieldName = "time"
	zerolog.LevelFieldName = "level"
	zerolog.MessageFieldName = "msg"
	zerolog.ErrorFieldName = "err"
	zerolog.DurationFieldUnit = time.Millisecond
	zerolog.TimeFieldFormat = "2006-01-02T15:04:05.000Z07:00"
	zerolog.TimestampFunc = func() time.Time { return time.Now().UTC() }
})

// newLogger writes to standard error: JSON, or text where a person reads along.
func (a *app) newLogger(settings config.Log, pipeline string) zerolog.Logger {
	fieldNames()
	level, err := zerolog.ParseLevel(settings.Level)
	if err != nil {
		level = zerolog.InfoLevel // the configuration admits known levels only
	}
	out := a.stderr
	if a.textLog(settings) {
		out = console(out, a.colours(out))
	}
	if a.logTail != nil {
		out = zerolog.MultiLevelWriter(out, a.logTail)
	}
	return zerolog.New(out).Level(level).With().Timestamp().Str("pipeline", pipeline).Logger()
}

// console writes what a person looks for first: state and reason before the rest, the error,
// which is long, at the end, and nothing that every line has.
func console(out io.Writer, colours bool) zerolog.ConsoleWriter {
	return zerolog.ConsoleWriter{
		Out: out, TimeFormat: "15:04:05.000", TimeLocation: time.Local, NoColor: !colours,
		FieldsOrder:   []string{"state", "from", "was", "reason"},
		FieldsExclude: []string{zerolog.ErrorFieldName},
		FormatPrepare: func(line map[string]any) error {
			for field, common := range map[string]string{"pipeline": "default", "component": "relay"} {
				if line[field] == common {
					delete(line, field)
				}
			}
			return nil
		},
		FormatExtra: func(line map[string]any, b *bytes.Buffer) error {
			cause, ok := line[zerolog.ErrorFieldName].(string)
			if !ok {
				return nil
			}
			b.WriteString(" " + zerolog.ErrorFieldName + "=" + strconv.Quote(cause))
			return nil
		},
	}
}

// logs marks a command that logs.
var logs = map[string]string{"logs": "yes"}

// logAsAsked has the last line of a command that logs be JSON where log.format: json is known: from
// --set, the environment, or the file as far as it could be read, also where the command line could not be. Of
// an unknown command that is known too.
func (a *app) logAsAsked(cmd *cobra.Command, failure error) {
	if a.jsonLog != nil || cmd.HasParent() && cmd.Annotations["logs"] == "" {
		return
	}
	format, pipeline := a.known.format, a.known.pipeline
	set := a.set
	if file, ok := errors.AsType[*config.Errors](failure); ok && a.known.format == "" {
		format, pipeline = file.Log.Format, file.Pipeline
	} else if !a.began {
		set = append(set, a.typed("--set", "")...)
		format, pipeline = a.logOfFile()
	}
	asked := func(variable, key, otherwise string) string {
		value := cmp.Or(a.getenv(variable), otherwise)
		for _, assignment := range set {
			if v, found := strings.CutPrefix(assignment, key+"="); found {
				value = v
			}
		}
		return value
	}
	if asked("CDC_RELAY_LOG_FORMAT", "log.format", format) != "json" {
		return
	}
	log := a.newLogger(config.Log{Level: "info", Format: "json"}, asked("CDC_RELAY_PIPELINE", "pipeline", cmp.Or(pipeline, "default")))
	a.jsonLog = &log
}

// logOfFile is the format that the file asks for, and its pipeline, for a command line that makes no
// sense: what is wrong with the file is not said then.
func (a *app) logOfFile() (format, pipeline string) {
	path := a.configPath
	if named := a.typed("--config", "-c"); len(named) > 0 {
		path = named[len(named)-1]
	}
	cfg, err := config.Load(config.Options{Path: path, Environ: a.env, Partial: true, WithoutSecrets: true})
	if file, ok := errors.AsType[*config.Errors](err); ok {
		return file.Log.Format, file.Pipeline
	}
	return cfg.Log.Format, cfg.Relay().Pipeline
}

// typed are the values of a flag on the command line, read without knowing the other flags. short is
// empty where there is none.
func (a *app) typed(long, short string) (values []string) {
	for i, word := range a.args {
		if word == "--" {
			break
		}
		if value, found := strings.CutPrefix(word, long+"="); found {
			values = append(values, value)
		} else if (word == long || short != "" && word == short) && i+1 < len(a.args) {
			values = append(values, a.args[i+1])
		} else if value, found := strings.CutPrefix(word, short); found && short != "" && value != "" {
			values = append(values, strings.TrimPrefix(value, "="))
		}
	}
	return values
}

func (a *app) textLog(settings config.Log) bool {
	return settings.Format == "text" || settings.Format != "json" && terminal(a.stderr)
}

func terminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	return ok && isatty.IsTerminal(f.Fd())
}

// getenv reads the invocation's environment; the last of equal names wins.
func (a *app) getenv(name string) string {
	for _, pair := range slices.Backward(a.env) {
		if value, found := strings.CutPrefix(pair, name+"="); found {
			return value
		}
	}
	return ""
}
