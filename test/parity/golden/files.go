package golden

import (
	"bytes"
	"encoding/base64"
	"fmt"
	"os"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"golang.org/x/tools/txtar"
)

// Ext is how the name of a case's archive ends.
const Ext = ".txtar"

// encodedExt ends the name of a part that the archive holds in base64.
const encodedExt = ".base64"

// Names of the parts of a case, in the order of an archive.
const (
	About           = "case.json"
	Connector       = "connector.json"
	Worker          = "worker.properties"
	Schema          = "schema.sql"
	Script          = "dml.sql"
	Expected        = "expected.jsonl"
	ExpectedSchemas = "expected-schemas.jsonl"
	ExpectedError   = "expected-error.txt"
	ExpectedDigest  = "expected-digest.json"
	ExpectedNotes   = "expected-notes.json"
	ExpectedLog     = "expected-log.txt"
	RelayConfig     = "relay.yaml"
)

var parts = []string{
	About, Connector, Worker, Schema, Script, Expected, ExpectedSchemas, ExpectedError, ExpectedDigest, ExpectedNotes, ExpectedLog, RelayConfig,
}

// Files are the parts of a case by name. A part without bytes differs from a part
// that is missing.
type Files map[string][]byte

// ReadFiles reads an archive.
func ReadFiles(path string) (Files, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	files, err := ParseFiles(text)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return files, nil
}

// ParseFiles takes an archive apart. A name that no case has is an error, because
// its part would be ignored.
func ParseFiles(archive []byte) (Files, error) {
	parsed := txtar.Parse(archive)
	if len(parsed.Comment) > 0 {
		return nil, fmt.Errorf("text before the first part: put it into %s", About)
	}
	files := make(Files, len(parsed.Files))
	for _, part := range parsed.Files {
		name, encoded := strings.CutSuffix(part.Name, encodedExt)
		content := part.Data
		if encoded {
			var err error
			if content, err = base64.StdEncoding.AppendDecode(nil, content); err != nil {
				return nil, fmt.Errorf("%s: %w", part.Name, err)
			}
		}
		if content == nil {
			content = []byte{} // the part is there
		}
		if !slices.Contains(parts, name) {
			return nil, fmt.Errorf("%s: unknown part; a case has %s", part.Name, strings.Join(parts, ", "))
		}
		if _, twice := files[name]; twice {
			return nil, fmt.Errorf("%s: the archive has this part twice", name)
		}
		files[name] = content
	}
	return files, nil
}

// Format is the archive with the parts. ParseFiles gives back every byte.
func (f Files) Format() []byte {
	var archive txtar.Archive
	for _, name := range parts {
		content, ok := f[name]
		if !ok {
			continue
		}
		if !plain(content) {
			name, content = name+encodedExt, encode(content)
		}
		archive.Files = append(archive.Files, txtar.File{Name: name, Data: content})
	}
	return txtar.Format(&archive)
}

// Write writes the archive.
func (f Files) Write(path string) error { return os.WriteFile(path, f.Format(), 0o644) }

// Set replaces a part, and removes it where content is nil.
func (f Files) Set(name string, content []byte) {
	if content == nil {
		delete(f, name)
		return
	}
	f[name] = content
}

// plain reports whether an archive returns content as it is: lines of text, the
// last one ended, none of which begins another part.
func plain(content []byte) bool {
	if len(content) == 0 {
		return true
	}
	if !utf8.Valid(content) || content[len(content)-1] != '\n' {
		return false
	}
	control := func(r rune) bool { return unicode.IsControl(r) && r != '\n' && r != '\t' }
	parsed := txtar.Parse(content)
	return !bytes.ContainsFunc(content, control) && len(parsed.Files) == 0
}

// encode is content in base64, in lines.
func encode(content []byte) []byte {
	const width = 76
	text := base64.StdEncoding.AppendEncode(nil, content)
	var lines []byte
	for line := range slices.Chunk(text, width) {
		lines = append(append(lines, line...), '\n')
	}
	return lines
}
