package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/cdc-relay/cdc-relay/advice"
	"github.com/cdc-relay/cdc-relay/relay/status"
	"github.com/spf13/cobra"
)

type statusFlags struct {
	client   clientFlags
	json     bool
	watch    bool
	interval time.Duration
}

func (a *app) statusCommand() *cobra.Command {
	var f statusFlags
	cmd := &cobra.Command{
		Use:   "status",
		Short: "Show the state of a running relay (exit 0: streaming, 1: not)",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if !f.watch && cmd.Flags().Changed("interval") {
				return &advice.Usage{Err: errors.New("--interval is not allowed by itself; allowed: with --watch")}
			}
			c, err := a.client(f.client)
			if err != nil {
				return err
			}
			if f.watch {
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
	cmd.Flags().BoolVarP(&f.watch, "watch", "w", false, "repeat until interrupted; with --json one line each")
	cmd.Flags().DurationVar(&f.interval, "interval", time.Second, "pause between looks, for --watch")
	return cmd
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
	if f.interval <= 0 {
		return notPositive("interval", f.interval)
	}
	ticker := time.NewTicker(f.interval)
	defer ticker.Stop()
	var last error
	for {
		s, err := fetchStatus(ctx, c)
		if ctx.Err() != nil {
			return last
		}
		a.showFrame(s, err, f.json)
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

func (a *app) showFrame(s answer, err error, asJSON bool) {
	switch {
	case err != nil:
		fmt.Fprintf(a.stderr, "cdc-relay: %v\n", err)
	case asJSON:
		var line bytes.Buffer
		if json.Compact(&line, s.raw) == nil {
			fmt.Fprintln(a.stdout, line.String())
		}
	case terminal(a.stdout):
		fmt.Fprint(a.stdout, "\033[H\033[2J"+status.Text(s.Status, time.Now()))
	default:
		fmt.Fprintln(a.stdout, status.Text(s.Status, time.Now()))
	}
}

func firstLine(body []byte) string {
	line, _, _ := strings.Cut(strings.TrimSpace(string(body)), "\n")
	return fmt.Sprintf("%.200q", line)
}
