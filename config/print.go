package config

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"reflect"
	"regexp"
	"strconv"
	"strings"
)

// Print writes the effective configuration as a file that Load takes, with the
// origin of every value behind it and secrets as ***.
func (c *Config) Print(w io.Writer) error {
	p := printer{w: bufio.NewWriter(w), origins: c.origins}
	p.section(reflect.ValueOf(c.settings), "", "")
	return p.w.Flush()
}

type printer struct {
	w       *bufio.Writer
	origins map[string]origin
}

// section writes the keys of v. first stands before the first of them: the dash
// of a list.
func (p *printer) section(v reflect.Value, path, first string) {
	indent := strings.Repeat(" ", len(first))
	keys := keysOf(v.Type())
	for i, k := range keys {
		lead := indent
		if i == 0 {
			lead = first
		}
		p.key(k, v.Field(k.index), join(path, k.name), lead)
	}
}

func (p *printer) key(k key, v reflect.Value, path, lead string) {
	indent := strings.Repeat(" ", len(lead))
	switch {
	case k.section():
		p.line(lead+k.name+":", "")
		p.section(v, path, indent+"  ")
	case k.typ == outboxType:
		p.line(lead+k.name+":", "")
		for i := range v.Len() {
			p.section(v.Index(i), fmt.Sprintf("%s[%d]", path, i), indent+"  - ")
		}
	case k.typ == pairsType || k.typ == templatePairsType:
		p.pairs(k, v, path, lead)
	default:
		p.line(lead+k.name+": "+scalar(v, k), p.origin(path))
	}
}

func (p *printer) pairs(k key, v reflect.Value, path, lead string) {
	if v.Len() == 0 {
		p.line(lead+k.name+": {}", p.origin(path))
		return
	}
	p.line(lead+k.name+":", "")
	indent := strings.Repeat(" ", len(lead)+2)
	for i := range v.Len() {
		e := v.Index(i).Convert(reflect.TypeFor[pair]()).Interface().(pair)
		value := quote(e.Value)
		if k.typ == pairsType {
			value = quote(literal(e.Value))
		}
		at := path
		if _, ok := p.origins[join(path, e.Name)]; ok {
			at = join(path, e.Name)
		}
		p.line(indent+quote(e.Name)+": "+value, p.origin(at))
	}
}

func (p *printer) origin(path string) string { return p.origins[path].String() }

func (p *printer) line(text, comment string) {
	if comment != "" {
		// A file name or variable may hold anything but must not end the comment.
		text += "  # " + strings.Join(strings.Fields(strings.ToValidUTF8(comment, "?")), " ")
	}
	fmt.Fprintln(p.w, text)
}

// scalar is a value as the file would hold it.
func scalar(v reflect.Value, k key) string {
	switch k.typ {
	case secretType, dsnType, durationType, ageType, sizeType:
		return quote(literal(v.Interface().(fmt.Stringer).String()))
	case templateType:
		return quote(v.String())
	case textsType:
		texts := make([]string, v.Len())
		for i := range texts {
			texts[i] = quote(literal(v.Index(i).String()))
		}
		return "[" + strings.Join(texts, ", ") + "]"
	}
	switch k.typ.Kind() {
	case reflect.Bool:
		return strconv.FormatBool(v.Bool())
	case reflect.Int:
		return strconv.FormatInt(v.Int(), 10)
	case reflect.Float64:
		return strconv.FormatFloat(v.Float(), 'g', -1, 64)
	default:
		return quote(literal(v.String()))
	}
}

// plain needs no quotes wherever it stands.
var plain = regexp.MustCompile(`^[A-Za-z_/][A-Za-z0-9_./-]*(?::[A-Za-z0-9_./-]+)*$`)

// quote writes text as YAML, with quotes where it could be read as something
// else. JSON strings are YAML.
func quote(text string) string {
	switch strings.ToLower(text) {
	case "null", "true", "false", "yes", "no", "on", "off", "y", "n", "_":
	default:
		if plain.MatchString(text) || leadingDigit.MatchString(text) {
			return text
		}
	}
	var b strings.Builder
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	_ = e.Encode(text) // a string always encodes
	return strings.TrimSuffix(b.String(), "\n")
}

// leadingDigit is a duration, a size or an IPv4 address.
var leadingDigit = regexp.MustCompile(`^[0-9.]+[a-zA-Z]+[0-9a-zA-Z.]*$|^[0-9]+(\.[0-9]+){3}(:[0-9]+)?$`)
