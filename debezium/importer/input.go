package importer

import (
	"bytes"
	"fmt"
	"regexp"
	"strings"
	"unicode/utf8"
)

const (
	maxInput = 1 << 20
	maxKeys  = 5000
)

// property is one key of an input with its place.
type property struct {
	key, value   string
	line, column int
}

// source is an input as flat keys in their order, without the keys of its form. The prefixes of
// Debezium Server's file are still there.
type source struct {
	file  string
	form  Form
	name  string // of the connector, where the form has one beside the keys
	props []property
	index map[string]int
	twice []property        // those that a later one of the same key replaced
	shown map[string]string // what a key is called in the file, where that is not its name
	aside []property        // members beside the configuration: of a wrapper
}

func newSource(file string, form Form) *source {
	return &source{file: file, form: form, index: map[string]int{}, shown: map[string]string{}}
}

// add keeps the last of two equal keys, as Connect and java.util.Properties do.
func (s *source) add(p property) error {
	if i, twice := s.index[p.key]; twice {
		s.twice = append(s.twice, s.props[i])
		s.props[i] = p
		return nil
	}
	if len(s.props) == maxKeys {
		return &Error{File: s.file, Line: p.line, Message: fmt.Sprintf("more than %d keys: this is not a connector's configuration", maxKeys)}
	}
	s.index[p.key] = len(s.props)
	s.props = append(s.props, p)
	return nil
}

func (s *source) get(key string) (property, bool) {
	if s == nil {
		return property{}, false
	}
	i, ok := s.index[key]
	if !ok {
		return property{}, false
	}
	return s.props[i], true
}

var (
	kubernetes  = regexp.MustCompile(`(?m)^\s*["']?kind["']?\s*:\s*["']?(Kafka[A-Za-z]+)`)
	environment = regexp.MustCompile(`(?m)^\s*(?:export\s+)?DEBEZIUM_(?:SOURCE|SINK)_[A-Z0-9_]+\s*=`)
	serverKeys  = regexp.MustCompile(`(?m)^\s*debezium\.(?:source|sink)\.`)
	serverYAML  = regexp.MustCompile(`(?m)^debezium\s*:\s*$`)
)

// read takes the form from the content.
func read(file string, input []byte) (*source, error) {
	text, err := decode(file, input)
	if err != nil {
		return nil, err
	}
	switch {
	case strings.HasPrefix(strings.TrimLeft(text, " \t\r\n"), "{"):
		return readJSON(file, text)
	case strings.HasPrefix(strings.TrimLeft(text, " \t\r\n"), "["):
		return nil, &Error{File: file, Line: 1, Column: 1, Message: "is a JSON array; one connector's object is wanted, as GET /connectors/NAME answers it"}
	case kubernetes.MatchString(text):
		return readKubernetes(file, text, "KafkaConnector")
	case environment.MatchString(text):
		return readServerEnvironment(file, text)
	case serverKeys.MatchString(text):
		return readProperties(file, text, ServerProperties)
	case serverYAML.MatchString(text):
		return nil, &Error{File: file, Line: 1, Message: "Debezium Server's YAML form is not read; give application.properties, one `debezium.source.…=…` a line"}
	}
	s, err := readProperties(file, text, ConnectProperties)
	if err != nil {
		return nil, err
	}
	if _, ok := s.get("connector.class"); !ok {
		return nil, &Error{File: file, Line: 1, Message: "this is none of: a Kafka Connect connector (JSON or properties with connector.class), " +
			"Debezium Server's application.properties or environment (debezium.source.connector.class), a Strimzi KafkaConnector"}
	}
	return s, nil
}

// readWorker reads a Connect worker's settings: properties, the variables of the
// usual images, or a Strimzi KafkaConnect.
func readWorker(file string, input []byte) (*source, error) {
	text, err := decode(file, input)
	if err != nil {
		return nil, err
	}
	switch {
	case strings.HasPrefix(strings.TrimLeft(text, " \t\r\n"), "{"):
		return readJSON(file, text)
	case kubernetes.MatchString(text):
		return readKubernetes(file, text, "KafkaConnect")
	}
	s, err := readProperties(file, text, ConnectProperties)
	if err != nil {
		return nil, err
	}
	return workerVariables(s)
}

// checkWorker refuses a connector's file in the worker's place.
func checkWorker(s *source) error {
	for _, key := range []string{"connector.class", "database.hostname", "debezium.source.connector.class"} {
		if p, ok := s.get(key); ok {
			return &Error{File: s.file, Line: p.line, Column: p.column, Key: p.key, Message: "this is a connector's configuration, not the settings of a Connect worker"}
		}
	}
	return nil
}

func decode(file string, input []byte) (string, error) {
	input = bytes.TrimPrefix(input, []byte("\xef\xbb\xbf"))
	if len(input) > maxInput {
		return "", &Error{File: file, Message: "is larger than 1 MiB: this is not a connector's configuration"}
	}
	if !utf8.Valid(input) {
		i := 0
		for i < len(input) {
			r, n := utf8.DecodeRune(input[i:])
			if r == utf8.RuneError && n == 1 {
				break
			}
			i += n
		}
		line, column := lineAndColumn(string(input), i)
		return "", &Error{File: file, Line: line, Column: column, Message: "is not UTF-8 text"}
	}
	if len(bytes.TrimSpace(input)) == 0 {
		return "", &Error{File: file, Line: 1, Message: "is empty"}
	}
	return string(input), nil
}

// lineAndColumn counts lines and columns from 1.
func lineAndColumn(text string, offset int) (line, column int) {
	before := text[:min(offset, len(text))]
	return strings.Count(before, "\n") + 1, utf8.RuneCountInString(before[strings.LastIndexByte(before, '\n')+1:]) + 1
}
