package stage

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"

	"github.com/cdc-relay/cdc-relay/test/parity/golden"
)

// Write replaces what a case expects.
func (c *Captured) Write(into *golden.Case) error {
	records := into.Collapse(c.Records)
	var digest []byte
	if into.Hints.Digest {
		text, err := json.Marshal(golden.DigestOf(records))
		if err != nil {
			return err
		}
		digest = append(bytes.ReplaceAll(bytes.ReplaceAll(text, []byte(`":`), []byte(`": `)), []byte(`,"`), []byte(`, "`)), '\n')
		records = golden.Ends(records)
	}
	var lines strings.Builder
	for _, r := range records {
		lines.WriteString(r.Line())
	}
	notes, err := notes(c.Notes)
	if err != nil {
		return err
	}
	return errors.Join(
		os.WriteFile(filepath.Join(into.Dir, "expected.jsonl"), []byte(lines.String()), 0o644),
		replace(into.Dir, "expected-error.txt", text(c.Error)),
		replace(into.Dir, "expected-log.txt", text(strings.Join(c.Log, "\n"))),
		replace(into.Dir, "expected-notes.json", notes),
		replace(into.Dir, "expected-digest.json", digest),
	)
}

func text(s string) []byte {
	if s == "" {
		return nil
	}
	return []byte(s + "\n")
}

func notes(all []Note) ([]byte, error) {
	if len(all) == 0 {
		return nil, nil
	}
	out, err := json.MarshalIndent(all, "", " ")
	return append(out, '\n'), err
}

// replace removes a file that would be empty.
func replace(dir, name string, content []byte) error {
	file := filepath.Join(dir, name)
	if content != nil {
		return os.WriteFile(file, content, 0o644)
	}
	if err := os.Remove(file); !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return nil
}
