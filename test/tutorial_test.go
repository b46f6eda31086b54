package test

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/cdc-relay/cdc-relay/sandbox"
	"github.com/cdc-relay/cdc-relay/test/harness"
	"github.com/cdc-relay/cdc-relay/test/harness/relaytest"
)

// shownStep is a command of a page with what the page says that the screen shows.
type shownStep struct {
	args   []string
	screen []string
}

// The tutorial's own configuration, statements and commands, in their order, on servers
// of the harness. Figures, ids and times differ from run to run.
func TestTutorial_TheScreenShowsWhatThePageShows(t *testing.T) {
	page := read(t, "docs/tutorial.md")
	db, brokers := harness.Postgres(t), harness.Kfake(t, sandbox.KafkaOptions{})
	place := workplace{binary: relaytest.Binary(t), dir: t.TempDir(), listen: freeAddress(t)}
	slot := harness.Unique(t, "tutorial")
	place.environ = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + place.dir, "CDC_RELAY_HTTP_LISTEN=" + place.listen,
		"CDC_RELAY_POSTGRES_SLOT=" + slot, "CDC_RELAY_POSTGRES_PUBLICATION=" + slot}
	commands, stop := 0, func() {}
	for _, block := range fence.FindAllStringSubmatch(page, -1) {
		switch text := block[2]; block[1] {
		case "yaml":
			text = strings.NewReplacer("postgres://postgres@localhost:5432/shop", db.URL, "localhost:9092", strings.Join(brokers.Addrs, ", ")).Replace(text)
			if err := os.WriteFile(filepath.Join(place.dir, "cdc-relay.yaml"), []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		case "sql":
			db.Exec(t, text)
		case "console":
			for _, step := range shownSteps(text) {
				commands++
				if step.args[0] == "run" {
					stop = place.start(t)
					relaytest.Eventually(t, "the row is confirmed", func() (bool, string) {
						out, _ := place.command(t.Context(), "status").CombinedOutput()
						return regexp.MustCompile(`published 1,`).Match(out) && regexp.MustCompile(`lag +0 B, 0s`).Match(out), string(out)
					})
					continue
				}
				if step.args[0] == "teardown" {
					stop()
				}
				shows := func() string {
					out, err := place.command(t.Context(), step.args...).CombinedOutput()
					if err != nil {
						return fmt.Sprintf("it ends with %v:\n%s", err, out)
					}
					return missingIn(step, strings.ReplaceAll(string(out), slot, "cdc_relay"))
				}
				missing := shows()
				if step.args[0] == "status" { // the server writes something by itself now and then: it lags for a moment
					relaytest.Eventually(t, "the status is that of the page", func() (bool, string) {
						if missing != "" {
							missing = shows()
						}
						return missing == "", missing
					})
				}
				if missing != "" {
					t.Errorf("cdc-relay %s: %s", strings.Join(step.args, " "), missing)
				}
			}
		}
	}
	if commands < 6 {
		t.Errorf("the tutorial has %d commands only", commands)
	}
}

func shownSteps(text string) (steps []shownStep) {
	for line := range strings.Lines(text) {
		line = strings.TrimRight(line, "\n")
		if args, ours := strings.CutPrefix(line, "$ cdc-relay "); ours {
			steps = append(steps, shownStep{args: strings.Fields(args)})
		} else if len(steps) > 0 {
			last := &steps[len(steps)-1]
			last.screen = append(last.screen, line)
		}
	}
	return steps
}

// missingIn holds the lines of the page against those of the screen, in their order, and says what is
// not there. A line … stands for any lines, and … at the end of a line for the rest of it.
func missingIn(step shownStep, screen string) string {
	rest := strings.Split(screen, "\n")
	for _, want := range step.screen {
		if strings.TrimSpace(want) == "…" {
			continue
		}
		found := -1
		for i, line := range rest {
			got, expected := blurred(line), blurred(want)
			if prefix, open := strings.CutSuffix(expected, "…"); got == expected || open && strings.HasPrefix(got, prefix) {
				found = i
				break
			}
		}
		if found < 0 {
			return fmt.Sprintf("it does not show %q; it shows\n%s", want, screen)
		}
		rest = rest[found+1:]
	}
	return ""
}

// blurred is a line without what differs from run to run.
func blurred(line string) string {
	line = regexp.MustCompile(`[0-9a-f]{8}-[0-9a-f-]{27}`).ReplaceAllString(line, "UUID")
	line = regexp.MustCompile(`\b[0-9A-F]+/[0-9A-F]+\b`).ReplaceAllString(line, "LSN")
	line = regexp.MustCompile(`role "\w+"`).ReplaceAllString(line, `role "ROLE"`)
	line = regexp.MustCompile(`since \S+`).ReplaceAllString(line, "since T")
	line = regexp.MustCompile(`\d+(\.\d+)? (B|KiB|MiB)\b`).ReplaceAllString(line, "SIZE")
	return strings.Join(strings.Fields(line), " ")
}

func TestTutorial_WhatIsNotShownIsNoticed(t *testing.T) {
	if blurred("lag  1.0 KiB, since 3s at 0/1D74B00") != blurred("lag 2 B, since 10m3s at 1/0") || blurred("created slot") == blurred("created table") {
		t.Error("lines are compared wrongly")
	}
	steps := shownSteps("$ cdc-relay status\nstate  streaming\n…\n$ cdc-relay run\n")
	if len(steps) != 2 || len(steps[0].screen) != 2 || steps[1].args[0] != "run" {
		t.Errorf("got %+v", steps)
	}
}
