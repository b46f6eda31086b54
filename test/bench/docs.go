package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// The part of benchmarks.md that the program writes.
const (
	page      = "benchmarks.md"
	beginMark = "<!-- results: written by test/bench, do not edit -->"
	endMark   = "<!-- end of results -->"
)

// writeDocs replaces the results in folder/benchmarks.md, and its charts and data
// in folder/benchmarks/. Sections that this run did not measure stay as
// an earlier one left them.
func (r *Results) writeDocs(folder string) error {
	before, after, err := readPage(folder)
	if err != nil {
		return err
	}
	charts := filepath.Join(folder, "benchmarks")
	if err := os.MkdirAll(charts, 0o755); err != nil {
		return err
	}
	results := resultsOf(folder)
	if old, err := readResults(results); err == nil && old.Started != r.Started {
		r.keep(old)
	} else if err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	if err := r.writeJSON(results); err != nil {
		return err
	}
	pictures := map[string][]chart{}
	for _, c := range r.charts() {
		if err := os.WriteFile(filepath.Join(charts, c.file), []byte(c.svg()), 0o644); err != nil {
			return err
		}
		pictures[c.section] = append(pictures[c.section], c)
	}
	out := before + beginMark + "\n\n" + r.markdownWith(pictures) + "\n" + after
	return os.WriteFile(filepath.Join(folder, page), []byte(out), 0o644)
}

// readPage gives what is around the results; after begins with the mark of their end.
func readPage(folder string) (before, after string, err error) {
	path := filepath.Join(folder, page)
	data, err := os.ReadFile(path)
	if err != nil {
		return "", "", err
	}
	text := string(data)
	begin, end := strings.Index(text, beginMark), strings.Index(text, endMark)
	if begin < 0 || end < begin {
		return "", "", fmt.Errorf("%s lacks the lines %q and %q, between which the results go", path, beginMark, endMark)
	}
	return text[:begin], text[end:], nil
}

func resultsOf(folder string) string { return filepath.Join(folder, "benchmarks", "results.json") }
