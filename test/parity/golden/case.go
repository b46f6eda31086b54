package golden

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// Case is one archive.
type Case struct {
	Name string
	Path string // of the archive

	Subject string
	Topics  map[string]Topic // made before the start
	Hints   Hints

	Connector []byte
	Worker    []byte // nil: the usual worker
	Schema    []Step
	Script    []Step

	Records []Record
	Schemas []byte // what the registry had in the end, a Registered a line; nil: the case has no registry
	Error   string // empty: the connector did not fail
	Digest  *Digest
}

// Registered is a schema that a converter registered.
type Registered struct {
	Subject string          `json:"subject"`
	Version int             `json:"version"`
	ID      int             `json:"id"`
	Text    json.RawMessage `json:"schema"`
}

// Topic is what a topic is made with.
type Topic struct {
	Partitions int32
	Config     map[string]string
}

// UnmarshalJSON takes a number of partitions or an object.
func (t *Topic) UnmarshalJSON(text []byte) error {
	if err := json.Unmarshal(text, &t.Partitions); err == nil {
		return nil
	}
	type plain Topic
	return json.Unmarshal(text, (*plain)(t))
}

// Hints tell the capture what is not to be seen in the records.
type Hints struct {
	VolatileValues patterns `json:"volatile_values"`
	VolatileKeys   patterns `json:"volatile_keys"`
	Collapse       pattern  `json:"collapse"` // topics whose number of records varies: the first one is stored
	Digest         bool     `json:"digest"`
	Fails          bool     `json:"fails"`         // seconds after the row that causes it
	Quiet          float64  `json:"quiet_s"`       // seconds without a record that end the capture
	StartTimeout   float64  `json:"start_timeout"` // seconds
}

// pattern is a regular expression over all of a topic's name.
type pattern struct{ *regexp.Regexp }

func (p *pattern) UnmarshalJSON(text []byte) error {
	var source string
	if err := json.Unmarshal(text, &source); err != nil {
		return err
	}
	var err error
	p.Regexp, err = regexp.Compile(`^(?:` + source + `)$`)
	return err
}

// Matches reports whether the pattern is given and fits.
func (p pattern) Matches(topic string) bool { return p.Regexp != nil && p.MatchString(topic) }

type patterns []pattern

// Matches reports whether one of them fits.
func (p patterns) Matches(topic string) bool {
	return slices.ContainsFunc(p, func(one pattern) bool { return one.Matches(topic) })
}

// Load reads one archive. A case that was never captured has no records.
func Load(path string) (*Case, error) {
	files, err := ReadFiles(path)
	if err != nil {
		return nil, err
	}
	c := &Case{Name: strings.TrimSuffix(filepath.Base(path), Ext), Path: path}
	var about struct {
		Subject string           `json:"subject"`
		Topics  map[string]Topic `json:"topics"`
		Hints
	}
	l := loader{path: path, files: files}
	l.json(About, &about)
	c.Subject, c.Topics, c.Hints = about.Subject, about.Topics, about.Hints
	c.Connector = l.required(Connector)
	c.Worker = files[Worker]
	c.Schema = l.script(Schema)
	c.Script = l.script(Script)
	c.Records = l.records(Expected)
	c.Schemas = files[ExpectedSchemas]
	c.Error = strings.TrimSpace(string(files[ExpectedError]))
	if text := files[ExpectedDigest]; text != nil {
		c.Digest = &Digest{}
		l.note(ExpectedDigest, json.Unmarshal(text, c.Digest))
	}
	return c, errors.Join(l.errs...)
}

// LoadAll reads every archive of a folder, by name.
func LoadAll(dir string) ([]*Case, error) {
	paths, err := filepath.Glob(filepath.Join(dir, "*"+Ext))
	if err != nil {
		return nil, err
	}
	if len(paths) == 0 {
		return nil, fmt.Errorf("%s has no case: no file is named *%s", dir, Ext)
	}
	slices.Sort(paths)
	var cases []*Case
	for _, path := range paths {
		c, err := Load(path)
		if err != nil {
			return nil, err
		}
		cases = append(cases, c)
	}
	return cases, nil
}

type loader struct {
	path  string
	files Files
	errs  []error
}

func (l *loader) note(name string, err error) {
	if err != nil {
		l.errs = append(l.errs, fmt.Errorf("%s: %s: %w", l.path, name, err))
	}
}

func (l *loader) required(name string) []byte {
	text, ok := l.files[name]
	if !ok {
		l.note(name, errors.New("the archive lacks this part"))
	}
	return text
}

func (l *loader) json(name string, into any) {
	if text := l.required(name); text != nil {
		l.note(name, json.Unmarshal(text, into))
	}
}

func (l *loader) script(name string) []Step {
	steps, err := ParseScript(string(l.required(name)))
	l.note(name, err)
	return steps
}

func (l *loader) records(name string) []Record {
	var records []Record
	for i, line := range bytes.Split(l.files[name], []byte("\n")) {
		if len(bytes.TrimSpace(line)) == 0 {
			continue
		}
		var r Record
		if err := json.Unmarshal(line, &r); err != nil {
			l.note(fmt.Sprintf("%s:%d", name, i+1), err)
			return nil
		}
		records = append(records, r)
	}
	return records
}

// Config is the connector's configuration.
func (c *Case) Config() (map[string]string, error) {
	var posted struct {
		Config map[string]string `json:"config"`
	}
	if err := json.Unmarshal(c.Connector, &posted); err != nil {
		return nil, fmt.Errorf("%s: %s: %w", c.Path, Connector, err)
	}
	return posted.Config, nil
}

// ConnectorWith is connector.json with other values of keys, and another name
// unless it is empty. A key that is not there is added.
func (c *Case) ConnectorWith(name string, set map[string]string) ([]byte, error) {
	var posted struct {
		Name   string            `json:"name"`
		Config map[string]string `json:"config"`
	}
	if err := json.Unmarshal(c.Connector, &posted); err != nil {
		return nil, fmt.Errorf("%s: %s: %w", c.Path, Connector, err)
	}
	if name != "" {
		posted.Name = name
	}
	for key, value := range set {
		posted.Config[key] = value
	}
	var out bytes.Buffer
	encoder := json.NewEncoder(&out)
	encoder.SetEscapeHTML(false)
	encoder.SetIndent("", "  ")
	err := encoder.Encode(posted)
	return out.Bytes(), err
}
