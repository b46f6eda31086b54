package importer

import (
	"fmt"
	"strconv"
	"strings"
	"unicode/utf16"
)

// readProperties reads java.util.Properties: `=`, `:` or space between key and value, `#` and `!`
// comments, a backslash at the end of a continued line, \uXXXX.
func readProperties(file, text string, form Form) (*source, error) {
	s := newSource(file, form)
	lines := strings.Split(strings.NewReplacer("\r\n", "\n", "\r", "\n").Replace(text), "\n")
	for i := 0; i < len(lines); i++ {
		logical := strings.TrimLeft(lines[i], " \t\f")
		first, column := i, len(lines[i])-len(logical)+1
		if logical == "" || logical[0] == '#' || logical[0] == '!' {
			continue
		}
		for continues(logical) {
			logical = logical[:len(logical)-1]
			if i+1 == len(lines) {
				break
			}
			i++
			logical += strings.TrimLeft(lines[i], " \t\f")
		}
		if err := s.addLine(logical, first+1, column); err != nil {
			return nil, err
		}
	}
	return s, nil
}

func (s *source) addLine(logical string, line, column int) error {
	end := keyEnd(logical)
	value := strings.TrimLeft(logical[end:], " \t\f")
	if value != "" && (value[0] == '=' || value[0] == ':') {
		value = strings.TrimLeft(value[1:], " \t\f")
	} else if end == len(logical) && !strings.Contains(logical, ".") {
		return &Error{File: s.file, Line: line, Column: column, Message: "is not `key=value`"}
	}
	key, bad := unescape(logical[:end])
	if bad == "" {
		value, bad = unescape(value)
	}
	if bad != "" {
		return &Error{File: s.file, Line: line, Column: column, Message: fmt.Sprintf("%s is not \\u and four hexadecimal digits", bad)}
	}
	if key == "" {
		return &Error{File: s.file, Line: line, Column: column, Message: "the key is empty"}
	}
	return s.add(property{key, value, line, column})
}

func continues(line string) bool {
	return (len(line)-len(strings.TrimRight(line, `\`)))%2 == 1
}

// keyEnd is where the key ends: at the first separator without a backslash.
func keyEnd(line string) int {
	for i := 0; i < len(line); i++ {
		switch line[i] {
		case '\\':
			i++
		case '=', ':', ' ', '\t', '\f':
			return i
		}
	}
	return len(line)
}

// unescape returns what is wrong instead of an error: the value may be a secret.
func unescape(text string) (plain, bad string) {
	if !strings.Contains(text, `\`) {
		return text, ""
	}
	var b strings.Builder
	for i := 0; i < len(text); i++ {
		if text[i] != '\\' || i+1 == len(text) {
			b.WriteByte(text[i])
			continue
		}
		i++
		switch text[i] {
		case 't':
			b.WriteByte('\t')
		case 'n':
			b.WriteByte('\n')
		case 'r':
			b.WriteByte('\r')
		case 'f':
			b.WriteByte('\f')
		case 'u':
			r, ok := hex4(text, i+1)
			if !ok {
				return "", `\u`
			}
			i += 4
			if utf16.IsSurrogate(r) && strings.HasPrefix(text[i+1:], `\u`) {
				if low, ok := hex4(text, i+3); ok && utf16.IsSurrogate(low) {
					r = utf16.DecodeRune(r, low)
					i += 6
				}
			}
			b.WriteRune(r)
		default:
			b.WriteByte(text[i])
		}
	}
	return b.String(), ""
}

func hex4(text string, at int) (rune, bool) {
	if at+4 > len(text) {
		return 0, false
	}
	n, err := strconv.ParseUint(text[at:at+4], 16, 16)
	return rune(n), err == nil
}

// readServerEnvironment reads lines of NAME=value (an env file, or the output of `env`) and names
// them as in the properties file.
func readServerEnvironment(file, text string) (*source, error) {
	s := newSource(file, ServerEnvironment)
	for i, line := range strings.Split(text, "\n") {
		trimmed := strings.TrimSpace(line)
		if trimmed == "" || trimmed[0] == '#' {
			continue
		}
		assignment := strings.TrimSpace(strings.TrimPrefix(trimmed, "export "))
		column := strings.Index(line, assignment) + 1
		name, value, found := strings.Cut(assignment, "=")
		if !found || strings.ContainsAny(name, " \t") {
			return nil, &Error{File: file, Line: i + 1, Column: column, Message: "is not `NAME=value`"}
		}
		if !strings.HasPrefix(name, "DEBEZIUM_") {
			continue
		}
		value = unquote(strings.TrimSpace(value))
		if err := s.add(property{variableKey(name), value, i + 1, column}); err != nil {
			return nil, err
		}
	}
	return s, nil
}

func unquote(value string) string {
	if len(value) >= 2 && (value[0] == '"' || value[0] == '\'') && value[len(value)-1] == value[0] {
		return value[1 : len(value)-1]
	}
	return value
}

// variableKey returns the property of a variable. An underscore stands for a dot; no key of
// Debezium contains an underscore.
func variableKey(name string) string {
	return strings.ReplaceAll(strings.ToLower(name), "_", ".")
}

// workerVariables takes the CONNECT_… and bare names that the usual images turn
// into worker settings.
func workerVariables(s *source) (*source, error) {
	bare := map[string]string{
		"BOOTSTRAP_SERVERS": "bootstrap.servers", "OFFSET_STORAGE_TOPIC": "offset.storage.topic", "GROUP_ID": "group.id",
		"KEY_CONVERTER": "key.converter", "VALUE_CONVERTER": "value.converter", "HEADER_CONVERTER": "header.converter",
	}
	out := newSource(s.file, s.form)
	out.twice = s.twice
	for _, p := range s.props {
		if key, ok := bare[p.key]; ok {
			p.key = key
		} else if name, ok := strings.CutPrefix(p.key, "CONNECT_"); ok {
			p.key = variableKey(name)
		}
		if err := out.add(p); err != nil {
			return nil, err
		}
	}
	return out, nil
}
