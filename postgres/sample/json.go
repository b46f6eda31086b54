package sample

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/cdc-relay/cdc-relay/replication/wal"
)

// ParseRow makes a row of a JSON object of column and value. missing are the
// columns that it leaves out, which are NULL. The sample of a logical message is
// its body.
func ParseRow(rel *wal.Relation, content []byte, message bool) (row *wal.Row, missing []string, err error) {
	var members map[string]json.RawMessage
	if err := json.Unmarshal(content, &members); err != nil || members == nil {
		return nil, nil, notSample(content, err)
	}
	row = &wal.Row{Txn: &wal.Txn{Time: time.Now()}, Ordinal: 1, Relation: rel}
	if message {
		members = map[string]json.RawMessage{rel.Columns[0].Name: bytes.TrimSpace(content)}
	}
	names := make([]string, 0, len(rel.Columns))
	for _, c := range rel.Columns {
		names = append(names, c.Name)
		raw, given := members[c.Name]
		delete(members, c.Name)
		if !given {
			missing = append(missing, c.Name)
		}
		value := wal.Value{Kind: wal.Null}
		if given && string(raw) != "null" {
			text, err := sampleText(c, raw)
			if err != nil {
				return nil, nil, fmt.Errorf("column %q: %w", c.Name, err)
			}
			value = wal.Value{Kind: wal.Text, Data: text}
		}
		row.Values = append(row.Values, value)
	}
	for name := range members {
		return nil, nil, fmt.Errorf("the table has no column %q; it has %s", name, strings.Join(names, ", "))
	}
	return row, missing, nil
}

// notSample says where the content stops being one JSON object.
func notSample(content []byte, err error) error {
	const want = "it has to be one JSON object of column and value, such as {\"id\": \"…\", \"payload\": {}}"
	syntax, ok := errors.AsType[*json.SyntaxError](err)
	if !ok {
		return errors.New(want)
	}
	before := content[:min(max(int(syntax.Offset)-1, 0), len(content))]
	line := bytes.Count(before, []byte("\n")) + 1
	column := len(before) - bytes.LastIndexByte(before, '\n')
	return fmt.Errorf("line %d, column %d: %w; %s", line, column, syntax, want)
}

// sampleText is a value as PostgreSQL would print it in a column of that type.
func sampleText(c wal.Column, raw json.RawMessage) ([]byte, error) {
	structured := raw[0] == '{' || raw[0] == '['
	switch c.TypeName {
	case "json", "jsonb":
		// A row that was exported by something else may hold the document as text.
		var text string
		if json.Unmarshal(raw, &text) == nil && strings.ContainsAny(text[:min(1, len(text))], "{[") && json.Valid([]byte(text)) {
			return []byte(text), nil
		}
		return raw, nil
	case "_text", "_varchar":
		if raw[0] == '[' {
			return arrayText(raw)
		}
	case "bool":
		switch string(raw) {
		case "true", `"t"`, `"true"`:
			return []byte("t"), nil
		case "false", `"f"`, `"false"`:
			return []byte("f"), nil
		}
		return nil, fmt.Errorf("%s is neither true nor false; write one of these", raw)
	case "bytea":
		return bytesText(raw)
	}
	if raw[0] != '"' {
		if structured && !slices.Contains([]string{"text", "varchar", "bpchar"}, c.TypeName) {
			return nil, fmt.Errorf("a JSON %s is not a value of type %s; write the value as PostgreSQL prints it, as a string", map[bool]string{true: "object", false: "array"}[raw[0] == '{'], c.TypeName)
		}
		return raw, nil
	}
	var text string
	err := json.Unmarshal(raw, &text)
	return []byte(text), err
}

// bytesText takes PostgreSQL's own form, \x and hex digits, and else the text's
// bytes.
func bytesText(raw json.RawMessage) ([]byte, error) {
	data := []byte(raw)
	if raw[0] == '"' {
		var text string
		if err := json.Unmarshal(raw, &text); err != nil {
			return nil, err
		}
		if digits, ok := strings.CutPrefix(text, `\x`); ok {
			if _, err := hex.DecodeString(digits); err != nil {
				return nil, errors.New(`it begins with \x and is not hexadecimal; write pairs of hex digits after it`)
			}
			return []byte(strings.ToLower(text)), nil
		}
		data = []byte(text)
	}
	return []byte(`\x` + hex.EncodeToString(data)), nil
}

func arrayText(raw json.RawMessage) ([]byte, error) {
	var items []*string
	if err := json.Unmarshal(raw, &items); err != nil {
		return nil, errors.New("an array of text holds strings and nulls only; write the others as strings")
	}
	parts := make([]string, len(items))
	for i, item := range items {
		parts[i] = "NULL"
		if item != nil {
			parts[i] = `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(*item) + `"`
		}
	}
	return []byte("{" + strings.Join(parts, ",") + "}"), nil
}
