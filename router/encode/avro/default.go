package avro

import (
	"encoding/json"
	"errors"
	"maps"
	"slices"

	"github.com/cdc-relay/cdc-relay/router/encode/tape"
)

var (
	errDefault = errors.New("is not of the field's type")
	errLarge   = errors.New("makes the defaults of the schema larger than 4 MiB")
	errTries   = errors.New("takes too many tries: unions have branches that look alike, and double them at each level")
)

// maxDefaults bounds what the defaults of a schema take. One that holds others may double at each level.
const maxDefaults = 4 << 20

// maxTries bounds how many branches of unions the defaults of a schema are held against: those that look
// alike double them at each level.
const maxTries = 1 << 20

// appendDefault writes a default, as the schema has it.
func (c *Compiler) appendDefault(dst []byte, t *avroType, v any, depth int) ([]byte, error) {
	if depth > tape.MaxDepth {
		return dst, errors.New("lies deeper than 256 levels")
	}
	if t.form == formUnion {
		for i, b := range t.branches {
			if c.tries++; c.tries > maxTries {
				return dst, errDefault
			}
			if out, err := c.appendDefault(appendLong(dst, int64(i)), b, v, depth+1); err == nil {
				return out, nil
			}
		}
		return dst, errDefault
	}
	switch v := v.(type) {
	case nil:
		if t.form == formNull {
			return dst, nil
		}
	case bool:
		if t.form == formBoolean {
			return appendBool(dst, v), nil
		}
	case json.Number:
		if t.form != formDecimal {
			return t.fromNumber(dst, []byte(v))
		}
	case string:
		if symbol, ok := t.symbols[v]; ok && t.form == formEnum {
			return appendLong(dst, symbol), nil
		}
		if t.form == formString || t.form == formUUID && t.size == 0 {
			return append(appendLong(dst, int64(len(v))), v...), nil
		}
		if t.size > 0 || t.form == formBytes || t.form == formDecimal { // a character a byte
			as := avroType{form: formBytes, name: t.name, size: t.size}
			if t.size > 0 {
				as.form = formFixed
			}
			return as.appendBytes(dst, []byte(v))
		}
	case []any:
		if t.form == formArray {
			return c.appendDefaults(dst, t.inner, v, depth)
		}
	case map[string]any:
		return c.appendDefaultMembers(dst, t, v, depth)
	}
	return dst, errDefault
}

func (c *Compiler) appendDefaults(dst []byte, t *avroType, v []any, depth int) (_ []byte, err error) {
	if len(v) > 0 {
		dst = appendLong(dst, int64(len(v)))
	}
	for _, one := range v {
		if dst, err = c.appendDefault(dst, t, one, depth+1); err != nil {
			return dst, err
		}
	}
	return append(dst, 0), nil
}

func (c *Compiler) appendDefaultMembers(dst []byte, t *avroType, v map[string]any, depth int) (_ []byte, err error) {
	switch t.form {
	case formMap:
		if len(v) > 0 {
			dst = appendLong(dst, int64(len(v)))
		}
		for _, key := range slices.Sorted(maps.Keys(v)) {
			dst = append(appendLong(dst, int64(len(key))), key...)
			if dst, err = c.appendDefault(dst, t.inner, v[key], depth+1); err != nil {
				return dst, err
			}
		}
		return append(dst, 0), nil
	case formRecord:
		for i := range t.fields {
			f := &t.fields[i]
			one, ok := v[f.name]
			switch {
			case ok:
				if dst, err = c.appendDefault(dst, f.typ, one, depth+1); err != nil {
					return dst, err
				}
			case len(dst)+len(f.fallback) > maxDefaults:
				return dst, errLarge
			case f.fallback != nil:
				dst = append(dst, f.fallback...)
			default:
				return dst, errDefault
			}
		}
		return dst, nil
	default:
		return dst, errDefault
	}
}
