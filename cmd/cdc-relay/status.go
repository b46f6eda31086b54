package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/cdc-relay/cdc-relay/advice"
	"github.com/cdc-relay/cdc-relay/relay/status"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

type statusFlags struct {
	client   clientFlags
	json     bool
	watch    bool
	interval time.Duration
	until    string
	within   time.Duration // that until is waited for
	bell     bool
}

func (a *app) statusCommand() *cobra.Command {
	var f statusFlags
	cmd := &cobra.Command{
		Use:   "status",
		Short: "Show the state of a running relay (exit 0: streaming, 1: not)",
		Long: `status shows what a running relay is doing. Exit codes: 0 the relay streams; 1 it does not,
or does not answer.

With --until, status waits until the relay reaches a state, even if the relay has not
started yet. It exits with 0 when the state is reached and with 1 after --timeout.
caught_up: the relay streams and has confirmed everything that was in the WAL when status
first got an answer.

With --watch on a terminal, status draws until q or Ctrl-C, and goes on while the relay is
not there. Keys: b shows what the relay is blocked by and the ways out, d the dead letters
that wait, n the figures, p pauses, ? shows the keys. Without a terminal, or with TERM=dumb,
it prints one status after the other. NO_COLOR is obeyed.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := f.complete(cmd.Flags()); err != nil {
				return err
			}
			c, err := a.client(f.client, true)
			if err != nil {
				return err
			}
			if f.until != "" {
				return a.awaitStatus(cmd.Context(), c, f)
			}
			if f.watch {
				if screen := a.openScreen(f.json); screen != nil {
					defer screen.close()
					return a.watchScreen(cmd.Context(), c, f, screen)
				}
				return a.watchStatus(cmd.Context(), c, f)
			}
			s, err := fetchStatus(cmd.Context(), c)
			if err != nil {
				return err
			}
			return a.showStatus(s, f.json)
		},
	}
	f.client.bind(cmd.Flags())
	cmd.Flags().BoolVar(&f.json, "json", false, "print JSON")
	cmd.Flags().BoolVarP(&f.watch, "watch", "w", false, "repeat until interrupted; with --json one line per request")
	cmd.Flags().BoolVar(&f.bell, "bell", false, "with --watch: ring the bell when the relay becomes blocked, and when it no longer is")
	cmd.Flags().DurationVar(&f.interval, "interval", time.Second, "pause between requests, for --watch and --until")
	cmd.Flags().StringVar(&f.until, "until", "", "wait for a state: "+strings.Join(status.Goals, ", "))
	cmd.Flags().Lookup("timeout").Usage = "how long to wait for an answer; with --until: for the state, 1m if not set"
	return cmd
}

// complete refuses flags that do not fit together. The wait for one answer is part of the wait
// for a state.
func (f *statusFlags) complete(set *pflag.FlagSet) error {
	refuse := func(format string, args ...any) error { return &advice.Usage{Err: fmt.Errorf(format, args...)} }
	switch {
	case f.until != "" && f.watch:
		return refuse("--until and --watch exclude each other")
	case f.until != "" && !slices.Contains(status.Goals, f.until):
		return refuse("--until %q is not allowed; allowed: %s", f.until, strings.Join(status.Goals, ", "))
	case f.until == "" && !f.watch && set.Changed("interval"):
		return refuse("--interval is only allowed with --watch or --until")
	case f.bell && !f.watch:
		return refuse("--bell is only allowed with --watch")
	case f.interval <= 0:
		return notPositive("interval", f.interval)
	case f.until == "":
		return nil
	}
	f.within = time.Minute
	if set.Changed("timeout") {
		f.within = f.client.timeout
		f.client.timeout = min(f.client.timeout, 5*time.Second)
	}
	return nil
}

// answer is a status as it came, so that --json passes on what this version does
// not know.
type answer struct {
	status.Status
	raw []byte
}

func fetchStatus(ctx context.Context, c *client) (answer, error) {
	const path = "/api/v1/status"
	code, body, err := c.get(ctx, path)
	if err != nil {
		return answer{}, err
	}
	s := answer{raw: body}
	switch {
	case code == http.StatusUnauthorized:
		return s, fmt.Errorf("ask %s%s: the token is missing or wrong: see http.token_file, or give --token-file", c.base, path)
	case code != http.StatusOK:
		return s, fmt.Errorf("ask %s%s: HTTP %d: %s", c.base, path, code, firstLine(body))
	}
	if err := json.Unmarshal(body, &s.Status); err != nil || s.State == "" {
		return s, fmt.Errorf("ask %s%s: the answer is not a status: is this address cdc-relay's?", c.base, path)
	}
	return s, nil
}

// showStatus prints s; its error carries the exit code only.
func (a *app) showStatus(s answer, asJSON bool) error {
	var err error
	if asJSON {
		_, err = fmt.Fprintf(a.stdout, "%s\n", bytes.TrimSpace(s.raw))
	} else {
		_, err = fmt.Fprint(a.stdout, status.Text(s.Status, time.Now()))
	}
	if err == nil && s.State != status.Streaming {
		return &quietError{exitFailed}
	}
	return err
}

// watchStatus goes on through failures: a relay that restarts is worth watching.
func (a *app) watchStatus(ctx context.Context, c *client, f statusFlags) error {
	ticker := time.NewTicker(f.interval)
	defer ticker.Stop()
	var last error
	var rung status.State
	for {
		s, err := fetchStatus(ctx, c)
		if ctx.Err() != nil {
			return last
		}
		a.showFrame(s, err, f.json)
		a.ring(f, &rung, s, err)
		last = nil
		if err != nil || s.State != status.Streaming {
			last = &quietError{exitFailed}
		}
		select {
		case <-ctx.Done():
			return last
		case <-ticker.C:
		}
	}
}

// awaitStatus shows the status that reached the goal, or the last one when time is up.
func (a *app) awaitStatus(ctx context.Context, c *client, f statusFlags) error {
	ctx, cancel := context.WithTimeout(ctx, f.within)
	defer cancel()
	ticker := time.NewTicker(f.interval)
	defer ticker.Stop()
	goal := status.Goal{State: f.until}
	var last answer
	var failed error
	for {
		s, err := fetchStatus(ctx, c)
		if ctx.Err() == nil {
			last, failed = s, err
		}
		if err == nil && goal.Reached(&s.Status) {
			_ = a.showStatus(s, f.json)
			return nil
		}
		select {
		case <-ctx.Done():
			if last.State == "" {
				return fmt.Errorf("--until %s was not reached in %s: %w", f.until, f.within, cmp.Or(failed, context.Cause(ctx)))
			}
			_ = a.showStatus(last, f.json)
			return fmt.Errorf("--until %s was not reached in %s", f.until, f.within)
		case <-ticker.C:
		}
	}
}

func (a *app) showFrame(s answer, err error, asJSON bool) {
	switch {
	case err != nil:
		fmt.Fprintf(a.stderr, "cdc-relay: %v\n", err)
	case asJSON:
		var line bytes.Buffer
		if json.Compact(&line, s.raw) == nil {
			fmt.Fprintln(a.stdout, line.String())
		}
	default:
		fmt.Fprintln(a.stdout, status.Text(s.Status, time.Now()))
	}
}

func firstLine(body []byte) string {
	line, _, _ := strings.Cut(strings.TrimSpace(string(body)), "\n")
	return fmt.Sprintf("%.200q", line)
}
