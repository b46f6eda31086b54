package main

import (
	"cmp"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/cdc-relay/cdc-relay/admin"
	"github.com/cdc-relay/cdc-relay/advice"
	"github.com/cdc-relay/cdc-relay/audit"
	"github.com/cdc-relay/cdc-relay/config"
	"github.com/cdc-relay/cdc-relay/relay"
	"github.com/cdc-relay/cdc-relay/wording"
)

// Exit codes. They are part of the interface: supervisors act on them.
const (
	exitOK      = 0 // done; for run: everything read was delivered and confirmed
	exitFailed  = 1 // failed at run time, or rows were in flight: start again
	exitUsage   = 2 // configuration or usage is wrong, nothing was changed
	exitRefused = 3 // the environment refuses: a person has to act
	exitBlocked = 4 // a person has to decide: run is blocked (relay.on_blocked: exit), or an audit found faults
)

// notPositive refuses a duration for a flag that has no use for none.
func notPositive(flag string, given time.Duration) error {
	return &advice.Usage{Err: fmt.Errorf("--%s %s is not allowed; allowed: more than 0s", flag, given)}
}

// interruptedError is what a stop signal made of a command. Nobody refused anything, and the
// next attempt may succeed.
type interruptedError struct{ err error }

func (e *interruptedError) Error() string {
	return fmt.Sprintf("interrupted by a signal before the end (%v); run it again", e.err)
}
func (e *interruptedError) Unwrap() error { return e.err }

// quietError has been told already; only its exit code is left.
type quietError struct{ code int }

func (e *quietError) Error() string { return fmt.Sprintf("exit code %d", e.code) }

func exitCode(err error) int {
	var (
		quiet   *quietError
		usage   *advice.Usage
		input   *advice.Input
		file    *config.Errors
		mapping *relay.ConfigError
		refused *relay.RefusedError
		setup   *advice.Refused
		listen  *admin.ListenError
		blocked *relay.BlockedError
		stopped *interruptedError
		faults  *audit.FaultsError
	)
	switch {
	case err == nil:
		return exitOK
	case errors.As(err, &stopped):
		return exitFailed
	case errors.As(err, &quiet):
		return quiet.code
	case errors.As(err, &usage), errors.As(err, &input), errors.As(err, &file), errors.As(err, &mapping):
		return exitUsage
	case errors.As(err, &refused), errors.As(err, &setup), errors.As(err, &listen):
		return exitRefused
	case errors.As(err, &blocked), errors.As(err, &faults):
		return exitBlocked
	}
	return exitFailed
}

// reasonWord is the word by which the runbook has what ended run; empty: there is none.
func reasonWord(err error) string {
	if refused, ok := errors.AsType[*relay.RefusedError](err); ok {
		return refused.Reason
	} else if blocked, ok := errors.AsType[*relay.BlockedError](err); ok {
		return blocked.Reason
	}
	return ""
}

func reasonOf(err error) string {
	reason := reasonWord(err)
	if reason == "" {
		return ""
	}
	return " (reason " + wording.Printable(reason) + ")"
}

// helpOf names the help page for a command line that makes no sense.
func (a *app) helpOf(err error) string {
	if usage := (*advice.Usage)(nil); !errors.As(err, &usage) {
		return ""
	}
	return " (see " + cmp.Or(a.command, "cdc-relay") + " --help)"
}

// report prints an error once and returns its exit code. Where the log is JSON its last line
// is too.
func (a *app) report(err error) int {
	var quiet *quietError
	if file, ok := errors.AsType[*config.Errors](err); ok {
		a.warnings(file.Warnings)
	}
	if err != nil && !errors.As(err, &quiet) {
		text := err.Error()
		if a.jsonLog != nil {
			if file, ok := errors.AsType[*config.Errors](err); ok && file.Error() != file.Text() { // for people, before the line for machines
				a.plain(text)
				text = strings.Replace(text, file.Error(), file.Text(), 1)
			}
			line := a.jsonLog.Error().Int("exit_code", exitCode(err))
			if reason := reasonWord(err); reason != "" {
				line.Str("reason", reason)
			}
			line.Msg(text + a.helpOf(err))
			return exitCode(err)
		}
		a.plain(text + reasonOf(err) + a.helpOf(err))
	}
	return exitCode(err)
}

// plain prints an error for people. Some show the line of the file.
func (a *app) plain(text string) {
	lines := strings.Split(text, "\n")
	for i := range lines {
		lines[i] = wording.Printable(lines[i])
	}
	fmt.Fprintf(a.stderr, "cdc-relay: %s\n", strings.Join(lines, "\n"))
}
