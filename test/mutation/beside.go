package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
)

// A package may be tested for the most part from the folder above it. gremlins runs only the
// tests of the package that it changes, so the changes it finds in lines that either tests come
// to are made here, and both tests run.

// runnable is the status of a change that is not tried yet.
const runnable = "RUNNABLE"

// swaps are what the kinds of changes make of a sign.
var swaps = map[string]map[string]string{
	"ARITHMETIC_BASE":       {"+": "-", "-": "+", "*": "/", "/": "*", "%": "*"},
	"CONDITIONALS_BOUNDARY": {">=": ">", ">": ">=", "<=": "<", "<": "<="},
	"CONDITIONALS_NEGATION": {"==": "!=", "!=": "==", ">=": "<", "<": ">=", ">": "<=", "<=": ">"},
	"INCREMENT_DECREMENT":   {"++": "--", "--": "++"},
	"INVERT_NEGATIVES":      {"-": "+"},
}

// apply makes a change in the text of its file.
func (c change) apply(source string) (string, error) {
	lines := strings.SplitAfter(source, "\n")
	if c.Line < 1 || c.Line > len(lines) || c.Column < 1 || c.Column > len(lines[c.Line-1]) {
		return "", fmt.Errorf("there is no line %d, column %d", c.Line, c.Column)
	}
	line := lines[c.Line-1]
	before, rest := line[:c.Column-1], line[c.Column-1:]
	for size := 2; size > 0; size-- { // the longer sign first
		if len(rest) < size {
			continue
		}
		if by, ok := swaps[c.Type][rest[:size]]; ok {
			lines[c.Line-1] = before + by + rest[size:]
			return strings.Join(lines, ""), nil
		}
	}
	return "", fmt.Errorf("%s does not know the sign at line %d, column %d: %.10q", c.Type, c.Line, c.Column, rest)
}

// try runs the tests of the package and of the folder above it once for each change.
func (t target) try(ctx context.Context, r *report, workers string) error {
	n, err := strconv.Atoi(workers)
	if err != nil || n <= 0 {
		n = runtime.NumCPU()
	}
	dir, err := os.MkdirTemp("", "mutation-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var wait sync.WaitGroup
	room := make(chan struct{}, n)
	for i := range r.Files {
		for j := range r.Files[i].Mutations {
			c := &r.Files[i].Mutations[j]
			if c.Status != runnable {
				continue
			}
			room <- struct{}{}
			wait.Go(func() {
				defer func() { <-room }()
				place := filepath.Join(dir, fmt.Sprintf("%d-%d", i, j))
				status, err := t.tryOne(ctx, place, filepath.Base(r.Files[i].Name), *c)
				if err != nil {
					cancel(err)
				}
				c.Status = status
				fmt.Fprintf(os.Stderr, "%-10s %s:%d:%d %s\n", status, r.Files[i].Name, c.Line, c.Column, c.Type) // it takes an hour
			})
		}
	}
	wait.Wait()
	return context.Cause(ctx)
}

// tryOne lays the changed file over the source and runs both tests. What it needs begins with
// place.
func (t target) tryOne(ctx context.Context, place, file string, c change) (status string, err error) {
	path, err := filepath.Abs(filepath.Join(t.name, file))
	if err != nil {
		return "", err
	}
	source, err := os.ReadFile(path)
	if err != nil {
		return "", err
	}
	changed, err := c.apply(string(source))
	if err != nil {
		return "", fmt.Errorf("%s: %w", path, err)
	}
	overlay, err := json.Marshal(map[string]map[string]string{"Replace": {path: place + ".go"}})
	if err != nil {
		return "", err
	}
	if err := errors.Join(os.WriteFile(place+".go", []byte(changed), 0o600), os.WriteFile(place+".json", overlay, 0o600)); err != nil {
		return "", err
	}
	for _, folder := range []string{t.name, t.beside} {
		cmd := exec.CommandContext(ctx, "go", "test", "-short", "-failfast", "-vet=off", "-timeout", "3m", "-overlay", place+".json", "./"+folder)
		cmd.Env = append(os.Environ(), "CDC_RELAY_REQUIRE=")
		if out, err := cmd.CombinedOutput(); err != nil {
			return statusOf(ctx, err, out)
		}
	}
	return "LIVED", nil
}

// statusOf is that of a change with which go test failed.
func statusOf(ctx context.Context, err error, out []byte) (status string, _ error) {
	_, ended := errors.AsType[*exec.ExitError](err)
	switch {
	case ctx.Err() != nil:
		return "", context.Cause(ctx)
	case !ended:
		return "", err
	case bytes.Contains(out, []byte("[build failed]")), bytes.Contains(out, []byte("[setup failed]")):
		return "NOT VIABLE", nil
	case bytes.Contains(out, []byte("panic: test timed out after")):
		return "TIMED OUT", nil
	}
	return "KILLED", nil
}
