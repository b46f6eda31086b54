package config

import (
	"errors"
	"fmt"
	"strings"
)

// expander replaces ${NAME}, ${NAME:-default} and ${file:/path}; $${ gives ${.
// It runs on the values of the parsed file, never on its text, so that a value
// cannot change the structure of the file.
type expander struct {
	env      map[string]string
	readFile func(string) ([]byte, error)
}

// expand names variables and files in its errors, never their content.
func (x expander) expand(text string) (string, error) {
	if !strings.Contains(text, "${") {
		return text, nil
	}
	var b strings.Builder
	for {
		i := strings.Index(text, "${")
		if i < 0 {
			b.WriteString(text)
			return b.String(), nil
		}
		if i > 0 && text[i-1] == '$' {
			b.WriteString(text[:i-1] + "${")
			text = text[i+2:]
			continue
		}
		b.WriteString(text[:i])
		name, rest, found := strings.Cut(text[i+2:], "}")
		if !found {
			return "", errors.New("${ without }; write $${ for a literal ${")
		}
		value, err := x.lookup(name)
		if err != nil {
			return "", err
		}
		b.WriteString(value)
		text = rest
	}
}

func (x expander) lookup(reference string) (string, error) {
	if path, ok := strings.CutPrefix(reference, "file:"); ok {
		content, err := readSecret(x.readFile, path)
		if err != nil {
			return "", fmt.Errorf("${file:…}: %w", err)
		}
		return content, nil
	}
	name, fallback, hasDefault := strings.Cut(reference, ":-")
	if !isVariable(name) {
		return "", errors.New("${…} holds no variable name; allowed: ${NAME}, ${NAME:-default}, ${file:/path}, and $${ for a literal ${")
	}
	value, set := x.env[name]
	switch {
	case set && (value != "" || !hasDefault):
		return value, nil
	case hasDefault:
		return fallback, nil
	}
	return "", fmt.Errorf("environment variable %s is not set; set it or write ${%s:-default}", name, name)
}

// literal is the text that expands to s.
func literal(s string) string { return strings.ReplaceAll(s, "${", "$${") }

func isVariable(name string) bool {
	for i, r := range name {
		letter := r == '_' || 'a' <= r && r <= 'z' || 'A' <= r && r <= 'Z'
		if !letter && (i == 0 || r < '0' || r > '9') {
			return false
		}
	}
	return name != ""
}
