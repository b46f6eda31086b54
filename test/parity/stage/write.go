package stage

import (
	"bytes"
	"encoding/json"
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
	files, err := golden.ReadFiles(into.Path)
	if err != nil {
		return err
	}
	files[golden.Expected] = []byte(lines.String())
	files.Set(golden.ExpectedSchemas, c.Schemas)
	files.Set(golden.ExpectedError, text(c.Error))
	files.Set(golden.ExpectedLog, text(strings.Join(c.Log, "\n")))
	files.Set(golden.ExpectedNotes, notes)
	files.Set(golden.ExpectedDigest, digest)
	return files.Write(into.Path)
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
