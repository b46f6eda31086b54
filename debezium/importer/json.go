package importer

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
)

// readJSON takes a connector bare, wrapped as {"name", "config"}, or as Connect's
// REST interface answers.
func readJSON(file, text string) (*source, error) {
	r := &jsonReader{file: file, text: text, decoder: json.NewDecoder(strings.NewReader(text))}
	r.decoder.UseNumber()
	s := newSource(file, ConnectJSON)
	var wrapped *source
	kind := ""
	err := r.object(func(key string, line, column int) error {
		switch key {
		case "config":
			if wrapped != nil {
				return r.fail(key, "stands twice")
			}
			wrapped = newSource(file, ConnectJSON)
			return r.flat(wrapped, key)
		case "tasks", "metadata", "spec", "status", "apiVersion":
			s.aside = append(s.aside, property{key, "", line, column})
			return r.skip()
		}
		value, err := r.scalar(key)
		if err != nil {
			return err
		}
		if key == "kind" {
			kind = value
		}
		return s.add(property{key, value, line, column})
	})
	if err != nil {
		return nil, err
	}
	if _, err := r.decoder.Token(); !errors.Is(err, io.EOF) {
		return nil, r.fail("", "something follows the end of the JSON object")
	}
	if strings.HasPrefix(kind, "Kafka") {
		return readKubernetes(file, text, kind)
	}
	if wrapped == nil {
		return s, nil
	}
	wrapped.aside = append(s.aside, s.twice...)
	for _, p := range s.props {
		if p.key != "name" {
			wrapped.aside = append(wrapped.aside, p)
		}
	}
	if name, ok := s.get("name"); ok {
		wrapped.name = name.value
	}
	return wrapped, nil
}

type jsonReader struct {
	file, text string
	decoder    *json.Decoder
}

func (r *jsonReader) fail(key, message string) error {
	line, column := lineAndColumn(r.text, int(r.decoder.InputOffset()))
	return &Error{File: r.file, Line: line, Column: column, Key: key, Message: message}
}

// token returns the next token. It adds the place to syntax errors; their text is the decoder's
// and quotes at most one character.
func (r *jsonReader) token() (json.Token, error) {
	token, err := r.decoder.Token()
	var syntax *json.SyntaxError
	switch {
	case err == nil:
		return token, nil
	case errors.As(err, &syntax):
		line, column := lineAndColumn(r.text, int(max(syntax.Offset-1, 0)))
		return nil, &Error{File: r.file, Line: line, Column: column, Message: "cannot be read as JSON: " + syntax.Error()}
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		line, column := lineAndColumn(r.text, len(r.text))
		return nil, &Error{File: r.file, Line: line, Column: column, Message: "cannot be read as JSON: it ends too early"}
	}
	return nil, r.fail("", "cannot be read as JSON")
}

func (r *jsonReader) object(member func(key string, line, column int) error) error {
	open, err := r.token()
	if err != nil {
		return err
	}
	if open != json.Delim('{') {
		return r.fail("", "is not a JSON object")
	}
	for r.decoder.More() {
		line, column := r.next()
		key, err := r.token()
		if err != nil {
			return err
		}
		name, ok := key.(string)
		if !ok {
			return r.fail("", "a key must be text")
		}
		if err := member(name, line, column); err != nil {
			return err
		}
	}
	_, err = r.token()
	return err
}

// next is where the next token begins: after spaces and the comma.
func (r *jsonReader) next() (line, column int) {
	at := int(r.decoder.InputOffset())
	for at < len(r.text) && strings.IndexByte(" \t\r\n,", r.text[at]) >= 0 {
		at++
	}
	return lineAndColumn(r.text, at)
}

func (r *jsonReader) flat(into *source, parent string) error {
	return r.object(func(key string, line, column int) error {
		value, err := r.scalar(parent + "." + key)
		if err != nil {
			return err
		}
		return into.add(property{key, value, line, column})
	})
}

func (r *jsonReader) scalar(key string) (string, error) {
	token, err := r.token()
	if err != nil {
		return "", err
	}
	switch v := token.(type) {
	case string:
		return v, nil
	case json.Number:
		return v.String(), nil
	case bool:
		return fmt.Sprint(v), nil
	case nil:
		return "", r.fail(key, "is null; Connect needs text")
	}
	return "", r.fail(key, "is not a single value; a connector's configuration is flat")
}

func (r *jsonReader) skip() error {
	var discarded json.RawMessage
	if err := r.decoder.Decode(&discarded); err != nil {
		var syntax *json.SyntaxError
		if errors.As(err, &syntax) {
			line, column := lineAndColumn(r.text, int(max(syntax.Offset-1, 0)))
			return &Error{File: r.file, Line: line, Column: column, Message: "cannot be read as JSON: " + syntax.Error()}
		}
		return r.fail("", "cannot be read as JSON: it ends too early")
	}
	if !json.Valid(bytes.TrimSpace(discarded)) {
		return r.fail("", "cannot be read as JSON")
	}
	return nil
}
