package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/cdc-relay/cdc-relay/advice"
	"github.com/cdc-relay/cdc-relay/relay/status"
	"github.com/cdc-relay/cdc-relay/wording"
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
		Short: "Ask a running relay how it is (exit 0: streaming, 1: not)",
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
		_, err = fmt.Fprint(a.stdout, statusText(s.Status, time.Now()))
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
		fmt.Fprint(a.stdout, "\033[H\033[2J"+statusText(s.Status, time.Now()))
	default:
		fmt.Fprintln(a.stdout, statusText(s.Status, time.Now()))
	}
}

func statusText(s status.Status, now time.Time) string {
	var b strings.Builder
	line := func(label, format string, args ...any) {
		fmt.Fprintf(&b, "%-13s %s\n", label, fmt.Sprintf(format, args...))
	}
	state := string(s.State)
	if s.Reason != "" {
		state += " (" + s.Reason + ")"
	}
	if since := since(&s); !since.IsZero() {
		state += " since " + now.Sub(since).Round(time.Second).String()
	}
	line("state", "%s", state)
	if s.Message != "" {
		line("", "%s", s.Message)
	}
	line("relay", "%s, pipeline %s", cmp.Or(s.Version, "-"), cmp.Or(s.Pipeline, "-"))
	if len(s.Shards) == 0 {
		line("slot", "%s, publication %s%s", s.Slot, s.Publication, slotText(s.SlotState))
	}
	label := "slots"
	for _, one := range s.Shards {
		state := string(one.State)
		if one.Reason != "" {
			state += " (" + one.Reason + ")"
		}
		line(label, "%s %s, lag %s, %s in flight%s", one.Slot, state, wording.Bytes(one.LagBytes), wording.Count(one.InFlightEvents, "row"), slotText(one.SlotState))
		label = ""
	}
	line("connected", "PostgreSQL %s, Kafka %s", sourceText(s), yesNo(s.SinkConnected))
	line("LSN", "confirmed %s, published %s, received %s, server %s",
		lsn(s.LSN.Confirmed), lsn(s.LSN.Published), lsn(s.LSN.Received), lsn(s.LSN.Server))
	if s.LSN.Server == 0 && s.LagBytes == 0 {
		line("lag", "not known: PostgreSQL has not been reached")
	} else {
		line("lag", "%s, %s; WAL retained %s", wording.Bytes(s.LagBytes), lagText(s.LagSeconds), wording.Bytes(s.RetainedWALBytes))
	}
	oldest := ""
	if s.OldestUnacked != nil && s.InFlightEvents > 0 {
		oldest = ", oldest " + seconds(*s.OldestUnacked)
	}
	line("in flight", "%s, %s of %s%s", wording.Count(s.InFlightEvents, "row"),
		wording.Bytes(int64(s.InFlightBytes)), wording.Bytes(int64(s.InFlightLimitBytes)), oldest)
	if s.EventsToRepeat > 0 && s.State == status.Blocked {
		line("", "a restart sends %s again: acknowledged, and held back by the row that blocks", wording.Count(s.EventsToRepeat, "row"))
	}
	line("since start", "published %d, rejected %d, reconnects %d", s.EventsPublished, s.EventsRejected, s.Reconnects)
	line("topics", "%s", topicsText(s.Topics))
	return b.String()
}

// since is when state and reason began to hold both.
func since(s *status.Status) time.Time {
	if s.ReasonSince.After(s.Since) {
		return s.ReasonSince
	}
	return s.Since
}

// sourceText says of who stands by that it has no stream, which is as it should be.
func sourceText(s status.Status) string {
	all, stream, standby := s.Shards, 0, 0
	if len(all) == 0 {
		all = []status.Status{s}
	}
	for _, one := range all {
		switch {
		case one.SourceConnected:
			stream++
		case one.State == status.Standby:
			standby++
		}
	}
	switch {
	case stream+standby < len(all):
		return "no"
	case stream == 0:
		return "no stream (standby)"
	case standby > 0:
		return fmt.Sprintf("yes, %d of %d shards stand by", standby, len(all))
	}
	return "yes"
}

func slotText(s *status.Slot) string {
	if s == nil {
		return ""
	}
	text := ", WAL " + cmp.Or(s.WALStatus, "-")
	if s.SafeWALBytes != nil {
		text += ", lost after another " + wording.Bytes(*s.SafeWALBytes)
		if s.SafeSeconds != nil {
			text += ", which is " + (time.Duration(*s.SafeSeconds) * time.Second).String() + " of standing still at " + wording.Bytes(s.WALPace) + "/s"
		}
	}
	return text
}

func topicsText(topics []string) string {
	const shown = 8
	if len(topics) == 0 {
		return "-"
	}
	if len(topics) > shown {
		return fmt.Sprintf("%s and %d more", strings.Join(topics[:shown], ", "), len(topics)-shown)
	}
	return strings.Join(topics, ", ")
}

func lsn(p status.Position) string {
	text, _ := p.MarshalText()
	return cmp.Or(string(text), "-")
}

func yesNo(b bool) string {
	if b {
		return "yes"
	}
	return "no"
}

// lagText is the age of the oldest row that is not confirmed.
func lagText(s *float64) string {
	if s == nil {
		return "age of the oldest row not known"
	}
	return seconds(*s)
}

func seconds(s float64) string {
	return time.Duration(s * float64(time.Second)).Round(time.Millisecond).String()
}

func firstLine(body []byte) string {
	line, _, _ := strings.Cut(strings.TrimSpace(string(body)), "\n")
	return fmt.Sprintf("%.200q", line)
}
